"""The engine's process killed while streams are open: when each client hears of it, what /health
says, and how the server ends, or starts another engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections import Counter
from typing import Any

from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import CHAT, Answer, Line, request

ANSWER_LEN = 1900
_CONTEXT_LEN = 2048  # room for all at once: none waits for a slot
_SECONDS_TO_BEGIN, _SECONDS_TO_END = 60.0, 20.0


async def measure(num: int) -> dict[str, Any]:
    """Both things that an operator may want."""
    return {"exit": await _killed(num, "exit"), "restart": await _killed(num, "restart")}


async def _killed(num: int, wish: str) -> dict[str, Any]:
    """Open so many streams, kill, and watch."""
    is_over = "no connection" if wish == "exit" else "200"
    with serving("--on-engine-death", wish, num_slots=num * _CONTEXT_LEN) as served:
        connections = [await Line.to(served.address) for _ in range(num)]
        requests = [asyncio.create_task(it.ask(_long(i))) for i, it in enumerate(connections)]
        await _wait_for_first_tokens(connections)
        num_open = sum(not it.done() for it in requests)
        killed = time.perf_counter()
        os.kill(served.engine, signal.SIGKILL)
        looks = asyncio.create_task(asyncio.to_thread(_watch, served, killed, is_over))
        answers = await asyncio.wait_for(asyncio.gather(*requests), _SECONDS_TO_END)
        seen = await looks
        after = _exited(served, killed) if wish == "exit" else _restarted(served)
    last = [it.ended - killed for it in answers]
    return {
        "open": num_open,
        "told": dict(Counter(map(_outcome, answers))),
        "told_after_s": {"first": round(min(last), 4), "last": round(max(last), 4)},
        "health": seen,
        **after,
    }


def _exited(served: Served, killed: float) -> dict[str, Any]:
    code, seconds = _ended(served), time.perf_counter() - killed
    served.log.seek(0)
    is_logged = "the backend has ended" in served.log.read()
    return {"exit_code": code, "exited_after_s": round(seconds, 3), "is_logged": is_logged}


def _restarted(served: Served) -> dict[str, Any]:
    """What the new engine does: it writes, from an empty cache, and nothing of the old is left."""
    body = {"prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
    status, data = served.ask("POST", "/v1/completions", body)
    found = served.metrics()
    return {
        "then": [status, json.loads(data)["choices"][0]["text"]],
        "restarts": found["restarts_total"],
        "cached_tokens": found["cached_tokens_total"],
        "quiet_after_s": served.quiet_after(),
    }


def _long(index: int) -> bytes:
    message = {"role": "user", "content": f"Tell the long story of number {index}."}
    rest = {"temperature": 0, "ignore_eos": True, "stream": True, "max_tokens": ANSWER_LEN}
    return request(CHAT, {"messages": [message], **rest})


async def _wait_for_first_tokens(connections: list[Line]) -> None:
    """Until each stream has brought some text. Raises TimeoutError."""
    async with asyncio.timeout(_SECONDS_TO_BEGIN):
        while not all(line.has_text for line in connections):
            await asyncio.sleep(0.01)


def _outcome(answer: Answer) -> str:
    """How a stream ended."""
    ending = "ended" if answer.is_whole else "cut"
    return f"{answer.status}, {answer.error or 'no error'}, {ending}"


def _watch(served: Served, killed: float, last: str) -> dict[str, Any]:
    """What /health answers until it is `last` after a failure: each status, and when it was first
    seen."""
    seen: dict[str, float] = {}
    while time.perf_counter() - killed < _SECONDS_TO_END:
        requests = time.perf_counter() - killed
        try:
            status = str(served.ask("GET", "/health")[0])
        except OSError:
            status = "no connection"
        seen.setdefault(f"{status}, asked after s", round(requests, 4))
        seen.setdefault(f"{status}, answered after s", round(time.perf_counter() - killed, 4))
        if status == last and len(seen) > 2:
            seen["over after s"] = round(time.perf_counter() - killed, 4)
            break
        time.sleep(0.005)
    return seen


def _ended(served: Served) -> int | None:
    """The server's exit code; None where it goes on."""
    try:
        return served.process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        return None
