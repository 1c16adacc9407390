"""Whole requests on their way to replicas: sent again, broken off, and ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from forkroot.adapters.relays import RelayReceiver, RelayRequest
from forkroot.adapters.router.replica import State
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import BackendClosed, Call, Completion, EngineDied, Overloaded, Text


class Target(ScriptedBackend):
    """A server that answers requests when a test says so."""

    def __init__(self) -> None:
        super().__init__("x")
        self.sent: list[RelayRequest] = []
        self.receivers: list[RelayReceiver] = []
        self.num_cancelled = 0

    def takes_relays(self, model: str) -> bool:
        return model == "scripted"

    def relay(self, request: RelayRequest, receiver: RelayReceiver) -> Callable[[], object]:
        self.sent.append(request)
        self.receivers.append(receiver)
        return self._cancel_relay

    def end_relays(self) -> None:
        """There is nothing to end."""

    def _cancel_relay(self) -> None:
        self.num_cancelled += 1


class Kept:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.got.append(status)

    def take(self, piece: bytes) -> None:
        self.got.append(piece)

    def end(self, completion: Completion | None) -> None:
        self.got.append("end")

    def fail(self, error: BaseException) -> None:
        self.got.append(type(error))


@pytest.fixture
def targets() -> list[Target]:
    return [Target(), Target()]


def sent(router: Router, is_stream: bool, **options: Any) -> tuple[Kept, Callable[[], object]]:
    call = Call((Text("a prompt"),), stream=is_stream, **options)
    kept = Kept()
    return kept, router.prepare_relay(RelayRequest("/x", b"{}", call, {}, "id", is_stream))(kept)


def run(targets: list[Target], action: Callable[[Router], object]) -> None:
    async def within() -> None:
        with Router(targets, "round-robin", heartbeat=1e6, hang_timeout=1e6) as router:
            assert router.takes_relays("scripted")
            assert not router.takes_relays("another")
            action(router)
            await asyncio.sleep(0)
            router.check()

    asyncio.run(within())


def answer(receiver: RelayReceiver, *pieces: bytes) -> None:
    receiver.begin(200, {})
    for piece in pieces:
        receiver.take(piece)


def test_a_whole_answer_is_handed_on_at_its_end(targets: list[Target]) -> None:
    def action(router: Router) -> None:
        kept, _ = sent(router, False)
        (receiver,) = targets[0].receivers
        answer(receiver, b"a", b"b")
        assert kept.got == []
        receiver.end(Completion())
        assert kept.got == [200, b"ab", "end"]

    run(targets, action)


@pytest.mark.parametrize("error", [BackendClosed("it has ended"), Overloaded("it is full")])
@pytest.mark.parametrize("is_stream", [False, True])
def test_what_has_delivered_nothing_goes_to_another_replica(
    targets: list[Target], error: Exception, is_stream: bool
) -> None:
    def action(router: Router) -> None:
        kept, _ = sent(router, is_stream, deadline=60.0)
        receiver = targets[0].receivers[0]
        if not is_stream:
            answer(receiver, b"lost")
        receiver.fail(error)
        answer(targets[1].receivers[0], b"well")
        targets[1].receivers[0].end(None)
        assert kept.got == [200, b"well", "end"]
        assert 0 < float(str(targets[1].sent[0].client["deadline"])) <= 60
        assert not router._open

    run(targets, action)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_request_leaves_a_hanging_replica_and_what_that_one_answers_is_ignored(
    targets: list[Target], is_stream: bool
) -> None:
    def action(router: Router) -> None:
        kept, _ = sent(router, is_stream)
        if not is_stream:
            answer(targets[0].receivers[0], b"a part")
        router.fleet.leave(router.fleet.named("0"), State.HANGING, "it hangs")
        router.tick()
        assert targets[0].num_cancelled == 1
        answer(targets[0].receivers[0], b"late")
        targets[0].receivers[0].end(None)
        answer(targets[1].receivers[0], b"well")
        targets[1].receivers[0].end(None)
        assert kept.got == [200, b"well", "end"]
        assert not router._open

    run(targets, action)


def test_a_stream_that_has_begun_ends_where_its_replica_does(targets: list[Target]) -> None:
    def action(router: Router) -> None:
        kept, _ = sent(router, True)
        answer(targets[0].receivers[0], b"a part")
        targets[0].receivers[0].fail(BackendClosed("it has ended"))
        assert kept.got == [200, b"a part", EngineDied]
        assert not targets[1].receivers
        assert [it.state for it in router.replicas] == ["dead", "ready"]

    run(targets, action)


def test_a_cancelled_request_says_nothing_of_its_replica(targets: list[Target]) -> None:
    def action(router: Router) -> None:
        kept, cancel = sent(router, False)
        cancel()
        assert targets[0].num_cancelled == 1
        targets[0].receivers[0].fail(BackendClosed("its connection was closed"))
        assert kept.got == [BackendClosed]
        assert [it.state for it in router.replicas] == ["ready", "ready"]

    run(targets, action)


def test_open_requests_end_with_their_router(targets: list[Target]) -> None:
    kept: list[Kept] = []
    run(targets, lambda router: kept.append(sent(router, True)[0]))
    assert kept[0].got == [BackendClosed]
