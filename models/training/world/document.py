"""A training text in parts (context, answers to learn, noise), and what tasks write it with."""

import random
from dataclasses import dataclass, field
from enum import Enum
from functools import partialmethod
from itertools import groupby

from .facts import Words

BOS, EOS, TURN, END_TURN = "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"
SYSTEM = "You are a helpful assistant."
LETTERS = "ABCD"


class Kind(Enum):
    """How much a part of a document teaches."""

    CONTEXT = 0.1
    ANSWER = 1.0
    DECISION = 3.0  # a short answer on which all depends, such as a letter
    NOISE = 0.0

    @property
    def is_asked(self) -> bool:
        return self in (Kind.ANSWER, Kind.DECISION)


@dataclass(slots=True)
class Document:
    """One training text, without its beginning-of-text token; four verbs append to it."""

    task: str = ""
    parts: list[tuple[str, Kind]] = field(default_factory=list)

    def _put(self, text: str, kind: Kind) -> "Document":
        self.parts.append((text, kind))
        return self

    say = partialmethod(_put, kind=Kind.CONTEXT)
    answer = partialmethod(_put, kind=Kind.ANSWER)
    decide = partialmethod(_put, kind=Kind.DECISION)
    noise = partialmethod(_put, kind=Kind.NOISE)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)

    @property
    def exams(self) -> list[tuple[str, str]]:
        """The text before each answer, and the answer; adjacent asked parts are one answer."""
        exams, before = list[tuple[str, str]](), ""
        for is_asked, parts in groupby(self.parts, key=lambda part: part[1].is_asked):
            text = "".join(text for text, _ in parts)
            if is_asked:
                exams.append((before, text))
            before += text
        return exams


@dataclass(frozen=True, slots=True)
class Pen:
    """What a task writes with: a source of chance and of made-up words."""

    rng: random.Random
    words: Words

    def one(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def shots(pen: Pen, most: int) -> int:
    """A number of worked examples to show first; none half of the time."""
    return 0 if pen.chance(0.5) else pen.rng.randint(1, most)
