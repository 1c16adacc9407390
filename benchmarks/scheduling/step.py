"""Where an engine step's time goes, on the embedded model.

Two questions. How much of a step is spent outside the model's forward pass, for a batch of 32 that
decodes, greedy and sampled? And how much of the engine's time goes into managing the radix tree,
for 100 chat-like calls that share nothing (the paper's section 6.3: less than 0.3 %)?

Methods are wrapped in clocks; the engine itself is the ordinary one. With --out a profile of the
greedy run is kept as benchmarks/results/step_profile.txt. Prints one JSON row; times in
microseconds, medians over the steps.
"""

from __future__ import annotations

import cProfile
import io
import pstats
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
import torch

from forkroot.benchmarks.common.programs import Driver, Maker
from forkroot.benchmarks.common.report import RESULTS, parser, report
from forkroot.benchmarks.common.watch import Sorts, StepLog, replaced
from forkroot.benchmarks.common.workloads import nothing_shared
from forkroot.core.api.batch import Batch
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.engine.engine import Engine
from forkroot.core.local import LocalBackend
from forkroot.core.model.runner.runner import ModelRunner

BATCH, PROMPT_LEN, ANSWER_LEN = 32, 64, 192
FIRST_TOKEN, VOCABULARY = 300, 4000
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=1.0, seed=1),
    "top_p 0.9": Sampling(temperature=1.0, top_p=0.9, seed=1),
    "top_k 50": Sampling(temperature=1.0, top_k=50, seed=1),
}


def decode(backend: LocalBackend, sampling: Sampling) -> None:
    """One batch of calls with nothing in common."""
    backend.clear_cache()
    tail = range(FIRST_TOKEN + BATCH, FIRST_TOKEN + BATCH + PROMPT_LEN - 1)
    prompts = [Tokens((FIRST_TOKEN + index, *tail)) for index in range(BATCH)]
    full = replace(sampling, max_tokens=ANSWER_LEN, ignore_eos=True)
    for reply in [backend.submit(Call((prompt,), full)) for prompt in prompts]:
        reply.result()


def measure_decodes(backend: LocalBackend, repeats: int, now: Callable[[], int]) -> dict[str, Any]:
    """Decode steps of each kind of sampling, in turn."""
    logs = {name: StepLog(now) for name in SAMPLINGS}
    for _ in range(repeats):
        for name, sampling in SAMPLINGS.items():
            with logs[name].watching():
                decode(backend, sampling)
    return {
        name: log.decodes(BATCH) | {"sorts": _sorts(backend, name)} for name, log in logs.items()
    }


def measure_radix(backend: LocalBackend, seed: int, now: Callable[[], int]) -> dict[str, Any]:
    """The radix cache's share of the engine's time where nothing is shared."""
    workload = nothing_shared(Maker(range(FIRST_TOKEN, VOCABULARY), 1.0, seed))
    log = StepLog(now)
    backend.clear_cache()
    backend.reset_counters()
    with log.watching():
        Driver(backend.submit).run(workload.programs(hints=False), workload.width)
    counters = backend.info().counters
    names = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "steps")
    figures: dict[str, Any] = {name: counters[name] for name in names}
    for name in ("step", "tree", "slots"):
        figures[f"{name}_seconds"] = round(log.total(name) / 1e9, 4)
        figures[f"{name}_share"] = round(log.total(name) / log.total("step"), 5)
    return figures


def profile(backend: LocalBackend) -> str:
    """What the profiler reports of the greedy run's engine steps; its clocks add their own time."""
    profiler = cProfile.Profile()
    with replaced(Engine, ("step",), lambda step: lambda engine: profiler.runcall(step, engine)):
        decode(backend, SAMPLINGS["greedy"])
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(40)
    return text.getvalue()


def _sorts(backend: LocalBackend, name: str) -> dict[str, int]:
    sorts = Sorts()

    def spied(run: Callable[..., Any]) -> Callable[..., Any]:
        def watched(runner: ModelRunner, batch: Batch) -> Any:
            with sorts:
                return run(runner, batch)

        return watched

    with (
        replaced(ModelRunner, ("run",), spied),
        replaced(np, ("sort", "argsort"), sorts.numpy),
    ):
        decode(backend, SAMPLINGS[name])
    return sorts.widths


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    args = options.parse_args()
    now = thread_time_ns if args.busy else perf_counter_ns
    torch.set_num_threads(args.threads)
    with LocalBackend.from_folder("tiny", num_slots=65_536) as backend:
        decode(backend, SAMPLINGS["greedy"])
        figures = {
            "decode": measure_decodes(backend, args.repeats, now),
            "no reuse": measure_radix(backend, args.seed, now),
        }
        if args.out:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "step_profile.txt").write_text(profile(backend))
    report("step", figures, args.out, model="tiny", seed=args.seed, clock=now.__name__)


if __name__ == "__main__":
    main()
