"""A workload: one program, its items, and how right its answers are."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from ..engines import Engine

COUNTED = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run took, and what it wrote. cpu: seconds of processor time of client and engine.
    scores: how right each answer is; None where nobody knows."""

    seconds: float
    cpu: float
    answers: list[str]
    scores: list[float | None]
    usage: Mapping[str, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """The mean score, if there are scores."""
        known = [score for score in self.scores if score is not None]
        return sum(known) / len(known) if known else None

    @property
    def rate(self) -> float:
        """Programs per second."""
        return len(self.answers) / self.seconds

    @property
    def cached_share(self) -> float:
        """Cached tokens of the prompts, over all of them."""
        return self.usage["cached_tokens"] / max(1.0, self.usage["prompt_tokens"])


@dataclass(frozen=True, slots=True)
class Workload:
    """A program of the native language and its items.

    program: with the language's decorator. items: its arguments, one mapping for each run.
    answer: what a state says in the end. score: of an answer, beside what is right; None: unknown.
    truths: what is right, one for each item. needs: of `engines.ALL`. source: where the text is
    from. width: programs at a time.
    """

    name: str
    title: str
    program: Any
    items: Sequence[Mapping[str, Any]]
    answer: Callable[[Any], str]
    source: str
    truths: Sequence[Any] = ()
    score: Callable[[str, Any], float] | None = None
    needs: frozenset[str] = frozenset()
    width: int = 8
    paper: str = ""

    def first(self, count: int) -> Workload:
        """The same with these many items."""
        return replace(self, items=self.items[:count], truths=self.truths[:count])

    def run(self, engine: Engine, width: int | None = None, is_cleared: bool = True) -> Outcome:
        """Run all items on an engine, from an empty cache unless the caller keeps it. Raises the
        first error of a program."""
        with engine.awake() if is_cleared else nullcontext():
            before, started = engine.cpu(), time.perf_counter()
            states = self._states(engine, width or self.width)
            seconds = time.perf_counter() - started
            cpu = engine.cpu() - before
        answers = [self.answer(state) for state in states]
        return Outcome(seconds, cpu, answers, self._scores(answers), usage_of(states))

    def _states(self, engine: Engine, width: int) -> list[Any]:
        settings = {"hints": engine.hints, "temperature": 0}
        if not engine.is_serial:
            return list(
                self.program.run_batch(
                    self.items,
                    backend=engine.backend,
                    num_threads=width,
                    progress_bar=False,
                    raise_errors=True,
                    **settings,
                )
            )
        with ThreadPoolExecutor(width) as threads:
            runs = [
                threads.submit(self.program.run, **item, backend=engine.for_program(), **settings)
                for item in self.items
            ]
            return [run.result() for run in runs]

    def _scores(self, answers: Sequence[str]) -> list[float | None]:
        if self.score is None:
            return [None] * len(answers)
        return [self.score(text, truth) for text, truth in zip(answers, self.truths, strict=True)]


def usage_of(states: Sequence[Any]) -> dict[str, float]:
    """Calls and tokens of all runs together."""
    totals = dict.fromkeys(COUNTED, 0.0)
    for state in states:
        meta = state.get_meta_info()
        for name in COUNTED:
            totals[name] += meta.get(name, 0)
    return totals


def is_equal(text: str, truth: str) -> float:
    """Whether a text is what is right, blanks aside."""
    return float(text.strip() == truth.strip())
