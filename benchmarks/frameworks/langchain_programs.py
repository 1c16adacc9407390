"""LangChain programs: what the cache and the hints are worth to them.

`RunnableParallel` of six branches over a root of 1,000 tokens, eight times with a root of its own
each, and one `batch` of 64 questions on one root; with cache and hints, with the cache alone and
with nothing, in turn, on a model with random weights. Prints one JSON row: for each mode the share
of the shareable prompt tokens (a root's, for all calls but the first) that came from the cache, and
the ratio of the time of "nothing" to its own within each round; and whether all modes answered the
same.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from forkroot.benchmarks.common.checkpoints import MODELS, make
from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.local import LocalBackend
from forkroot.core.text.tokenizer import Tokenizer

with needs("langchain-core"):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.prompts import PromptTemplate
    from langchain_core.runnables import RunnableParallel

    from forkroot.adapters.langchain import Forkroot

NUM_FORKS, NUM_BRANCHES, NUM_INPUTS, ROOT_LEN = 8, 6, 64, 1000
WORDS = (
    "the town has a school and a market near the river where people sell apples bread and books"
    " every morning while children walk to class with red bags and blue coats"
)
MODES: dict[str, dict[str, bool]] = {
    "cache + hints": {"cache": True, "hints": True},
    "cache": {"cache": True, "hints": False},
    "nothing": {"cache": False, "hints": False},
}


class Tokens(BaseCallbackHandler):
    """Adds up the prompt tokens of all calls that came from the cache."""

    def __init__(self) -> None:
        self.cached = 0

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        """Count a prompt's."""
        for generations in response.generations:
            usage = generations[0].generation_info["usage_metadata"]
            self.cached += usage["input_token_details"]["cache_read"]


def text(tokenizer: Tokenizer, rng: random.Random, length: int) -> str:
    """Words that the tokenizer writes with `length` tokens, or one more."""
    written: list[str] = []
    while len(tokenizer.encode(" ".join(written))) < length:
        written.append(rng.choice(WORDS.split()))
    return " ".join(written)


def forks(llm: Forkroot, roots: list[str], tokens: Tokens) -> list[Any]:
    """One `RunnableParallel` after another, each over a root of its own."""
    branches = {
        f"part{number}": PromptTemplate.from_template(f"{{root}} {word}") | llm
        for number, word in enumerate(WORDS.split()[:NUM_BRANCHES])
    }
    program = RunnableParallel(branches)
    return [program.invoke({"root": root}, {"callbacks": [tokens]}) for root in roots]


def batch(llm: Forkroot, roots: list[str], tokens: Tokens) -> list[Any]:
    """One `batch` over one root."""
    inputs = [{"root": roots[0], "number": number} for number in range(NUM_INPUTS)]
    chain = PromptTemplate.from_template("{root} {number}") | llm
    return chain.batch(inputs, {"callbacks": [tokens]})


PROGRAMS = {
    "RunnableParallel": (forks, NUM_FORKS * (NUM_BRANCHES - 1)),
    "batch": (batch, NUM_INPUTS - 1),
}


def measure(
    backends: dict[str, LocalBackend],
    name: str,
    roots: list[str],
    repeats: int,
    length: int,
    now: Callable[[], float],
) -> dict[str, Any]:
    """The figures of one program in each mode."""
    run, num_sharing = PROGRAMS[name]
    times: dict[str, list[float]] = {mode: [] for mode in backends}
    answers, cached = {}, {}
    for _ in range(repeats):
        for mode, backend in backends.items():
            backend.clear_cache()
            llm = Forkroot(model=backend, temperature=0, max_tokens=length, ignore_eos=True)
            tokens = Tokens()
            started = now()
            answers[mode] = run(llm, roots, tokens)
            times[mode].append(now() - started)
            cached[mode] = tokens.cached
    bare = times["nothing"]
    shareable = num_sharing * ROOT_LEN
    return {
        "seconds": {mode: round(median(found), 2) for mode, found in times.items()},
        "ratio": {
            mode: round(median(b / t for b, t in zip(bare, found, strict=True)), 2)
            for mode, found in times.items()
        },
        "from_cache": {mode: round(min(1.0, num / shareable), 4) for mode, num in cached.items()},
        "same_answers": all(found == answers["nothing"] for found in answers.values()),
    }


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--length", type=int, default=8, help="tokens of an answer")
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
    options.add_argument("--model", choices=MODELS, default="56m")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    now = process_time if args.busy else perf_counter
    with tempfile.TemporaryDirectory() as folder:
        path = make(args.model, Path(folder) / args.model)
        backends = {
            mode: LocalBackend.from_folder(path, num_slots=100_000, dtype="float32", **settings)
            for mode, settings in MODES.items()
        }
        rng = random.Random(args.seed)
        tokenizer = backends["nothing"].tokenizer
        roots = [text(tokenizer, rng, ROOT_LEN) for _ in range(NUM_FORKS)]
        figures = {
            name: measure(backends, name, roots, args.repeats, args.length, now)
            for name in PROGRAMS
        }
        for backend in backends.values():
            backend.close()
    settings = {name: getattr(args, name) for name in ("model", "seed", "length")}
    report("langchain_programs", figures, args.out, **settings, clock=now.__name__)


if __name__ == "__main__":
    main()
