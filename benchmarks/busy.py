"""What busy threads in the caller's process cost an engine beside them, and one in a child process.

Streams decode side by side, first alone, then beside Python threads that compute without end; the
order changes from round to round. Beside the wall time of a batch stands the time that the engine
spent in its steps, in the child, where the caller's threads cannot be seen. Prints one JSON row;
medians over the rounds, and their ratios.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from common import parser, report

from forkroot import Backend, Call, Sampling, Tokens, connect

STREAMS, PROMPT_LEN, ANSWER_LEN = 8, 64, 128
FIRST_TOKEN = 300


def decode(backend: Any, salt: int) -> tuple[float, float]:
    """Seconds of one batch, and those that the engine's steps took of them."""
    sampling = Sampling(max_tokens=ANSWER_LEN, temperature=0.0, ignore_eos=True)
    tail = range(FIRST_TOKEN + 100, FIRST_TOKEN + 100 + PROMPT_LEN - 2)
    backend.clear_cache()
    backend.reset_counters()
    start = time.perf_counter()
    replies = [
        backend.submit(
            Call((Tokens((FIRST_TOKEN + index, FIRST_TOKEN + salt, *tail)),), sampling, stream=True)
        )
        for index in range(STREAMS)
    ]
    for reply in replies:
        reply.result()
    seconds = time.perf_counter() - start
    return seconds, backend.info().counters["step_seconds"]


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


def measure(backend: Backend, num_threads: int, rounds: int) -> dict[str, float]:
    times: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": []}
    decode(backend, 0)
    for index in range(rounds):
        for name in ("alone", "beside") if index % 2 else ("beside", "alone"):
            with busy(num_threads if name == "beside" else 0):
                times[name].append(decode(backend, index))
    wall = {name: median(seconds for seconds, _ in found) for name, found in times.items()}
    steps = {name: median(seconds for _, seconds in found) for name, found in times.items()}
    return {
        "alone_s": round(wall["alone"], 3),
        "beside_s": round(wall["beside"], 3),
        "slower": round(wall["beside"] / wall["alone"], 2),
        "steps_slower": round(steps["beside"] / steps["alone"], 2),
    }


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--threads", type=int, default=16)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    figures = {}
    for name, is_process in (("in this process", False), ("in a child process", True)):
        backend = connect("tiny", process=is_process)
        figures[name] = measure(backend, chosen.threads, chosen.rounds)
        backend.close()
    report("busy", figures, chosen.out, threads=chosen.threads, streams=STREAMS)


if __name__ == "__main__":
    main()
