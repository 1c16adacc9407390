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
    text = "the URL of a server with the OpenAI API, such as http://127.0.0.1:30000"
    add("url", metavar="URL", help=text)
    text = "the model to ask (default: the first one that the server lists)"
    add("--model", metavar="NAME", help=text)
    add("--api-key", metavar="KEY", help="the API key to send with each request")
    text = "the number of requests (default 100, without --duration)"
    add("--requests", type=whole, metavar="N", help=text)
    add("--duration", type=real, metavar="S", help="send no more requests after S seconds")
    text = "the maximum number of requests at a time (default 8; no limit with --rate)"
    add("--concurrency", type=whole, metavar="N", help=text)
    text = "send R requests per second at random times, instead of a new one when one has ended"
    add("--rate", type=real, metavar="R", help=text)
    text = "about how many tokens each prompt has (default 256)"
    add("--prompt-tokens", type=whole, default=256, metavar="N", help=text)
    text = "the maximum tokens of an answer (default 64)"
    add("--max-tokens", type=whole, default=64, metavar="N", help=text)
    text = "tokens at the start of each prompt that prompts share (default 0)"
    add("--shared-prefix", type=whole, default=0, metavar="N", help=text)
    text = "the number of different shared prefixes (default 1)"
    add("--prefixes", type=whole, default=1, metavar="K", help=text)
    text = "request streams (the default), or whole answers: then only their ends are timed"
    add("--stream", action=argparse.BooleanOptionalAction, default=True, help=text)
    text = "use /v1/completions instead of /v1/chat/completions"
    add("--completions", action="store_true", help=text)
    text = "generate all of --max-tokens; not every server supports it"
    add("--ignore-eos", action="store_true", help=text)
    text = "seconds that a whole request may take (default 600)"
    add("--timeout", type=real, default=600.0, metavar="S", help=text)
    text = "the seed of prompts and times (default: a new one, which is printed)"
    add("--seed", type=whole, metavar="N", help=text)
    add("--json", type=file, metavar="FILE", help="write the figures and all requests to FILE")
    add("--svg", type=file, metavar="FILE", help="draw latencies and tokens over time in FILE")


def _bench(options: argparse.Namespace) -> int:
    from .bench import bench

    return bench(options)
