"""A runtime in a child process: the same door, and what happens when either end dies."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import forkroot
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.program_report import Guesses, ProgramReport
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    CallTooLarge,
    Choices,
    EngineDied,
    ForkHint,
    InvalidCall,
    InvalidModel,
    JsonSchema,
    Sampling,
    Text,
)
from forkroot.core.local import LocalBackend
from forkroot.core.process import client, supervisor
from forkroot.core.process.client import ProcessBackend
from forkroot.core.process.ipc import Child, Connection, spawn
from forkroot.core.process.liveness import descendants
from forkroot.core.process.supervisor import Backoff, RestartingBackend, WarmEngines

from ...preloaded import start as start_program
from ...preloader import Forks

pytestmark = pytest.mark.usefixtures("preloaded")
SIZES = {"num_slots": 2000, "context_len": 1000}


@pytest.fixture(scope="module")
def backend() -> Iterator[ProcessBackend]:
    with ProcessBackend(**SIZES) as backend:
        yield backend
        backend.check()


@pytest.fixture(scope="module")
def local() -> Iterator[Backend]:
    backend = forkroot.connect(**SIZES)
    yield backend
    backend.close()


def ask(text: str, max_tokens: int = 12, **options) -> Call:
    return Call((Text(text),), Sampling(max_tokens=max_tokens, temperature=0), **options)


CALLS = [
    ask("The tide "),
    ask("The tide ", stream=True),
    ask("Answer: ", constraint=Choices(("yes", "no"))),
    ask("Answer: ", options=("yes", "no")),
    ask("Answer: ", options=("yes", "no"), scoring="exact"),
    Call((Text("a"),), Sampling(max_tokens=6, temperature=1.0, seed=3, n=2, logprobs=2)),
    ask("root", max_tokens=0),
]


def test_answers_are_those_of_a_runtime_in_this_process(
    backend: ProcessBackend, local: Backend
) -> None:
    for call in CALLS:
        here, remote = local.submit(call), backend.submit(call)
        one, two = here.result(30), remote.result(30)
        assert [o.text for o in one.outputs] == [o.text for o in two.outputs]
        assert [o.ids for o in one.outputs] == [o.ids for o in two.outputs]
        for first, second in zip(one.scores, two.scores, strict=True):
            assert (first.text, first.ids) == (second.text, second.ids)
            assert first.logprob == pytest.approx(second.logprob, abs=1e-3)
        assert "".join(chunk.text for chunk in here) == "".join(chunk.text for chunk in remote)


def test_no_request_waits_for_the_encoding_of_long_texts(backend: ProcessBackend) -> None:
    options = [f"{'<|image|>' * 220}{number}" for number in range(1000)]
    reply = backend.submit(ask("The tide ", options=(*options, "<|image|>" * 1200)))
    assert backend.info().counters["calls"] >= 0
    assert not reply.done()
    with pytest.raises(CallTooLarge):
        reply.result(60)


def test_it_is_a_backend_and_reports_what_it_runs(backend: ProcessBackend, local: Backend) -> None:
    assert isinstance(backend, Backend)
    here, remote = local.info(), backend.info()
    assert (here.model, here.context_len, here.features) == (
        remote.model,
        remote.context_len,
        remote.features,
    )
    assert backend.pid != os.getpid()
    backend.submit(CALLS[0]).result(30)
    assert backend.info().counters["calls"] > 0
    backend.reset_counters()
    assert backend.info().counters["calls"] == 0
    assert backend.clear_cache() > 0


def test_its_programs_are_those_of_the_engine(backend: ProcessBackend, local: Backend) -> None:
    assert isinstance(local, LocalBackend)
    for one in (backend, local):
        one.clear_cache()
        one.reset_counters()
        for left in (1, 0):
            hint = ForkHint("", program="p", kind="tide", calls_left=left, next_use=left)
            one.submit(ask("The tide turns", hint=hint)).result(30)
    here, remote = (
        replace(one.program_report().total, saved_seconds=0) for one in (local, backend)
    )
    assert here == remote
    assert (here.programs, here.calls) == (1, 2)
    assert here.next_use == here.calls_left == Guesses(2, 2)
    assert backend.program_report("nobody") == ProgramReport()


def test_its_tree_and_load_are_those_of_the_engine(backend: ProcessBackend, local: Backend) -> None:
    assert isinstance(local, LocalBackend)
    for one in (backend, local):
        one.clear_cache()
        for call in (ask("The tide turns"), ask("The tide rises"), ask("Another")):
            one.submit(call).result(30)
    here, remote = local.snapshot(), backend.snapshot()
    assert len(remote) > 3
    assert {(v.namespace, v.tokens, v.end, v.hits) for v in here} == {
        (v.namespace, v.tokens, v.end, v.hits) for v in remote
    }
    top, start = backend.snapshot(2, 2)  # the namespace, and the token that begins every prompt
    assert (top.parent, top.tokens, top.end, top.num_hidden) == (-1, (), 0, 0)
    assert (start.parent, len(start.tokens), start.end, start.num_hidden) == (top.id, 1, 1, 2)
    assert max(len(view.tokens) for view in backend.snapshot(9, 2)) == 2
    assert dict(backend.info().load) == dict(local.info().load)


def test_bad_calls_get_their_errors_and_harm_no_other(backend: ProcessBackend) -> None:
    replies = [
        backend.submit(Call((Text(""),))),
        backend.submit(ask("x" * 2000)),
        backend.submit(ask("x", deadline=-1.0)),
        backend.submit(ask("x", constraint=forkroot.core.api.protocol.Regex("("))),
        backend.submit(Call(3)),  # type: ignore[arg-type]
    ]
    for reply in replies:
        with pytest.raises(InvalidCall) as caught:
            reply.result(30)
        assert caught.value.field in ("prompt", "deadline", "regex")
    assert backend.submit(CALLS[0]).result(30).text


def test_a_schema_that_is_too_large_is_refused_before_the_engine_sees_it(
    backend: ProcessBackend,
) -> None:
    cannot_be_sent = object()
    schema = {"enum": ["x" * 8_000_000, cannot_be_sent]}
    reply = backend.submit(ask("x", constraint=JsonSchema(schema)))
    with pytest.raises(InvalidCall) as caught:
        reply.result(30)
    assert caught.value.field == "json_schema"


def test_a_call_can_be_cancelled(backend: ProcessBackend) -> None:
    reply = backend.submit(
        Call((Text("a"),), Sampling(max_tokens=980, ignore_eos=True), stream=True)
    )
    next(iter(reply))
    reply.cancel()
    assert reply.result(30).outputs[0].finish_reason == "abort"
    held = backend.submit(ask("a", 200, constraint=forkroot.core.api.protocol.Regex("[a-z]{150,}")))
    held.cancel()
    assert held.result(30).outputs[0].finish_reason in ("abort", "stop")


def test_bad_models_and_settings_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"config\.json"):
        ProcessBackend(tmp_path)
    with pytest.raises(InvalidCall, match="num_slotz"):
        ProcessBackend(num_slotz=3)


def test_a_dead_child_ends_every_open_call_in_a_typed_error() -> None:
    backend = ProcessBackend(**SIZES)
    endless = Call((Text("a"),), Sampling(max_tokens=200, ignore_eos=True, n=8))
    replies = [backend.submit(endless) for _ in range(20)]
    os.kill(backend.pid, signal.SIGKILL)
    for reply in replies:
        with pytest.raises(EngineDied, match=r"died \(signal 9\)") as caught:
            reply.result(60)
        assert not caught.value.is_replaced
    backend.is_replaced = True
    with pytest.raises(EngineDied, match="died") as caught:
        backend.submit(endless).result(60)
    assert caught.value.is_replaced
    with pytest.raises(EngineDied):
        backend.info()
    backend.close()
    with pytest.raises(EngineDied):
        backend.info()


def test_a_child_that_is_stopped_ends_every_open_call_and_what_it_has_started() -> None:
    backend = ProcessBackend(**SIZES, ranks=2, hang_timeout=1.0)
    (rank,) = descendants(backend.pid)
    endless = Call((Text("a"),), Sampling(max_tokens=200, ignore_eos=True, n=8))
    replies = [backend.submit(endless) for _ in range(20)]
    for pid in (rank, backend.pid):
        os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineDied, match=r"hung \(stopped by a signal"):
        backend.check()
    for reply in [*replies, backend.submit(endless)]:
        with pytest.raises(EngineDied, match=rf"process {backend.pid} hung \(stopped by a signal"):
            reply.result(30)
    backend.close()
    assert has_ended(rank) and not is_alive(backend.pid)


def test_a_child_whose_idle_engine_loses_a_rank_says_so_and_ends() -> None:
    backend = ProcessBackend(**SIZES, ranks=2)
    (rank,) = descendants(backend.pid)
    os.kill(rank, signal.SIGKILL)
    assert has_ended(backend.pid)
    with pytest.raises(EngineDied, match="rank 1 of the model has died"):
        backend.info()
    backend.close()


def test_a_child_that_sends_nonsense_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    children: list[Child] = []

    def start_engine(config: EngineConfig) -> Child:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        Connection(theirs).send("done", 7, None)  # there is no call 7
        children.append(Child(subprocess.Popen(command), Connection(ours)))
        return children[-1]

    monkeypatch.setattr(client, "start_engine", start_engine)
    with pytest.raises(EngineDied, match="cannot be read"):
        ProcessBackend(**SIZES)
    assert children[0].process.wait(60) == -signal.SIGKILL


def test_an_engine_that_is_stopped_is_replaced_by_one_in_the_spare_process() -> None:
    before, started = set(descendants(os.getpid())), list[ProcessBackend]()
    engines = WarmEngines(**SIZES, hang_timeout=5.0)

    def start() -> ProcessBackend:
        started.append(engines())
        return started[-1]

    with RestartingBackend(start, Backoff(delay=0.01), release=engines.close) as backend:
        spare = engines.spare_pid
        assert spare is not None and spare != started[0].pid
        os.kill(started[0].pid, signal.SIGSTOP)
        with pytest.raises(EngineDied, match="hung") as caught:
            backend.submit(CALLS[0]).result(30)
        assert caught.value.is_replaced
        ends_at = time.monotonic() + 60
        while num_restarts(backend) == 0 and time.monotonic() < ends_at:
            time.sleep(0.1)
        assert num_restarts(backend) == 1
        assert backend.submit(CALLS[0]).result(30).text
        assert not is_alive(started[0].pid)
        assert started[1].pid == spare and is_alive(engines.spare_pid)
        members = set(descendants(os.getpid())) - before
    assert all(has_ended(pid) for pid in members)


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_a_spare_process_that_is_gone_or_stopped_is_not_used(
    fault: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Child] = []
    used: list[Child | None] = []

    def start_engine(config: EngineConfig) -> Child:
        ours, theirs = socket.socketpair()
        theirs.close()
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        children.append(Child(subprocess.Popen(command), Connection(ours)))
        return children[-1]

    monkeypatch.setattr(supervisor, "start_engine", start_engine)
    monkeypatch.setattr(supervisor, "ProcessBackend", lambda model, child: used.append(child))
    engines = WarmEngines()
    for _ in range(2):
        engines()
    children[1].process.send_signal(fault)
    os.waitid(os.P_PID, children[1].process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    engines()
    assert used == [None, children[0], None]
    assert children[1].process.wait(60) == -signal.SIGKILL
    assert engines.spare_pid == children[2].process.pid
    engines.close()
    assert engines.spare_pid is None
    assert children[2].process.wait(60) == -signal.SIGKILL
    children[0].process.kill()
    children[0].connection.close()
    children[0].process.wait()


def test_ranks_are_started_before_their_engine_loads_its_code(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    child = spawn("forkroot.core.process.launch", "launched", "cpu", "2")
    (found,) = child.connection.messages()
    num_ranks, are_alive, has_torch = found
    assert (num_ranks, are_alive, has_torch) == (2, True, False)
    child.connection.close()
    assert child.process.wait(60) == 0


def num_restarts(backend: Backend) -> float:
    """How often its engine was replaced; 0 where none lives now."""
    try:
        return backend.info().counters["restarts"]
    except BackendClosed:
        return 0


def test_a_child_that_is_slow_does_not_hang_and_closing_ends_it_and_its_calls() -> None:
    with ProcessBackend(**SIZES, hang_timeout=2.0) as backend:
        patterns = [f"(x|y)*{letter}(x|y){{9}}" for letter in "xy"]
        replies = [
            backend.submit(ask("a", 40, constraint=forkroot.core.api.protocol.Regex(pattern)))
            for pattern in patterns
        ]
        replies += [
            backend.submit(Call((Text("a"),), Sampling(max_tokens=100, ignore_eos=True, n=8)))
            for _ in range(2)
        ]
        for reply in replies:
            assert reply.result(60).outputs
        check_closing(backend)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_interrupted_while_it_loads_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by Ctrl-C while kernels are compiled: the child reads nothing then."""
    stopped: list[int] = []

    def interrupted(backend: ProcessBackend, kind: str, *details: str) -> None:
        os.kill(backend.pid, signal.SIGSTOP)
        stopped.append(backend.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(ProcessBackend, "_request", interrupted)
    monkeypatch.setattr(client, "_SECONDS_TO_CLOSE", 1e6)
    monkeypatch.setattr(client, "_SECONDS_TO_END", 0.05)
    with pytest.raises(KeyboardInterrupt):
        ProcessBackend("tiny")
    with pytest.raises(ProcessLookupError):
        os.kill(stopped[0], 0)


def test_a_fork_of_the_parent_does_not_end_the_child(backend: ProcessBackend) -> None:
    heir = os.fork()
    if heir == 0:
        backend.close()
        os._exit(0)
    assert os.waitpid(heir, 0)[1] == 0
    assert backend.submit(CALLS[0]).result(30).text


def check_closing(backend: ProcessBackend) -> None:
    """Closing ends open calls and the child."""
    reply = backend.submit(Call((Text("a"),), Sampling(max_tokens=200, ignore_eos=True, n=64)))
    backend.close()
    backend.close()
    with pytest.raises(BackendClosed) as caught:
        reply.result(60)
    assert type(caught.value) is BackendClosed
    assert "closed before the call ended" in str(caught.value)
    assert "already closed when it was called" in str(backend.submit(CALLS[0]).error())
    with pytest.raises(BackendClosed, match="already closed when it was called"):
        backend.info()
    assert not is_alive(backend.pid)


@pytest.mark.parametrize("has_heir", [False, True], ids=["alone", "a fork holds the line"])
def test_a_dead_parent_leaves_no_orphan(has_heir: bool, forks: Forks | None) -> None:
    program = f"""
        import os, signal, sys, time, warnings
        from forkroot.core.process.client import ProcessBackend
        backend = ProcessBackend(num_slots=500, context_len=128)
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        heir = os.fork() if {has_heir} else -1
        if heir == 0:
            os.close(1)
            time.sleep(50)
            os._exit(0)
        print(backend.pid, heir, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    child, heir = numbers_printed_by(program, forks)
    try:
        assert has_ended(child)
    finally:
        if heir > 0:
            os.kill(heir, signal.SIGKILL)


def numbers_printed_by(program: str, forks: Forks | None) -> list[int]:
    """What a program, run in a process of its own, prints before it ends."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    paths = os.pathsep.join(map(os.path.abspath, sys.path))
    env = {**os.environ, "PYTHONPATH": paths}
    with start_program(forks, command, stdout=subprocess.PIPE, env=env) as process:
        printed, _ = process.communicate(timeout=60)
    return [int(number) for number in printed.split()]


def has_ended(pid: int) -> bool:
    """Whether a process ends within a minute."""
    ends_at = time.monotonic() + 60
    while is_alive(pid) and time.monotonic() < ends_at:
        time.sleep(0.05)
    return not is_alive(pid)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
