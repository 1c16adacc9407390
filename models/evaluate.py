"""How well the checkpoint does on held-out prompts: `python -m forkroot.models.evaluate`, which
writes EVAL.md.

Every prompt comes from the held-out side of the world: its made-up words, or for closed tasks the
whole prompt, never occur in training text. Answers are decoded greedily by transformers, and scored
by exact match unless a row says else.
"""

import argparse
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from . import chat, judging, knowledge, people, react
from .document import BOS, END_TURN, Document, Pen
from .train import TINY
from .world import documents

REACT_STEP = re.compile(r" [^\n]+\nAction \d+: (Search|Finish)\[[^\]\n]+\]")


class Exam(NamedTuple):
    """A prompt, with its beginning-of-text token, and the text that should follow."""

    prompt: str
    answer: str


class Row(NamedTuple):
    """A line of the report: what was asked how often, the share right, and the bar if any."""

    title: str
    asked: int
    share: float
    bar: float | None


def last_exam(doc: Document) -> list[Exam]:
    return every_exam(doc)[-1:]


def every_exam(doc: Document) -> list[Exam]:
    """Each answer of the document, after all text before it."""
    return [Exam(BOS + prompt, answer) for prompt, answer in doc.exams]


def exact(text: str, answer: str) -> float:
    """Whether the text is the answer, up to what cannot belong to it any more."""
    goes_on = answer[-1].isalnum() and text[len(answer) :][:1].isalnum()
    return float(text.startswith(answer) and not goes_on)


def json_fields(text: str, answer: str) -> float:
    """The share of the answer's JSON fields that the text has exactly."""
    expected: dict[str, object] = json.loads(answer)
    try:
        found, _ = json.JSONDecoder().raw_decode(text.strip())
    except json.JSONDecodeError:
        return 0.0
    if not isinstance(found, dict):
        return 0.0
    right = sum(bool(found.get(key) == value) for key, value in expected.items())
    return right / len(expected)


def json_record(text: str, answer: str) -> float:
    return float(json_fields(text, answer) == 1)


def react_format(text: str, _answer: str) -> float:
    return float(REACT_STEP.match(text) is not None)


def ends_by_itself(text: str, _answer: str) -> float:
    return float(END_TURN in text)


def argument(text: str, answer: str) -> float:
    """Whether the tool call of the text is the call of the answer."""
    return float(text.split("</tool_call>")[0] == answer.split("</tool_call>")[0])


TEMPLATE = """\
# What the embedded model can do

Measured by `python -m forkroot.models.evaluate` (seed {seed}) with transformers, greedy, in fp32,
on held-out prompts: their made-up names, towns and words, or for the closed tasks (capitals, facts,
arithmetic, tips) the whole prompts, occur nowhere in the training text. Jobs, houses, ages and
grades come from closed lists, paired at random.

| Task | Prompts | Right | Bar |
|---|---|---|---|
{table}

## How it was made

`python -m forkroot.models.train` from seed {made[seed]}: {made[steps]} steps,
{made[tokens]:,} tokens with padding, {made[minutes]} minutes on one CPU core in bfloat16.
{num_parameters:,} parameters (embeddings tied). Muon at {made[muon_rate]} for the matrices, AdamW
at {made[adam_rate]} for the rest, falling to zero over the last {made[decay_steps]} steps. All text
is written by `models/world.py`; no other data and no other model was used. The network starts with
a rough copying circuit (`plant_induction`) and with like embeddings for like spellings
(`plant_spelling`); without them copying did not appear in time. The proportions of the tasks
(`MIX`) were set as they stand after a third of the run; until then reading in sentences had the
greatest share, and some easier forms of multiple choice and of telling were missing.

## Format

ChatML, with `<|im_end|>` and `<|end_of_text|>` as ends. Plain encoding adds `<|begin_of_text|>` by
itself; the chat template writes it into its text, so encode a rendered template with
`add_special_tokens=False`. Digits are single tokens.
"""


class Question(NamedTuple):
    """What to ask and how to score it; `keep` chooses among the exams of a task."""

    title: str
    task: Callable[[Pen], Document]
    score: Callable[[str, str], float] = exact
    bar: float | None = None
    exams: Callable[[Document], list[Exam]] = last_exam
    keep: Callable[[Exam], bool] = lambda exam: True


def is_call(exam: Exam) -> bool:
    return exam.answer.startswith("<tool_call>")


def is_foreign_call(exam: Exam) -> bool:
    return is_call(exam) and not exam.answer.isascii()


def is_judgment(exam: Exam) -> bool:
    return exam.answer[:6] in (" good,", " poor,")


QUESTIONS = (
    Question("Reading: JSON, fields exact", people.reading_json, json_fields, 0.90),
    Question("Reading: JSON, all fields exact", people.reading_json, json_record),
    Question("Reading: question and answer", people.reading_question),
    Question("Multiple choice, answer in context", people.choice_reading, bar=0.95),
    Question("Multiple choice, known facts", knowledge.choice_facts),
    Question("Capitals", knowledge.capitals, bar=0.95),
    Question("ReAct: format of a step", react.react, react_format, 0.95, every_exam),
    Question("ReAct: step exact", react.react, exams=every_exam),
    Question("Chat: turn ends by itself", chat.chat, ends_by_itself, 0.99),
    Question("Chat: reply exact", chat.chat),
    Question("Tool call: argument copied", chat.tools, argument, 0.90, every_exam, is_call),
    Question(
        "Tool call: argument copied, not Latin",
        chat.tools,
        argument,
        None,
        every_exam,
        is_foreign_call,
    ),
    Question("Colours, sounds, translations", knowledge.facts),
    Question("Arithmetic", knowledge.arithmetic),
    Question("Word problems with reasoning", knowledge.word_problem),
    Question("Sentiment and grades of reviews", judging.sentiment),
    Question("Essay judge: judgments", judging.essay_judge, exams=every_exam, keep=is_judgment),
    Question("Essay judge: everything", judging.essay_judge, exams=every_exam),
    Question("Tips and their expansion", knowledge.tips),
    Question("DSPy chat format", chat.dspy),
)


class Student:
    """The checkpoint, answering greedily."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    @torch.no_grad()
    def answers(self, exams: list[Exam]) -> list[str]:
        """What the model says to each prompt, special tokens included, padding not; a little longer
        than asked.
        """
        encoded = self.tokenizer(
            [e.prompt for e in exams], return_tensors="pt", padding=True, add_special_tokens=False
        )
        longest = max(len(self.tokenizer.encode(e.answer)) for e in exams)
        out: torch.Tensor = self.model.generate(
            **encoded, max_new_tokens=longest + 4, do_sample=False
        )
        texts = self.tokenizer.batch_decode(out[:, encoded["input_ids"].shape[1] :])
        return [text.replace(self.tokenizer.pad_token, "") for text in texts]


def exams_of(question: Question, count: int, seed: int) -> list[Exam]:
    """`count` distinct held-out exams, shortest prompt first."""
    found: dict[str, Exam] = {}
    for doc in itertools.islice(documents(seed, True, {question.task: 1.0}), 50 * count):
        found.update((exam.prompt, exam) for exam in question.exams(doc) if question.keep(exam))
        if len(found) >= count:
            break
    return sorted(itertools.islice(found.values(), count), key=lambda exam: len(exam.prompt))


def ask(
    student: Student, question: Question, count: int, seed: int, show: int = 0, batch_size: int = 25
) -> Row:
    """Score one question; prints the first `show` wrong answers."""
    exams, scores = exams_of(question, count, seed), list[float]()
    for start in range(0, len(exams), batch_size):
        batch = exams[start : start + batch_size]
        for exam, text in zip(batch, student.answers(batch), strict=True):
            scores.append(question.score(text, exam.answer))
            if scores[-1] < 1 and show > 0:
                show -= 1
                tqdm.write(
                    f"--- {question.title}\n{exam.prompt[-300:]}\n>>> {text!r}\n!!! {exam.answer!r}"
                )
    return Row(question.title, len(scores), sum(scores) / len(scores), question.bar)


def report(rows: list[Row], seed: int, student: "Student", folder: Path) -> str:
    """EVAL.md: one table, how it was measured, and how the checkpoint was made."""
    lines = [f"| {r.title} | {r.asked} | {r.share:.3f} | {verdict(r)} |" for r in rows]
    made = json.loads((folder / "training.json").read_text())
    size = student.model.num_parameters()
    return TEMPLATE.format(table="\n".join(lines), seed=seed, made=made, num_parameters=size)


def verdict(row: Row) -> str:
    if row.bar is None:
        return ""
    return f"≥ {row.bar:.2f}: {'met' if row.share >= row.bar else 'MISSED'}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m forkroot.models.evaluate", description=__doc__)
    parser.add_argument("--folder", type=Path, default=TINY)
    parser.add_argument("--count", type=int, default=250, help="prompts per task")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the titles to ask")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per task")
    args = parser.parse_args()
    student, rows = Student(args.folder), list[Row]()
    for question in tqdm([q for q in QUESTIONS if args.only in q.title]):
        rows.append(ask(student, question, args.count, args.seed, args.show))
        tqdm.write(
            f"{rows[-1].title:40} {rows[-1].asked:4} {rows[-1].share:.3f} {verdict(rows[-1])}"
        )
    if not args.only:
        (args.folder / "EVAL.md").write_text(
            report(rows, args.seed, student, args.folder), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
