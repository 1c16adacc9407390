"""A fork of a process has none of its threads: what belongs to that process refuses there, and
harms nothing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable

import pytest

from forkroot.adapters.http.client import RemoteBackend
from forkroot.core.config import EngineConfig
from forkroot.core.local import LocalBackend
from forkroot.core.process import ProcessBackend
from forkroot.core.protocol import Backend, BackendClosed, Call, Sampling, Text
from forkroot.core.testing import FakeRunner, byte_tokenizer

CALL = Call((Text("a"),), Sampling(max_tokens=3, temperature=0.0))


def local() -> LocalBackend:
    config = EngineConfig.from_settings({"num_slots": 100, "context_len": 50, "max_running": 2})
    return LocalBackend("fake", config, byte_tokenizer(), FakeRunner(100), 257, frozenset({256}))


def child() -> ProcessBackend:
    return ProcessBackend("tiny", num_slots=256)


def remote() -> RemoteBackend:
    return RemoteBackend("http://127.0.0.1:9")


def in_a_fork(action: Callable[[], str]) -> str:
    """What it gives in a fork of this process, which then ends."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        pid = os.fork()
    if not pid:
        try:
            told = action()
        except BaseException as error:
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        told = lines.read().decode()
    os.waitpid(pid, 0)
    return told


@pytest.mark.parametrize("make", [local, child, remote])
def test_a_fork_is_refused_at_once_and_leaves_all_as_it_is(make: Callable[[], Backend]) -> None:
    def used() -> str:
        reply = backend.submit(CALL)
        backend.cancel(reply)
        backend.close()
        assert reply.done()
        error = reply.error()
        assert type(error) is BackendClosed
        return str(error)

    with make() as backend:
        told = in_a_fork(used)
        assert told.startswith(f"the backend belongs to process {os.getpid()}, of which")
        if make is not remote:
            assert backend.submit(CALL).result(30).outputs[0].text is not None
            assert backend.info().counters["calls"] == 1


@pytest.mark.parametrize("make", [local, child])
def test_questions_are_refused_too(make: Callable[[], LocalBackend | ProcessBackend]) -> None:
    def asked() -> str:
        with pytest.raises(BackendClosed):
            backend.clear_cache()
        return "refused"

    with make() as backend:
        assert in_a_fork(asked) == "refused"
        assert backend.clear_cache() == 0
