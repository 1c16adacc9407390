"""Programs run by the server beside the same programs run by its client, call by call.

64 programs are at work: each begins with a constant root, reads a passage, forks into 6 branches
that write a few tokens each, joins them and writes a last answer. The server (the embedded model,
its engine in a child process, as `forkroot serve` starts it) is another process; client and server
share the machine. Three ways alternate in each round, with passages of their own, so that none
finds another's in the cache: the program interpreted by the client, the compiled program run by the
client call by call, and the compiled program run by the server (one request a program). Answers
are greedy and compared in a round of their own. Prints one JSON row.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter, process_time
from typing import Any

import forkroot
from forkroot import function, gen
from forkroot.benchmarks.common.report import parser, report

NUM_PROGRAMS, NUM_BRANCHES, ROUNDS = 64, 6, 5
ASPECTS = ("style", "facts", "form", "tone", "length", "sense")
ROOT = (
    "You read a short passage and judge it. Say little. A good passage is clear, true, and no"
    " longer than it must be; a bad one is vague, false, or long. Judge each aspect by itself, in a"
    " word or two, and then the whole.\n\nPassage: The sun is hot. It is far away.\nstyle: plain\n"
    "facts: true\nform: short\ntone: calm\nlength: brief\nsense: yes\nAll: good\n\n"
)
WORDS = (
    *("river", "stone", "cloud", "baker", "pilot", "lamp"),
    *("garden", "winter", "salt", "engine", "paper", "bridge"),
)


@function
def judge(s: Any, passage: str) -> None:
    """Six aspects and a verdict."""
    s += ROOT
    s += f"Passage: {passage}\n"
    group = s.fork(NUM_BRANCHES)
    for branch, aspect in zip(group, ASPECTS, strict=True):
        branch += f"{aspect}: " + gen("aspect", max_tokens=6, stop="\n")
    group.join()
    s += "All: " + gen("verdict", max_tokens=4, stop="\n")


def passages(source: random.Random) -> list[dict[str, Any]]:
    """The arguments of one round of one way."""
    sentences = [" ".join(source.choices(WORDS, k=6)) + "." for _ in range(3 * NUM_PROGRAMS)]
    return [{"passage": " ".join(sentences[at : at + 3])} for at in range(0, len(sentences), 3)]


@contextmanager
def server(model: str, dtype: str) -> Iterator[str]:
    """The URL of `forkroot serve`, in another process."""
    own = ["--port", "0", "--set", f"dtype={dtype}"]
    command = [sys.executable, "-m", "forkroot", "serve", model, *own]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


Way = Callable[[list[dict[str, Any]]], list[Any]]


def ways(backend: Any) -> dict[str, Way]:
    """How the programs are run."""
    compiled = judge.compile()
    common = {"backend": backend, "temperature": 0, "raise_errors": True}
    common["num_threads"] = NUM_PROGRAMS
    return {
        "interpreted": lambda items: judge.run_batch(items, **common),
        "compiled": lambda items: compiled.run_batch(items, remote=False, **common),
        "on_server": lambda items: compiled.run_batch(items, remote=True, **common),
    }


def values(states: list[Any]) -> list[Any]:
    """What the programs have found."""
    return [(state["aspect"], state["verdict"], state.text()) for state in states]


def measure(model: str, dtype: str, rounds: int, seed: int) -> dict[str, Any]:
    """The figures of a row."""
    source = random.Random(seed)
    seconds: dict[str, list[float]] = {}
    client_seconds: dict[str, list[float]] = {}
    with server(model, dtype) as url, forkroot.connect(url) as backend:
        chosen = ways(backend)
        items = passages(source)
        found = [values(way(items)) for way in chosen.values()]  # warms up, too
        for number in range(rounds):
            names = list(chosen)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                items = passages(source)
                start, used = perf_counter(), process_time()
                chosen[name](items)
                seconds.setdefault(name, []).append(perf_counter() - start)
                client_seconds.setdefault(name, []).append(process_time() - used)
    rates = {name: NUM_PROGRAMS / median(taken) for name, taken in seconds.items()}
    ratios = sorted(
        slow / fast for slow, fast in zip(seconds["interpreted"], seconds["on_server"], strict=True)
    )
    return {
        "programs_per_s": {name: round(rate, 1) for name, rate in rates.items()},
        "client_cpu_s": {name: round(median(it), 2) for name, it in client_seconds.items()},
        "on_server_over_interpreted": round(rates["on_server"] / rates["interpreted"], 2),
        "on_server_over_compiled": round(rates["on_server"] / rates["compiled"], 2),
        "least_and_most_of_rounds": [round(ratios[0], 2), round(ratios[-1], 2)],
        "equal_values": all(it == found[0] for it in found),
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Print the row."""
    options = parser(__doc__)
    options.add_argument("--dtype", default="auto", help="of the server's model")
    options.add_argument("--rounds", type=int, default=ROUNDS)
    args = options.parse_args()
    figures = measure("tiny", args.dtype, args.rounds, args.seed)
    shape = {"programs": NUM_PROGRAMS, "branches": NUM_BRANCHES, "rounds": args.rounds}
    given = {"model": "tiny", "dtype": args.dtype, "seed": args.seed}
    report("remote_programs", figures, args.out, **given, **shape)


if __name__ == "__main__":
    main()
