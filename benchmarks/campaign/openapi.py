"""Made-up requests to every route: schemathesis over the server's own OpenAPI description, and
legal bodies with odd values (`legal`) over open connections.

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
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from forkroot.benchmarks.campaign.legal import PATHS, RESPONSE, legal
from forkroot.benchmarks.campaign.runner import Bars, Plan, Skipped, Verdict
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Answer, Line, request

AT_ONCE = 16
_CASES = re.compile(r"(\d+) generated")
_EVERYTHING = ("--phases", "coverage,fuzzing")
_SOUND = ("--phases", "fuzzing", "--mode", "positive", *(f"--include-path={it}" for it in PATHS))
_MAX_SECONDS = 60.0  # for one answer: what takes longer hangs
_MAX_SHOWN = 5
_ENDS = (b"data: [DONE]\n\n",)
_RESPONSE_ENDS = (b"event: response.completed\n", b"event: response.incomplete\n")


def run(plan: Plan) -> Verdict:
    """Made-up requests for three quarters of the time, half of them to every route and broken in
    every way, half to those of generation and sound; then legal ones. Raises Skipped without
    schemathesis."""
    tool = _tool()
    bars = Bars()
    with serving() as served, tempfile.TemporaryDirectory() as folder:
        seconds = max(2, int(plan.seconds * 3 / 8))
        runs = [
            subprocess.run(
                [*_command(tool, served.url, seconds, plan.seed), *how],
                cwd=folder,
                env=_environment(Path(folder)),
                capture_output=True,
                text=True,
                timeout=plan.bound,
            )
            for how in (_EVERYTHING, _SOUND)
        ]
        cases = [int(found[-1]) for it in runs if (found := _CASES.findall(it.stdout))]
        bars.note(cases=sum(cases), **_answered(served))
        bars.at_least("cases", sum(cases), 1)
        bars.equal("tool_exit_codes", [it.returncode for it in runs], [0, 0])
        bars.equal("routes_with_5xx", bars.figures["routes_with_5xx"], [])
        _rest(served, bars)
        found = asyncio.run(_legal(served, max(2, plan.seconds / 4), plan.seed))
        bars.note(legal=found["requests"], legal_statuses=found["statuses_by_route"])
        bars.equal("legal_not_answered_well", found["the_first_of_them"], [])
        _rest(served, bars)
    return bars.verdict("openapi")


def _tool() -> str:
    """schemathesis' command: the variable SCHEMATHESIS, or where it is installed."""
    beside = Path(sys.executable).parent / "schemathesis"
    found = os.environ.get("SCHEMATHESIS") or shutil.which("schemathesis")
    if found is None and beside.exists():
        found = str(beside)
    if found is None:
        raise Skipped(
            "needs schemathesis: `pip install schemathesis`, or its command in SCHEMATHESIS"
        )
    return found


def _command(tool: str, url: str, seconds: int, seed: int) -> list[str]:
    timing = ("--max-time", str(seconds), "--request-timeout", "90", "--seed", str(seed))
    how = ("--continue-on-failure", "--suppress-health-check", "all")
    return [tool, "run", f"{url}/openapi.json", *timing, "--checks", "not_a_server_error", *how]


def _environment(folder: Path) -> dict[str, str]:
    """This one's, with `openapi_hooks` to be found in this folder: schemathesis may be installed
    where forkroot is not."""
    for name in ("openapi_hooks", "legal"):
        shutil.copy(Path(__file__).with_name(f"{name}.py"), folder)
    return {**os.environ, "PYTHONPATH": str(folder), "SCHEMATHESIS_HOOKS": "openapi_hooks"}


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


def _rest(served: Served, bars: Bars) -> None:
    """Whether it still writes, and has nothing at work without requests."""
    bars.equal("health_generate", served.ask("GET", "/health_generate")[0], 200)
    bars.at_most("quiet_after_s", served.quiet_after(), 10.0)


async def _legal(served: Served, seconds: float, seed: int) -> dict[str, Any]:
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
            if not is_well(path, body, answer):
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


def is_well(path: str, body: dict[str, Any], answer: Answer) -> bool:
    """Whether it was answered by 200 and to its end, without an error on the way."""
    if answer.status != 200 or not answer.is_whole or b'"error":{' in answer.body:
        return False
    if not body.get("stream"):
        return isinstance(json.loads(answer.body), dict | list)
    ends = _RESPONSE_ENDS if path == RESPONSE else _ENDS
    return any(mark in answer.body[answer.body.rfind(b"\n\n", 0, -2) :] for mark in ends)
