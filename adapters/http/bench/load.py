"""What a load generator sends, and when: prompts of a given length, random by a seed.

It knows nothing of HTTP. Words are common ones, which any tokenizer spells in few tokens.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from ....core.api.protocol import InvalidCall

_WORDS = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work number night point home water
room mother area money story fact month lot right study book eye job word business issue side kind
head house service friend father power hour game line end member law car city name team minute idea
body back parent face level office door health person art war history party result change morning
reason research girl guy moment air teacher force
"""
PROBES = ("time", " ".join(_WORDS.split()))  # a word, and each of them once


class Scale(NamedTuple):
    """How long a server takes a prompt to be: `base` tokens, and `per_word` for each word."""

    base: float = 0.0
    per_word: float = 1.0

    @classmethod
    def through(cls, fewer: tuple[int, int], more: tuple[int, int]) -> Scale:
        """The one on which two prompts lie: words and tokens of each."""
        per_word = max(0.1, (more[1] - fewer[1]) / (more[0] - fewer[0]))
        return cls(max(0.0, fewer[1] - fewer[0] * per_word), per_word)

    def words(self, tokens: int) -> int:
        """Words that make about this many tokens; one at least."""
        return max(1, round((tokens - self.base) / self.per_word))


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, and when.

    seed: of all random choices. num_requests, duration (seconds): the load ends with the first of
      them; None: no such end. concurrency: requests at a time; None: any number. rate: requests per
      second, at the times of a Poisson process; None: the next as soon as one has ended.
    prompt_tokens: of each prompt, about. max_tokens: of each answer. shared_prefix: tokens of a
      prompt that it shares with others, by one of `num_prefixes` beginnings.
    """

    seed: int
    num_requests: int | None = 100
    duration: float | None = None
    concurrency: int | None = 8
    rate: float | None = None
    prompt_tokens: int = 256
    max_tokens: int = 64
    shared_prefix: int = 0
    num_prefixes: int = 1

    def check(self) -> None:
        """Raise InvalidCall for a value that is not allowed."""
        counts = {"requests": self.num_requests, "concurrency": self.concurrency}
        counts |= {"prompt_tokens": self.prompt_tokens, "max_tokens": self.max_tokens}
        for name, count in {**counts, "prefixes": self.num_prefixes}.items():
            if count is not None and count < 1:
                raise InvalidCall(name, count, "1 or more")
        for name, value in (("duration", self.duration), ("rate", self.rate)):
            if value is not None and not 0 < value < float("inf"):
                raise InvalidCall(name, value, "more than 0")
        if not 0 <= self.shared_prefix < self.prompt_tokens:
            allowed = f"0 to {self.prompt_tokens - 1}, less than prompt_tokens"
            raise InvalidCall("shared_prefix", self.shared_prefix, allowed)

    def due(self) -> Iterator[float]:
        """When each request is due, in seconds since the beginning; 0: as soon as it may be."""
        numbers = itertools.count() if self.num_requests is None else range(self.num_requests)
        rng, at = Random(f"{self.seed}/times"), 0.0
        for _ in numbers:
            if self.rate is not None:
                at += rng.expovariate(self.rate)
            if self.is_over(at):
                return
            yield at

    def is_over(self, seconds: float) -> bool:
        """Whether nothing more is sent at this time."""
        return self.duration is not None and seconds >= self.duration


class Prompts:
    """The prompts of a load, each from its number alone."""

    def __init__(self, load: Load, scale: Scale) -> None:
        self._seed = load.seed
        num_shared = scale.words(load.shared_prefix) if load.shared_prefix else 0
        self._num_own = max(1, scale.words(load.prompt_tokens) - num_shared)
        self._prefixes = [
            words(f"{load.seed}/prefix/{number}", num_shared) for number in range(load.num_prefixes)
        ]

    def text(self, index: int) -> str:
        """The prompt with this number."""
        prefix = Random(f"{self._seed}/choice/{index}").choice(self._prefixes)
        own = words(f"{self._seed}/prompt/{index}", self._num_own)
        return f"{prefix} {own}" if prefix else own


def words(seed: str, number: int) -> str:
    """So many random words."""
    return " ".join(Random(seed).choices(_WORDS.split(), k=number))
