"""A second rank for tests: Triton's kernels on a CPU that interprets them, steps recorded by a
stand-in that also runs them once before, as a GPU does."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import torch

from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.graphs import Run
from forkroot.core.model.runner.ranks import follow, join
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.weights import Checkpoint
from forkroot.core.process.ipc import Connection, serve_parent
from forkroot.kernels.devices import backend_for

NUM_SLOTS, MOST = 700, 2


class Warming:
    """Runs what it records once. recorded, repeated: how many steps were."""

    def __init__(self) -> None:
        self.recorded = self.repeated = 0

    def __call__(self, run: Run) -> Run:
        """As `Recorder`."""
        self.recorded += 1
        run()

        def again() -> Any:
            self.repeated += 1
            return run()

        return again


def runner_of(folder: str, ranks: Ranks, warming: Warming) -> ModelRunner:
    """One rank's runner."""
    config: Any = describe(folder)
    place = torch.device("cpu")
    shapes = config.weight_shapes()
    with Checkpoint(folder, shapes, torch.float32, place, Llama.ignored_weights) as weights:
        model = Llama(config, weights, place, ranks, backend_for(place, "triton"))
    kinds: dict[str, Any] = {"attention": "triton", "sampling": "triton", "extend_sizes": (6,)}
    return ModelRunner(model, NUM_SLOTS, ranks, max_running=MOST, recorder=warming, **kinds)


def main(fd: int) -> None:
    """Follow the process at the other end of this line."""
    serve_parent(fd, serve)


def serve(line: Connection) -> None:
    """Compute along, then say how many steps were recorded and repeated."""
    messages = line.messages()
    folder, store_path = next(messages)
    warming = Warming()
    ranks = join(1, 2, store_path, torch.device("cpu"))
    runner = runner_of(folder, ranks, warming)
    shown = (message for (message,) in messages)
    follow(takewhile(lambda message: message != "end", shown), runner, ranks, _never)
    line.send(warming.recorded, warming.repeated)
    line.close()


def _never(number: int) -> None:
    raise AssertionError(f"memory is too small for batch {number}")
