"""Bodies that cost far more than their size, and what another client feels of each.

A neighbour with another key asks for single tokens and for /health all the time, a while alone and
then beside each bomb. Every bomb must be answered soon, must not stall the neighbour, and must
leave no memory behind. After a bomb that has stopped the server another one takes its place.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from forkroot.benchmarks.campaign.legal import CHAT, COMPLETION
from forkroot.benchmarks.campaign.neighbour import Neighbour, neighbour
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Line, request

KEYS = ("bomber-key", "neighbour-key")
MAX_STALL_MS, MAX_P99_RATIO, MAX_GROWTH = 250.0, 2.0, 1.10
_SECONDS_TO_ANSWER, _SECONDS_TO_ANSWER_FULL = 5.0, 60.0
_SECONDS_TO_WARM, _SECONDS_ALONE = 1.5, 2.0
_SECONDS_TO_SETTLE = 2.0
_SECONDS_AFTER = 0.2  # an answer, that still count as its own
_SECONDS_BETWEEN = 0.5
_ROUNDS = 3  # of the full campaign


def _message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, **fields}


def _numbers() -> bytes:
    return request(COMPLETION, {"prompt": [*([7] * 10**6), "a"]}, _headers())


def _fields() -> bytes:
    return request(CHAT, _message(**{f"field of mine {i}": i for i in range(10**5)}), _headers())


def _long_prompt() -> bytes:
    return request(COMPLETION, {"prompt": "many words " * 450_000}, _headers())


def _nested() -> bytes:
    body = b'{"messages": ' + b"[" * 10**5 + b"]" * 10**5 + b"}"
    return request(CHAT, body, _headers())


def _nested_schema() -> bytes:
    schema = b'{"items": ' * 20_000 + b"{}" + b"}" * 20_000
    body = b'{"prompt": "a", "max_tokens": 1, "json_schema": ' + schema + b"}"
    return request(COMPLETION, body, _headers())


def _digits() -> bytes:
    return request(COMPLETION, b'{"prompt": "a", "seed": ' + b"7" * 10**6 + b"}", _headers())


def _messages() -> bytes:
    one = {"role": "user", "content": "a"}
    return request(CHAT, {"messages": [one] * 10**5, "max_tokens": 1}, _headers())


def _stops() -> bytes:
    return request(CHAT, _message(stop=[f"s{i}" for i in range(10**5)]), _headers())


def _bias() -> bytes:
    return request(CHAT, _message(logit_bias={str(i): "x" for i in range(10**5)}), _headers())


def _tools() -> bytes:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "objet"}}}
    return request(CHAT, _message(tools=[tool] * 20_000), _headers())


def _escapes() -> bytes:
    return request(COMPLETION, b'{"prompt": "' + b"\\ud800" * 10**6 + b'"}', _headers())


BOMBS: dict[str, Callable[[], bytes]] = {
    "a list of 1,000,000 numbers and a text": _numbers,
    "100,000 unknown fields": _fields,
    "5 MB of prompt": _long_prompt,
    "100,000 brackets": _nested,
    "a schema 20,000 deep": _nested_schema,
    "a number of 1,000,000 digits": _digits,
    "100,000 messages": _messages,
    "100,000 stops": _stops,
    "100,000 biases": _bias,
    "20,000 tools": _tools,
    "1,000,000 lone surrogates": _escapes,
}


class Impact(NamedTuple):
    """What one bomb did. status: 0 where nothing came back in time. Times are of time.monotonic."""

    status: int
    start: float
    end: float
    memory_ratio: float


def run(plan: Plan) -> Verdict:
    """Every bomb once, the three of issue 21 first; several rounds in the full campaign."""
    bars, chance = Bars(), random.Random(plan.seed)
    first, rest = list(BOMBS)[:3], list(BOMBS)[3:]
    for _ in range(_ROUNDS if plan.is_full else 1):
        chance.shuffle(rest)
        left = [*first, *rest]
        while left:
            _one_server(left, bars, plan)
    return bars.verdict("bombs")


def _one_server(left: list[str], bars: Bars, plan: Plan) -> None:
    """Take bombs from the list while the server stands them."""
    timeout = _SECONDS_TO_ANSWER_FULL if plan.is_full else _SECONDS_TO_ANSWER
    keys = [word for key in KEYS for word in ("--api-key", key)]
    impacts: dict[str, Impact] = {}
    with (
        serving(*keys, admin_key="admin-key", num_slots=8192) as served,
        neighbour(served, KEYS[1]) as other,
    ):
        time.sleep(_SECONDS_TO_WARM)
        begin = time.monotonic()
        time.sleep(_SECONDS_ALONE)
        alone = begin, time.monotonic()
        while left:
            name = left.pop(0)
            impacts[name] = _impact(served, BOMBS[name](), timeout)
            if not _is_well(served):
                served.process.kill()
                break
            time.sleep(_SECONDS_BETWEEN)
    for name, impact in impacts.items():
        _judge(bars, name, impact, other, alone)


def _impact(served: Served, message: bytes, timeout: float) -> Impact:
    before, start = served.memory_mb(), time.monotonic()
    status = asyncio.run(_status(served, message, timeout))
    end = time.monotonic()
    ratio = served.memory_mb() / before
    while ratio > MAX_GROWTH and time.monotonic() < end + _SECONDS_TO_SETTLE:
        time.sleep(0.1)
        ratio = served.memory_mb() / before
    return Impact(status, start, end, round(ratio, 3))


async def _status(served: Served, message: bytes, timeout: float) -> int:
    line = await Line.to(served.address)
    try:
        return (await asyncio.wait_for(line.ask(message), timeout)).status
    except TimeoutError:
        return 0
    finally:
        line.close()


def _is_well(served: Served) -> bool:
    try:
        return served.ask("GET", "/health", timeout=1.0)[0] == 200
    except OSError:
        return False


def _judge(
    bars: Bars, name: str, impact: Impact, other: Neighbour, alone: tuple[float, float]
) -> None:
    """The bars of one bomb. Medians and worst of the neighbour alone are figures."""
    window = impact.start, impact.end + _SECONDS_AFTER
    before, after = other.p99_ms("call", alone), other.p99_ms("call", window)
    bars.at_most(f"{name}: p99 ratio", round(after / before, 2), MAX_P99_RATIO)
    bars.at_most(f"{name}: stall ms", other.worst_ms("health", *window), MAX_STALL_MS)
    bars.at_most(f"{name}: memory ratio", impact.memory_ratio, MAX_GROWTH)
    is_answered = 200 <= impact.status < 500
    shown = f"{impact.status or 'none'} after {impact.end - impact.start:.2f} s"
    bars.equal(f"{name}: answer", shown, shown if is_answered else "an answer below 500")
    bars.note(p99_alone_ms=before)


def _headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[0]}"}


def sizes() -> dict[str, int]:
    """Bytes of each bomb."""
    return {name: len(make()) for name, make in BOMBS.items()}


if __name__ == "__main__":
    print(json.dumps(sizes(), indent=1))
