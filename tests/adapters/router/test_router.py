"""The router over scripted replicas: faults, draining, reports, and what it shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from forkroot.adapters.router import flight
from forkroot.adapters.router.router import Router
from forkroot.adapters.router.start import names_of, over, settings_of
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.evictions import Eviction, EvictionReport, Prefix, PrefixReport
from forkroot.core.api.program_report import Guesses, KindUsage, ProgramReport
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    Chat,
    Chunk,
    DeadlineExceeded,
    EngineDied,
    ForkHint,
    InvalidCall,
    Message,
    NodeView,
    Overloaded,
    Reply,
    Text,
)
from forkroot.core.api.reply import Mailbox
from forkroot.core.common.digests import digests

NEVER = 1e6
QUIET: dict[str, Any] = {"heartbeat": NEVER, "hang_timeout": NEVER}
ROOT = "what all of them begin with, " * 20


def call(text: str = ROOT, **fields: Any) -> Call:
    return Call((Text(text),), **fields)


@contextmanager
def router(*replicas: Backend, **options: Any) -> Iterator[Router]:
    found = Router(replicas, **{**QUIET, **options})
    try:
        yield found
        found.check()
    finally:
        found.close()


def until(is_so: Callable[[], object], timeout: float = 10.0) -> None:
    end = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


class Streaming(ScriptedBackend):
    """Delivers one chunk and then nothing, until it is closed."""

    def submit(self, call: Call) -> Reply:
        mailbox = Mailbox(call, self.cancel)
        self.replies.append(mailbox)
        mailbox.put(Chunk("so f"))
        return mailbox


class Refusing(ScriptedBackend):
    """Ends every call in this error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(lambda _: error)
        self.is_asked = 0

    def submit(self, call: Call) -> Reply:
        self.is_asked += 1
        return super().submit(call)


def test_a_call_of_a_dead_replica_is_answered_by_another() -> None:
    one, other = ScriptedBackend("late", is_held=True), ScriptedBackend("late", is_held=True)
    with router(one, other) as both:
        replies = [both.submit(call(stream=number == 1)) for number in range(2)]
        first, second = (one, other) if one.calls else (other, one)
        first.close()
        second.release()
        assert [reply.result(60).text for reply in replies] == ["late", "late"]
        assert "".join(chunk.text for chunk in replies[1]) == "late"
        assert both.info().counters["resent"] == 2


def test_a_call_that_has_streamed_ends_in_an_error_that_says_so() -> None:
    replica, other = Streaming(), ScriptedBackend("other")
    with router(replica) as both:
        reply = both.submit(call(stream=True))
        both.add(other)
        replica.close()
        with pytest.raises(EngineDied, match="after a part of the answer had been delivered"):
            reply.result(60)
        assert not other.calls


def test_a_call_that_ends_replica_after_replica_is_not_sent_to_all() -> None:
    replicas = [Dying() for _ in range(8)]
    with router(*replicas) as many:
        with pytest.raises(EngineDied):
            many.submit(call()).result(60)
        assert sum(len(it.calls) for it in replicas) == 4


class Dying(ScriptedBackend):
    """Dies of each call, once it has taken it."""

    def submit(self, call: Call) -> Reply:
        self.calls.append(call)
        mailbox = Mailbox(call)
        threading.Timer(0.01, lambda: mailbox.fail(EngineDied("of this call", True))).start()
        return mailbox


@pytest.mark.parametrize("error", [CallFailed("bad"), InvalidCall("x", 1, "2")])
def test_other_errors_are_the_calls_own(error: Exception) -> None:
    replicas = [Refusing(error), Refusing(error)]
    with router(*replicas) as both:
        with pytest.raises(type(error)):
            both.submit(call()).result(60)
        assert sum(it.is_asked for it in replicas) == 1


def test_a_full_queue_sends_a_call_to_another_replica() -> None:
    full, free = Refusing(Overloaded("full")), ScriptedBackend("free")
    with router(full, free, policy="round-robin") as both:
        assert both.submit(call()).result(60).text == "free"
    with router(full, Refusing(Overloaded("full"))) as both, pytest.raises(Overloaded):
        both.submit(call()).result(60)


def test_a_call_waits_for_a_replica_that_may_come_back_and_no_longer() -> None:
    one = ScriptedBackend("back")
    with router(one, patience=0.05) as only:
        only.drain("0")
        assert isinstance(only.submit(call()).error(), BackendClosed), "nobody can take it"
        only.resume("0")
        one.close()
        held = only.submit(call())
        assert only.info().load["held"] == 1
        time.sleep(0.06)
        only.tick()
        with pytest.raises(EngineDied, match=r"patience=0\.05"):
            held.result(60)
        waiting = only.submit(call())
        only.add(ScriptedBackend("new"), "1")
        assert waiting.result(60).text == "new"


def test_a_held_call_can_be_cancelled_and_has_its_deadline() -> None:
    one = ScriptedBackend()
    with router(one) as only:
        one.close()
        held, late = only.submit(call()), only.submit(call(deadline=0.01))
        held.cancel()
        assert held.result(60).outputs[0].finish_reason == "abort"
        time.sleep(0.02)
        only.add(ScriptedBackend("new"), "1")
        with pytest.raises(DeadlineExceeded):
            late.result(60)


def test_cancelling_a_call_cancels_it_where_it_is() -> None:
    one = ScriptedBackend("x", is_held=True)
    with router(one) as only:
        reply = only.submit(call())
        only.cancel(reply)
        assert reply.result(60).outputs[0].finish_reason == "abort"


def test_closing_ends_open_calls_and_refuses_later_ones() -> None:
    one = ScriptedBackend("x", is_held=True)
    with router(one) as only:
        reply = only.submit(call())
        only.close()
        with pytest.raises(BackendClosed):
            reply.result(60)
        with pytest.raises(BackendClosed, match="already closed"):
            only.submit(call()).result(60)
        with pytest.raises(BackendClosed):
            only.info()
        assert only.is_over


def test_draining_waits_for_open_calls_and_sends_no_new_ones() -> None:
    one, other = ScriptedBackend("x", is_held=True), ScriptedBackend("y")
    with router(one) as both:
        reply = both.submit(call())
        both.add(other)
        with pytest.raises(TimeoutError, match="1 open calls"):
            both.drain("0", 0.01)
        assert both.submit(call()).result(60).text == "y"
        threading.Timer(0.02, one.release).start()
        both.drain("0", 5)
        assert reply.result(0).text == "x"
        assert both.remove("0") is one
        assert [view.name for view in both.replicas] == ["1"]
        with pytest.raises(InvalidCall, match="replica='0'"):
            both.drain("0")


class Hanging(ScriptedBackend):
    """Does not answer questions while it hangs."""

    def __init__(self, is_held: bool = False) -> None:
        super().__init__("x", is_held=is_held)
        self.is_well = threading.Event()
        self.is_well.set()

    def info(self) -> BackendInfo:
        self.is_well.wait()
        return super().info()


def test_a_replica_that_hangs_is_left_out_until_it_answers() -> None:
    one, other = Hanging(), ScriptedBackend("y")
    with router(one, other, heartbeat=0.02, hang_timeout=0.05) as both:
        one.is_well.clear()
        until(lambda: both.replicas[0].state == "hanging")
        assert both.submit(call()).result(60).text == "y"
        one.is_well.set()
        until(lambda: both.replicas[0].state == "ready")


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_call_of_a_hanging_replica_goes_elsewhere_and_what_that_one_answers_is_ignored(
    is_stream: bool,
) -> None:
    one, other = Hanging(is_held=True), ScriptedBackend("y")
    with router(one, heartbeat=0.02, hang_timeout=0.05) as both:
        reply = both.submit(call(stream=is_stream))
        one.is_well.clear()
        until(lambda: both.replicas[0].state == "hanging")
        assert both.info().load["held"] == both.info().counters["resent"] == 0
        both.add(other)
        assert reply.result(60).text == "y"
        assert (both.replicas[0].open, both.info().counters["resent"]) == (0, 1)
        one.release()
        one.is_well.set()
        until(lambda: both.replicas[0].state == "ready")
        assert [reply.result(0).text, *(chunk.text for chunk in reply)] == ["y"] * (1 + is_stream)


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_call_whose_replica_is_silent_ends_shortly_after_its_deadline(
    is_stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight, "GRACE", 0.05)
    one = Hanging(is_held=True)
    with router(one, heartbeat=0.02, hang_timeout=NEVER) as only:
        one.is_well.clear()
        reply = only.submit(call(stream=is_stream, deadline=0.05))
        with pytest.raises(DeadlineExceeded, match=r"deadline=0\.05"):
            reply.result(60)
        until(lambda: not only.replicas[0].open)
        one.is_well.set()


def test_a_held_call_ends_at_its_deadline_though_no_replica_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flight, "GRACE", 0.0)
    one = ScriptedBackend()
    with router(one, heartbeat=0.02) as only:
        one.close()
        with pytest.raises(DeadlineExceeded):
            only.submit(call(deadline=0.05)).result(60)


def test_a_deadline_that_is_no_deadline_is_left_to_the_replica() -> None:
    one = ScriptedBackend("x")
    with router(one) as only, pytest.raises(InvalidCall, match="deadline=-1"):
        only.submit(call(deadline=-1)).result(60)


def test_a_call_that_has_streamed_stays_with_a_hanging_replica() -> None:
    class HangingStream(Hanging, Streaming):
        """Both."""

    one, other = HangingStream(), ScriptedBackend("y")
    with router(one, heartbeat=0.02, hang_timeout=0.05) as both:
        reply = both.submit(call(stream=True))
        one.is_well.clear()
        both.add(other)
        until(lambda: both.replicas[0].state == "hanging")
        time.sleep(0.05)
        assert both.replicas[0].open == 1 and not reply.done()
        one.is_well.set()


class Blinking(ScriptedBackend):
    """Cannot be asked while it is away. num_calls: as it counts them; None: it does not tell."""

    is_away = False
    num_calls: int | None = 5

    def info(self) -> BackendInfo:
        if self.is_away:
            raise BackendClosed("away")
        counters = {} if self.num_calls is None else {"calls": self.num_calls}
        return replace(super().info(), counters=counters)


@pytest.mark.parametrize(("num_calls", "is_known"), [(5, True), (1, False), (None, False)])
def test_what_a_replica_holds_is_known_after_it_was_away_unless_it_began_anew(
    num_calls: int | None, is_known: bool
) -> None:
    one = Blinking("x")
    with router(one, heartbeat=0.01) as only:
        only.submit(call()).result(60)
        until(lambda: only.fleet.named("0").info.counters)
        one.is_away = True
        until(lambda: only.replicas[0].state == "dead")
        one.num_calls, one.is_away = num_calls, False
        until(lambda: only.replicas[0].state == "ready")
        replica = only.fleet.named("0")
        holders = [it for _, _, it in only.fleet.tree.entries()]
        assert any(it & replica.bit for it in holders) is is_known


def test_a_router_whose_replicas_are_gone_for_good_is_over() -> None:
    class Gone(ScriptedBackend):
        is_gone = False

        def info(self) -> BackendInfo:
            if self.is_gone:
                raise EngineDied("gone")
            return super().info()

    one = Gone()
    with router(one, heartbeat=0.02) as only:
        assert not only.is_over
        one.is_gone = True
        until(lambda: only.is_over)
        with pytest.raises(EngineDied, match="all replicas have ended"):
            only.info()
        with pytest.raises(BackendClosed, match="no replica can take the call"):
            only.submit(call()).result(60)


class Caching(ScriptedBackend):
    """Reports what a test says that it has forgotten, or holds."""

    tokenizer = None

    def __init__(self, life: str = "life 1") -> None:
        super().__init__("x")
        self.life, self.end = life, 0
        self.forgotten: list[Eviction] = []
        self.held: tuple[Prefix, ...] = ()
        self.is_gap = True

    def evictions(self, after: int = -1) -> EvictionReport:
        if self.is_gap:
            return EvictionReport(self.life, self.end, is_gap=True)
        found = tuple(self.forgotten[after:])
        return EvictionReport(self.life, len(self.forgotten), found)

    def prefixes(self, count: int = 1000) -> PrefixReport:
        self.is_gap = False
        return PrefixReport(self.life, self.end, self.held)


class Bytes:
    """Tokens are bytes."""

    def encode_prompt(self, prompt: Any, most: int | None = None) -> list[int]:
        return list("".join(segment.text for segment in prompt).encode())


def key(text: str) -> bytes:
    return digests(b"".join(byte.to_bytes(4, "little") for byte in text.encode()))


def read(one: Router, name: str) -> None:
    time.sleep(0.03)  # the router counts as idle
    one.watch.evictions.read(one.fleet.named(name))


def test_a_router_that_starts_knows_what_replicas_hold() -> None:
    one, other = Caching(), Caching()
    other.held = (Prefix("", key(ROOT)),)
    with router(one, other, tokenizer=Bytes()) as both:
        for name in "01":
            read(both, name)
        both.submit(call(ROOT + "one more question")).result(60)
        assert len(other.calls) == 1


def test_what_a_replica_has_evicted_is_forgotten() -> None:
    one = Caching()
    with router(one, tokenizer=Bytes()) as both:
        read(both, "0")
        both.submit(call()).result(60)
        bit = both.fleet.named("0").bit
        assert both.fleet.tree.find("", key(ROOT), bit)
        one.forgotten.append(Eviction("", key(ROOT), 16, 1000))
        read(both, "0")
        assert [it.length for it in both.fleet.tree.find("", key(ROOT), bit)] == [16]
        assert both.info().counters["evictions_read"] == 1


@pytest.mark.parametrize("what", ["gap", "life"])
def test_lost_reports_and_another_life_are_made_good_by_a_snapshot(what: str) -> None:
    one = Caching()
    with router(one, tokenizer=Bytes()) as both:
        read(both, "0")
        both.submit(call()).result(60)
        if what == "gap":
            one.is_gap = True
        else:
            one.life = "life 2"
        one.held = (Prefix("tenant", key("another prefix " * 30)),)
        read(both, "0")
        bit = both.fleet.named("0").bit
        assert not both.fleet.tree.find("", key(ROOT), bit)
        assert both.fleet.tree.find("tenant", key("another prefix " * 30), bit)


def test_texts_are_forgotten_by_their_age_where_no_tokenizer_is_known() -> None:
    one = Caching()
    with router(one) as both:
        read(both, "0")
        for letter in "ab":
            both.submit(call(letter * 640)).result(60)
        one.is_gap = False
        one.forgotten.append(Eviction("", b"12345678", 0, 160))
        read(both, "0")
        keys = {found for _, found, _ in both.fleet.tree.entries()}
        assert keys == {digests(b"b" * 640)}


def test_a_wrong_report_changes_no_answer() -> None:
    one = Caching()
    one.held = (Prefix("", key(ROOT)),)
    with router(one, ScriptedBackend("x"), tokenizer=Bytes()) as both:
        read(both, "0")
        one.forgotten += [Eviction("never", b"abc" * 8, 8, 7), Eviction("", b"", 0, 0)]
        read(both, "0")
        assert both.submit(call()).result(60).text == "x"


def test_two_routers_send_a_new_prefix_to_the_same_replica() -> None:
    replicas = {name: ScriptedBackend(name) for name in "abcd"}
    others = {name: ScriptedBackend(name) for name in "dbca"}
    with Router(replicas, **QUIET) as one, Router(others, **QUIET) as other:
        for number in range(20):
            asked = call(f"{number} " * 100)
            assert one.submit(asked).result(60).text == other.submit(asked).result(60).text


def test_branches_of_a_hint_go_to_one_replica_and_turns_follow_their_chat() -> None:
    replicas = [ScriptedBackend("an answer " * 30) for _ in range(6)]
    with router(*replicas) as many:
        for number in range(5):
            hint = ForkHint("root", 5)
            many.submit(call(f"short {number}", hint=hint)).result(60)
        assert sorted(len(it.calls) for it in replicas) == [0, 0, 0, 0, 0, 5]
        messages = [Message("user", (Text("first question " * 10),))]
        for _ in range(4):
            text = many.submit(Call(Chat(tuple(messages)))).result(60).text
            messages.append(Message("assistant", (Text(text),)))
            messages.append(Message("user", (Text("and then? " * 10),)))
        chats = [sum(isinstance(c.prompt, Chat) for c in it.calls) for it in replicas]
        assert max(chats) == 4


def test_figures_are_summed_and_trees_stand_side_by_side() -> None:
    class Drawn(ScriptedBackend):
        def info(self) -> BackendInfo:
            return BackendInfo("m", 100, counters={"steps": 2}, load={"running": 1})

        def snapshot(self, *limits: int | None) -> tuple[NodeView, ...]:
            return (
                NodeView(0, -1, "ns", (), 0, 0, 0, 0, (1,)),
                NodeView(1, 0, "ns", (5,), 1, *[0] * 3, ()),
            )

        def clear_cache(self) -> int:
            return 3

    with router(Drawn(), Drawn()) as both:
        info = both.info()
        assert (info.model, info.counters["steps"], info.load["running"]) == ("m", 4, 2)
        assert info.load["ready_replicas"] == 2
        views = both.snapshot()
        assert len({view.id for view in views}) == 4
        assert {view.namespace for view in views} == {"replica 0 / ns", "replica 1 / ns"}
        by_id = {view.id: view for view in views}
        assert all(child in by_id for view in views for child in view.children)
        assert both.clear_cache() == 6


def test_what_programs_used_is_added_up_and_a_replica_that_does_not_answer_is_left_out() -> None:
    class Reporting(ScriptedBackend):
        def program_report(self, tenant: str | None = None) -> ProgramReport:
            if self.replies:
                raise BackendClosed("gone")
            kinds = (
                KindUsage("agent", "a", 1, calls=3, cached_tokens=9, next_use=Guesses(2, 1, 1)),
                KindUsage("agent", "b", 1, calls=1, saved_seconds=0.5),
            )
            return ProgramReport(tuple(it for it in kinds if tenant in (None, it.tenant)), 2)

    lost = Reporting()
    lost.submit(call())
    with router(Reporting(), ScriptedBackend(), Reporting(), lost) as several:
        report = several.program_report()
        assert report.kinds == (
            KindUsage("agent", "a", 2, calls=6, cached_tokens=18, next_use=Guesses(4, 2, 2)),
            KindUsage("agent", "b", 2, calls=2, saved_seconds=1.0),
        )
        assert report.num_left_out == 4
        assert [it.tenant for it in several.program_report("b").kinds] == ["b"]


def test_replicas_of_different_models_are_refused() -> None:
    with pytest.raises(InvalidCall, match="model='b': expected 'a'"):
        Router([ScriptedBackend(model="a"), ScriptedBackend(model="b")], **QUIET)
    with pytest.raises(InvalidCall, match="at least one backend"):
        Router([])
    with pytest.raises(InvalidCall, match="heartbeat=0"):
        Router([ScriptedBackend()], heartbeat=0)
    with router(ScriptedBackend()) as one, pytest.raises(InvalidCall, match="name='0'"):
        one.add(ScriptedBackend(), "0")


def test_a_start_that_fails_closes_the_others() -> None:
    started = [ScriptedBackend() for _ in range(3)]

    def start(index: int) -> Backend:
        if index == 1:
            raise InvalidCall("model", "m", "another")
        return started[index]

    with pytest.raises(InvalidCall, match="another"):
        over(["a", "b", "c"], start, "affinity")
    assert isinstance(started[0].submit(call()).error(), BackendClosed)
    with pytest.raises(InvalidCall, match="none of them twice"):
        names_of(["http://a:1", "http://a:1/"])
    assert settings_of(1, 2, {"device": "cuda"})["device"] == "cuda:1"
    assert settings_of(1, 2, {})["engines"] == 2
    with pytest.raises(InvalidCall, match="ranks=2"):
        settings_of(0, 2, {"device": "cuda", "ranks": 2})


def test_bits_of_replicas_that_died_are_used_again() -> None:
    one, other = ScriptedBackend("x"), ScriptedBackend("x")
    with router(one, other) as both:
        for number in range(40):
            both.submit(call(f"{number} " * 100)).result(60)
            both.remove("0")
            both.watch.sweep()
            both.add(one, "0")
        assert both.fleet.num_indices <= 4


def test_what_is_no_call_is_refused_at_once_and_not_sent() -> None:
    replica = ScriptedBackend("a")
    with router(replica) as one, pytest.raises(InvalidCall, match=r"^invalid call='hello': "):
        one.submit("hello")  # type: ignore[arg-type]
    assert replica.calls == []
