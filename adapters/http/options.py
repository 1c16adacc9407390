"""The options of `forkroot serve`, `forkroot route` and `forkroot drain`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..usage import no_server, number
from .server.runtime import Limits

if TYPE_CHECKING:
    from .server.settings import Settings

MOST_REPLICAS = 64  # of one machine
POLICY_NAMES = ("affinity", "round-robin", "least-loaded", "power-of-two", "random")
_LONGEST = 86_400.0  # seconds: a day
_LARGEST = 1024  # MiB


def add_serve_options(parser: argparse.ArgumentParser, models: str) -> None:
    """Add those of `serve` to its parser. models: what may be served, in words."""
    text, name = f"{models}; default: tiny", no_server("is a server already")
    parser.add_argument("model", nargs="?", type=name, help=text)
    _add_server_options(parser)
    text = "what the server does when its engine has died; exit (the default) ends it with code 1"
    choices = ("exit", "restart")
    parser.add_argument("--on-engine-death", choices=choices, default="exit", help=text)
    text = "run the engine in the server's own process instead of a child"
    parser.add_argument("--in-process", action="store_true", help=text)
    text = "the number of engines, behind one router (default 1)"
    count = number(int, 1, MOST_REPLICAS)
    parser.add_argument("--replicas", type=count, default=1, metavar="N", help=text)
    _add_policy(parser)


def add_route_options(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]
) -> None:
    """Add those of `route`, and the function that it runs, to its parser."""
    parser.set_defaults(run=run)
    text = "the URL of a server of the model (repeat it for each)"
    parser.add_argument(
        "--replica", action="append", default=[], metavar="URL", required=True, help=text
    )
    text = "the key that is sent to the replicas: an admin's, so that they tell clients apart"
    text += " and report what they cache (the variable FORKROOT_REPLICA_KEY otherwise)"
    parser.add_argument("--replica-key", metavar="KEY", help=text)
    text = "the model whose tokenizer is read; default: the one that the replicas name"
    parser.add_argument("--tokenizer", metavar="MODEL", help=text)
    _add_policy(parser)
    _add_server_options(parser)


def replica_key(options: argparse.Namespace) -> str | None:
    """The key of the replicas."""
    return options.replica_key or os.environ.get("FORKROOT_REPLICA_KEY") or None


def _add_policy(parser: argparse.ArgumentParser) -> None:
    text = f"which replica takes a call: {', '.join(POLICY_NAMES)} (default affinity)"
    parser.add_argument(
        "--policy", choices=POLICY_NAMES, default="affinity", metavar="NAME", help=text
    )


def _add_server_options(parser: argparse.ArgumentParser) -> None:
    defaults = Limits()

    def more(name: str, metavar: str, text: str) -> None:
        parser.add_argument(name, action="append", default=[], metavar=metavar, help=text)

    text = "the address to listen on (default 127.0.0.1)"
    parser.add_argument("--host", default="127.0.0.1", help=text)
    text = "the port to listen on; 0 takes any free one (default 30000)"
    parser.add_argument("--port", type=number(int, 0, 65535), default=30000, help=text)
    text = "accept this API key from clients (may be repeated; the variable FORKROOT_API_KEYS"
    more("--api-key", "KEY", f"{text} adds keys, separated by spaces)")
    text = "this key's share of the engine, relative to the others' (may be repeated; default 1)"
    more("--key-weight", "KEY=N", text)
    for what in ("requests", "tokens"):
        text = f"{what} that each key may use in a minute; more are refused with 429 (default: any)"
        parser.add_argument(f"--{what}-per-minute", type=number(int, 1), metavar="N", help=text)
    text = "accept the keys of this file of JSON, each with its weight and rates (docs/server.md)"
    parser.add_argument("--keys-file", type=Path, metavar="FILE", help=text)
    text = "require this key for metrics, the cache and draining (may be repeated; the variable"
    more("--admin-key", "KEY", f"{text} FORKROOT_ADMIN_KEYS adds keys, separated by spaces)")
    text = "without keys, answer requests for this name too, besides addresses, localhost and the"
    more("--allowed-host", "NAME", f"{text} machine's own name (may be repeated; * for any)")
    text = "let pages of this origin use the server from a browser, as https://a.site"
    more("--cors-origin", "ORIGIN", f"{text} (may be repeated; * for any)")
    text = (
        "fetch pictures and clips that requests name by URLs of these hosts, as a.site or .a.site"
    )
    text, option = f"{text} with all below it (* for any; default: none)", "--media-hosts"
    parser.add_argument(option, nargs="+", action="extend", default=[], metavar="HOST", help=text)
    text = "the name of the model in the API (may be repeated; the first one is reported)"
    more("--served-name", "NAME", text)
    text = "clients with different keys share the cache; otherwise each has its own"
    parser.add_argument("--share-cache", action="store_true", help=text)
    text = "append one line of JSON for each request to this file: time, client, route, tokens"
    parser.add_argument("--audit-log", metavar="FILE", help=text)
    text = f"the maximum number of requests at a time (default {defaults.max_streams})"
    most, num = defaults.max_streams, number(int, 1)
    parser.add_argument("--max-streams", type=num, default=most, metavar="N", help=text)
    text = f"the maximum size of a request's body in MiB (default {defaults.max_body >> 20})"
    most, num = defaults.max_body >> 20, number(int, 1, _LARGEST)
    parser.add_argument("--max-body", type=num, default=most, metavar="MIB", help=text)
    text = "the maximum number of open connections of one address"
    text += f" (default {defaults.max_connections})"
    most, num = defaults.max_connections, number(int, 1)
    parser.add_argument("--max-connections", type=num, default=most, metavar="N", help=text)
    text = "seconds in which a request's headers, and its body, have to arrive"
    text += f" (default {defaults.request_timeout:g})"
    seconds, timeout = number(float, 0.1, _LONGEST), defaults.request_timeout
    parser.add_argument("--request-timeout", type=seconds, default=timeout, metavar="S", help=text)
    text = f"seconds that open requests have to finish after SIGTERM (default {defaults.drain:g})"
    seconds = number(float, 1.0, _LONGEST)
    parser.add_argument("--drain", type=seconds, default=defaults.drain, metavar="S", help=text)


def add_drain_options(parser: argparse.ArgumentParser) -> None:
    """Add those of `forkroot drain` to its parser."""
    text, url = "the URL of the server (default %(default)s)", "http://127.0.0.1:30000"
    parser.add_argument("url", nargs="?", default=url, help=text)
    text = "an admin key of the server (default: the first of FORKROOT_ADMIN_KEYS)"
    parser.add_argument("--admin-key", metavar="KEY", help=text)
    text = "seconds to wait until no request is open (default 0)"
    seconds = number(float, 0.0, _LONGEST)
    parser.add_argument("--wait", type=seconds, default=0.0, metavar="S", help=text)
    text = "let the server take new requests again"
    parser.add_argument("--resume", action="store_true", help=text)


def access_settings(options: argparse.Namespace) -> Settings:
    """Who may use the server, and how much. Raises InvalidCall."""
    from .key_file import KeyFile, read_keys
    from .server.rate_limits import Rates
    from .server.settings import Settings, key_weights

    rates = Rates(options.requests_per_minute, options.tokens_per_minute)
    known = read_keys(options.keys_file, rates) if options.keys_file else KeyFile()
    weights = key_weights(options.key_weight)
    given = Settings(
        (*options.api_key, *os.environ.get("FORKROOT_API_KEYS", "").split()),
        (*options.admin_key, *os.environ.get("FORKROOT_ADMIN_KEYS", "").split()),
        options.share_cache,
        allowed_hosts=(options.host, *options.allowed_host),
        cors_origins=tuple(options.cors_origin),
        rates=rates,
        media_hosts=tuple(options.media_hosts),
    )
    merged = known.added_to(given)
    return replace(merged, weights={**merged.weights, **weights})


def server_limits(options: argparse.Namespace) -> Limits:
    """What the server accepts of all clients together."""
    return Limits(
        max_body=options.max_body << 20,
        max_streams=options.max_streams,
        max_connections=options.max_connections,
        request_timeout=options.request_timeout,
        drain=options.drain,
    )
