"""Questions behind examples: MMLU, HellaSwag, GSM8K."""

from __future__ import annotations

import re
from typing import Any

from forkroot.models.training.world.knowledge import choice_facts, word_problem
from forkroot.models.training.world.people import reading_question

from . import native, sources
from .texts import Texts
from .workload import Workload, is_equal

SHOTS, ENDING_SHOTS = 5, 20
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_ASKED = re.compile(r"Question: [^\n]*\nAnswer:")


def mmlu(texts: Texts) -> Workload:
    """5-shot MMLU, one token."""
    source, subjects = sources.mmlu(texts.settings.data)
    num_subjects, num_questions = texts.num(1, 2, 12), texts.num(2, 4, 10)
    items, truths = [], list[str]()
    if not subjects:
        items, truths = _made_up_choices(texts, num_subjects * num_questions)
    for name, (shots, questions) in list(subjects.items())[:num_subjects]:
        head = (
            f"The following are multiple choice questions (with answers) about {_words(name)}.\n\n"
        )
        some = [question for question in questions if question not in shots][:num_questions]
        rest = max(texts.size(_choice(*question[:2])) for question in some) + 2
        shown = [_choice(*shot[:2]) + f" {shot[2]}\n\n" for shot in shots[:SHOTS]]
        before = head + texts.fit(shown, rest + texts.size(head))
        items += [{"shots": before, "question": _choice(*it[:2])} for it in some]
        truths += [it[2] for it in some]
    return Workload(
        "mmlu",
        "MMLU, 5-shot",
        native.few_shot,
        items,
        lambda state: str(state["answer"]),
        source,
        truths,
        is_equal,
        width=32,
    )


def _made_up_choices(texts: Texts, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    shots = "".join(it.text.strip() + "\n\n" for it in texts.documents(choice_facts, 2))
    found = texts.exams(choice_facts, count)
    questions = [prompt.split("\n\n")[-1] for prompt, _ in found]
    items = [{"shots": texts.fit([shots], 300), "question": text} for text in questions]
    return items, [answer.strip() for _, answer in found]


def _choice(question: str, options: list[str]) -> str:
    shown = "".join(f"\n{letter}. {it}" for letter, it in zip("ABCD", options, strict=True))
    return f"{question}{shown}\nAnswer:"


def _words(name: str) -> str:
    return name.replace("_", " ")


def hellaswag(texts: Texts) -> Workload:
    """20-shot HellaSwag: the most likely of four endings."""
    source, found = sources.hellaswag(texts.settings.data)
    count = texts.num(2, 4, 60)
    if found:
        shown = [f"{it['ctx']} {it['endings'][it['label']]}\n" for it in found[:ENDING_SHOTS]]
        asked = found[ENDING_SHOTS : ENDING_SHOTS + count]
        items = [
            {"context": it["ctx"], "endings": [f" {end}" for end in it["endings"]]} for it in asked
        ]
        truths = [items[index]["endings"][it["label"]] for index, it in enumerate(asked)]
    else:
        shown = [document.text.strip() + "\n\n" for document in _readings(texts, ENDING_SHOTS)]
        items, truths = _made_up_endings(texts, count)
    longest = max(texts.size(it["context"] + max(it["endings"], key=len)) for it in items)
    before = texts.fit(shown, longest + 8)
    return Workload(
        "hellaswag",
        "HellaSwag, 20-shot, select",
        native.best_ending,
        [{"shots": before, **item} for item in items],
        lambda state: str(state["ending"]),
        source,
        truths,
        is_equal,
        frozenset({"score"}),
        16,
    )


def _readings(texts: Texts, count: int) -> list[Any]:
    return texts.documents(reading_question, count)


def _made_up_endings(texts: Texts, count: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Questions about a passage; the wrong endings answer other questions."""
    found = texts.exams(reading_question, 4 * count)
    answers = sorted({answer.rstrip() for _, answer in found})
    items, truths = [], list[str]()
    for prompt, answer in found[:count]:
        right = answer.rstrip()
        endings = [*texts.rng.sample([it for it in answers if it != right], 3), right]
        texts.rng.shuffle(endings)
        passage, asked = prompt.split("\nQuestion:", 1)[0], _ASKED.findall(prompt)[-1]
        items.append({"context": f"{passage}\n{asked}", "endings": endings})
        truths.append(right)
    return items, truths


def gsm8k(texts: Texts) -> Workload:
    """GSM8K with worked examples."""
    source, pairs = sources.gsm8k(texts.settings.data)
    length = 96
    if pairs:
        shown = [f"Q: {question}\nA: {_line(answer)}\n\n" for question, answer in pairs[:5]]
        asked = pairs[5 : 5 + texts.num(1, 8, 40)]
        items = [{"question": f"Q: {question}\nA:"} for question, _ in asked]
        truths = [answer for _, answer in asked]
    if len(pairs) < 5 + texts.num(1, 8, 40):  # the package has eight: three questions are left
        made, answers = problems(texts, texts.num(1, 8, 40) - max(0, len(pairs) - 5))
        shown_made = [
            document.text.strip() + "\n\n" for document in texts.documents(word_problem, 2)
        ]
        shown = [*shown, *shown_made] if pairs else shown_made
        items = [*(items if pairs else []), *made]
        truths = [*(truths if pairs else []), *answers]
        source = f"{source}, and {len(made)} made up" if pairs else source
    before = texts.fit(shown, length + max(texts.size(it["question"]) for it in items) + 8)
    return Workload(
        "gsm8k",
        "GSM8K, chain of thought",
        native.worked_answer,
        [{"shots": before, "length": length, **item} for item in items],
        lambda state: str(state["answer"]),
        source,
        truths,
        same_number,
        width=16,
    )


def problems(texts: Texts, count: int) -> tuple[list[dict[str, str]], list[str]]:
    """Word problems of the made-up world, and their worked answers."""
    found = texts.exams(word_problem, count)
    return [{"question": prompt.split("\n\n")[-1]} for prompt, _ in found], [it for _, it in found]


def _line(text: str) -> str:
    return " ".join(text.split())


def same_number(text: str, truth: str) -> float:
    """Whether the last number of a text is that of the right answer."""
    found, right = _NUMBER.findall(text), _NUMBER.findall(truth.replace(",", ""))
    return float(bool(found) and bool(right) and float(found[-1]) == float(right[-1]))
