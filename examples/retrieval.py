"""The passages in the box, each about one person of the embedded model's made-up world, and how to
find the right one: BM25, the ranking by words that most search engines start from.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SATURATION, LENGTH_WEIGHT = 1.5, 0.75  # k1 and b of the formula, at their usual values


@dataclass(frozen=True, slots=True)
class Passage:
    """A text, the name of its file, and questions that it answers, with the answers."""

    name: str
    text: str
    questions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Passage:
        """From a file: the text, a blank line, and in each other line a question and its answer."""
        text, _, rest = path.read_text("utf-8").partition("\n\n")
        pairs = (line.split("? ") for line in rest.splitlines())
        return cls(path.stem, text, {f"{question}?": answer for question, answer in pairs})


class Ranking:
    """The Okapi BM25 scores of passages: how often each has the words of a question, rare words
    counting more, and words in long passages less."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = tuple(passages)
        self._counts = [Counter(words(passage.text)) for passage in passages]
        self._mean_len = sum(map(Counter.total, self._counts)) / len(passages)
        self._in_passages = Counter(word for counts in self._counts for word in counts)

    def best(self, question: str, count: int = 1) -> list[Passage]:
        """So many passages, the best first."""
        query_words = words(question)
        scores = [sum(self._score(word, counts) for word in query_words) for counts in self._counts]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return [self._passages[index] for index in order[:count]]

    def _score(self, word: str, counts: Counter[str]) -> float:
        num_in, num_passages = self._in_passages[word], len(self._passages)
        rarity = math.log(1 + (num_passages - num_in + 0.5) / (num_in + 0.5))
        length = 1 - LENGTH_WEIGHT + LENGTH_WEIGHT * counts.total() / self._mean_len
        return rarity * counts[word] * (SATURATION + 1) / (counts[word] + SATURATION * length)


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


def load_passages() -> list[Passage]:
    """All of them, in the order of their names."""
    folder = Path(__file__).parent / "passages"
    return [Passage.read(path) for path in sorted(folder.glob("*.txt"))]
