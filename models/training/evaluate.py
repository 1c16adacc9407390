"""How well the checkpoint does on held-out prompts: `python -m forkroot.models.training.evaluate`.

Every prompt comes from the held-out side of the world: its made-up words, or for closed tasks the
whole prompt, never occur in training text. Answers are decoded greedily by transformers, and scored
by exact match unless a row says otherwise. The result is EVAL.md beside the checkpoint.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer

from .exams import QUESTIONS, Exam, Question, exams_of
from .report import Row, report
from .train import TINY, runs_of

BATCH_SIZE = 25


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
            **encoded, max_new_tokens=longest + 24, do_sample=False
        )
        texts = self.tokenizer.batch_decode(out[:, encoded["input_ids"].shape[1] :])
        return [text.replace(self.tokenizer.pad_token, "") for text in texts]


def ask(student: Student, question: Question, count: int, seed: int, show: int) -> Row:
    """Score one question on `count` exams; print the first `show` wrong answers."""
    exams, scores, said = exams_of(question, count, seed), list[float](), list[str]()
    for start in range(0, len(exams), BATCH_SIZE):
        batch = exams[start : start + BATCH_SIZE]
        for exam, text in zip(batch, student.answers(batch), strict=True):
            said.append(text)
            scores.append(question.score(text, exam.answer))
            if scores[-1] < 1 and show > 0:
                show -= 1
                tqdm.write(f"--- {exam.prompt[-300:]}\n>>> {text!r}\n!!! {exam.answer!r}")
    share = sum(scores) / len(scores)
    return Row(question.title, len(scores), share, question.bar, exams[0], said[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m forkroot.models.training.evaluate", description=__doc__
    )
    parser.add_argument("--folder", type=Path, default=TINY)
    parser.add_argument("--count", type=int, default=250, help="prompts per task")
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--only", default="", help="part of the titles to ask")
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per task")
    args = parser.parse_args()
    student, rows = Student(args.folder), list[Row]()
    for question in tqdm([q for q in QUESTIONS if args.only in q.title]):
        rows.append(ask(student, question, args.count, args.seed, args.show))
        row = rows[-1]
        tqdm.write(f"{row.title:40} {row.asked:4} {row.share:.3f} {row.verdict}")
    if not args.only:
        text = report(rows, args.seed, runs_of(args.folder), student.model.num_parameters())
        (args.folder / "EVAL.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
