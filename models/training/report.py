"""EVAL.md: what was asked, how much was right, how the checkpoint was made, and examples."""

import itertools
from typing import Any, NamedTuple

from .exams import Exam
from .world.data import table_of
from .world.document import BOS

_DATA = table_of(__file__)


class Row(NamedTuple):
    """A line of the report: what was asked how often, the share right, the bar, an example."""

    title: str
    asked: int
    share: float
    bar: float | None
    exam: Exam
    said: str

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return f"≥ {self.bar:.2f}: {'met' if self.share >= self.bar else 'MISSED'}"

    @property
    def line(self) -> str:
        return f"| {self.title} | {self.asked} | {self.share:.3f} | {self.verdict} |"

    @property
    def example(self) -> str:
        prompt = self.exam.prompt.removeprefix(BOS)
        return f"### {self.title}\n\n````text\n{prompt}⟶{self.said}\n````\n"


def report(rows: list[Row], seed: int, runs: list[dict[str, Any]], num_parameters: int) -> str:
    """The whole of EVAL.md; runs: that made the checkpoint, oldest first, as its training.json
    tells them."""
    news = itertools.chain(_DATA["news"], itertools.repeat(""))
    later = zip(runs[1:], news, strict=False)
    text: str = _DATA["template"].format(
        table="\n".join(row.line for row in rows),
        examples="\n".join(row.example for row in rows),
        seed=seed,
        first=runs[0],
        later="".join(_DATA["later"].format(news=new, **run) for run, new in later),
        num_parameters=num_parameters,
    )
    return text
