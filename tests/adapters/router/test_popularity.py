"""Shares of recent calls that begin alike."""

from __future__ import annotations

from forkroot.adapters.router.popularity import WINDOW, Popularity


def test_calls_count_for_their_namespace_and_first_digest() -> None:
    counted = Popularity()
    assert counted.share("", b"root 000") == 0
    for number in range(3):
        counted.count("", b"root 000" + b"question"[:number])
    counted.count("tenant", b"root 000")
    assert counted.share("", b"root 000 more") == 0.75
    assert counted.share("tenant", b"root 000") == 0.25
    assert counted.share("tenant", b"other 00") == 0


def test_older_calls_count_less_and_those_that_came_once_are_forgotten() -> None:
    counted = Popularity()
    for number in range(WINDOW // 2):
        counted.count("", b"old root")
        counted.count("", f"{number:08}".encode())
    assert counted.share("", b"old root") == 1
    for _ in range(WINDOW // 2):
        counted.count("", b"new root")
    assert 0.6 < counted.share("", b"new root") < 0.7
