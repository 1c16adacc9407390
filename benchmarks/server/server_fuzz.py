"""Made-up requests to every route: schemathesis over the server's own OpenAPI description, and
legal bodies with odd values (`server_legal`) over open connections.

None may be answered by 5xx or not at all, each legal one must be answered by 200 to its end, and
after all of them the engine must still write. Needs `pip install schemathesis`, best in an
environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Answer, Line, request
from forkroot.benchmarks.server.server_legal import PATHS, RESPONSE, legal

AT_ONCE = 16
_CASES = re.compile(r"(\d+) generated")
_SECONDS_TO_END = 300
_EVERYTHING = ("--phases", "coverage,fuzzing")
_SOUND = ("--phases", "fuzzing", "--mode", "positive", *(f"--include-path={it}" for it in PATHS))
_MAX_SECONDS = 60.0  # for one answer: what takes longer hangs
_MAX_SHOWN = 5
_ENDS = (b"data: [DONE]\n\n",)
_RESPONSE_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n")


def measure(tool: str, seconds: int, seed: int) -> dict[str, Any]:
    """So many seconds of made-up requests, half of them to every route and broken in every way,
    half to those of generation and sound; then a fifth as many of legal ones. tool: the path of
    schemathesis' command `st`."""
    with serving() as served, tempfile.TemporaryDirectory() as folder:
        runs = [
            subprocess.run(
                [*_command(tool, served.url, seconds // 2, seed), *how],
                cwd=folder,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=seconds + _SECONDS_TO_END,
            )
            for how in (_EVERYTHING, _SOUND)
        ]
        cases = [int(found[-1]) for run in runs if (found := _CASES.findall(run.stdout))]
        made_up = {"seconds": seconds, "tool_exit_codes": [run.returncode for run in runs]}
        made_up |= {"cases": sum(cases), **_answered(served), **_rest(served)}
    with serving() as served:
        odd = asyncio.run(_legal(served, max(10, seconds // 5), seed))
        return {"made_up": made_up, "legal": {**odd, **_rest(served)}}


def _command(tool: str, url: str, seconds: int, seed: int) -> list[str]:
    timing = ("--max-time", str(seconds), "--request-timeout", "90", "--seed", str(seed))
    how = ("--continue-on-failure", "--suppress-health-check", "all")
    return [tool, "run", f"{url}/openapi.json", *timing, "--checks", "not_a_server_error", *how]


def _environment() -> dict[str, str]:
    """This one's, with `server_fuzz_hooks` to be found."""
    checkout = Path(__file__).parents[2] / ".ci" / "typed"
    hooks = "forkroot.benchmarks.server.server_fuzz_hooks"
    return {**os.environ, "PYTHONPATH": str(checkout), "SCHEMATHESIS_HOOKS": hooks}


def _answered(served: Served) -> dict[str, Any]:
    """What the server's own log has of its answers."""
    served.log.seek(0)
    lines = [json.loads(line) for line in served.log if line.startswith("{")]
    statuses = Counter(str(line["status"]) for line in lines)
    by_route = {
        path: Counter(str(line["status"]) for line in lines if line["route"] == path)
        for path in PATHS
    }
    return {
        "requests": len(lines),
        "statuses": dict(sorted(statuses.items())),
        "statuses_by_route": {
            path: dict(sorted(found.items())) for path, found in by_route.items()
        },
        "routes_with_5xx": sorted({line["route"] for line in lines if line["status"] >= 500}),
        "routes_with_200": len({line["route"] for line in lines if line["status"] == 200}),
        "completion_tokens": sum(line["completion_tokens"] for line in lines),
        "slowest_s": max((line["seconds"] for line in lines), default=0.0),
    }


def _rest(served: Served) -> dict[str, Any]:
    """Whether it still writes, and what is at work without requests."""
    status, _ = served.ask("GET", "/health_generate")
    found = served.metrics()
    names = ("requests_open", "calls_open", "running", "waiting")
    return {"health_generate": status, "at_work_after": {name: found[name] for name in names}}


async def _legal(served: Served, seconds: int, seed: int) -> dict[str, Any]:
    """Legal bodies, several at a time. Those that were not answered well are reported."""
    chance = random.Random(seed)
    statuses: dict[str, Counter[str]] = {path: Counter() for path in PATHS}
    unwell: list[dict[str, Any]] = []
    end = time.perf_counter() + seconds

    async def client() -> None:
        line = await Line.to(served.address)
        while time.perf_counter() < end:
            path = chance.choice(PATHS)
            body = legal(path, chance)
            try:
                answer = await asyncio.wait_for(line.ask(request(path, body)), _MAX_SECONDS)
            except (TimeoutError, ConnectionError) as error:
                statuses[path][type(error).__name__] += 1
                unwell.append({"path": path, "body": body, "told": repr(error)})
                line = await Line.to(served.address)
                continue
            statuses[path][str(answer.status)] += 1
            if not _is_well(path, body, answer):
                body_end = answer.body[-300:].decode("utf-8", "replace")
                unwell.append({"path": path, "body": body, "told": body_end})
        line.close()

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))
    found = {path: dict(count) for path, count in statuses.items()}
    return {
        "seconds": seconds,
        "requests": sum(sum(it.values()) for it in found.values()),
        "statuses_by_route": found,
        "not_answered_well": len(unwell),
        "the_first_of_them": unwell[:_MAX_SHOWN],
    }


def _is_well(path: str, body: dict[str, Any], answer: Answer) -> bool:
    """Whether it was answered by 200 and to its end, without an error on the way."""
    if answer.status != 200 or not answer.is_whole or b'"error":{' in answer.body:
        return False
    if not body.get("stream"):
        return isinstance(json.loads(answer.body), dict | list)
    ends = _RESPONSE_ENDS if path == RESPONSE else _ENDS
    return any(mark in answer.body[answer.body.rfind(b"\n\n", 0, -2) :] for mark in ends)
