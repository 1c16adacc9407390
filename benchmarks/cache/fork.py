"""Programs that fork: what the cache and the hints are worth.

64 programs of the native language; each writes a root of 1,000 tokens, forks six ways, lets every
branch append and answer a few tokens, and joins. With cache and hints, with the cache alone and
with nothing, in turn on the embedded model; once with a root for each program and once with one
root for all. Prints one JSON row: programs per second, and the ratios within each round.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from forkroot import ProgramState, function, gen
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.local import LocalBackend
from forkroot.core.text.tokenizer import Tokenizer

NUM_PROGRAMS, NUM_BRANCHES, ROOT_LEN = 64, 6, 1000
WORDS = (
    "the town of Oakham has a school and a market near the river where people sell apples bread"
    " and books every morning while children walk to class with red bags and blue coats"
)
MODES = {
    "cache + hints": {"cache": True, "hints": True},
    "cache": {"cache": True, "hints": False},
    "nothing": {"cache": False, "hints": False},
}


@function
def judge(s: ProgramState, root: str, questions: list[str], length: int) -> None:
    """Fork over a root, one branch for each question, and join."""
    s += root
    branches = s.fork(len(questions))
    for branch, question in zip(branches, questions, strict=True):
        branch += question + gen("answer", max_tokens=length, temperature=0.0, ignore_eos=True)
    branches.join()


def text(tokenizer: Tokenizer, rng: random.Random, length: int) -> str:
    """Words that the tokenizer writes with `length` tokens, or one more."""
    written = ""
    while len(tokenizer.encode(written)) < length:
        written += rng.choice(WORDS.split()) + " "
    return written


def items(tokenizer: Tokenizer, num_roots: int, length: int, seed: int) -> list[dict[str, Any]]:
    """Arguments of the programs, which take turns in using the roots."""
    rng = random.Random(seed)
    roots = [text(tokenizer, rng, ROOT_LEN) for _ in range(num_roots)]
    questions = [text(tokenizer, rng, 8) for _ in range(NUM_BRANCHES)]
    return [
        {"root": roots[index % num_roots], "questions": questions, "length": length}
        for index in range(NUM_PROGRAMS)
    ]


def seconds(
    backend: LocalBackend, hints: bool, programs: list[dict[str, Any]], now: Callable[[], float]
) -> float:
    """How long all programs take from an empty cache."""
    backend.clear_cache()
    started = now()
    judge.run_batch(
        programs,
        backend=backend,
        hints=hints,
        num_threads=16,
        progress_bar=False,
        raise_errors=True,
    )
    return now() - started


def measure(
    backends: dict[str, LocalBackend],
    programs: list[dict[str, Any]],
    repeats: int,
    now: Callable[[], float],
) -> dict[str, Any]:
    """Programs per second of each mode, and each round's ratio to "nothing"."""
    rounds: dict[str, list[float]] = {mode: [] for mode in MODES}
    for backend in backends.values():
        backend.reset_counters()
    for _ in range(repeats):
        for mode, backend in backends.items():
            rounds[mode].append(seconds(backend, MODES[mode]["hints"], programs, now))
    rates = {mode: round(len(programs) / median(times), 3) for mode, times in rounds.items()}
    bare = rounds["nothing"]
    ratios = {
        mode: round(median(b / t for b, t in zip(bare, times, strict=True)), 2)
        for mode, times in rounds.items()
    }
    hits = {mode: _hit_rate(backend) for mode, backend in backends.items()}
    return {"programs_per_second": rates, "ratio": ratios, "hit_rate": hits}


def _hit_rate(backend: LocalBackend) -> float:
    counters = backend.info().counters
    return round(counters["cached_tokens"] / counters["prompt_tokens"], 4)


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--length", type=int, default=16, help="tokens of a branch's answer")
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    options.add_argument("--model", default="tiny", help="a checkpoint folder")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    now = process_time if args.busy else perf_counter
    backends = {
        mode: LocalBackend.from_folder(args.model, num_slots=131_072, **settings)
        for mode, settings in MODES.items()
    }
    tokenizer = backends["nothing"].tokenizer
    figures = {}
    for name, num_roots in (("own roots", NUM_PROGRAMS), ("one root", 1)):
        programs = items(tokenizer, num_roots, args.length, args.seed)
        figures[name] = measure(backends, programs, args.repeats, now)
    for backend in backends.values():
        backend.close()
    settings = {name: getattr(args, name) for name in ("model", "seed", "length")}
    report("fork", figures, args.out, **settings, clock=now.__name__)


if __name__ == "__main__":
    main()
