"""`forkroot report`: what the programs of a server have saved, and how good their hints were."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

from rich.table import Table
from rich.text import Text

from ...core.api.program_report import KindUsage, ProgramReport, kind_of
from ..common.console import console
from .client import RemoteBackend

_FIELDS = {"next_use": "next use", "calls_left": "calls left", "tokens_left": "tokens left"}
_LEAST_WIDTH = 100
_EMPTY = "No call with a hint has ended yet: nothing is known of programs."
_NO_GUESSES = "No hint guessed what follows yet: guesses are learned from runs that are over."
_NOTE = (
    "Tokens of prompts; cached: not computed again; of roots: of prefixes that hints name; ahead:"
    " computed to put prefixes into the cache. Seconds are estimated from the engine's steps."
)


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Make this parser's command print the report of a server."""
    parser.set_defaults(run=_run)
    text, url = "the URL of the server (default %(default)s)", "http://127.0.0.1:30000"
    parser.add_argument("url", nargs="?", default=url, help=text)
    text = (
        "a key of the server; an admin's shows the programs of all clients (default: the first of"
        " FORKROOT_ADMIN_KEYS, or of FORKROOT_API_KEYS)"
    )
    parser.add_argument("--api-key", metavar="KEY", help=text)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def _run(options: argparse.Namespace) -> int:
    names = "FORKROOT_ADMIN_KEYS", "FORKROOT_API_KEYS"
    known = [key for name in names for key in os.environ.get(name, "").split()]
    key = options.api_key or next(iter(known), None)
    with closing(RemoteBackend(options.url, key)) as backend:
        report = backend.program_report()
    if options.json:
        print(json.dumps(asdict(report) | {"total": asdict(report.total)}, indent=2))
        return 0
    show(report)
    return 0


def show(report: ProgramReport) -> None:
    """Print the tables of a report on standard output."""
    out = console(highlight=False)
    out.width = max(out.width, _LEAST_WIDTH)  # a narrower terminal breaks lines, and loses nothing
    if not report.kinds:
        out.print(_EMPTY)
        return
    out.print(savings_table(report))
    if report.num_left_out:
        out.print(f"({report.num_left_out:,} more kinds of programs are not shown)")
    out.print()
    guesses = guesses_table(report.kinds)
    out.print(guesses if guesses.row_count else _NO_GUESSES)
    out.print(_NOTE, style="dim")


def savings_table(report: ProgramReport) -> Table:
    """What the programs of each kind used and saved; with their tenants, where these differ."""
    are_several = len({it.tenant for it in report.kinds}) > 1
    columns = "runs", "calls", "failed", "prompt", "cached", "of roots", "ahead", "saved"
    table = _table(["program", *(["client"] if are_several else [])], columns)
    for it in report.kinds:
        table.add_row(Text(name_of(it)), *([_client(it)] if are_several else []), *_figures(it))
    if len(report.kinds) > 1:
        table.add_row("all", *([""] if are_several else []), *_figures(report.total), style="bold")
    return table


def guesses_table(kinds: Sequence[KindUsage]) -> Table:
    """How the guesses of each field of hints turned out, by kind."""
    columns = "made", "right", "early", "late", "never", "wrong"
    table = _table(["program", "guess"], columns)
    for it in kinds:
        for field, title in _FIELDS.items():
            found = getattr(it, field)
            if found.made:
                counts = found.made, found.right, found.early, found.late, found.never
                wrong = f"{found.wrong / found.judged:.0%}" if found.judged else "–"
                table.add_row(Text(name_of(it)), title, *(f"{n:,}" for n in counts), wrong)
    return table


def name_of(usage: KindUsage) -> str:
    """The name of a kind, for people."""
    return kind_of(usage.kind) or "(not named)"


def _table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """A table whose first column is folded where a terminal is too narrow."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for index, name in enumerate(texts):
        table.add_column(name, no_wrap=index > 0, overflow="fold", min_width=8)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _client(usage: KindUsage) -> Text:
    tenant = usage.tenant
    if tenant is None or tenant == "":
        return Text("everybody" if tenant == "" else "this key's")
    return Text(f"key {tenant[4:10]}…" if tenant.startswith("key-") else kind_of(tenant))


def _figures(usage: KindUsage) -> list[str]:
    share = usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0
    return [
        *(f"{number:,}" for number in (usage.programs, usage.calls, usage.failed_calls)),
        *(f"{usage.prompt_tokens:,}", f"{usage.cached_tokens:,} ({share:.0%})"),
        *(f"{usage.root_tokens:,}", f"{usage.ahead_tokens:,}", f"{usage.saved_seconds:,.1f} s"),
    ]
