"""Overlap scheduling: the next batch is launched before the results of the current one are read.

While the device runs step n, this thread builds and launches step n + 1; then it reads the results
of step n. Two facts make that correct. A token that step n samples need not be known to the host:
the next batch refers to the sample, and the device fills it in. And the device runs batches in the
order of launches: what a batch reads was written by those before it, so slots are allocated, freed
and cached in this order too, and never wait for a batch that still uses them. The sampling
parameters of step n + 1 are set once the results of step n are known: masks, penalties and forced
text depend on every token before them.

A part of a step that became invalid meanwhile (its call ended, its tokens were truncated) is
recognized by its sequence's epoch; its results are dropped. Nothing is retracted while a batch is
in flight.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from ..api.batch import Batch, Outcome, SamplingParams
from ..api.protocol import BackendClosed
from .batch import Part
from .pictures.features import Work

T = TypeVar("T")


class Runner(Protocol):
    """Computes batches."""

    def run(self, batch: Batch) -> Outcome:
        """One forward pass; writes the KV of the batch's tokens into their slots."""


class InFlightBatch(Protocol):
    """A launched batch whose results are not read yet."""

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """Sample a token after each of the batch's `sampled` with these parameters; the next batch
        may refer to the samples. Does not wait. At most once; without it the batch's KV is computed
        all the same."""

    def result(self) -> Outcome:
        """Wait for the results; `sample` comes first. At most once, in the order of launches."""


@runtime_checkable
class Launcher(Protocol):
    """A runner that does not wait for what it computes."""

    def launch(self, batch: Batch) -> InFlightBatch:
        """Launch a batch that has no sampling parameters yet, after all batches before it.

        Its id -1 - i refers to sample i of the batch launched before it: any token where that is
        -1. The batch's arrays, the table too, have been read when this returns. Its copies are made
        even if the batch fails.
        """


class PendingStep:
    """The parts and the other work of a launched step, and its batch in flight, or the error of the
    launch."""

    def __init__(self, parts: list[Part], work: Work, launch: Callable[[], InFlightBatch]) -> None:
        self.parts = parts
        self.work = work
        self._batch = attempt(launch)

    @property
    def has_failed(self) -> bool:
        """Whether it is known already that it has no result."""
        return isinstance(self._batch, Exception)

    def sample(self, params: tuple[SamplingParams, ...]) -> None:
        """As `InFlightBatch.sample`; an error of that becomes the `result`."""
        batch = self._batch
        if not isinstance(batch, Exception):
            error = attempt(lambda: batch.sample(params))
            self._batch = error or batch

    def result(self) -> Outcome | Exception:
        """Wait for the results; the error where it failed."""
        batch = self._batch
        return batch if isinstance(batch, Exception) else attempt(batch.result)


def attempt(action: Callable[[], T]) -> T | Exception:
    """What the action returns, or the exception that it raises. Raises BackendClosed: a closed
    runner is not the fault of a call, and nothing can run after it."""
    try:
        return action()
    except BackendClosed:
        raise
    except Exception as error:
        return error
