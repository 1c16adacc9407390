"""Short essays with visible merits, judged in the words of `examples/essay_judge.py`."""

import random
from dataclasses import dataclass
from pathlib import Path

from ....examples.essay_judge import DIMENSIONS, QUESTION
from .data import table_of
from .facts import Words

_DATA = table_of(__file__)


@dataclass(frozen=True, slots=True)
class Essay:
    """An essay as it is given to the judge, and the marks (1 good, 0 poor) that its text earns."""

    topic: str
    text: str
    related: bool
    marks: dict[str, int]
    count: str  # what the essay counts, such as "38 parents"

    @property
    def question(self) -> str:
        return QUESTION.format(topic=self.topic, essay=self.text)

    def judgment(self, dimension: str) -> str:
        """The judge's line on one dimension, with its leading space and without its newline."""
        if dimension == "Evidence":
            has_counts = self.marks[dimension]
            return f" good, it counts {self.count}." if has_counts else " poor, it only claims."
        line: str = _DATA["marks"][dimension][self.marks[dimension]]
        return line

    @property
    def summary(self) -> str:
        clarity, evidence, style = (_DATA["adjectives"][d][self.marks[d]] for d in DIMENSIONS)
        return f" The essay is {clarity}, {evidence} and {style}."

    @property
    def grade(self) -> str:
        return "DCBA"[sum(self.marks.values())]

    @property
    def verdict(self) -> dict[str, str]:
        return {"grade": self.grade, "summary": self.summary.strip()}


def write_essay(rng: random.Random, words: Words) -> Essay:
    """Draw a topic and marks, and write an essay that earns them; one in three strays."""
    theme, other = rng.sample(_DATA["themes"], 2)
    town, related = words.town(), rng.random() < 0.65
    marks = {dimension: rng.randrange(2) for dimension in DIMENSIONS}
    count = f"{rng.randrange(12, 99)} {rng.choice(_DATA['people'])}"
    subject, place = (theme, town) if related else (other, words.town())
    text = _essay_text(rng, subject, place, marks, count)
    return Essay(f"{theme} in {town}", text, related, marks, count)


def _essay_text(
    rng: random.Random, subject: str, town: str, marks: dict[str, int], count: str
) -> str:
    gains, group = rng.sample(_DATA["gains"], 2), rng.choice(_DATA["people"])
    end = "." if marks["Style"] else "!!!"
    points = [
        rng.choice((f"{subject} help the {group} of {town}", f"{subject} are good for {town}")),
        f"a survey of {count} showed that {subject} {gains[0]}"
        if marks["Evidence"]
        else f"everyone in {town} knows that {subject} {gains[0]}",
        rng.choice((f"{town} should try {subject}", f"{subject} {gains[1]} in {town}")),
    ]
    if rng.random() < 0.4:
        points.insert(2, f"{subject} {gains[1]}")
    if marks["Clarity"]:
        middle = ["Then", "Also"][: len(points) - 2]
        points = [f"{o}, {p}" for o, p in zip(("First", *middle, "Finally"), points, strict=True)]
    else:
        rng.shuffle(points)
        points[0] = points[0] if marks["Style"] else f"Wow, {points[0]}"
    return " ".join(f"{point[0].upper()}{point[1:]}{end}" for point in points)


def save_essays(folder: Path, count: int = 16, seed: int = 118) -> None:
    """Write the demo's essays: held-out ones, each a file whose first line is its topic."""
    rng = random.Random(seed)
    for number in range(1, count + 1):
        essay = write_essay(rng, Words(rng, held_out=True))
        text = f"Topic: {essay.topic}\n{essay.text}\n"
        (folder / f"essay_{number:02}.txt").write_text(text, encoding="utf-8")
