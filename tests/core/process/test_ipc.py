"""Messages over a socket: all of them, in order, and without waiting for the caller's threads."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from forkroot.core.process.ipc import Connection, spawn

SWITCH = 2.0  # seconds that a thread may go on when another one wants the interpreter
FAILING = """
import os, sys, threading, time
from forkroot.core.process.ipc import serve_parent

def main(fd):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    threading.Thread(target=time.sleep, args=(60,)).start()
    serve_parent(fd, lambda connection: 1 / 0)
"""
COUNT, PART = 1000, 100  # messages; so many have room in a socket


@pytest.fixture(params=[False, True], ids=["by its thread", "prompt"])
def ends(request) -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = socket.socketpair()
    lines = Connection(ours, sends_directly=request.param), Connection(theirs)
    yield lines
    for line in lines:
        line.close()


def test_all_messages_come_in_order_however_large_they_are(ends):
    sender, receiver = ends
    texts = [str(index) * (1 if index % 7 else 300_000) for index in range(60)]
    for text in texts:  # nobody reads yet: most of it does not fit into the socket
        sender.send("text", text)
    assert [text for _, text in islice(receiver.messages(), len(texts))] == texts


def test_a_child_that_fails_ends_although_its_threads_run(tmp_path, monkeypatch):
    (tmp_path / "failing_child.py").write_text(FAILING)
    monkeypatch.syspath_prepend(tmp_path)
    child = spawn("failing_child")
    assert list(child.connection.messages()) == []
    assert child.process.wait(60) == 1
    child.connection.close()


def test_nothing_happens_where_the_other_end_is_gone(ends):
    sender, receiver = ends
    receiver.close()
    for _ in range(3):
        sender.send("text", "x" * 1_000_000)
    sender.close()
    sender.send("text", "x")


def test_a_prompt_line_sends_without_letting_others_compute():
    ours, theirs = socket.socketpair()
    line, other = Connection(ours, sends_directly=True), Connection(theirs)
    messages, came = other.messages(), list[object]()
    is_over, turns = threading.Event(), [0]

    def spin() -> None:
        while not is_over.is_set():
            turns[0] += 1

    thread = threading.Thread(target=spin)
    thread.start()
    while not turns[0]:
        time.sleep(0.001)
    usual, taken = sys.getswitchinterval(), []
    for start in range(0, COUNT, PART):
        try:
            sys.setswitchinterval(SWITCH)
            before = turns[0]
            for index in range(start, start + PART):
                line.send("number", index)
            taken.append(turns[0] - before)
        finally:
            sys.setswitchinterval(usual)
        came += islice(messages, PART)
    is_over.set()
    thread.join()
    assert not any(taken)
    assert came == [("number", index) for index in range(COUNT)]
    line.close()
    other.close()
