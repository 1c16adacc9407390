"""Schemathesis over the server's own OpenAPI description: made-up requests to every route, of which
none may be answered by 5xx, and after which the engine must still write.

Needs `pip install schemathesis`, best in an environment of its own.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections import Counter
from typing import Any

from server_child import Served, serving

_CASES = re.compile(r"(\d+) generated")
_SECONDS_TO_END = 300


def measure(tool: str, seconds: int, seed: int) -> dict[str, Any]:
    """So many seconds of requests. tool: the path of its command `st`."""
    with serving() as served, tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            _command(tool, served.url, seconds, seed),
            cwd=folder,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=seconds + _SECONDS_TO_END,
        )
        status, _ = served.ask("GET", "/health_generate")
        found = served.metrics()
        rest = {name: found[name] for name in ("requests_open", "calls_open", "running", "waiting")}
        cases = _CASES.findall(done.stdout)
        return {
            "seconds": seconds,
            "tool_exit_code": done.returncode,
            "cases": int(cases[-1]) if cases else 0,
            **_answered(served),
            "health_generate": status,
            "at_work_after": rest,
        }


def _command(tool: str, url: str, seconds: int, seed: int) -> list[str]:
    timing = ("--max-time", str(seconds), "--request-timeout", "90", "--seed", str(seed))
    what = ("--phases", "coverage,fuzzing", "--checks", "not_a_server_error")
    how = ("--continue-on-failure", "--suppress-health-check", "all")
    return [tool, "run", f"{url}/openapi.json", *timing, *what, *how]


def _answered(served: Served) -> dict[str, Any]:
    """What the server's own log says of its answers."""
    served.log.seek(0)
    lines = [json.loads(line) for line in served.log if line.startswith("{")]
    statuses = Counter(str(line["status"]) for line in lines)
    served_well = {line["route"] for line in lines if line["status"] == 200}
    return {
        "requests": len(lines),
        "statuses": dict(sorted(statuses.items())),
        "routes_with_5xx": sorted({line["route"] for line in lines if line["status"] >= 500}),
        "routes_with_200": len(served_well),
        "slowest_s": max((line["seconds"] for line in lines), default=0.0),
    }
