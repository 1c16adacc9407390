"""What is posted to one thread, and how long it waits for callers who come back."""

from __future__ import annotations

from forkroot.core.engine.inbox import Inbox


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """An inbox, what it did, and a call that may come while it waits."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inbox = Inbox(self.clock)
        self.did: list[str] = []

    def call(self, name: str, after: float = 0.0) -> None:
        self.clock.now += after
        assert self.inbox.post(lambda: self.did.append(name), is_call=True)

    def call_during_a_wait(self, name: str) -> None:
        """Whatever is done while the inbox waits may bring a call."""
        assert self.inbox.post(lambda: self.call(name))

    def end_calls(self, num_ended: int = 1, num_open: int = 1, seconds: float = 0.01) -> None:
        self.inbox.wait_for_calls(num_ended, num_open, seconds)

    def learn_that_calls_come_soon(self) -> None:
        self.end_calls()
        self.call("a", after=0.001)
        self.inbox.drain()
        self.did.clear()


def test_what_is_posted_is_done_in_order_until_it_shuts() -> None:
    desk = Desk()
    desk.call("a")
    desk.call("b")
    desk.inbox.wait(None)
    assert desk.did == ["a"] and desk.inbox.has_actions
    desk.call("c")
    desk.inbox.drain()
    assert desk.did == ["a", "b", "c"] and not desk.inbox.has_actions
    desk.inbox.wait(0)
    desk.inbox.close()
    assert not desk.inbox.post(desk.did.clear)
    desk.inbox.drain()
    assert desk.did == ["a", "b", "c"]


def test_nobody_is_waited_for_who_was_never_seen_to_come_back() -> None:
    desk = Desk()
    desk.call_during_a_wait("a")
    desk.end_calls()
    assert desk.did == [] and desk.inbox.has_actions


def test_after_a_call_that_came_soon_the_next_one_is_waited_for() -> None:
    desk = Desk()
    desk.learn_that_calls_come_soon()
    desk.call_during_a_wait("b")
    desk.call_during_a_wait("c")
    desk.end_calls(2, 8)
    assert desk.did == ["b", "c"]


def test_as_many_are_waited_for_as_have_ended() -> None:
    desk = Desk()
    desk.learn_that_calls_come_soon()
    desk.call_during_a_wait("b")
    desk.inbox.post(lambda: None)
    desk.call("c")
    desk.end_calls(1)
    assert desk.did == ["c"] and desk.inbox.has_actions
    desk.inbox.drain()
    assert desk.did == ["c", "b"]


def test_a_call_that_was_there_before_is_taken_in_and_is_none_that_came_back() -> None:
    desk = Desk()
    desk.learn_that_calls_come_soon()
    desk.call("early")
    desk.clock.now += 1
    desk.call_during_a_wait("b")
    desk.end_calls()
    assert desk.did == ["early", "b"]


def test_a_call_that_came_late_ends_the_waiting() -> None:
    desk = Desk()
    desk.learn_that_calls_come_soon()
    desk.end_calls()
    desk.call("late", after=1.0)
    desk.inbox.drain()
    desk.call_during_a_wait("b")
    desk.end_calls()
    assert desk.did == ["late"]


def test_what_is_no_call_says_nothing_of_callers() -> None:
    desk = Desk()
    desk.end_calls()
    desk.inbox.post(lambda: None)
    desk.inbox.drain()
    desk.call_during_a_wait("a")
    desk.end_calls()
    assert desk.did == []


def test_few_of_many_calls_are_waited_for_less_than_all() -> None:
    desk = Desk()
    desk.end_calls(1, 50, seconds=0.01)
    desk.call("a", after=0.001)
    desk.inbox.drain()
    desk.call_during_a_wait("b")
    desk.end_calls()
    assert desk.did == ["a"]
