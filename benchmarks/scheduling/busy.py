"""What busy threads of the caller cost an engine in its process, and one in a child process.

Streams decode side by side: alone, beside Python threads of the caller that compute without end,
and beside as many threads of another process ("stranger"), which has nothing to do with the engine.
What that costs is the machine's, whose cores share memory and clock; what the caller's threads cost
beyond that is ours. The order changes from round to round.

The streams come as one call, so that each setting decodes the same batches, and as many calls,
which the caller submits one after another among its threads: those that come late miss steps.
`step`: seconds of one step, by the engine. `steps`: how many it made. `submitted`: seconds
until the last call was on its way. `wall`: until the last had ended, seen by the caller, whose own
code runs among its busy threads. Prints one JSON row; medians over the rounds, and of the ratios
within each.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from typing import Any, NamedTuple

from forkroot import Backend, Call, Sampling, Tokens, connect
from forkroot.benchmarks.common.report import parser, report

STREAMS, PROMPT_LEN, ANSWER_LEN = 8, 64, 384
FIRST_TOKEN = 300
OTHER_PROCESS = """import sys, time
from forkroot.benchmarks.scheduling.busy import busy
with busy(int(sys.argv[1])):
    time.sleep(3600)
"""
CALLS = {"one call": 1, "a call each": STREAMS}


class Times(NamedTuple):
    """Of one batch of streams. wall, submitted, step: seconds."""

    wall: float
    submitted: float
    steps: float
    step: float


def decode(backend: Any, salt: int, num_calls: int) -> Times:
    """One batch of streams, shared out among so many calls."""
    sampling = Sampling(
        max_tokens=ANSWER_LEN, temperature=0.0, ignore_eos=True, n=STREAMS // num_calls
    )
    tail = range(FIRST_TOKEN + 100, FIRST_TOKEN + 100 + PROMPT_LEN - 2)
    calls = [
        Call((Tokens((FIRST_TOKEN + index, FIRST_TOKEN + salt, *tail)),), sampling, stream=True)
        for index in range(num_calls)
    ]
    backend.clear_cache()
    backend.reset_counters()
    start = time.perf_counter()
    replies = [backend.submit(call) for call in calls]
    submitted = time.perf_counter() - start
    for reply in replies:
        reply.result()
    wall = time.perf_counter() - start
    counters = backend.info().counters
    steps = counters["steps"]
    return Times(wall, submitted, steps, counters["step_seconds"] / steps)


@contextmanager
def busy(num_threads: int) -> Iterator[None]:
    """Threads that hold the interpreter as much as they can."""
    is_over = threading.Event()

    def spin() -> None:
        number = 1
        while not is_over.is_set():
            for _ in range(1000):
                number = number * 1_103_515_245 % 2_147_483_647

    threads = [threading.Thread(target=spin, daemon=True) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def other_process(num_threads: int) -> Iterator[None]:
    """Another process with such threads."""
    process = subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, str(num_threads)])
    time.sleep(0.5)
    try:
        yield
    finally:
        process.kill()
        process.wait()


SETTINGS: dict[str, Any] = {
    "alone": lambda _: nullcontext(),
    "stranger": other_process,
    "busy": busy,
}


def measure(backend: Backend, num_threads: int, num_calls: int, rounds: int) -> dict[str, Any]:
    """Every setting in each round."""
    found: dict[str, list[Times]] = {name: [] for name in SETTINGS}
    decode(backend, 0, num_calls)
    for index in range(rounds):
        names = list(SETTINGS)
        for name in names[index % 3 :] + names[: index % 3]:
            with SETTINGS[name](num_threads):
                found[name].append(decode(backend, index, num_calls))
    return {
        field: _compared({name: [getattr(t, field) for t in found[name]] for name in found})
        for field in Times._fields
    }


def _compared(values: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and medians of the ratios within each round."""

    def ratio(above: str, below: str) -> float:
        pairs = zip(values[above], values[below], strict=True)
        return round(median(a / b for a, b in pairs), 3)

    return {
        **{name: round(median(of), 6) for name, of in values.items()},
        "stranger/alone": ratio("stranger", "alone"),
        "busy/alone": ratio("busy", "alone"),
        "busy/stranger": ratio("busy", "stranger"),
    }


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--threads", type=int, default=16)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--in-process", action="store_true", help="also without a child: minutes")
    chosen = options.parse_args()
    figures = {}
    for is_process in (True, False) if chosen.in_process else (True,):
        backend = connect("tiny", process=is_process)
        name = "in a child process" if is_process else "in this process"
        figures[name] = {
            shape: measure(backend, chosen.threads, num_calls, chosen.rounds)
            for shape, num_calls in CALLS.items()
        }
        backend.close()
    report("busy", figures, chosen.out, threads=chosen.threads, streams=STREAMS)


if __name__ == "__main__":
    main()
