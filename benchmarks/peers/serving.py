"""Workload shapes on one engine: programs per second, time to the first token, cached share.

On any OpenAI-compatible server (--url), or on ours in this process (--local), or in a child process
(--local with --process). Each round has texts of its own, so that none finds another's in a cache.
Prints one JSON row.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Protocol

import forkroot
from forkroot.benchmarks.common.checkpoints import words
from forkroot.benchmarks.common.processes import cpu_seconds
from forkroot.benchmarks.common.programs import Driver, Workload
from forkroot.benchmarks.common.remote import DIALECTS, Remote
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.shapes import SHAPES, STEPS, Shape
from forkroot.core.api.protocol import Call, Reply, Usage
from forkroot.core.text.tokenizer import Tokenizer

Figures = dict[str, Any]


class Submits(Protocol):
    """What the driver needs of a backend."""

    def submit(self, call: Call) -> Reply: ...


@dataclass
class Meter:
    """A backend, and what its calls took. is_streamed: request streams, and time their beginning.

    firsts: seconds from a call's submission to its first text.
    """

    backend: Submits
    is_streamed: bool = False
    usage: Usage = field(default_factory=Usage)
    num_calls: int = 0
    firsts: list[float] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _watchers: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(256))

    def submit(self, call: Call) -> Reply:
        """Hand a call on."""
        is_streamed = self.is_streamed and not call.options and call.sampling.max_tokens != 0
        started = time.perf_counter()
        reply = self.backend.submit(replace(call, stream=True) if is_streamed else call)
        if call.options or call.sampling.max_tokens:
            reply.when_done(self._count)
        if is_streamed:
            self._watchers.submit(self._watch, reply, started)
        return reply

    def _watch(self, reply: Reply, started: float) -> None:
        next(iter(reply), None)
        self.firsts.append(time.perf_counter() - started)

    def _count(self, reply: Reply) -> None:
        if reply.error() is None:
            with self._lock:
                self.usage += reply.result().usage
                self.num_calls += 1


def measure(
    backend: Submits,
    workload: Workload,
    at_once: int,
    *,
    hints: bool,
    is_streamed: bool = False,
    pid: int | None = None,
) -> Figures:
    """Run a workload, `at_once` programs at a time. pid: of the engine, where it runs in another
    process: then its processor time is reported, and that of the busiest process of its family."""
    meter = Meter(backend, is_streamed)
    programs = workload.programs(hints)
    before, started = _processor(pid), time.perf_counter()
    Driver(meter.submit).run(programs, at_once)
    seconds = time.perf_counter() - started
    taken = {member: after - before.get(member, 0.0) for member, after in _processor(pid).items()}
    client = taken.pop(os.getpid())
    num, usage = len(workload.bodies), meter.usage
    figures = {
        "programs": num,
        "calls": meter.num_calls,
        "seconds": round(seconds, 3),
        "programs_per_second": round(num / seconds, 3),
        "tokens_per_second": round(usage.completion_tokens / seconds, 1),
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_share": round(usage.cached_tokens / max(1, usage.prompt_tokens), 4),
        "client_cpu_seconds": round(client, 2),
        "engine_cpu_seconds": round(sum(taken.values()), 2) if taken else None,
        "busiest_cpu_seconds": round(max(taken.values()), 2) if taken else None,
    }
    return figures | (first_times(meter.firsts) if is_streamed else {})


def _processor(pid: int | None) -> dict[int, float]:
    """Processor time so far, by process: of this one, and of an engine's family."""
    family = {} if pid is None else cpu_seconds(pid)
    return {**family, os.getpid(): time.process_time()}


def first_times(seconds: list[float]) -> Figures:
    """Median and 99th percentile, in milliseconds; nothing where nothing was streamed."""
    if not seconds:
        return {}
    last = quantiles(seconds, n=100, method="inclusive")[98] if len(seconds) > 1 else seconds[0]
    return {"first_token_ms": {"median": _ms(median(seconds)), "p99": _ms(last)}}


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


EVERY: dict[str, Shape] = SHAPES | {f"{num} at once": shape for num, shape in STEPS.items()}


def chosen(names: Iterable[str]) -> dict[str, Shape]:
    """Shapes by name; all of them where none is named."""
    return {name: EVERY[name] for name in names or SHAPES}


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    where = options.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="of a server, as http://127.0.0.1:8000")
    where.add_argument("--local", action="store_true", help="our engine")
    options.add_argument("--model", required=True, help="the checkpoint's folder")
    options.add_argument("--process", action="store_true", help="ours in a child process")
    options.add_argument("--dialect", choices=DIALECTS, default="vllm", help="of the server")
    options.add_argument("--shape", action="append", choices=EVERY, default=[], help="else all")
    options.add_argument("--concurrency", type=int, default=8, help="programs at a time")
    options.add_argument("--scale", type=float, default=1.0, help="of the number of programs")
    options.add_argument("--no-hints", action="store_true")
    options.add_argument("--stream", action="store_true", help="stream, and time first tokens")
    options.add_argument("--slots", type=int, default=131_072, help="tokens in our cache")
    args = options.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tokenizer = Tokenizer.from_folder(Path(args.model))
    backend = _backend(args, tokenizer)
    vocabulary = words(tokenizer)
    figures = {}
    for name, shape in chosen(args.shape).items():
        workload = shape.workload(vocabulary, args.seed, args.scale)
        figures[name] = measure(
            backend,
            workload,
            shape.at_once or args.concurrency,
            hints=not args.no_hints and not args.url,
            is_streamed=args.stream,
            pid=getattr(backend, "pid", None),
        )
        print(name, figures[name])
    backend.close()
    fields = {name: getattr(args, name) for name in ("seed", "concurrency", "scale", "url")}
    report("serving", figures, args.out, model=Path(args.model).name, **fields)


def _backend(args: Any, tokenizer: Tokenizer) -> Any:
    if args.url:
        return Remote(args.url, str(args.model), tokenizer, DIALECTS[args.dialect])
    return forkroot.connect(args.model, process=args.process, num_slots=args.slots)


if __name__ == "__main__":
    main()
