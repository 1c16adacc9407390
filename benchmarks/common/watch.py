"""Clocks and spies on the engine: methods of its classes are wrapped for a while.

The engine itself is the ordinary one, with its own thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
from torch.utils._python_dispatch import TorchDispatchMode

from forkroot.core.api.batch import Batch
from forkroot.core.engine.engine import Engine
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.radix.cache import RadixCache

TREE = ("match", "acquire", "commit", "share", "release")
SLOTS = ("allocate", "free")
SORTS = ("sort", "argsort", "msort", "topk")


class Clocks:
    """Nanoseconds by name; time in a clock that runs inside one of the same name counts once.

    now: the time in nanoseconds.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self.spent: Counter[str] = Counter()
        self._running: set[str] = set()

    def wrap(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        """`action`, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if name in self._running:
                return action(*args, **kwargs)
            self._running.add(name)
            started = self._now()
            try:
                return action(*args, **kwargs)
            finally:
                self.spent[name] += self._now() - started
                self._running.discard(name)

        return timed


@contextmanager
def replaced(owner: Any, names: tuple[str, ...], wrap: Callable[..., Any]) -> Iterator[None]:
    """Functions of a class or a module wrapped for a while."""
    originals = {name: getattr(owner, name) for name in names}
    for name, original in originals.items():
        setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)


class StepLog:
    """The steps of a run: for each its clocks and how many tokens it computed.

    now: the time in nanoseconds.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self.clocks = Clocks(now)
        self.steps: list[tuple[int, Counter[str]]] = []
        self._num_tokens = 0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Time every engine step of this process."""
        clock = self.clocks.wrap
        with (
            replaced(Engine, ("step",), self._step),
            replaced(ModelRunner, ("run",), self._run),
            replaced(Llama, ("hidden", "logits"), lambda action: clock("forward", action)),
            replaced(RadixCache, TREE, lambda action: clock("tree", action)),
            replaced(RadixCache, SLOTS, lambda action: clock("slots", action)),
        ):
            yield

    def decodes(self, batch: int) -> dict[str, float]:
        """Medians, in microseconds, over the steps that compute `batch` tokens; the share of a
        step that is spent outside the forward pass."""
        steps = [spent for num_tokens, spent in self.steps if num_tokens == batch]
        share = median(1 - spent["forward"] / spent["step"] for spent in steps)
        figures = {name: _us(steps, name) for name in ("step", "run", "forward", "tree", "slots")}
        return figures | {"steps": len(steps), "outside_forward": round(share, 4)}

    def total(self, name: str) -> int:
        """Nanoseconds over all steps."""
        return sum(spent[name] for _, spent in self.steps)

    def _step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        timed = self.clocks.wrap("step", step)

        def logged(engine: Engine) -> None:
            self.clocks.spent = Counter()
            self._num_tokens = 0
            timed(engine)
            self.steps.append((self._num_tokens, self.clocks.spent))

        return logged

    def _run(self, run: Callable[..., Any]) -> Callable[..., Any]:
        timed = self.clocks.wrap("run", run)

        def counted(runner: ModelRunner, batch: Batch) -> Any:
            self._num_tokens += len(batch.ids)
            return timed(runner, batch)

        return counted


class Sorts(TorchDispatchMode):
    """Notes, while it is entered, how wide the rows are that torch or numpy sort (torch's topk
    counts as a sort)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.widths: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name in SORTS:
            self._note(name, args[0])
        return func(*args, **(kwargs or {}))

    def numpy(self, sort: Callable[..., Any]) -> Callable[..., Any]:
        """A sort of numpy's, watched."""

        def watched(values: Any, *args: Any, **kwargs: Any) -> Any:
            self._note(f"numpy {sort.__name__}", np.asarray(values))
            return sort(values, *args, **kwargs)

        return watched

    def _note(self, name: str, values: Any) -> None:
        self.widths[name] = max(self.widths.get(name, 0), values.shape[-1])


def _us(steps: list[Counter[str]], name: str) -> float:
    return round(median(spent[name] for spent in steps) / 1e3, 1)
