"""The options of `forkroot serve`."""

from __future__ import annotations

import argparse

from ..usage import no_server, number
from .server.runtime import Limits

_LONGEST = 86_400.0  # seconds: a day


def add_serve_options(parser: argparse.ArgumentParser, models: str) -> None:
    """Add them to its parser. models: what may be served, in words."""
    defaults = Limits()
    text, name = f"{models} (the default)", no_server("is a server already")
    parser.add_argument("model", nargs="?", type=name, help=text)

    def more(name: str, metavar: str, text: str) -> None:
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=text)

    parser.add_argument("--host", default="127.0.0.1", help="the address (default 127.0.0.1)")
    text = "0: any free one (default 30000)"
    parser.add_argument("--port", type=number(int, 0, 65535), default=30000, help=text)
    more("--api-key", "KEY", "of a client (may be repeated; also FORKROOT_API_KEYS, by blanks)")
    more("--admin-key", "KEY", "for metrics and the cache (may be repeated)")
    more("--served-name", "NAME", "of the model (may be repeated; the first one is reported)")
    text = "clients with different keys share the cache; otherwise each has its own"
    parser.add_argument("--share-cache", action="store_true", help=text)
    text, streams = f"requests at work at a time (default {defaults.max_streams})", number(int, 1)
    parser.add_argument("--max-streams", type=streams, default=defaults.max_streams, help=text)
    text = f"seconds for open requests after SIGTERM (default {defaults.drain:g})"
    seconds = number(float, 1.0, _LONGEST)
    parser.add_argument("--drain", type=seconds, default=defaults.drain, help=text)
    text = "what becomes of the server when its engine has died (default exit: with code 1)"
    choices = ("exit", "restart")
    parser.add_argument("--on-engine-death", choices=choices, default="exit", help=text)
    text = "run the engine in the server's own process instead of a child"
    parser.add_argument("--in-process", action="store_true", help=text)
