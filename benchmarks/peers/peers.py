"""Ours beside other engines: the same programs, in turn, in one run.

Each engine is a process of its own with one thread for its operators; while one is measured the
others sleep. Every round has new texts, the same for all. Others are called over HTTP, ours over
the socket of `connect(process=True)`. All compute in float32, or in what `--ours-dtype` and
`--peers-dtype` say; the weights are stored in bfloat16, as those of published checkpoints are, or
in float32 (`--stored`). Prints one JSON row.

`--setup` first makes an environment for the others, beside the checkpoints in `--folder`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import forkroot
from forkroot.benchmarks.common.checkpoints import STORED, make, words
from forkroot.benchmarks.common.processes import end_on_sigterm, free_port, server, sleep, wake
from forkroot.benchmarks.common.remote import Remote
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.shapes import SHAPES, STEPS, Shape
from forkroot.benchmarks.peers.peer_servers import NUM_SLOTS, PEERS, setup
from forkroot.benchmarks.peers.serving import Figures, measure
from forkroot.core.api.config import DTYPES
from forkroot.core.text.tokenizer import Tokenizer

WARMING = ("none", "5-shot", "regex")
STREAMED = ("none", "chat", "rag")
STEP_TOKENS = 256
OURS = frozenset({"regex", "json", "choice", "score", "cached"})
ONE_THREAD = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True, slots=True)
class Running:
    """An engine that runs, with its process and what it can do beside plain calls."""

    backend: Any
    pid: int
    features: frozenset[str]
    hints: bool = False

    def can_run(self, shape: Shape) -> bool:
        """Whether it knows the calls of a shape."""
        return not shape.needs or shape.needs in self.features

    def measure(self, shape: Shape, vocabulary: list[int], seed: int, **settings: Any) -> Figures:
        """As `serving.measure`, awake for as long as it takes."""
        workload = shape.workload(vocabulary, seed, settings.pop("scale", 1.0))
        at_once = shape.at_once or settings.pop("at_once", 8)
        settings.pop("at_once", None)
        wake(self.pid)
        figures = measure(
            self.backend,
            workload,
            at_once,
            hints=self.hints,
            pid=self.pid,
            **settings,
        )
        sleep(self.pid)
        return figures if "cached" in self.features else figures | {"cached_share": None}


@contextmanager
def ours(model: Path, dtype: str) -> Iterator[Running]:
    """Our engine in a child process."""
    settings: dict[str, Any] = {"num_slots": NUM_SLOTS, "dtype": dtype}
    settings["hang_timeout"] = None  # its process is stopped while others are measured
    backend: Any = forkroot.connect(model, process=True, **settings)
    try:
        yield Running(backend, backend.pid, OURS, True)
    finally:
        wake(backend.pid)
        backend.close()


@contextmanager
def theirs(name: str, model: Path, folder: Path, at_once: int, dtype: str) -> Iterator[Running]:
    """A peer's server."""
    peer, port = PEERS[name], free_port()
    command = peer.command(folder, model, port, at_once, dtype)
    with server(command, {**ONE_THREAD, **peer.environment}, port, folder / f"{name}.log") as pid:
        tokenizer = Tokenizer.from_folder(model)
        backend = Remote(f"http://127.0.0.1:{port}", str(model), tokenizer, peer.dialect)
        yield Running(backend, pid, peer.dialect.features)
        backend.close()


def compare(
    engines: Mapping[str, Running],
    shapes: Mapping[str, Shape],
    vocabulary: list[int],
    rounds: int,
    first_seed: int = 0,
    **settings: Any,
) -> dict[str, dict[str, Figures]]:
    """Every shape on every engine that can run it, in turn: medians over the rounds."""
    kept: dict[str, dict[str, list[Figures]]] = {shape: {} for shape in shapes}
    for turn in range(rounds):
        for index, (title, shape) in enumerate(shapes.items()):
            seed = first_seed + turn * len(shapes) + index
            names = list(engines)[turn % len(engines) :] + list(engines)[: turn % len(engines)]
            for name in names:
                if engines[name].can_run(shape):
                    found = engines[name].measure(shape, vocabulary, seed, **settings)
                    kept[title].setdefault(name, []).append(found)
                    print(title, name, found, file=sys.stderr, flush=True)
    return {title: {name: summary(of, name) for name in of} for title, of in kept.items()}


def summary(of: Mapping[str, list[Figures]], name: str) -> Figures:
    """Medians of an engine's rounds, and of ours over its own within each round."""
    own, rounds = of.get("ours"), of[name]
    figures: Figures = {"rounds": [found["programs_per_second"] for found in rounds]}
    for key, value in rounds[0].items():
        if isinstance(value, int | float):
            figures[key] = round(median(found[key] for found in rounds), 4)
        elif value is not None:
            figures[key] = {
                part: round(median(found[key][part] for found in rounds), 2) for part in value
            }
    if own and name != "ours":
        pairs = list(zip(own, rounds, strict=True))
        for ratio, key, sign in (
            ("ratio", "programs_per_second", 1),
            ("cpu_ratio", "busiest_cpu_seconds", -1),
        ):
            figures[ratio] = round(median((a[key] / b[key]) ** sign for a, b in pairs), 3)
    return figures


def steps(engines: Mapping[str, Running], vocabulary: list[int], rounds: int) -> Figures:
    """Microseconds of one decode step of a model of next to no size, by the number of calls."""
    found = compare(engines, STEPS, vocabulary, rounds, 10_000)
    return {
        num: {name: _step(figures) for name, figures in of.items()} for num, of in found.items()
    }


def _step(figures: Figures) -> Figures:
    keys = ("seconds", "busiest_cpu_seconds")
    times = {key: round(figures[key] / STEP_TOKENS * 1e6, 1) for key in keys}
    ratios: Figures = {key: figures[key] for key in ("ratio", "cpu_ratio") if key in figures}
    return {"step_us": times["seconds"], "step_cpu_us": times["busiest_cpu_seconds"], **ratios}


@contextmanager
def started(names: list[str], model: Path, args: Any, at_once: int) -> Iterator[dict[str, Running]]:
    """Ours and these peers, for so many programs at a time, all asleep."""
    with ExitStack() as stack:
        engines = {"ours": stack.enter_context(ours(model, args.ours_dtype))}
        sleep(engines["ours"].pid)
        for name in names:
            peer = theirs(name, model, args.folder, at_once, args.peers_dtype)
            engines[name] = stack.enter_context(peer)
            sleep(engines[name].pid)
        yield engines


def main() -> None:
    """Measure and print the row."""
    end_on_sigterm()
    options = parser(__doc__)
    options.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "peers")
    options.add_argument("--setup", action="store_true", help="make the peers' environment")
    options.add_argument("--peer", action="append", choices=PEERS, default=[], help="else all")
    options.add_argument("--shape", action="append", choices=SHAPES, default=[], help="else all")
    options.add_argument("--concurrency", type=int, default=8, help="programs at a time")
    options.add_argument("--scale", type=float, default=1.0, help="of the number of programs")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument(
        "--stored", choices=STORED, default="bfloat16", help="dtype of the weights"
    )
    for side in ("ours", "peers"):
        options.add_argument(f"--{side}-dtype", choices=DTYPES[1:], default="float32")
    options.add_argument("--only", choices=("serving", "steps"))
    args = options.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if args.setup:
        setup(args.folder)
        return
    os.environ.update(ONE_THREAD)
    names = args.peer or list(PEERS)
    figures: Figures = {}
    if args.only != "steps":
        model = make("56m", args.folder / f"56m-{args.stored}", stored=args.stored)
        with started(names, model, args, args.concurrency) as engines:
            figures |= _serve(engines, model, args)
    if args.only != "serving":
        model = make("layer", args.folder / "layer")
        with started(names, model, args, max(map(int, STEPS))) as engines:
            known = words(Tokenizer.from_folder(model))
            compare(engines, {"8": STEPS["8"]}, known, 1, 90_000)
            figures["steps"] = steps(engines, known, args.rounds)
    kept = "seed", "concurrency", "scale", "rounds", "stored", "ours_dtype", "peers_dtype"
    settings = {name: getattr(args, name) for name in kept}
    report("peers", figures, args.out, model="56m", **settings)


def _serve(engines: dict[str, Running], model: Path, args: Any) -> Figures:
    known = words(Tokenizer.from_folder(model))
    shapes = {name: SHAPES[name] for name in args.shape or SHAPES}
    warming = {name: SHAPES[name] for name in WARMING}
    settings = {"at_once": args.concurrency, "scale": args.scale}
    compare(engines, warming, known, 1, 90_000, at_once=args.concurrency, scale=0.2)
    found = compare(engines, shapes, known, args.rounds, args.seed, **settings)
    streamed = {name: SHAPES[name] for name in STREAMED if name in shapes}
    times = compare(engines, streamed, known, 1, 50_000, **settings, is_streamed=True)
    return {"serving": found, "streamed": times}


if __name__ == "__main__":
    main()
