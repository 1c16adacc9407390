"""A fork of a process has none of its threads: what belongs to that process refuses there, and
harms nothing."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import warnings
from collections.abc import Callable, Iterator

import pytest

from forkroot.adapters.http.client import RemoteBackend
from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    InvalidCall,
    NotPicklable,
    Sampling,
    Text,
)
from forkroot.core.local import LocalBackend
from forkroot.core.process.client import ProcessBackend
from forkroot.core.process.supervisor import RestartingBackend

pytestmark = pytest.mark.usefixtures("preloaded")
CALL = Call((Text("a"),), Sampling(max_tokens=3, temperature=0.0))


def local() -> LocalBackend:
    sizes = {"num_slots": 100, "context_len": 50, "max_running": 2}
    config = EngineConfig.from_settings(sizes | {"chunk_tokens": 64})
    return LocalBackend("fake", config, byte_tokenizer(), FakeRunner(100), 257, frozenset({256}))


def child() -> ProcessBackend:
    return ProcessBackend("tiny", num_slots=256)


def remote() -> RemoteBackend:
    return RemoteBackend("http://127.0.0.1:9")


@pytest.fixture(scope="module")
def started() -> Iterator[ProcessBackend]:
    with child() as backend:
        yield backend


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """What a function makes; the engine in a child process is the same for all tests."""
    if request.param is child:
        backend: ProcessBackend = request.getfixturevalue("started")
        backend.clear_cache()
        backend.reset_counters()
        yield backend
        return
    with request.param() as made:
        yield made


def in_a_fork(action: Callable[[], str]) -> str:
    """What it gives in a fork of this process, which then ends."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        pid = os.fork()
    if not pid:
        try:
            report = action()
        except BaseException as error:
            report = repr(error)
        os.write(writing, report.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as lines:
        report = lines.read().decode()
    os.waitpid(pid, 0)
    return report


@pytest.mark.parametrize("backend", [local, child, remote], indirect=True)
def test_a_fork_is_refused_at_once_and_leaves_all_as_it_is(backend: Backend) -> None:
    def used() -> str:
        reply = backend.submit(CALL)
        backend.cancel(reply)
        backend.close()
        assert reply.done()
        error = reply.error()
        assert type(error) is BackendClosed
        return str(error)

    report = in_a_fork(used)
    assert report.startswith(f"the backend belongs to process {os.getpid()}, of which")
    if not isinstance(backend, RemoteBackend):
        assert backend.submit(CALL).result(30).outputs[0].text is not None
        assert backend.info().counters["calls"] == 1


@pytest.mark.parametrize("backend", [local, child], indirect=True)
def test_questions_are_refused_too(backend: LocalBackend | ProcessBackend) -> None:
    def checked() -> str:
        with pytest.raises(BackendClosed):
            backend.clear_cache()
        return "refused"

    assert in_a_fork(checked) == "refused"
    assert backend.clear_cache() == 0


def restarting() -> RestartingBackend:
    return RestartingBackend(child)


@pytest.mark.parametrize("backend", [local, child, restarting], indirect=True)
def test_what_runs_an_engine_is_not_sent_to_another_process(backend: Backend) -> None:
    assert copy.copy(backend) is backend
    assert copy.deepcopy([backend])[0] is backend
    with pytest.raises(TypeError, match="pickled; expected connect") as caught:
        multiprocessing.get_context("spawn").Process(target=print, args=(backend,)).start()
    assert type(caught.value) is NotPicklable
    assert type(backend).__name__ in str(caught.value)


def test_a_remote_backend_is_the_same_connection_in_another_process() -> None:
    with RemoteBackend("http://127.0.0.1:9/v1", "key", connect_timeout=2, silence=3) as backend:
        with pickle.loads(pickle.dumps(backend)) as other:
            assert type(other) is RemoteBackend
            assert other is not backend
            assert other.__reduce__() == backend.__reduce__()
            assert "key" in other.__reduce__()[1]
        assert other.submit(CALL).done()
        with pytest.raises(BackendClosed, match="cannot be reached"):
            backend.submit(CALL).result()  # it is not closed: it has looked for a server


def test_an_engine_is_not_started_in_a_fork_whose_threads_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started() -> str:
        try:
            LocalBackend.from_folder("tiny", num_slots=256).close()
        except InvalidCall as error:
            return f"{error.field}={error.value}: {error.allowed}"
        return "started"

    started()
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    assert in_a_fork(started).startswith("process=False: True, as this process is a fork")
    assert started() == "started"
