"""One key sends as much as it can, and a neighbour with another key is timed.

Three ways: scored prompts, many long streams, and slow schemas. The neighbour asks for single
tokens, for answers to small patterns that nobody has used, and for /health; each must take no more
than twice as long as when it is alone, before and after: the speed of a machine changes.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from forkroot.benchmarks.campaign.kills import slow_schema
from forkroot.benchmarks.campaign.legal import CHAT, COMPLETION
from forkroot.benchmarks.campaign.neighbour import KINDS, Window, neighbour
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Line, request

KEYS = ("greedy-key", "modest-key")
MAX_RATIO, MAX_STALL_MS = 2.0, 250.0
_SECONDS_TO_WARM = 1.5
_SECONDS, _SECONDS_FULL = 3.0, 30.0  # of each way
_SECONDS_ALONE, _SECONDS_ALONE_FULL = 1.5, 10.0  # before each way, and after the last
_SLOTS = 65_536


def _scored(chance: random.Random) -> list[dict[str, Any]]:
    """One request: 64 prompts of 1,900 tokens, echoed with log-probabilities."""
    prompts = [[chance.randrange(300, 4000) for _ in range(1900)] for _ in range(64)]
    return [{"prompt": prompts, "echo": True, "logprobs": 1, "max_tokens": 1}]


def _streams(chance: random.Random) -> list[dict[str, Any]]:
    """200 streams of 1,000 tokens."""
    options = {"max_tokens": 1000, "ignore_eos": True, "stream": True}
    return [
        {"messages": [{"role": "user", "content": f"Tell {chance.random()}"}], **options}
        for _ in range(200)
    ]


def _schemas(chance: random.Random) -> list[dict[str, Any]]:
    """60 schemas that take a compiler about a second each."""
    return [slow_schema(chance) for _ in range(60)]


WAYS: dict[str, Callable[[random.Random], list[dict[str, Any]]]] = {
    "64 scored prompts": _scored,
    "200 streams": _streams,
    "60 slow schemas": _schemas,
}


def run(plan: Plan) -> Verdict:
    """Each way for a while; the streams hang up in between."""
    bars, chance = Bars(), random.Random(plan.seed)
    keys = [word for key in KEYS for word in ("--api-key", key)]
    seconds, seconds_alone = (
        (_SECONDS_FULL, _SECONDS_ALONE_FULL) if plan.is_full else (_SECONDS, _SECONDS_ALONE)
    )
    windows: dict[str, Window] = {}
    with (
        serving(*keys, admin_key="admin-key", num_slots=_SLOTS) as served,
        neighbour(served, KEYS[1], KINDS) as other,
    ):
        time.sleep(_SECONDS_TO_WARM)
        alone = [_alone(seconds_alone)]
        for name, make in WAYS.items():
            bodies, start = make(chance), time.monotonic()
            asyncio.run(_sent(served, bodies, seconds))
            windows[name] = start, time.monotonic()
            bars.at_most(f"{name}: quiet_after_s", served.quiet_after(), 10.0)
            alone.append(_alone(seconds_alone))
    for window, around, name in zip(windows.values(), pairwise(alone), windows, strict=True):
        for kind in ("call", "pattern"):
            ratio = other.p99_ms(kind, window) / other.p99_ms(kind, *around)
            bars.at_most(f"{name}: {kind} p99 ratio", round(ratio, 2), MAX_RATIO)
            bars.note(**{f"{name}: {kind} p99 ms": other.p99_ms(kind, window)})
        bars.at_most(f"{name}: stall ms", other.worst_ms("health", *window), MAX_STALL_MS)
    bars.note(**{f"{kind} alone p99 ms": other.p99_ms(kind, *alone) for kind in KINDS})
    bars.equal("refused", sorted({it.status for it in other.samples} - {200}), [])
    return bars.verdict("greedy")


def _alone(seconds: float) -> Window:
    """A while in which nobody attacks."""
    start = time.monotonic()
    time.sleep(seconds)
    return start, time.monotonic()


async def _sent(served: Served, bodies: list[dict[str, Any]], seconds: float) -> None:
    """All at once; after so many seconds all hang up."""
    headers = {"Authorization": f"Bearer {KEYS[0]}"}
    lines = [await Line.to(served.address) for _ in bodies]
    paths = [CHAT if "messages" in body else COMPLETION for body in bodies]
    messages = [request(*it, headers) for it in zip(paths, bodies, strict=True)]
    calls = [
        asyncio.create_task(line.ask(message))
        for line, message in zip(lines, messages, strict=True)
    ]
    await asyncio.wait(calls, timeout=seconds)
    for line in lines:
        line.close()
    await asyncio.gather(*calls)
