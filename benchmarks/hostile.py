"""Constraints made to harm: how long until each is answered, and what other calls feel of it.

A few calls stream from the embedded model without a pause, each read by a thread of its own. In
turn nothing else happens for a while, and one kind of hostile call is submitted again and again,
50 ms after the last was answered; each is a little different from those before, so that nothing
kept helps. A row says for each kind how
it ended, the seconds that the slowest took, and the time between two chunks of the others, in both
windows: these follow each other within a second, so that their ratio says more than they do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from random import Random
from time import perf_counter, sleep
from typing import Any, TypeAlias

import numpy as np
import torch
from common import parser, report

from forkroot.core.local import LocalBackend
from forkroot.core.protocol import (
    Call,
    Choices,
    Constraint,
    ForkrootError,
    JsonSchema,
    Regex,
    Sampling,
    Text,
)

Gaps: TypeAlias = list[tuple[float, float]]  # (beginning, seconds)
STREAMS, ANSWER_LEN = 4, 400
LARGE, PAUSE = 5_000_000, 0.05
MOST = 16  # of one kind in a window, made before it: making them is not what is measured


def deep_schema(number: int) -> Constraint:
    schema: dict[str, Any] = {"const": number}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    return JsonSchema(schema)


def large_schema(number: int) -> Constraint:
    names = [f"property {i} of {number}" for i in range(LARGE // 55)]
    return JsonSchema(
        {
            "type": "object",
            "properties": {name: {"type": "string"} for name in names},
            "required": names[:3],
            "additionalProperties": False,
        }
    )


def many_choices(number: int) -> Constraint:
    random = Random(number)
    letters = "abcdefghijklmnopqrstuvwxyz é鱼"
    return Choices(tuple("".join(random.choices(letters, k=20)) for _ in range(5000)))


ATTACKS: dict[str, Callable[[int], Constraint]] = {
    "(a|b)*a(a|b){18}": lambda n: Regex(f"(a|b)*a(a|b){{18}}{n}"),
    "[a-z]{1,100000}": lambda n: Regex(f"[a-z]{{1,100000}}{n}"),
    "[a-z]{1,10000}": lambda n: Regex(f"[a-z]{{1,10000}}{n}"),
    "((a{1,40}){1,40}){1,40}": lambda n: Regex(f"((a{{1,40}}){{1,40}}){{1,40}}{n}"),
    "((a{1,9}b?){1,40}){1,40}": lambda n: Regex(f"((a{{1,9}}b?){{1,40}}){{1,40}}{n}"),
    "(\\w{1,60} ){1,60}": lambda n: Regex(f"(\\w{{1,60}} ){{1,60}}{n}"),
    "5,000 choices": many_choices,
    "10,000 brackets": lambda n: Regex("(" * 10_000 + f"a{n}" + ")" * 10_000),
    "a schema 10,000 deep": deep_schema,
    "a schema of 5 MB": large_schema,
    "a remote $ref": lambda n: JsonSchema({"$ref": f"https://example.com/{n}.json"}),
    "a pattern with broken text": lambda n: Regex(f"a{n}\udcff"),
    "a schema with broken text": lambda n: JsonSchema({"const": f"a{n}\udcff"}),
    "choices with broken text": lambda n: Choices((f"a{n}\udcff", "b")),
    "a schema that asks for much backtracking": lambda n: JsonSchema(
        {"type": "string", "pattern": f"^(([a-z])+.)+[A-Z]([a-z])+{n}$", "minLength": 200}
    ),
}


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


def attack(backend: LocalBackend, constraint: Constraint) -> tuple[str, float]:
    """How the call ended, and the seconds until then."""
    call = Call((Text("JSON:"),), Sampling(max_tokens=32), constraint)
    started = perf_counter()
    reply = backend.submit(call)
    try:
        reply.result(60)
        ending = "answered"
    except ForkrootError as error:
        ending = f"{type(error).__name__}: {_told(error)}"
    return ending, perf_counter() - started


def _told(error: ForkrootError) -> str:
    try:
        return str(error)
    except RecursionError as fault:
        return f"its text raises {type(fault).__name__}"


def measure(backend: LocalBackend, kinds: list[str], rounds: int, window: float) -> dict[str, Any]:
    """What became of each kind of attack, and of the streams beside it."""
    numbers, streams = count(1), Streams(backend)
    found: dict[str, dict[str, Any]] = {
        kind: {"endings": set(), "seconds": [], "quiet": [], "attack": []} for kind in kinds
    }
    with streams.running():
        sleep(window)
        for kind in kinds * rounds:
            of = found[kind]
            prepared = [ATTACKS[kind](next(numbers)) for _ in range(MOST)]
            sleep(PAUSE)
            start = perf_counter()
            sleep(window)
            middle = perf_counter()
            while prepared and perf_counter() < middle + window:
                ending, seconds = attack(backend, prepared.pop())
                of["endings"].add(ending)
                of["seconds"].append(seconds)
                sleep(PAUSE)
            end = perf_counter()
            sleep(0.2)
            of["quiet"] += streams.between(start, middle)
            of["attack"] += streams.between(middle, end)
    return {kind: _summary(of) for kind, of in found.items()}


def _summary(of: dict[str, Any]) -> dict[str, Any]:
    quiet, attacked = spread(of["quiet"]), spread(of["attack"])
    return {
        "ending": _shown(sorted(of["endings"])[0]),
        "calls": len(of["seconds"]),
        "slowest_seconds": round(max(of["seconds"]), 3),
        "median_seconds": round(float(np.median(of["seconds"])), 4),
        "gap_ms": {"quiet": quiet, "attack": attacked},
        "gap_ratio": {
            name: round(attacked[name] / quiet[name], 2) for name in ("median", "p99", "max")
        },
    }


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
    options.add_argument("--threads", type=int, default=1, help="of torch")
    options.add_argument("--switch-interval", type=float, help="of Python's threads, in seconds")
    args = options.parse_args()
    if args.switch_interval is not None:
        sys.setswitchinterval(args.switch_interval)
    torch.set_num_threads(args.threads)
    kinds = [kind for kind in ATTACKS if args.only in kind]
    with LocalBackend.from_folder("tiny", num_slots=16_384) as backend:
        figures = measure(backend, kinds, args.rounds, args.window)
        backend.check()
    place = {"streams": STREAMS, "switch_interval": sys.getswitchinterval()}
    report("hostile", {"attacks": figures, **place}, args.out, model="tiny", seed=args.seed)


if __name__ == "__main__":
    main()
