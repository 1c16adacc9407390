"""Many streams at once, of which a third are dropped midway and a tenth are not requests at all.

What is left must be whole, and equal to the same request alone; and nothing may stay behind.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any, NamedTuple

from forkroot.benchmarks.server.server_child import QUIET, Served, serving
from forkroot.benchmarks.server.server_client import CHAT, COMPLETION, Answer, Line, request

LENGTHS = (8, 24, 40)
_MOST_READS = 12  # pieces after which a client goes
PATTERN = r"[a-z]{3,8}( [a-z]{2,8}){2,5}\."
_JSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Planned(NamedTuple):
    """One of the streams. kind: "whole", "dropped" or "malformed"; reads: then it hangs up."""

    kind: str
    message: bytes
    reads: int | None = None


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
            return Planned(kind, _long(index), chance.randint(1, _MOST_READS))
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


async def measure(num: int, seed: int) -> dict[str, Any]:
    """All streams alone, then together; the server's rest before and after."""
    planned = plan(num, seed)
    whole = [index for index, it in enumerate(planned) if it.kind == "whole"]
    with serving("--set", "dtype=float32", is_watched=True) as served:
        await _sent(served, planned[whole[0]])
        before = _rest(served)
        alone = {index: await _sent(served, planned[index]) for index in whole}
        served.ask("POST", "/flush_cache")
        start = time.perf_counter()
        answers = await asyncio.gather(*(_sent(served, it) for it in planned))
        seconds = time.perf_counter() - start
        quiet_after = served.quiet_after()
        await asyncio.sleep(0.2)
        after, health = _rest(served), served.ask("GET", "/health")[0]
    groups = {
        kind: [answers[i] for i, it in enumerate(planned) if it.kind == kind]
        for kind in ("whole", "dropped", "malformed")
    }
    return {
        "streams": num,
        "seconds": round(seconds, 2),
        "whole": len(whole),
        "complete": sum(answers[index].finish is not None for index in whole),
        "equal_to_solo": sum(_content(answers[it]) == _content(alone[it]) for it in whole),
        "without_text": sum(not answers[index].text for index in whole),
        "solo_complete": sum(alone[index].finish is not None for index in whole),
        "dropped": len(groups["dropped"]),
        "dropped_midway": sum(not it.is_whole and it.status == 200 for it in groups["dropped"]),
        "malformed": len(groups["malformed"]),
        "malformed_4xx": sum(400 <= it.status < 500 for it in groups["malformed"]),
        "malformed_statuses": _counted(groups["malformed"]),
        "quiet_after_s": quiet_after,
        "health": health,
        "before": before,
        "after": after,
    }


async def _sent(served: Served, planned: Planned) -> Answer:
    line = await Line.to(served.address)
    try:
        return await line.ask(planned.message, planned.reads)
    finally:
        line.close()


def _content(answer: Answer) -> tuple[str, str | None]:
    return answer.text, answer.finish


def _counted(answers: list[Answer]) -> dict[str, int]:
    return {str(key): count for key, count in sorted(Counter(it.status for it in answers).items())}


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
