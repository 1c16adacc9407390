"""A hostile campaign against real servers of the embedded model: faults, abuse and load.

Each scenario runs in a process group of its own, under a bound on its time, and ends in a verdict:
`passed`, `FAILED` with the bars that were missed, or `skipped` with what it needs. Prints one line
for each scenario and a table to stderr, and the row to stdout. The exit code is 1 if one failed.
Wall-clock bars need a quiet machine; the load average is in the row.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from forkroot.benchmarks.campaign.runner import Plan, Verdict, run
from forkroot.benchmarks.campaign.scenarios import BY_NAME, ENTRIES, Entry
from forkroot.benchmarks.common.processes import end_on_sigterm
from forkroot.benchmarks.common.report import parser, report

_PIPED_WIDTH = 160
_MOST_SHOWN = 6  # figures of a scenario in the table


@dataclass
class Progress:
    """A bar on a terminal, and lines elsewhere."""

    total: int

    def __post_init__(self) -> None:
        self._bar = tqdm(total=self.total, unit="scenario", disable=not sys.stderr.isatty())

    def start(self, entry: Entry) -> None:
        self._bar.set_description(entry.name)

    def end(self, number: int, verdict: Verdict) -> None:
        self._bar.update()
        text = f"[{number}/{self.total}] {verdict.name}: {verdict.word} in {verdict.seconds:g} s"
        with tqdm.external_write_mode(sys.stderr):
            print(text + (f": {verdict.reason}" if verdict.reason else ""), file=sys.stderr)
        sys.stderr.flush()


def campaign(entries: Iterable[Entry], plans: dict[str, Plan]) -> list[Verdict]:
    """All verdicts, one scenario after another."""
    entries = list(entries)
    progress, verdicts = Progress(len(entries)), list[Verdict]()
    for number, entry in enumerate(entries, 1):
        progress.start(entry)
        verdicts.append(run(entry.name, entry.run, plans[entry.name]))
        progress.end(number, verdicts[-1])
    return verdicts


def table(verdicts: Iterable[Verdict]) -> Table:
    """The verdicts with a few figures each."""
    found = Table("scenario", "verdict", "seconds", "figures", "reason", show_lines=True)
    styles = {True: "green", False: "bold red", None: "yellow"}
    for it in verdicts:
        figures = [f"{name}: {_shown(value)}" for name, value in it.figures.items()]
        word = f"[{styles[it.passed]}]{it.word}[/]"
        shown = "\n".join(figures[:_MOST_SHOWN])
        found.add_row(it.name, word, f"{it.seconds:g}", shown, it.reason[:600])
    return found


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)[:60]


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    options = parser(__doc__)
    size = options.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="at most 3 minutes (the default)")
    size.add_argument("--full", action="store_true", help="at most 60 minutes, with all bars")
    text = "a scenario (may be repeated): " + "; ".join(f"{it.name}, {it.about}" for it in ENTRIES)
    options.add_argument(
        "--only", action="append", choices=list(BY_NAME), metavar="NAME", help=text
    )
    options.add_argument("--seconds", type=float, help="for each scenario, in place of its own")
    text = "of `--full --only kills` these faults, as 0:40 (all would take half an hour)"
    options.add_argument("--faults", type=_numbers, metavar="FROM:TO", help=text)
    return options.parse_args()


def _numbers(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last)


def main() -> int:
    """Run the campaign and print its row."""
    end_on_sigterm()
    options = arguments()
    entries = [it for it in ENTRIES if it.name in (options.only or BY_NAME)]
    plans = {
        it.name: Plan(
            options.seed,
            options.seconds or (it.full if options.full else it.quick),
            options.full,
            faults=options.faults,
        )
        for it in entries
    }
    load = [round(os.getloadavg()[0], 2)]
    verdicts = campaign(entries, plans)
    load.append(round(os.getloadavg()[0], 2))
    console = Console(stderr=True, width=None if sys.stderr.isatty() else _PIPED_WIDTH)
    console.print(table(verdicts))
    figures = {it.name: it.as_json() for it in verdicts}
    fields = {"seed": options.seed, "is_full": options.full, "load_average": load}
    if options.faults:
        fields["faults"] = options.faults
    report("campaign", figures, options.out, model="tiny", **fields)
    return int(any(it.passed is False for it in verdicts))


if __name__ == "__main__":
    sys.exit(main())
