"""Storms of streams, of which a third are closed at random moments and a tenth are not requests.

What is left must be whole, and equal to the same request alone; and nothing may stay behind: no
call, no slot, no task, no socket.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any, NamedTuple

from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import QUIET, Served, serving
from forkroot.benchmarks.server.server_client import CHAT, COMPLETION, Answer, Line, request

LENGTHS = (8, 24, 40)
_MOST_READS = 12  # pieces after which a client goes
_LATEST = 1.5  # seconds after which one goes that has read less
_STREAMS, _FULL_STREAMS = 60, 500
_MOST_STORMS = 100
PATTERN = r"[a-z]{3,8}( [a-z]{2,8}){2,5}\."
_JSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Planned(NamedTuple):
    """One of the streams. kind: "whole", "dropped" or "malformed"; reads, seconds: then it is
    closed, whichever comes first."""

    kind: str
    message: bytes
    reads: int | None = None
    seconds: float | None = None


def plan(num: int, seed: int) -> list[Planned]:
    """All streams, in the order in which they begin."""
    chance = random.Random(seed)
    kinds = ["dropped"] * (num // 3) + ["malformed"] * (num // 10)
    kinds += ["whole"] * (num - len(kinds))
    chance.shuffle(kinds)
    return [_planned(kind, index, chance) for index, kind in enumerate(kinds)]


def _planned(kind: str, index: int, chance: random.Random) -> Planned:
    match kind:
        case "dropped":
            latest = chance.random() ** 2 * _LATEST
            return Planned(kind, _long(index), chance.randint(1, _MOST_READS), latest)
        case "malformed":
            return Planned(kind, _malformed(index, chance))
    return Planned(kind, _good(index, chance))


def _good(index: int, chance: random.Random) -> bytes:
    text = f"{chance.choice(('Tell me', 'Write', 'Ask'))} of number {index} in a few words."
    body: dict[str, Any] = {"temperature": 0, "stream": True, "max_tokens": chance.choice(LENGTHS)}
    match chance.randrange(5):
        case 0:
            return request(COMPLETION, {**body, "prompt": text, "ignore_eos": True})
        case 1:
            return request(COMPLETION, {**body, "prompt": text, "regex": PATTERN})
        case 2:
            body["json_schema"] = _JSON
    return request(CHAT, {**body, "messages": [{"role": "user", "content": text}]})


def _long(index: int) -> bytes:
    """One that has not ended when its client goes."""
    message = {"role": "user", "content": f"Tell all there is to tell of {index}."}
    options = {"temperature": 0, "stream": True, "max_tokens": 200, "ignore_eos": True}
    return request(CHAT, {"messages": [message], **options})


def _malformed(index: int, chance: random.Random) -> bytes:
    """What must be answered by 4xx."""
    chat = {"messages": [{"role": "user", "content": f"Hello {index}"}], "stream": True}
    wrong: list[Any] = [
        b"{" * (index + 1),
        b"\xff\xfe not JSON",
        b"",
        [chat],
        {"stream": True},
        {**chat, "messages": "hello"},
        {**chat, "messages": [{"role": "nobody", "content": "x"}]},
        {**chat, "messages": [{"role": "user", "content": "\ud800"}]},
        {**chat, "temperature": -1},
        {**chat, "max_tokens": -1},
        {**chat, "n": 10_000},
        {**chat, "regex": "(" * 50},
        {**chat, "stop": ["x"] * 1000},
        {**chat, "model": "no such model"},
    ]
    number = chance.randrange(len(wrong) + 1)
    if number == len(wrong):
        return b"POST /v1/chat/completions HTTP/9 ???\r\nno header\r\n\r\n"
    return request(CHAT, wrong[number])


class Storm(NamedTuple):
    """What became of one storm."""

    streams: int
    whole: int
    complete: int
    equal_to_alone: int
    dropped_midway: int
    malformed: int
    malformed_4xx: int


def run(plan: Plan) -> Verdict:
    """Storms on one server until the time is over."""
    return asyncio.run(_storms(plan))


async def _storms(plan: Plan) -> Verdict:
    bars, end, storms = Bars(), time.monotonic() + plan.seconds, list[Storm]()
    num = _FULL_STREAMS if plan.is_full else _STREAMS
    with serving("--set", "dtype=float32", is_watched=True) as served:
        await _storm(served, num // 4, plan.seed - 1)
        before = _rest(served)
        while not storms or (time.monotonic() < end and len(storms) < _MOST_STORMS):
            storms.append(await _storm(served, num, plan.seed + len(storms)))
        bars.at_most("quiet_after_s", served.quiet_after(), 10.0)
        await asyncio.sleep(0.3)
        after = _rest(served)
        bars.equal("health", served.ask("GET", "/health")[0], 200)
    total = Storm(*(sum(counts) for counts in zip(*storms, strict=True)))
    bars.note(storms=len(storms), **total._asdict())
    bars.equal("complete", total.complete, total.whole)
    bars.equal("equal_to_alone", total.equal_to_alone, total.whole)
    bars.equal("malformed_4xx", total.malformed_4xx, total.malformed)
    bars.at_least("dropped_midway", total.dropped_midway, 1)
    bars.equal("slots_neither_free_nor_cached", after["slots_neither_free_nor_cached"], 0)
    bars.equal("tasks_left", dict(Counter(after["tasks"]) - Counter(before["tasks"])), {})
    bars.at_most("sockets_left", after["sockets"] - before["sockets"], 1)
    return bars.verdict("aborts")


async def _storm(served: Served, num: int, seed: int) -> Storm:
    """Those that are to be whole alone, then all together on an empty cache."""
    planned = plan(num, seed)
    whole = [index for index, it in enumerate(planned) if it.kind == "whole"]
    alone = {index: await _sent(served, planned[index]) for index in whole}
    served.ask("POST", "/flush_cache")
    answers = await asyncio.gather(*(_sent(served, it) for it in planned))
    by_kind = {
        kind: [answers[i] for i, it in enumerate(planned) if it.kind == kind]
        for kind in ("dropped", "malformed")
    }
    return Storm(
        num,
        len(whole),
        sum(answers[index].finish is not None for index in whole),
        sum(_content(answers[index]) == _content(alone[index]) for index in whole),
        sum(not it.is_whole for it in by_kind["dropped"]),
        len(by_kind["malformed"]),
        sum(400 <= it.status < 500 for it in by_kind["malformed"]),
    )


async def _sent(served: Served, planned: Planned) -> Answer:
    line = await Line.to(served.address)
    if planned.seconds is not None:
        asyncio.get_running_loop().call_later(planned.seconds, line.close)
    try:
        return await line.ask(planned.message, planned.reads)
    finally:
        line.close()


def _content(answer: Answer) -> tuple[str, str | None]:
    return answer.text, answer.finish


def _rest(served: Served) -> dict[str, Any]:
    """What is at work and held in a server that should have nothing to do."""
    found = served.metrics()
    slots = found["slots"] - found["free_slots"] - found["cached_slots"]
    gauges = {name: int(found[name]) for name in QUIET}
    return {
        **gauges,
        "slots_neither_free_nor_cached": int(slots),
        "tasks": dict(Counter(served.tasks())),
        "sockets": served.sockets(),
    }
