"""The options of `forkroot serve`."""

from __future__ import annotations

import argparse
from typing import TypeVar

from .runtime import Limits

T = TypeVar("T", int, float)


def add_serve_options(parser: argparse.ArgumentParser, models: str) -> None:
    """Add them to its parser. models: what may be served, in words."""
    defaults = Limits()
    text = f"{models} (the default)"
    parser.add_argument("model", nargs="?", type=not_served, default="tiny", help=text)

    def more(name: str, metavar: str, text: str) -> None:
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=text)

    parser.add_argument("--host", default="127.0.0.1", help="the address (default 127.0.0.1)")
    parser.add_argument("--port", type=port, default=30000, help="0: any free one (default 30000)")
    more("--api-key", "KEY", "of a client (may be repeated; also FORKROOT_API_KEYS, by blanks)")
    more("--admin-key", "KEY", "for metrics and the cache (may be repeated)")
    more("--served-name", "NAME", "of the model (may be repeated; the first one is told)")
    text = "clients with different keys share the cache; otherwise each has its own"
    parser.add_argument("--share-cache", action="store_true", help=text)
    text = f"requests at work at a time (default {defaults.max_streams})"
    parser.add_argument("--max-streams", type=count, default=defaults.max_streams, help=text)
    text = f"seconds for open requests after SIGTERM (default {defaults.drain:g})"
    parser.add_argument("--drain", type=seconds, default=defaults.drain, help=text)
    text = "what becomes of the server when its engine has died (default exit: with code 1)"
    choices = ("exit", "restart")
    parser.add_argument("--on-engine-death", choices=choices, default="exit", help=text)
    text = "run the engine in the server's own process instead of a child"
    parser.add_argument("--in-process", action="store_true", help=text)


def not_served(text: str) -> str:
    """A model that no server has yet."""
    if text.startswith(("http://", "https://")):
        told = f"{text} is a server already; allowed: a checkpoint folder, or the name of a model"
        raise argparse.ArgumentTypeError(told)
    return text


def port(text: str) -> int:
    """0 to 65535."""
    return _within(int(text), 0, 65535)


def count(text: str) -> int:
    """1 or more."""
    return _within(int(text), 1, 1_000_000)


def seconds(text: str) -> float:
    """1 second to a day."""
    return _within(float(text), 1.0, 86_400.0)


def _within(value: T, low: T, high: T) -> T:
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{value} is not allowed; allowed: {low:,} to {high:,}")
    return value
