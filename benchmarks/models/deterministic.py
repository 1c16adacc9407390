"""What `deterministic=True` costs: prefill and decode, side by side with an engine without it.

Both engines are in this process and run the same calls in turn, with one thread and nothing cached.
Times are processor time, the median of some rounds.

    python benchmarks/models/deterministic.py [--rounds 8] [--out]
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from statistics import median
from typing import Any

import torch

from forkroot.adapters.connection import connect
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Backend, Call, Sampling, Tokens

_PREFILLS = (384, 1900)  # tokens of a prompt
_DECODES = (1, 8)  # sequences at a time
_CONTEXT_LEN, _NUM_STEPS = 300, 64
_IDS = range(100, 900)


def measure(backends: dict[str, Backend], seed: int, rounds: int) -> dict[str, Any]:
    """For each kind of work, milliseconds of processor time by backend, and their ratio."""
    chance = random.Random(seed)
    work: dict[str, Callable[[Backend], float]] = {}
    for size in _PREFILLS:
        work[f"a prompt of {size:,} tokens"] = lambda it, n=size: _seconds(it, 1, n, 1, chance)
    for size in _DECODES:
        name = f"a decode step of {size} sequence" + "s" * (size > 1)
        work[name] = lambda it, n=size: _decode_seconds(it, n, chance)
    figures = {}
    for name, run in work.items():
        times: dict[str, list[float]] = {key: [] for key in backends}
        for _ in range(rounds):
            for key, backend in backends.items():
                times[key].append(run(backend))
        middle = {key: round(1e3 * median(found), 3) for key, found in times.items()}
        figures[name] = {**middle, "ratio": round(middle["deterministic"] / middle["plain"], 3)}
    return figures


def _decode_seconds(backend: Backend, num: int, chance: random.Random) -> float:
    """Of a step: what the same prompts take with many new tokens and with one, by their number."""
    state = chance.getstate()
    short = _seconds(backend, num, _CONTEXT_LEN, 1, chance)
    chance.setstate(state)
    return (_seconds(backend, num, _CONTEXT_LEN, 1 + _NUM_STEPS, chance) - short) / _NUM_STEPS


def _seconds(backend: Backend, num: int, size: int, num_new: int, chance: random.Random) -> float:
    """Processor time of this process for so many calls at a time."""
    sampling = Sampling(max_tokens=num_new, temperature=0, ignore_eos=True)
    prompts = [tuple(chance.choices(_IDS, k=size)) for _ in range(num)]
    before = time.process_time()
    replies = [backend.submit(Call((Tokens(ids),), sampling)) for ids in prompts]
    for reply in replies:
        reply.result(60)
    return time.process_time() - before


def main() -> None:
    """Measure, and print the row."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=8)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    load = round(os.getloadavg()[0], 1)
    with ExitStack() as stack:
        backends = {
            key: stack.enter_context(
                closing(connect("tiny", deterministic=key != "plain", cache=False))
            )
            for key in ("plain", "deterministic")
        }
        measure(backends, chosen.seed, 1)  # first uses
        figures = measure(backends, chosen.seed, chosen.rounds)
    fields = {"clock": "process_time", "seed": chosen.seed, "load_average": load}
    report("deterministic", figures, chosen.out, model="tiny", **fields)


if __name__ == "__main__":
    main()
