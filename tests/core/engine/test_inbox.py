"""What is posted to one thread, and how long it waits for callers who come back."""

from __future__ import annotations

from forkroot.core.engine.inbox import Inbox


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Harness:
    """An inbox, what it did, and a call that may come while it waits."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inbox = Inbox(self.clock)
        self.done: list[str] = []

    def call(self, name: str, after: float = 0.0) -> None:
        self.clock.now += after
        assert self.inbox.post(lambda: self.done.append(name), is_call=True)

    def call_during_a_wait(self, name: str) -> None:
        """Whatever is done while the inbox waits may bring a call."""
        assert self.inbox.post(lambda: self.call(name))

    def end_calls(self, num_ended: int = 1, num_open: int = 1, seconds: float = 0.01) -> None:
        self.inbox.wait_for_calls(num_ended, num_open, seconds)

    def learn_that_calls_come_soon(self) -> None:
        self.end_calls()
        self.call("a", after=0.001)
        self.inbox.drain()
        self.done.clear()


def test_actions_run_in_order_until_the_inbox_closes() -> None:
    harness = Harness()
    harness.call("a")
    harness.call("b")
    harness.inbox.wait(None)
    assert harness.done == ["a"] and harness.inbox.has_actions
    harness.call("c")
    harness.inbox.drain()
    assert harness.done == ["a", "b", "c"] and not harness.inbox.has_actions
    harness.inbox.wait(0)
    harness.inbox.close()
    assert not harness.inbox.post(harness.done.clear)
    harness.inbox.drain()
    assert harness.done == ["a", "b", "c"]


def test_there_is_no_wait_before_a_caller_has_called_again() -> None:
    harness = Harness()
    harness.call_during_a_wait("a")
    harness.end_calls()
    assert harness.done == [] and harness.inbox.has_actions


def test_after_a_call_that_came_soon_the_next_one_is_waited_for() -> None:
    harness = Harness()
    harness.learn_that_calls_come_soon()
    harness.call_during_a_wait("b")
    harness.call_during_a_wait("c")
    harness.end_calls(2, 8)
    assert harness.done == ["b", "c"]


def test_as_many_are_waited_for_as_have_ended() -> None:
    harness = Harness()
    harness.learn_that_calls_come_soon()
    harness.call_during_a_wait("b")
    harness.inbox.post(lambda: None)
    harness.call("c")
    harness.end_calls(1)
    assert harness.done == ["c"] and harness.inbox.has_actions
    harness.inbox.drain()
    assert harness.done == ["c", "b"]


def test_a_call_from_before_the_wait_is_admitted_and_does_not_count_as_a_new_one() -> None:
    harness = Harness()
    harness.learn_that_calls_come_soon()
    harness.call("early")
    harness.clock.now += 1
    harness.call_during_a_wait("b")
    harness.end_calls()
    assert harness.done == ["early", "b"]


def test_a_call_that_came_late_ends_the_waiting() -> None:
    harness = Harness()
    harness.learn_that_calls_come_soon()
    harness.end_calls()
    harness.call("late", after=1.0)
    harness.inbox.drain()
    harness.call_during_a_wait("b")
    harness.end_calls()
    assert harness.done == ["late"]


def test_what_is_not_a_call_is_not_counted_for_callers() -> None:
    harness = Harness()
    harness.end_calls()
    harness.inbox.post(lambda: None)
    harness.inbox.drain()
    harness.call_during_a_wait("a")
    harness.end_calls()
    assert harness.done == []


def test_few_of_many_calls_are_waited_for_less_than_all() -> None:
    harness = Harness()
    harness.end_calls(1, 50, seconds=0.01)
    harness.call("a", after=0.001)
    harness.inbox.drain()
    harness.call_during_a_wait("b")
    harness.end_calls()
    assert harness.done == ["a"]
