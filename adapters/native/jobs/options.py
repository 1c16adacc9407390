"""The options of `forkroot run`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...usage import number

_LONGEST = 86_400.0  # seconds: a day


def add_run_options(parser: argparse.ArgumentParser, models: str) -> None:
    """Add them to its parser. models: where it may run, in words."""
    text = "a compiled program, as `compiled.save(...)` wrote it"
    parser.add_argument("program", type=Path, metavar="PROGRAM", help=text)
    text = "the items: a file with one JSON object of the program's arguments in each line"
    parser.add_argument("--args", type=Path, required=True, metavar="FILE", help=text)
    text = (
        "the results: one line of JSON for each item, added as it ends; with the results of a run"
    )
    text += " that was interrupted, only the other items are run"
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help=text)
    parser.add_argument("--model", metavar="NAME", help=f"{models}; default: tiny")
    text = "the number of items at work at a time (default 64)"
    many = number(int, 1)
    parser.add_argument("--concurrency", type=many, default=64, metavar="N", help=text)
    text = "how often an item is run again after an error that passes by itself (default 8)"
    many = number(int, 0)
    parser.add_argument("--max-retries", type=many, default=8, metavar="N", help=text)
    text = "run the items again that have failed in an earlier run"
    parser.add_argument("--retry-failed", action="store_true", help=text)
    text = "write the meta information of all variables, too: token ids, log-probabilities, tokens"
    parser.add_argument("--meta", action="store_true", help=text)
    text = "a default for gens that set none, such as temperature=0 (may be repeated)"
    parser.add_argument("--sampling", action="append", default=[], metavar="NAME=VALUE", help=text)
    text, seconds = "seconds that each call may take", number(float, 0.001, _LONGEST)
    parser.add_argument("--deadline", type=seconds, metavar="S", help=text)
    text, degree = "the priority of all calls (default 0)", number(int, -100, 100)
    parser.add_argument("--priority", type=degree, default=0, metavar="N", help=text)
    text = "send a server each call, in place of the program and its arguments"
    parser.add_argument("--call-by-call", action="store_true", help=text)
