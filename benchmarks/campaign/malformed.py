"""Broken bodies and broken HTTP on every route: each is answered by 4xx, or the connection ends.

Two kinds: bodies that are certainly wrong, and legal ones with one field changed at random, which
may be answered by 200. None may be answered by 5xx or not at all.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from typing import Any

from forkroot.benchmarks.campaign.legal import CHAT, COMPLETION, GENERATE, PATHS, RESPONSE, legal
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Line, request

AT_ONCE = 8
_SECONDS_TO_ANSWER = 10.0
_MOST_SHOWN = 3
_CONTEXT = 512  # tokens: bodies whose limit was changed generate as many as it has
_SMALL: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hello"}]},
    COMPLETION: {"prompt": "Hello"},
    RESPONSE: {"input": "Hello"},
    GENERATE: {"text": "Hello"},
}
_RAW = (
    b"POST /v1/chat/completions HTTP/9 ???\r\nno header\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,  # the start of TLS
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X-Header: 1\r\n" * 20_000 + b"\r\n",
    b"\x00" * 4096,
)


def run(plan: Plan) -> Verdict:
    """All that is certainly wrong once on each route, then changed bodies for the time left."""
    bars, chance = Bars(), random.Random(plan.seed)
    with serving("--set", f"context_len={_CONTEXT}") as served:
        found = asyncio.run(_sent(served, chance, plan.seconds))
        bars.note(requests=sum(found["statuses"].values()), statuses=dict(found["statuses"]))
        bars.equal("wrong_not_4xx", found["wrong"][:_MOST_SHOWN], [])
        bars.equal("answered_5xx_or_not", found["failed"][:_MOST_SHOWN], [])
        bars.equal("health_generate", served.ask("GET", "/health_generate")[0], 200)
        bars.at_most("quiet_after_s", served.quiet_after(), 10.0)
    return bars.verdict("malformed")


def wrong_bodies(path: str) -> list[Any]:
    """Bodies for this route that must be answered by 4xx; bytes are sent as they are."""
    good = _SMALL[path]
    (name,) = good
    text = json.dumps(good)
    wrong: list[Any] = [b"", b"{", b"\xff\xfe not JSON", b"null", b"[]", b"1"]
    wrong += [text.replace("Hello", "\\ud800").encode(), [good], {}, {**good, "stream": "yes"}]
    wrong += [{**good, name: value} for value in (None, 5, {}, [[]], [None], [{"a": 1}])]
    wrong += [b"[" * 20_000, b'{"a":' * 20_000, text.encode()[:-1], b"\xef\xbb\xbf" + b"{"]
    if path == GENERATE:
        bad = ({"temperature": -1}, {"n": 10_000}, {"regex": "(" * 50}, {"stop": ["x"] * 1000})
        return wrong + [{**good, "sampling_params": it} for it in bad]
    wrong += [{**good, "model": "no such model"}, {**good, "temperature": -1}]
    limit = "max_output_tokens" if path == RESPONSE else "max_tokens"
    wrong.append({**good, limit: -1})
    if path != RESPONSE:
        wrong += [
            {**good, "n": 10_000},
            {**good, "regex": "(" * 50},
            {**good, "stop": ["x"] * 1000},
        ]
        wrong += [
            {**good, "choices": []},
            {**good, "max_token": 5},
            {**good, "regex": "a", "choices": "b"},
        ]
    return wrong


def changed(body: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The body with one field, or one within it, replaced by something odd."""
    odd: tuple[Any, ...] = (
        *(None, True, -1, 0, 2**63, -(2**70), 1e308, "", "x" * 3000, "\u0000", [], {}),
        *([[]], [None, 1, "a"], {"a": {"b": [{}]}}, ["a"] * 600, [-1], [2**40]),
    )
    result = json.loads(json.dumps(body))
    holder, names = result, list(result)
    while True:
        name = chance.choice(names)
        below = holder[name]
        if not isinstance(below, dict | list) or not below or chance.random() < 0.5:
            holder[name] = chance.choice(odd)
            return dict(result)
        holder = below
        names = list(below) if isinstance(below, dict) else list(range(len(below)))


async def _sent(served: Served, chance: random.Random, seconds: float) -> dict[str, Any]:
    statuses: Counter[str] = Counter()
    wrong: list[str] = []
    failed: list[str] = []
    certain = [(path, body) for path in PATHS for body in wrong_bodies(path)]
    end = time.monotonic() + seconds

    async def client(number: int) -> None:
        raw = list(_RAW[number::AT_ONCE])
        while certain or raw or time.monotonic() < end:
            is_certain = bool(certain)
            if raw:
                message, shown = raw.pop(), ""
            else:
                path, body = certain.pop() if certain else _changed(chance)
                message, shown = request(path, body), f"{path} {str(body)[:300]}"
            status = await _status(served, message)
            statuses[str(status)] += 1
            is_answered = 200 <= status < 500 or (not shown and status == 0)
            if not is_answered:
                failed.append(f"{status} {shown or message[:50]!r}")
            elif is_certain and shown and status < 400:
                wrong.append(f"{status} {shown}")

    await asyncio.gather(*map(client, range(AT_ONCE)))
    return {"statuses": statuses, "wrong": wrong, "failed": failed}


def _changed(chance: random.Random) -> tuple[str, dict[str, Any]]:
    path = chance.choice(PATHS)
    return path, changed(legal(path, chance), chance)


async def _status(served: Served, message: bytes) -> int:
    """The status of the answer; 0 where the connection was closed without one, -1 for a hang."""
    line = await Line.to(served.address)
    try:
        return (await asyncio.wait_for(line.ask(message), _SECONDS_TO_ANSWER)).status
    except TimeoutError:
        return -1
    finally:
        line.close()
