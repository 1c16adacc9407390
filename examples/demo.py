"""The demo behind `forkroot demo`: the essay judge on one essay, then on many, with figures.

Runs on any engine that it is given and prints to the console that it is given.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from .. import Backend, Program, ProgramState, function
from .essay_judge import DIMENSIONS, GRADES, QUESTION, RUBRIC, essay_judge

OURS, MODELS, RIGHT, WRONG = "cyan", "bold green", "green", "bold red"


class Engine(Backend, Protocol):
    """A backend whose cache and counters can be started anew."""

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
class Verdict:
    """What the program made of an essay.

    text: the whole prompt at its end. answers: what the model wrote of it, in order.
    marks: as in `Essay.deserves`. grade: None if the essay was found to be about something else.
    """

    text: str
    answers: tuple[str, ...]
    marks: tuple[bool, ...] | None
    grade: str | None


@dataclass(frozen=True, slots=True)
class Figures:
    """What a batch took."""

    calls: int
    prompt_tokens: int
    cached_tokens: int
    computed_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """A batch of essays, judged."""

    name: str
    verdicts: tuple[Verdict, ...]
    figures: Figures


def load_essays() -> list[Essay]:
    """The essays in the box."""
    return [Essay.read(path) for path in sorted((Path(__file__).parent / "essays").glob("*.txt"))]


def judge(engine: Backend, essay: Essay) -> Verdict:
    """Run the program once."""
    return _verdict(
        essay_judge.run(topic=essay.topic, essay=essay.text, backend=engine, temperature=0)
    )


def judge_all(
    engine: Engine, essays: Sequence[Essay], name: str, console: Console, *, hints: bool = True
) -> Judged:
    """Run the program on all essays at once, with an empty cache at the start. The first one is
    judged once before, so that no run pays for what a process does only once."""
    items = [{"topic": essay.topic, "essay": essay.text} for essay in essays]
    judge(engine, essays[0])
    engine.clear_cache()
    engine.reset_counters()
    start = time.perf_counter()
    with _progress(console, name, len(items)) as advance:
        program = _counted(advance)
        states = program.run_batch(
            items,
            backend=engine,
            temperature=0,
            hints=hints,
            progress_bar=False,
            raise_errors=True,
        )
    seconds = time.perf_counter() - start
    return Judged(name, tuple(map(_verdict, states)), _figures(engine, seconds))


def show_verdict(console: Console, essay: Essay, verdict: Verdict) -> None:
    """Print one run of the program: its own words and the model's told apart, by colour or (on a
    console without) by marks."""
    marks = ("", "") if console.color_system else ("«", "»")
    console.print(
        Text.assemble(
            ("One essay: ", "bold"),
            ("what the program wrote", OURS),
            " and ",
            _marked("what the model wrote", marks),
        )
    )
    console.print(Text(f"  {RUBRIC[:40]}… ({len(RUBRIC):,} characters, always the same)", "dim"))
    opening = QUESTION.format(topic=essay.topic, essay=essay.text)
    told = Text(opening, OURS)
    end = len(RUBRIC) + len(opening)
    for answer in verdict.answers:
        start = verdict.text.index(answer, end)
        told += Text(verdict.text[end:start], OURS)
        told += _marked(answer, marks)
        end = start + len(answer)
    told += Text(verdict.text[end:].rstrip(), OURS)
    for line in told.split("\n"):
        console.print(Padding(_fork_line(line), (0, 0, 0, 2), expand=False))


def grades_table(essays: Sequence[Essay], verdicts: Sequence[Verdict]) -> Table:
    """What the model found (✗: not what the rubric asks for); – for an essay that is about
    something else than its topic."""
    table = _table("Topic")
    for name in (*DIMENSIONS, "Grade", "By the rubric"):
        table.add_column(name)
    for essay, verdict in zip(essays, verdicts, strict=True):
        earned = essay.deserves()
        grade = None if earned is None else _grade(earned)
        found = verdict.marks or (None,) * len(DIMENSIONS)
        wanted = earned or (None,) * len(DIMENSIONS)
        marks = [_told(_word(f), f == w) for f, w in zip(found, wanted, strict=True)]
        shown = _told(verdict.grade or "–", verdict.grade == grade)
        table.add_row(essay.topic, *marks, shown, grade or "–")
    return table


def figures_table(batches: Sequence[Judged]) -> Table:
    """What each batch took; the last one's time is what the others are measured by."""
    table = _table("")
    for name in ("calls", "prompt\ntokens", "of these\ncached", "hit rate", "tokens\ncomputed"):
        table.add_column(name, justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("speed", justify="right", style="bold")
    slowest = batches[-1].figures.seconds
    for batch in batches:
        it = batch.figures
        counts = (it.calls, it.prompt_tokens, it.cached_tokens)
        table.add_row(
            batch.name,
            *(f"{number:,}" for number in counts),
            f"{it.cached_tokens / it.prompt_tokens:.1%}",
            f"{it.computed_tokens:,}",
            f"{it.seconds:.2f}",
            f"{slowest / it.seconds:.1f}×",
        )
    return table


def _table(first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, no_wrap=True)
    return table


def _verdict(state: ProgramState) -> Verdict:
    if "grade" not in state:
        return Verdict(state.text(), (state["related"],), None, None)
    judgments = state["judgment"]
    return Verdict(
        text=state.text(),
        answers=(state["related"], *judgments, state["summary"], state["grade"]),
        marks=tuple(judgment.strip().startswith("good") for judgment in judgments),
        grade=state["grade"].strip(),
    )


def _figures(engine: Backend, seconds: float) -> Figures:
    counters = engine.info().counters
    return Figures(
        calls=int(counters["calls"]),
        prompt_tokens=int(counters["prompt_tokens"]),
        cached_tokens=int(counters["cached_tokens"]),
        computed_tokens=int(counters["computed_tokens"]),
        seconds=seconds,
    )


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


def _marked(answer: str, marks: tuple[str, str]) -> Text:
    """The model's words, between marks, behind the blank that they may begin with."""
    words = answer.lstrip(" ")
    blank = answer[: len(answer) - len(words)]
    return Text.assemble(blank, marks[0], (words, MODELS), marks[1])


def _fork_line(line: Text) -> Text:
    """A branch's line drawn as one of a fork."""
    for place, dimension in enumerate(DIMENSIONS, 1):
        if line.plain.startswith(f"{dimension}:"):
            guide = "└─ " if place == len(DIMENSIONS) else "├─ "
            return Text.assemble((guide, "dim"), line)
    return line


def _grade(marks: Sequence[bool]) -> str:
    return GRADES[len(marks) - sum(marks)]


def _word(mark: bool | None) -> str:
    return "–" if mark is None else "good" if mark else "poor"


def _told(text: str, is_right: bool) -> Text:
    return Text(text, RIGHT) if is_right else Text(f"{text} ✗", WRONG)
