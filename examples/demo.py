"""The demo behind `forkroot demo`: the essay judge on one essay, then on many, with figures.

Runs on any engine that it is given; `demo_report` prints what comes out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .. import Backend, Program, ProgramState, function
from .essay_judge import essay_judge, write_verdict

REPEATS = 5
REPEATS_OF_MANY = 3


class Engine(Backend, Protocol):
    """A backend whose cache and counters can be started anew. config: its settings."""

    config: Any

    def clear_cache(self) -> int:
        """Forget all that is cached."""

    def reset_counters(self) -> None:
        """Count from zero."""


@dataclass(frozen=True, slots=True)
class Essay:
    """An essay and the topic that it was to be about."""

    topic: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Essay:
        """From a file: "Topic: ..." in the first line, then the essay."""
        first, _, text = path.read_text("utf-8").partition("\n")
        return cls(first.removeprefix("Topic: "), text.strip())

    def deserves(self) -> tuple[bool, ...] | None:
        """The marks (good or not, one for each dimension) that the rubric gives to its words; None
        if it is about something else."""
        subject = self.topic.partition(" in ")[0]
        if subject.lower() not in self.text.lower():
            return None
        has_order = self.text.startswith("First, ")
        return has_order, any(char.isdigit() for char in self.text), "!!!" not in self.text


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote. forced: ranges of its characters that it had no choice about."""

    text: str
    forced: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the program made of an essay.

    text: the whole prompt at its end. answers: what the model wrote of it, in order. marks: as in
    `Essay.deserves`. grade: as in the verdict's JSON; None if the essay was found to be about
    something else.
    """

    text: str
    answers: tuple[Answer, ...]
    marks: tuple[bool, ...] | None
    grade: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What it took. passes: forward passes. forced_tokens of the written_tokens had none of their
    own. seconds: of the processors where all is computed by this process, so that they are not more
    for what else the machine does meanwhile."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    written_tokens: int
    forced_tokens: int
    passes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A task of the judge, its result, and what it took."""

    name: str
    verdicts: tuple[Verdict, ...]
    figures: Figures


def load_essays() -> list[Essay]:
    """The essays in the box."""
    return [
        Essay.read(path) for path in sorted((Path(__file__).parent / "essays").glob("essay_*.txt"))
    ]


def judge(engine: Backend, essay: Essay) -> Verdict:
    """Run the program once."""
    return _verdict(
        essay_judge.run(topic=essay.topic, essay=essay.text, backend=engine, temperature=0)
    )


def judge_all(
    engine: Engine, essays: Sequence[Essay], name: str, console: Console, *, hints: bool = True
) -> Judged:
    """Run the program on all essays at once, each time with an empty cache: the fastest of a few
    times, so that none pays for what a process does only once. What is cached at the end is of the
    last time."""
    items = [{"topic": essay.topic, "essay": essay.text} for essay in essays]

    def judge_them() -> tuple[Verdict, ...]:
        with _progress(console, name, len(items)) as advance:
            states = _counted(advance).run_batch(
                items,
                backend=engine,
                temperature=0,
                hints=hints,
                progress_bar=False,
                raise_errors=True,
            )
        return tuple(map(_verdict, states))

    return _fastest(engine, name, judge_them, REPEATS_OF_MANY, engine.clear_cache)


def judge_alone(engine: Engine, essay: Essay) -> list[Judged]:
    """Judge one essay with nothing beside it, and write only its verdict's JSON once more: each
    with all prompts cached, the fastest of a few times."""
    verdict = judge(engine, essay)
    runs = [_fastest(engine, "one essay", lambda: (judge(engine, essay),))]
    if verdict.grade is not None:
        written = verdict.answers[-1].text
        before = verdict.text.removesuffix(written)
        again = _continued.bind(before=before, verdict=verdict)
        write = partial(again.run, backend=engine, temperature=0)
        runs.append(_fastest(engine, "its JSON only", lambda: (write().ret_value,)))
    return runs


@function
def _continued(s: ProgramState, before: str, verdict: Verdict) -> Verdict:
    """The verdict once more, its JSON written again."""
    s += before
    write_verdict(s)
    answer = _json_answer(s)
    return replace(verdict, text=s.text(), answers=(*verdict.answers[:-1], answer))


def _verdict(state: ProgramState) -> Verdict:
    if "verdict" not in state:
        return Verdict(state.text(), (Answer(state["related"]),), None, None)
    judgments = state["judgment"]
    free = (state["related"], *judgments, state["summary"], state["grade"])
    return Verdict(
        text=state.text(),
        answers=(*map(Answer, free), _json_answer(state)),
        marks=tuple(judgment.strip().startswith("good") for judgment in judgments),
        grade=json.loads(state["verdict"])["grade"],
    )


def _json_answer(state: ProgramState) -> Answer:
    return Answer(state["verdict"], state.get_meta_info("verdict")["forced"])


def _fastest(
    engine: Engine,
    name: str,
    work: Callable[[], tuple[Verdict, ...]],
    repeats: int = REPEATS,
    prepare: Callable[[], object] = lambda: None,
) -> Judged:
    """The figures of the fastest run. If a run's answers differ from the first run's, they are
    returned in place of the fastest run's. prepare: called before each run, and not measured."""
    runs = []
    for _ in range(repeats):
        prepare()
        runs.append(_measured(engine, name, work))
    fastest = min(runs, key=lambda run: run.figures.seconds)
    others = [run.verdicts for run in runs if run.verdicts != runs[0].verdicts]
    return replace(fastest, verdicts=others[0]) if others else fastest


def _measured(engine: Engine, name: str, work: Callable[[], tuple[Verdict, ...]]) -> Judged:
    clock = time.process_time if is_computed_here(engine) else time.perf_counter
    engine.reset_counters()
    start = clock()
    verdicts = work()
    seconds = clock() - start
    counters = engine.info().counters
    figures = Figures(
        calls=int(counters["calls"]),
        prompt_tokens=int(counters["prompt_tokens"]),
        cached_tokens=int(counters["cached_tokens"]),
        computed_tokens=int(counters["computed_tokens"]),
        written_tokens=int(counters["completion_tokens"]),
        forced_tokens=int(counters["forced_tokens"]),
        passes=int(counters["steps"]),
        seconds=seconds,
    )
    return Judged(name, verdicts, figures)


def is_computed_here(engine: Engine) -> bool:
    """Whether all that an engine computes is computed by this process."""
    return bool(engine.config.device == "cpu" and engine.config.ranks == 1)


def _counted(advance: Callable[[], None]) -> Program:
    """The essay judge as a part of a program that says when it has ended."""

    @function
    def counted_essay_judge(s: ProgramState, topic: str, essay: str) -> None:
        essay_judge(s, topic, essay)
        s.sync()
        advance()

    return counted_essay_judge


@contextmanager
def _progress(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    """A bar that is gone at the end, on a terminal only."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = console.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not shown
    ) as progress:
        task = progress.add_task(name, total=total)
        yield lambda: progress.advance(task)
