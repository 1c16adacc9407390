"""The programs, in the native language. Each is one of the paper's workloads (its section 6.1).

`listings/` has the same programs in other languages and over OpenAI's API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from forkroot import ProgramState, function, gen, select

LETTERS = (" A", " B", " C", " D")


@function
def few_shot(s: ProgramState, shots: str, question: str) -> None:
    """5-shot MMLU: one token."""
    s += shots + question
    s += gen("answer", max_tokens=1)


@function
def best_ending(s: ProgramState, shots: str, context: str, endings: Sequence[str]) -> None:
    """20-shot HellaSwag: the most likely of four endings."""
    s += shots + context
    s += select("ending", endings)


@function
def worked_answer(s: ProgramState, shots: str, question: str, length: int) -> None:
    """GSM8K: a chain of thought behind worked examples."""
    s += shots + question
    s += gen("answer", max_tokens=length, stop="\n")


@function
def react(
    s: ProgramState, shots: str, question: str, steps: Sequence[Mapping[str, str]], length: int
) -> list[str]:
    """A ReAct agent whose trace is replayed: what it writes is kept aside."""
    s += shots + question
    written = []
    for number, step in enumerate(steps, 1):
        s += f"\nThought {number}:"
        (attempt,) = s.fork(1)
        attempt += gen("step", max_tokens=length, stop="\nObservation")
        written.append(attempt["step"])
        s += step["written"] + step["observed"]
    return written


@function
def town_event(s: ProgramState, template: str, length: int) -> None:
    """One call of the generative agents."""
    s += template
    s += gen("answer", max_tokens=length, stop="\n")


@function
def tree_of_thought(
    s: ProgramState, shots: str, question: str, widths: Sequence[int], length: int
) -> None:
    """Plans, solutions of each, and judgements of these; the answers vote."""
    s += shots + question
    found: list[str] = []
    plans = s.fork(widths[0])
    for number, plan in enumerate(plans, 1):
        plan += f"\nPlan {number}:" + gen("plan", max_tokens=length, stop="\n")
        solutions = plan.fork(widths[1])
        for way, solution in enumerate(solutions, 1):
            solution += f"\nWay {way}:\nAnswer:"
            solution += gen("solution", max_tokens=length, stop="\n")
            judgements = solution.fork(widths[2])
            for judge, judgement in enumerate(judgements, 1):
                judgement += f"\nJudge {judge}: the answer is"
                judgement += gen("grade", max_tokens=4)
            found += [judgement["grade"] for judgement in judgements]
    s += "\nThe answer is" + Counter(found).most_common(1)[0][0]


@function
def skeleton_of_thought(
    s: ProgramState, shots: str, topic: str, num: int, short: int, long: int
) -> None:
    """Short tips in a row, each expanded in a branch of its own."""
    s += f"{shots}Topic: {topic}\n{num} tips:\n"
    for number in range(1, num + 1):
        s += f"{number}." + gen(f"tip {number}", max_tokens=short, stop="\n") + "\n"
    branches = s.fork(num)
    for number, branch in enumerate(branches, 1):
        branch += f"\nExpand tip {number}:"
        branch += gen("expansion", max_tokens=long, stop="\n")
    for number, branch in enumerate(branches, 1):
        s += f"\n{number}." + branch["expansion"]
    branches.join()


@function
def judge(s: ProgramState, rubric: str, essay: str, dimensions: Sequence[str], length: int) -> None:
    """Branch, solve, merge: dimensions in branches, a summary and a grade of all."""
    s += rubric + essay + "\nRelated: yes"
    branches = s.fork(len(dimensions))
    for branch, dimension in zip(branches, dimensions, strict=True):
        branch += f"\n{dimension}:" + gen("judgement", max_tokens=length, stop="\n")
    for branch, dimension in zip(branches, dimensions, strict=True):
        s += f"\n{dimension}:" + branch["judgement"]
    branches.join()
    s += "\nSummary:" + gen("summary", max_tokens=length, stop="\n")
    s += "\nGrade:" + gen("grade", max_tokens=2, stop="\n")


@function
def character(s: ProgramState, text: str, pattern: str) -> None:
    """A record of eleven fields by a regular expression."""
    s += text + "\nJSON:"
    s += gen("record", max_tokens=320, regex=pattern)


@function
def city(s: ProgramState, document: str, fields: Sequence[str], length: int) -> None:
    """Fields of a document, one after another, with the record's text between them."""
    s += document + "\nJSON: {"
    for number, name in enumerate(fields):
        s += (", " if number else "") + f'"{name}":'
        s += gen(name, max_tokens=length, stop=[",", "}"])
    s += "}"


@function
def chat(s: ProgramState, turns: Sequence[str], length: int) -> None:
    """Turns of a conversation, each behind all before."""
    for number, turn in enumerate(turns):
        s += f"\nUser: {turn}\nAssistant:"
        s += gen(f"answer {number}", max_tokens=length, ignore_eos=True)


@function
def extraction(s: ProgramState, example: str, passage: str, name: str, age: int) -> None:
    """Three fields of a passage, each a call."""
    s += f'{example}{passage}\nJSON: {{"name": "{name}", "age": {age}, "job": "'
    s += gen("job", max_tokens=12, stop='"') + '", "city": "'
    s += gen("city", max_tokens=24, stop='"') + '", "house": "'
    s += gen("house", max_tokens=12, stop='"') + '"}'


@function
def ask_picture(s: ProgramState, shown: Any, question: str, length: int) -> None:
    """A question about a picture or a clip."""
    s += shown
    s += f"\nQuestion: {question}\nAnswer:"
    s += gen("answer", max_tokens=length, stop="\n")
