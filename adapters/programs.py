"""Whole programs that a backend runs where it is: what goes there, and what comes back.

A program is the JSON of its graph, and is known by a digest of it. Nothing here knows what is in a
graph, or how it gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..core.api.protocol import ForkrootError, Prompt

FEATURE = "programs"  # of the info of a server that runs them


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """One run of a program.

    digest: of its graph. graph: as JSON, to be sent where the other end does not know the digest.
    namespace: as in `Call`; the other end keeps programs by it, too. body: arguments and settings,
    as JSON. opening: the prompt that its first call begins with, as far as it is known before the
    run: a router keeps runs together by it.
    """

    digest: str
    graph: bytes
    namespace: str
    body: bytes
    opening: Prompt = ()


class ProgramReceiver(Protocol):
    """Takes what a run reports, in order; it ends in exactly one of `end` and `fail`. No method
    waits or raises, and all are called in one thread."""

    def take(self, event: Mapping[str, Any]) -> None:
        """Something has happened."""

    def end(self, state: Mapping[str, Any]) -> None:
        """The run has ended well, with this state."""

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """The run has ended in an error. report: what else is known of it; it may have a state."""


@runtime_checkable
class ProgramHost(Protocol):
    """A backend that runs whole programs."""

    def takes_programs(self) -> bool:
        """Whether the other end runs programs. It is asked once. Raises as `Backend.info`."""

    def run_program(
        self, request: ProgramRequest, receiver: ProgramReceiver
    ) -> Callable[[], object]:
        """Run a program without waiting; returns what ends the run early. Raises nothing."""
