"""What the examples of the frameworks have in common: their options, and what sharing saved.

Each is run with the cache and without, in turn and from nothing cached, after one run of each that
is not counted.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Generic, NoReturn, TypeVar

from rich import box
from rich.console import Console
from rich.table import Table

from .. import ForkrootError
from ..core.common.extras import how_to_install

T = TypeVar("T")

MODES = {"cache on": True, "cache off": False}
NUM_SLOTS = 32_768  # tokens of KV, enough for all of these


@dataclass(frozen=True, slots=True)
class Options:
    """backend: as for `forkroot.connect`. repeat: timed runs. limit: so many of the
    inputs only."""

    backend: str
    repeat: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class RunContext:
    """Where one run of a program goes. namespace: its own, so that nothing is cached yet."""

    backend: str
    settings: dict[str, Any]
    namespace: str


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """What one run gave, and the tokens of its calls' prompts."""

    answers: T
    calls: int
    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Compared(Generic[T]):
    """What each mode gave, the one with the cache first, and the median of its runs' seconds."""

    runs: dict[str, Done[T]]
    seconds: dict[str, float]

    @property
    def answers(self) -> T:
        """Those with the cache."""
        return next(iter(self.runs.values())).answers


def run_example(
    about: str | None,
    example: Callable[[Options, Console], None],
    argv: Sequence[str] | None = None,
    refusals: tuple[type[Exception], ...] = (ForkrootError, OSError),
) -> int:
    """Read a command line (the process's own if None), run an example, and give its exit code: 2
    with a line on stderr where something was refused, by one of these errors."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument(
        "--backend", default="tiny", help='"tiny", a checkpoint folder, or the URL of a server'
    )
    parser.add_argument("--repeat", type=_count, default=3, help="timed runs")
    parser.add_argument("--limit", type=_count, help="only so many of the inputs")
    options = Options(**vars(parser.parse_args(argv)))
    try:
        example(options, Console(highlight=False, soft_wrap=True))
    except refusals as error:
        print(f"forkroot: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def needed(extra: str, error: ImportError) -> NoReturn:
    """Raise an ImportError that says how to install what an example stands on."""
    text = f"this example needs {error.name}: {how_to_install(extra)}"
    raise ImportError(text, name=error.name) from error


def settings_of(backend: str, cache: bool) -> dict[str, Any]:
    """The settings of a runtime that is started here; none for a server."""
    if backend.startswith(("http://", "https://")):
        return {}
    return {"cache": cache, "num_slots": NUM_SLOTS}


def compare(options: Options, run: Callable[[RunContext], Done[T]]) -> Compared[T]:
    """Run a program with the cache and without. A server keeps its own settings: without."""
    modes = {
        name: settings
        for name, cache in MODES.items()
        if (settings := settings_of(options.backend, cache)) or cache
    }
    for settings in modes.values():  # what a process does only once: loading, compiling, importing
        _timed(options, settings, run)
    done: dict[str, Done[T]] = {}
    times: dict[str, list[float]] = {name: [] for name in modes}
    for _ in range(options.repeat):
        for name, settings in modes.items():  # in turn, so that other work slows both alike
            done[name], seconds = _timed(options, settings, run)
            times[name].append(seconds)
    return Compared(done, {name: median(seconds) for name, seconds in times.items()})


def _timed(
    options: Options, settings: dict[str, Any], run: Callable[[RunContext], Done[T]]
) -> tuple[Done[T], float]:
    """One run from nothing cached, and its seconds."""
    context = RunContext(options.backend, settings, secrets.token_hex(4))
    start = time.perf_counter()
    return run(context), time.perf_counter() - start


def show_savings(console: Console, compared: Compared[T]) -> None:
    """Print what each mode took, and whether the answers are the same."""
    names = ("", "calls", "prompt tokens", "of these cached", "share", "seconds")
    rows = [
        (
            name,
            f"{it.calls:,}",
            f"{it.prompt_tokens:,}",
            f"{it.cached_tokens:,}",
            f"{it.cached_tokens / it.prompt_tokens:.0%}",
            f"{compared.seconds[name]:.2f}",
        )
        for name, it in compared.runs.items()
    ]
    show_table(console, "What sharing saved", names, rows)
    if len(rows) == 1:
        console.print("A server's cache is not ours to turn off: no second run.")
    elif all(it.answers == compared.answers for it in compared.runs.values()):
        console.print("All answers are the same.")
    else:
        console.print("Answers differ!", style="bold red")


def show_table(
    console: Console, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    """Print a table; in a pipe as plain lines, however long."""
    console.print(f"\n[bold]{title}[/bold]")
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        for row in (names, *rows):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            console.print("  ".join(cells).rstrip(), markup=False)
        return
    table = plain_table()
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def plain_table() -> Table:
    """A table without a frame."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"invalid value {number}: expected 1 or more")
    return number
