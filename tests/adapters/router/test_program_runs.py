"""Whole programs before a router: where they go, and what becomes of them when a replica ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from forkroot.adapters.native import function, gen
from forkroot.adapters.programs import FEATURE, ProgramReceiver, ProgramRequest
from forkroot.adapters.router.replica import State
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    BackendClosed,
    BackendInfo,
    CallFailed,
    EngineDied,
    ForkrootError,
    InvalidCall,
    Overloaded,
    ProgramError,
    Text,
)

NEVER = 1e6
DIED = EngineDied("it was killed", is_replaced=True)


class Host(ScriptedBackend):
    """A replica that runs programs as the test says."""

    def __init__(self) -> None:
        super().__init__("one call")
        self.runs: list[tuple[ProgramRequest, ProgramReceiver]] = []
        self.cancelled = 0
        self.refusal: ForkrootError | None = None

    def info(self) -> BackendInfo:
        found = super().info()
        return replace(found, features=found.features | {FEATURE})

    def takes_programs(self) -> bool:
        return True

    def run_program(
        self, request: ProgramRequest, receiver: ProgramReceiver
    ) -> Callable[[], object]:
        self.runs.append((request, receiver))
        if self.refusal is not None:
            receiver.fail(self.refusal, {})

        def cancel() -> None:
            self.cancelled += 1
            receiver.fail(BackendClosed.meanwhile(), {})

        return cancel


class Received:
    """What came back, in order."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.ends: list[Any] = []

    def take(self, event: Mapping[str, Any]) -> None:
        self.events.append(event)

    def end(self, state: Mapping[str, Any]) -> None:
        self.ends.append(state)

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        self.ends.append(error)


@contextmanager
def router(*replicas: Any, **options: Any) -> Iterator[Router]:
    found = Router(replicas, **{"heartbeat": NEVER, "hang_timeout": NEVER, **options})
    try:
        yield found
        found.check()
    finally:
        found.close()


def request(opening: str = "") -> ProgramRequest:
    return ProgramRequest("digest", b"{}", "", b"{}", (Text(opening),))


def sent(both: Router, opening: str = "") -> tuple[Received, Callable[[], object]]:
    received = Received()
    return received, both.run_program(request(opening), received)


def test_a_run_leaves_a_hanging_replica_once_and_what_that_one_reports_is_ignored() -> None:
    one, other = Host(), Host()
    with router(one, other) as both:
        received, _ = sent(both)
        first, second = (one, other) if one.runs else (other, one)
        name = "0" if first is one else "1"
        both.fleet.leave(both.fleet.named(name), State.HANGING, "it hangs")
        both.tick()
        both.tick()
        assert (first.cancelled, len(second.runs)) == (1, 1)
        first.runs[0][1].take({"late": 1})
        first.runs[0][1].end({"late": 1})
        second.runs[0][1].end({"well": 1})
        assert (received.events, received.ends) == ([], [{"well": 1}])


def test_programs_that_begin_alike_go_to_one_replica_and_others_are_spread() -> None:
    one, other = Host(), Host()
    openings = [letter * 4000 for letter in "abcd"]
    with router(one, other) as both:
        for number in range(4):
            for opening in openings:
                sent(both, opening + str(number))
                for host in (one, other):
                    for _, receiver in host.runs[-1:]:
                        receiver.end({})
                        host.runs[-1] = host.runs[-1][0], Received()
        found = [{run[0].opening[0].text[0] for run in host.runs} for host in (one, other)]  # type: ignore[union-attr]
        assert not found[0] & found[1] and found[0] | found[1] == set("abcd")
        assert found[0] and found[1]


def test_a_program_of_a_dead_replica_is_run_by_another() -> None:
    one, other = Host(), Host()
    with router(one, other) as both:
        received, _ = sent(both)
        first, second = (one, other) if one.runs else (other, one)
        first.runs[0][1].fail(DIED, {})
        assert received.ends == []
        second.runs[0][1].end({"variables": {}})
        assert received.ends == [{"variables": {}}]
        assert both.info().counters["resent"] == 1
        assert all(view.open == 0 for view in both.replicas)


def test_a_program_that_has_reported_is_not_run_again() -> None:
    one, other = Host(), Host()
    with router(one, other) as both:
        received, _ = sent(both)
        first, second = (one, other) if one.runs else (other, one)
        first.runs[0][1].take({"text": "so f"})
        first.runs[0][1].fail(DIED, {})
        (error,) = received.ends
        assert isinstance(error, EngineDied) and "had been delivered" in str(error)
        assert received.events == [{"text": "so f"}] and not second.runs


def test_an_error_of_the_program_itself_is_its_end() -> None:
    one, other = Host(), Host()
    with router(one, other) as both:
        received, _ = sent(both)
        first, second = (one, other) if one.runs else (other, one)
        first.runs[0][1].fail(CallFailed("no"), {"notes": ["why"]})
        assert [type(it) for it in received.ends] == [CallFailed]
        assert not second.runs and both.info().counters["deaths"] == 0


def test_a_full_replica_passes_a_program_on() -> None:
    one, other = Host(), Host()
    with router(one, other) as both:
        one.refusal = other.refusal = Overloaded("full")
        received, _ = sent(both)
        assert [type(it) for it in received.ends] == [Overloaded]
        assert len(one.runs) == len(other.runs) == 1


def test_a_cancelled_program_ends_once_and_says_nothing_of_its_replica() -> None:
    one = Host()
    with router(one) as both:
        received, cancel = sent(both)
        cancel()
        cancel()
        assert [type(it) for it in received.ends] == [ProgramError]
        assert one.cancelled >= 1 and len(one.runs) == 1
        assert both.info().counters["deaths"] == 0
        assert both.replicas[0].state == "ready"


def test_a_closed_router_ends_its_programs() -> None:
    one = Host()
    with router(one) as both:
        received, _ = sent(both)
        both.close()
        assert [type(it) for it in received.ends] == [BackendClosed]
        received, _ = sent(both)
        assert [type(it) for it in received.ends] == [BackendClosed]


def test_a_program_waits_for_a_replica_that_may_come_back() -> None:
    one = Host()
    with router(one, patience=0.2) as both:
        received, _ = sent(both)
        one.runs[0][1].fail(DIED, {})
        assert received.ends == [] and both.info().load["held"] == 1
        waited = threading.Event()
        waited.wait(0.25)
        both.tick()
        assert [type(it) for it in received.ends] == [EngineDied]


@function
def ask(s: Any, question: str) -> None:
    s += "Answer in one word. " + question + gen("answer", max_tokens=4)


def test_a_compiled_program_names_its_opening_and_runs_where_all_replicas_run_programs() -> None:
    one = Host()
    program = ask.compile()
    with router(one) as both:
        assert both.takes_programs()
        program.stream(question="Where?", backend=both, remote=True)
        ((request, _),) = one.runs
        assert request.opening == (Text("Answer in one word. Where?"),)
        assert json.loads(request.body)["arguments"] == {"question": "Where?"}
        assert request.digest == program.graph.digest()
        both.add(ScriptedBackend("yes"), "plain")
        assert not both.takes_programs()
        with pytest.raises(InvalidCall, match="runs no whole programs"):
            program.run(question="Where?", backend=both, remote=True)
