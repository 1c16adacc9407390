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
_EMPTY = "No call with a hint has ended yet: nothing is known of programs."
_NOTE = (
    "cached: prompt tokens that were not computed again; of roots: those of prefixes that hints"
    " name. Seconds are estimated from the steps of the engine."
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
    if not report.kinds:
        out.print(_EMPTY)
        return
    out.print(savings_table(report))
    if report.num_left_out:
        out.print(f"({report.num_left_out:,} more kinds of programs are not shown)")
    out.print()
    out.print(guesses_table(report.kinds))
    out.print(_NOTE, style="dim")


def savings_table(report: ProgramReport) -> Table:
    """What the programs of each kind used and saved; with their tenants, where these differ."""
    are_several = len({it.tenant for it in report.kinds}) > 1
    table = _table(*(["program", "client"] if are_several else ["program"]))
    for name in ("runs", "calls", "prompt tokens", "cached", "of roots", "sent ahead", "saved"):
        table.add_column(name, justify="right")
    for it in report.kinds:
        table.add_row(Text(name_of(it)), *([_client(it)] if are_several else []), *_figures(it))
    if len(report.kinds) > 1:
        table.add_row("all", *([""] if are_several else []), *_figures(report.total), style="bold")
    return table


def guesses_table(kinds: Sequence[KindUsage]) -> Table:
    """How the guesses of each field of hints turned out, by kind."""
    table = _table("program", "guess")
    for name in ("made", "right", "early", "late", "never", "wrong"):
        table.add_column(name, justify="right")
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


def _table(*names: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True)
    return table


def _client(usage: KindUsage) -> Text:
    tenant = usage.tenant
    if tenant is None or tenant == "":
        return Text("everybody" if tenant == "" else "this key's")
    return Text(f"key {tenant[4:10]}…" if tenant.startswith("key-") else kind_of(tenant))


def _figures(usage: KindUsage) -> list[str]:
    share = usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0
    tokens = usage.prompt_tokens, usage.cached_tokens, usage.root_tokens, usage.ahead_tokens
    prompt, cached, root, ahead = (f"{number:,}" for number in tokens)
    calls = f"{usage.calls:,}" + (
        f" (+{usage.failed_calls:,} failed)" if usage.failed_calls else ""
    )
    return [
        *(f"{usage.programs:,}", calls, prompt, f"{cached} ({share:.0%})", root, ahead),
        f"{usage.saved_seconds:,.1f} s",
    ]
