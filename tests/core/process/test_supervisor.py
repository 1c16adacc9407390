"""A backend whose engine dies and is made again: what calls, info and closing see of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    BackendInfo,
    Call,
    Completion,
    InvalidModel,
    NodeView,
    Output,
    Reply,
    Text,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.process.supervisor import Backoff, RestartingBackend

CALL = Call((Text("a"),))
QUICK = Backoff(tries=3, delay=0.001)


class Mortal:
    """An engine that answers with its number until it is killed."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.is_replaced = False
        self.is_dead = self.is_closed = False
        self.holds = False
        self.fault: Exception | None = None
        self.open: list[Mailbox] = []

    def submit(self, call: Call) -> Mailbox:
        mailbox = Mailbox(call)
        if self.is_dead:
            mailbox.fail(BackendClosed("it died"))
        elif self.holds:
            self.open.append(mailbox)
        else:
            mailbox.finish(Completion((Output(str(self.number)),)))
        return mailbox

    def kill(self) -> None:
        self.is_dead = True
        for mailbox in self.open:
            mailbox.fail(BackendClosed("it died"))

    def cancel(self, reply: Reply) -> None:
        reply.cancel()

    def info(self) -> BackendInfo:
        if self.fault is not None:
            raise self.fault
        if self.is_dead:
            raise BackendClosed("it died")
        return BackendInfo("m", 10, counters={"calls": self.number})

    def clear_cache(self) -> int:
        return self.number

    def snapshot(
        self, max_nodes: int | None = 1000, max_tokens: int | None = 64
    ) -> tuple[NodeView, ...]:
        return ()

    def close(self) -> None:
        self.is_dead = self.is_closed = True


class Maker:
    """Makes such engines. fault: what the next attempts raise."""

    def __init__(self) -> None:
        self.made: list[Mortal] = []
        self.faults: list[Exception] = []
        self.gate: Callable[[], Any] = bool

    def __call__(self) -> Mortal:
        self.gate()
        if self.faults:
            raise self.faults.pop()
        self.made.append(Mortal(len(self.made)))
        return self.made[-1]


@pytest.fixture
def make() -> Maker:
    return Maker()


def until(seen: Callable[[], Any]) -> None:
    pause = threading.Event()
    for _ in range(20_000):
        if seen():
            return
        pause.wait(0.001)
    pytest.fail("it did not happen")


def test_another_engine_takes_the_place_of_a_dead_one(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        assert isinstance(backend, Backend)
        assert backend.submit(CALL).result(60).text == "0"
        assert backend.info().counters == {"calls": 0, "restarts": 0}
        make.made[0].kill()
        with pytest.raises(BackendClosed):
            backend.info()
        until(lambda: len(make.made) == 2 and backend.clear_cache() == 1)
        assert backend.submit(CALL).result(60).text == "1"
        assert backend.info().counters == {"calls": 1, "restarts": 1}
        assert make.made[0].is_closed
        assert not backend.is_over
    assert make.made[1].is_closed


def test_open_calls_end_in_their_error_and_bring_the_next_engine(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        make.made[0].holds = True
        replies = [backend.submit(CALL) for _ in range(5)]
        make.made[0].kill()
        for reply in replies:
            with pytest.raises(BackendClosed, match="it died"):
                reply.result(60)
        until(lambda: backend.clear_cache() == 1)


def test_an_engine_knows_whether_another_takes_its_place(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        assert make.made[0].is_replaced
        make.faults = [InvalidModel("the disk is away")] * 9
        make.made[0].kill()
        until(lambda: backend.is_over)
        assert not make.made[0].is_replaced


def test_calls_between_two_engines_end_in_a_typed_error(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        gate = threading.Event()
        make.gate = gate.wait
        make.made[0].kill()
        for _ in range(3):
            with pytest.raises(BackendClosed):
                backend.submit(CALL).result(60)
            with pytest.raises(BackendClosed):
                backend.info()
        gate.set()
        until(lambda: backend.clear_cache() == 1)


def test_an_engine_that_cannot_be_made_at_first_is_tried_again(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        make.faults = [InvalidModel("the disk is away"), RuntimeError("can't start new thread")]
        make.made[0].kill()
        until(lambda: backend.clear_cache() == 1)
        assert backend.info().counters["restarts"] == 1


def test_an_engine_that_cannot_answer_is_replaced(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        make.made[0].fault = RuntimeError("a fault of its own")
        until(lambda: backend.clear_cache() == 1)


def test_it_is_given_up_after_so_many_tries_in_a_row(make: Maker) -> None:
    with RestartingBackend(make, QUICK) as backend:
        make.faults = [InvalidModel("the disk is away")] * 9
        make.made[0].kill()
        until(lambda: backend.is_over)
        assert len(make.faults) == 6
        with pytest.raises(BackendClosed, match="it died"):
            backend.submit(CALL).result(60)
        with pytest.raises(BackendClosed):
            backend.info()


def test_engines_that_die_young_count_as_a_row_and_settled_ones_do_not(make: Maker) -> None:
    for settled, num_made in ((60.0, 4), (0.0, 6)):
        make.made.clear()
        with RestartingBackend(make, Backoff(3, 0.001, settled)) as backend:
            for index in range(num_made):
                until(lambda index=index: backend.clear_cache() == index)
                make.made[index].kill()
                backend.submit(CALL)  # finds it dead at once
            if settled:
                until(lambda: backend.is_over)
            else:
                until(lambda last=num_made: backend.clear_cache() == last)


def test_the_first_engine_must_be_made(make: Maker) -> None:
    make.faults = [InvalidModel("there is none")]
    with pytest.raises(InvalidModel, match="none"):
        RestartingBackend(make, QUICK)


def test_closing_waits_for_an_engine_that_is_being_made_and_closes_it(make: Maker) -> None:
    backend = RestartingBackend(make, QUICK)
    gate, is_making = threading.Event(), threading.Event()
    make.gate = lambda: (is_making.set(), gate.wait())
    make.made[0].kill()
    assert is_making.wait(60)
    closing = threading.Thread(target=backend.close)
    closing.start()
    gate.set()
    closing.join(60)
    assert not closing.is_alive()
    assert [engine.is_closed for engine in make.made] == [True, True]
    backend.close()


def test_waits_between_tries_grow() -> None:
    backoff = Backoff(delay=0.5)
    assert [backoff.before(tried) for tried in range(5)] == [0.0, 0.5, 1.0, 2.0, 4.0]
