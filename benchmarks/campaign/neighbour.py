"""Another client of the server, in a process of its own: what it feels of an attack.

One thread asks for a token again and again, another for /health, and a third, where it is wanted,
for an answer to a small new pattern. Run as a script it does so until its standard input is closed,
and then prints all samples. Times are of time.monotonic, which all processes of a machine share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from forkroot.benchmarks.server.server_child import Served
from forkroot.benchmarks.server.server_client import COMPLETION

PAUSE = 0.02
Window: TypeAlias = tuple[float, float]  # from when to when
KINDS = ("call", "health", "pattern")
_TIMEOUT = 8.0


class Sample(NamedTuple):
    """One request. kind: one of KINDS. status: 0 where nothing came back."""

    kind: str
    start: float
    seconds: float
    status: int


class Neighbour:
    """The samples of a neighbour; there are some only when it has ended."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def during(self, kind: str, start: float, end: float) -> list[Sample]:
        """The requests that were open at some time between these two."""
        return [
            it
            for it in self.samples
            if it.kind == kind and it.start < end and it.start + it.seconds > start
        ]

    def p99_ms(self, kind: str, *windows: Window) -> float:
        """The 99th percentile during all of these; infinite where there was none."""
        found = [it.seconds for window in windows for it in self.during(kind, *window)]
        return round(float(np.percentile(found, 99)) * 1000, 1) if found else float("inf")

    def worst_ms(self, kind: str, start: float, end: float) -> float:
        """The longest."""
        found = [it.seconds for it in self.during(kind, start, end)]
        return round(max(found, default=float("inf")) * 1000, 1)


@contextmanager
def neighbour(
    served: Served, key: str = "", kinds: Sequence[str] = KINDS[:2]
) -> Iterator[Neighbour]:
    """A neighbour at work, with a key of its own; its samples come at the end."""
    command = [sys.executable, "-m", "forkroot.benchmarks.campaign.neighbour"]
    host, port = served.address
    found = Neighbour()
    process = subprocess.Popen(
        [*command, host, str(port), key, *kinds],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()  # it has begun
    try:
        yield found
    finally:
        out, _ = process.communicate()
        found.samples += [Sample(*it) for it in json.loads(out)]


def _sample(address: tuple[str, int], key: str, kind: str, number: int) -> Sample:
    """One request on a connection of its own."""
    line = HTTPConnection(*address, timeout=_TIMEOUT)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    body: dict[str, Any] = {"prompt": f"Word {number}", "max_tokens": 1, "temperature": 0}
    if kind == "pattern":
        body |= {"max_tokens": 8, "regex": f"[a-c]{{2}}{number}"}
    start, status = time.monotonic(), 0
    with suppress(OSError, HTTPException):
        if kind == "health":
            line.request("GET", "/health")
        else:
            line.request("POST", COMPLETION, json.dumps(body), headers)
        response = line.getresponse()
        response.read()
        status = response.status
    line.close()
    return Sample(kind, start, time.monotonic() - start, status)


def main() -> None:
    """Sample until nobody listens any more."""
    host, port, key, *kinds = sys.argv[1:]
    samples: list[Sample] = []
    is_over = threading.Event()

    def run(kind: str) -> None:
        number = 0
        while not is_over.wait(PAUSE):
            samples.append(_sample((host, int(port)), key, kind, number))
            number += 1

    threads = [threading.Thread(target=run, args=(it,)) for it in kinds]
    for thread in threads:
        thread.start()
    print(flush=True)
    sys.stdin.read()
    is_over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(samples))


if __name__ == "__main__":
    main()
