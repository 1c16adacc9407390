"""The options of `forkroot bench`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from ...usage import number


def add_bench_options(parser: argparse.ArgumentParser, file: Callable[[str], Path]) -> None:
    """Add them to its parser. file: reads the name of a file that is to be written."""
    parser.set_defaults(run=_bench)
    add, whole, real = parser.add_argument, number(int), number(float)
    add("url", metavar="URL", help="of a server of OpenAI's kind, as http://127.0.0.1:30000")
    add("--model", metavar="NAME", help="default: the first that the server lists")
    add("--api-key", metavar="KEY", help="sent with each request")
    add("--requests", type=whole, metavar="N", help="how many (default 100, without --duration)")
    add("--duration", type=real, metavar="S", help="send nothing more after S seconds")
    text = "requests at a time (default 8; any number with --rate)"
    add("--concurrency", type=whole, metavar="N", help=text)
    text = "requests per second at random times, instead of the next when one has ended"
    add("--rate", type=real, metavar="R", help=text)
    add("--prompt-tokens", type=whole, default=256, metavar="N", help="about (default 256)")
    add("--max-tokens", type=whole, default=64, metavar="N", help="of an answer (default 64)")
    text = "tokens of each prompt that others begin with, too (default 0)"
    add("--shared-prefix", type=whole, default=0, metavar="N", help=text)
    text = "how many such beginnings there are (default 1)"
    add("--prefixes", type=whole, default=1, metavar="K", help=text)
    text = "ask for streams (the default), or for whole answers: then only their ends are timed"
    add("--stream", action=argparse.BooleanOptionalAction, default=True, help=text)
    text = "ask by /v1/completions instead of /v1/chat/completions"
    add("--completions", action="store_true", help=text)
    text = "write all of --max-tokens; not every server knows how"
    add("--ignore-eos", action="store_true", help=text)
    text = "seconds for a whole request (default 600)"
    add("--timeout", type=real, default=600.0, metavar="S", help=text)
    text = "of all that is drawn (default: a new one, which is printed)"
    add("--seed", type=whole, metavar="N", help=text)
    add("--json", type=file, metavar="FILE", help="write figures and requests to FILE")
    add("--svg", type=file, metavar="FILE", help="draw latencies and tokens over time in FILE")


def _bench(options: argparse.Namespace) -> int:
    from .bench import bench

    return bench(options)
