"""Constraints made to harm: how long until each is answered, and what other calls feel of it.

A few calls stream from the embedded model without a pause, each read by a thread of its own. In
turn nothing else happens for a while (`quiet`); one kind of hostile call is submitted again and
again, 50 ms after the last was answered, each a little different from those before, so that nothing
kept helps (`attack`); and the same thread counts numbers now and then for as much processor time as
one such call took it, and compiles nothing (`control`): so much any thread of Python costs the
others of its process, whatever it does. The last kind calls nothing at all: its thread writes a
large schema with `json.dumps`, as who sends one might.

A row has for each kind how it ended, the seconds that the slowest took, the processor time of the
caller's thread, and the time between two chunks of the others in each window: these follow each
other within a second, so that their ratio is more reliable than they are.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from time import perf_counter, sleep, thread_time
from typing import Any, TypeAlias

import numpy as np
import torch

from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.constraints.attacks import ATTACKS, large_schema
from forkroot.core.api.protocol import Call, Constraint, ForkrootError, JsonSchema, Sampling, Text
from forkroot.core.local import LocalBackend

Gaps: TypeAlias = list[tuple[float, float]]  # (beginning, seconds)
STREAMS, ANSWER_LEN, PAUSE = 4, 400, 0.05
WINDOWS = "quiet", "attack", "control"
OWN = "no call, but json.dumps of 5 MB"
MOST = 16  # of one kind in a window, made before it: making them is not what is measured


class Streams:
    """Calls that stream all the time; notes when each chunk came."""

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self._is_over = False
        self.gaps: Gaps = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Keep all streams going."""
        threads = [threading.Thread(target=self._read, args=(i,)) for i in range(STREAMS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            for thread in threads:
                thread.join()

    def _read(self, number: int) -> None:
        sampling = Sampling(temperature=0.0, max_tokens=ANSWER_LEN, ignore_eos=True)
        while not self._is_over:
            call = Call((Text(f"Once upon a time {number}"),), sampling, stream=True)
            reply, last = self._backend.submit(call), None
            for _ in reply:
                now = perf_counter()
                if last is not None:
                    self.gaps.append((last, now - last))
                last = now
                if self._is_over:
                    reply.cancel()
                    break

    def between(self, start: float, end: float) -> list[float]:
        """The gaps that began in a window, or were open when it began."""
        return [gap for at, gap in self.gaps if at < end and at + gap > start]


def attack(backend: LocalBackend, constraint: Constraint) -> str:
    """How a call with this constraint ended."""
    call = Call((Text("JSON:"),), Sampling(max_tokens=32), constraint)
    reply = backend.submit(call)
    try:
        reply.result(60)
    except ForkrootError as error:
        return f"{type(error).__name__}: {_summary(error)}"
    return "answered"


def _summary(error: ForkrootError) -> str:
    try:
        return str(error)
    except RecursionError as fault:
        return f"its text raises {type(fault).__name__}"


def write(schema: object) -> str:
    """As `attack`, of a caller who does something of his own."""
    json.dumps(schema)
    return "not asked"


def count_numbers(seconds: float) -> None:
    """Spend processor time in Python."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


class Found:
    """What was found out about one kind. own: processor time of the caller's thread."""

    def __init__(self) -> None:
        self.endings: set[str] = set()
        self.seconds: list[float] = []
        self.own: list[float] = []
        self.gaps: dict[str, list[float]] = {when: [] for when in WINDOWS}

    def note(self, backend: LocalBackend, kind: str, constraint: Constraint) -> None:
        """Submit one call."""
        started, own = perf_counter(), thread_time()
        if kind == OWN and isinstance(constraint, JsonSchema):
            ending = write(constraint.schema)
        else:
            ending = attack(backend, constraint)
        self.own.append(thread_time() - own)
        self.seconds.append(perf_counter() - started)
        self.endings.add(ending)

    def summary(self) -> dict[str, Any]:
        """As the row shows it."""
        gaps = {when: spread(seconds) for when, seconds in self.gaps.items()}
        return {
            "ending": _shown(sorted(self.endings)[0]),
            "calls": len(self.seconds),
            "slowest_seconds": round(max(self.seconds), 3),
            "median_seconds": round(float(np.median(self.seconds)), 4),
            "own_ms": round(float(np.median(self.own)) * 1e3, 2),
            "gap_ms": gaps,
            "gap_ratio": {
                when: {key: round(gaps[when][key] / gaps["quiet"][key], 2) for key in gaps["quiet"]}
                for when in WINDOWS[1:]
            },
        }


@contextmanager
def uncollected() -> Iterator[None]:
    """Let no collection of garbage look at what was made before: making it is not measured."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measure(backend: LocalBackend, kinds: list[str], rounds: int, window: float) -> dict[str, Any]:
    """What became of each kind of attack, and of the streams beside it."""
    numbers, streams = count(1), Streams(backend)
    found = {kind: Found() for kind in kinds}
    with streams.running():
        sleep(window)
        for kind in kinds * rounds:
            maker = ATTACKS.get(kind, large_schema)
            prepared = [maker(next(numbers)) for _ in range(MOST)]
            with uncollected():
                visit(backend, streams, kind, prepared, found[kind], window)
    return {kind: of.summary() for kind, of in found.items()}


def visit(
    backend: LocalBackend,
    streams: Streams,
    kind: str,
    prepared: list[Constraint],
    found: Found,
    window: float,
) -> None:
    """One window after another, of one kind."""
    acts: dict[str, Callable[[Constraint], object]] = {
        "quiet": lambda _: sleep(window),
        "attack": lambda constraint: found.note(backend, kind, constraint),
        "control": lambda _: count_numbers(float(np.median(found.own))),
    }
    spans = {}
    for when in WINDOWS:
        sleep(PAUSE)
        start = perf_counter()
        for constraint in prepared:
            acts[when](constraint)
            sleep(PAUSE)
            if perf_counter() > start + window:
                break
        spans[when] = start, perf_counter()
    sleep(0.2)
    for when, span in spans.items():
        found.gaps[when] += streams.between(*span)


def spread(seconds: list[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum, in milliseconds."""
    values = np.percentile(np.array(seconds) * 1e3, [50, 99, 100]).round(2).tolist()
    return dict(zip(("median", "p99", "max"), values, strict=True))


def _shown(ending: str) -> str:
    text = ending.encode("utf-8", "replace").decode()
    return text if len(text) <= 160 else f"{text[:80]} … {text[-77:]}"


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--window", type=float, default=0.7, help="seconds, at least")
    options.add_argument("--only", default="", help="kinds whose name has this in it")
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    options.add_argument("--switch-interval", type=float, help="of Python's threads, in seconds")
    args = options.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)
    torch.set_num_threads(args.threads)
    kinds = [kind for kind in (*ATTACKS, OWN) if args.only in kind]
    with LocalBackend.from_folder("tiny", num_slots=16_384) as backend:
        figures = measure(backend, kinds, args.rounds, args.window)
        backend.check()
    conditions = {"streams": STREAMS, "switch_interval": sys.getswitchinterval()}
    report("hostile", {"attacks": figures, **conditions}, args.out, model="tiny", seed=args.seed)


if __name__ == "__main__":
    main()
