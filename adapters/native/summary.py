"""What the runs of a batch used together: `usage(states)`, and the line at the end of a batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...core.api.protocol import InvalidCall
from .state import ProgramState


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """Items, how many of them ended in an error, and the totals of `get_meta_info()` over all.

    Calls that failed are not counted, as in each run's own totals; those of a failed run that ended
    well are. requests, cost: of API models, the cost by the backend's `prices`.
    """

    items: int
    failed: int
    calls: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    requests: int
    cost: float

    def __str__(self) -> str:
        failed = f" ({self.failed:,} failed)" if self.failed else ""
        cached = f" ({self.cached_tokens:,} cached)" if self.cached_tokens else ""
        requests = f" in {_number(self.requests, 'request')}" if self.requests else ""
        cost = f", cost {self.cost:,.4f}" if self.cost else ""
        return (
            f"{_number(self.items, 'item')}{failed}: {_number(self.calls, 'call')}{requests},"
            f" {_number(self.prompt_tokens, 'input token')}{cached},"
            f" {_number(self.completion_tokens, 'output token')}{cost}"
        )


def usage(states: Iterable[ProgramState]) -> BatchSummary:
    """What the runs of these states used, as `run_batch` returns them; waits until they have ended.
    A run that has several of the states counts once. Raises InvalidCall for what is no state."""
    runs = {}
    num_failed = 0
    found = tuple(states) if isinstance(states, Iterable) else (states,)
    for state in found:
        if not isinstance(state, ProgramState):
            raise InvalidCall("states", state, "states of programs, as run_batch returns them")
        num_failed += state.error() is not None
        totals = state._interpreter.context.totals
        runs[id(totals)] = totals.counters

    def total(name: str) -> int:
        return int(sum(counters[name] for counters in runs.values()))

    return BatchSummary(
        items=len(found),
        failed=num_failed,
        calls=total("calls"),
        prompt_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        completion_tokens=total("completion_tokens"),
        requests=total("requests"),
        cost=float(sum(counters["cost"] for counters in runs.values())),
    )


def _number(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
