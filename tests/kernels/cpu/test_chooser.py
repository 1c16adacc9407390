"""Ways of computing the same are chosen by the time that they took."""

from __future__ import annotations

from collections import Counter

from forkroot.kernels.cpu.decoder.chooser import Chooser


class Clock:
    """Moves as far as each call takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Calls:
    """Calls of some ways. seconds: of each way, for each of a call's size."""

    def __init__(self, **seconds: float) -> None:
        self.clock = Clock()
        self.chooser = Chooser(self.clock)
        self.seconds = {int(name[1:]): value for name, value in seconds.items()}

    def run(self, num: int, size: int = 1, key: object = "key") -> Counter[int]:
        """How often each way was called."""
        found = Counter[int]()

        def call(way: int) -> int:
            self.clock.now += self.seconds[way] * size
            found[way] += 1
            return way

        for _ in range(num):
            self.chooser.run(key, tuple(self.seconds), size, call)
        return found


def test_each_way_is_tried_and_then_the_fastest_is_taken() -> None:
    calls = Calls(w0=3.0, w1=1.0, w2=2.0)
    assert calls.run(9) == {0: 3, 1: 3, 2: 3}
    assert calls.run(1000)[1] > 980


def test_one_slow_call_decides_nothing() -> None:
    calls = Calls(w0=1.0, w1=2.0)
    calls.run(40)
    calls.seconds[0] = 50.0
    calls.run(1)
    calls.seconds[0] = 1.0
    assert calls.run(500)[0] > 480


def test_another_way_is_taken_once_it_is_the_fastest() -> None:
    calls = Calls(w0=1.0, w1=2.0)
    calls.run(100)
    calls.seconds[0] = 9.0
    assert calls.run(5000)[1] > 4900


def test_times_are_of_each_key_and_of_its_ways_by_the_size_of_calls() -> None:
    calls = Calls(w0=1.0, w1=2.0)
    calls.run(50)
    calls.seconds = {0: 2.0, 1: 1.0}
    assert calls.run(50, key="other")[1] > 40
    sizes = Calls(w0=1.0, w1=2.0)
    for number in range(100):
        sizes.run(1, size=1 + number % 7 * 100)
    assert sizes.run(100)[0] > 95


def test_the_ways_of_a_key_may_differ_between_calls() -> None:
    chooser = Chooser(Clock())
    assert chooser.run("key", (1,), 1, lambda way: way) == 1
    assert {chooser.run("key", (2, 3), 1, lambda way: way) for _ in range(6)} == {2, 3}
