"""A whole runtime in this process: threads, tasks, endings; over a runner without a model."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    CallFailed,
    DeadlineExceeded,
    EngineDied,
    ForkHint,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Regex,
    Sampling,
    Text,
)
from forkroot.core.local import LocalBackend, model_folder

SIZES = {"num_slots": 600, "context_len": 256, "max_running": 8, "chunk_tokens": 64}


class Gate:
    """A runner that waits before each batch until it may go on, and may be set to raise."""

    def __init__(self, is_open: bool = False) -> None:
        self.runner = FakeRunner(600)
        self.open = threading.Event()
        self.entered = threading.Event()
        self.fault: BaseException | None = None
        if is_open:
            self.open.set()

    def run(self, batch: Batch) -> Outcome:
        self.entered.set()
        assert self.open.wait(60)
        if self.fault is not None:
            raise self.fault
        return self.runner.run(batch)


def start(runner=None, **settings) -> LocalBackend:
    config = EngineConfig.from_settings(SIZES | settings)
    runner = runner or FakeRunner(600)
    return LocalBackend("fake", config, byte_tokenizer(), runner, 257, frozenset({256}))


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    with start() as backend:
        yield backend
        backend.check()


def ask(text: str, **options) -> Call:
    sampling = {"temperature": 0, "max_tokens": 5} | options.pop("sampling", {})
    return Call((Text(text),), Sampling(**sampling), **options)


# --- the protocol ------------------------------------------------------------------------------


def test_it_is_a_backend_and_reports_what_it_runs(backend):
    assert isinstance(backend, Backend)
    info = backend.info()
    assert (info.model, info.context_len, info.vocabulary_size) == ("fake", 256, 257)
    assert {"tokens", "options", "hints"} <= info.features


def test_an_answer_has_the_room_that_its_prompt_leaves_in_the_context(backend):
    for max_tokens in (None, 10_000, 247):
        done = backend.submit(
            ask("10 letters", sampling={"max_tokens": max_tokens, "ignore_eos": True})
        ).result(60)
        (output,) = done.outputs
        assert (output.finish_reason, output.matched) == ("length", None)
        room = min(256 - 10, max_tokens or 10_000)
        assert (done.usage.completion_tokens, len(output.ids)) == (room, room)


def test_counters_say_what_was_done_and_can_be_set_anew(backend):
    backend.submit(ask("hello")).result(60)
    counters = backend.info().counters
    assert counters["calls"] == 1
    assert counters["prompt_tokens"] == 5
    assert counters["completion_tokens"] == 5
    assert counters["sampled_tokens"] == 5
    assert counters["computed_tokens"] == 9
    backend.reset_counters()
    assert not any(backend.info().counters.values())
    backend.submit(ask("hello")).result(60)
    assert backend.info().counters["cached_tokens"] == 4


def test_the_cache_can_be_seen_and_cleared(backend):
    backend.submit(ask("hello", namespace="a")).result(60)
    views = [view for view in backend.snapshot() if view.parent >= 0]
    assert [len(view.tokens) for view in views] == [5, 4]
    assert bytes(views[0].tokens) == b"hello"
    assert backend.clear_cache() == 9
    assert [view for view in backend.snapshot() if view.parent >= 0] == []


def test_a_snapshot_can_be_of_the_most_active_nodes_and_of_the_beginning_of_their_texts(backend):
    for text in ("root of all, one", "root of all, two", "another"):
        backend.submit(ask(text)).result(60)
    whole = {view.id: view for view in backend.snapshot()}
    top, shared = backend.snapshot(2, 4)
    assert (top.parent, top.children, top.num_hidden) == (-1, (shared.id,), 1)
    assert (bytes(shared.tokens), shared.end, shared.hits) == (b"root", 13, whole[shared.id].hits)
    assert (shared.children, shared.num_hidden) == ((), 2)
    assert backend.snapshot(100, 100)[0] == whole[top.id]
    assert set(backend.snapshot(100)) == set(backend.snapshot())
    assert backend.snapshot(0) == ()


class OneByOne(Gate):
    """A gate through which batches go one by one, as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self._batches = threading.Semaphore(0)

    def run(self, batch: Batch) -> Outcome:
        self.entered.set()
        assert self._batches.acquire(timeout=60)
        return self.runner.run(batch)

    def let_pass(self, num: int) -> None:
        """Let so many batches pass."""
        self.entered.clear()
        self._batches.release(num)
        assert self.entered.wait(60)


def test_the_load_reports_what_runs_and_waits_and_whose_the_slots_are():
    gate = OneByOne()
    with start(gate, max_running=2) as backend:
        replies = [backend.submit(ask("0 is a number"))]
        assert gate.entered.wait(60)
        assert backend.info().load["batch"] == backend.info().load["running"] == 1
        replies += [backend.submit(ask(f"{number} is a number")) for number in (1, 2)]
        gate.let_pass(1)
        load = backend.info().load
        assert [load[name] for name in ("batch", "running", "waiting")] == [2, 2, 1]
        gate.let_pass(1000)
        for reply in replies:
            reply.result(60)
        backend.check()
        load = backend.info().load
    assert [load[name] for name in ("running", "waiting", "batch", "locked_slots")] == [0] * 4
    assert load["nodes"] == 6
    assert load["cached_slots"] == 3 * (13 + 4)
    assert load["cached_slots"] + load["free_slots"] == load["slots"] == 600


def test_tokens_that_make_room_are_counted():
    with start(num_slots=64, context_len=32) as backend:
        for number in range(8):
            backend.submit(ask(f"{number} is one number")).result(60)
        counters, load = backend.info().counters, backend.info().load
        assert counters["evicted_tokens"] == 8 * (15 + 4) - load["cached_slots"]
        assert backend.clear_cache() == load["cached_slots"]
        assert backend.info().counters["evicted_tokens"] == counters["evicted_tokens"]


@pytest.mark.parametrize(
    ("call", "field"),
    [(ask(""), "prompt"), (ask("x" * 300), "prompt"), (ask("x", stream=1), "stream")],
)
def test_a_call_that_is_not_allowed_gets_its_error_by_the_reply(backend, call, field):
    reply = backend.submit(call)
    assert reply.done()
    with pytest.raises(InvalidCall) as caught:
        reply.result()
    assert caught.value.field == field
    assert backend.submit(ask("hello")).result(60).text


def test_a_tokenizer_that_breaks_harms_no_other_call():
    class Broken:
        def __getattr__(self, name):
            return getattr(byte_tokenizer(), name)

        def encode_pictures(self, prompt, most=None, namespace=""):
            if prompt[0].text == "bad":
                raise RuntimeError("tokenizer")
            return byte_tokenizer().encode_pictures(prompt)

    config = EngineConfig.from_settings(SIZES)
    with LocalBackend("fake", config, Broken(), FakeRunner(600), 257, frozenset()) as backend:
        bad, good = backend.submit(ask("bad")), backend.submit(ask("good"))
        with pytest.raises(CallFailed, match="could not be prepared"):
            bad.result(60)
        assert isinstance(bad.error().__cause__, RuntimeError)
        assert good.result(60).text


# --- many at once ------------------------------------------------------------------------------


def test_threads_and_tasks_use_one_backend_at_once(backend):
    texts = [f"call number {number}" for number in range(24)]
    expected = {}
    with start() as other:
        for text in texts:
            expected[text] = other.submit(ask(text, sampling={"max_tokens": 9})).result(60).text

    def call(text: str) -> Call:
        return ask(text, sampling={"max_tokens": 9}, stream=True)

    def in_thread(text: str) -> str:
        return "".join(chunk.text for chunk in backend.submit(call(text)))

    async def in_task(text: str) -> str:
        reply = backend.submit(call(text))
        chunks = [chunk.text async for chunk in reply]
        assert (await reply).text == "".join(chunks)
        return "".join(chunks)

    async def in_tasks() -> list[str]:
        return await asyncio.gather(*map(in_task, texts))

    with ThreadPoolExecutor(9) as pool:
        tasks = pool.submit(lambda: asyncio.run(in_tasks()))
        from_threads = list(pool.map(in_thread, texts))
        assert tasks.result(30) == from_threads == [expected[text] for text in texts]
    assert [
        backend.submit(ask(text, sampling={"max_tokens": 9})).result(60).text for text in texts
    ] == from_threads


def test_calls_are_cancelled_from_many_threads_while_they_run(backend):
    def one(number: int) -> str:
        reply = backend.submit(ask(f"call {number}", sampling={"max_tokens": 100}, stream=True))
        for count, _ in enumerate(reply):
            if count == number % 5:
                reply.cancel()
        return reply.result(60).outputs[0].finish_reason

    with ThreadPoolExecutor(8) as pool:
        reasons = list(pool.map(one, range(32)))
    assert set(reasons) <= {"abort", "length"}
    assert "abort" in reasons
    backend.check()


@pytest.mark.parametrize("is_closed_early", [True, False])
def test_whatever_threads_do_each_call_ends_once(is_closed_early):
    backend = start(FakeRunner(600, fails_on=ord("F")), num_slots=300, max_waiting=40)
    endings: dict[object, int] = {}

    def count(reply) -> None:
        endings[reply] = endings.get(reply, 0) + 1

    def busy(seed: int) -> list:
        rng, replies = random.Random(seed), []
        for _ in range(25):
            text = rng.choice(("root a ", "root b ", "")) + "".join(rng.choices("abcF", k=8))
            sampling = {"max_tokens": rng.choice((0, 1, 5, 20)), "n": rng.choice((1, 2))}
            hint = rng.choice((None, ForkHint("root", 2, 1)))
            deadline = rng.choice((None, None, 0.002))
            replies.append(
                backend.submit(ask(text, sampling=sampling, hint=hint, deadline=deadline))
            )
            replies[-1].when_done(count)
            if rng.random() < 0.2:
                replies[-1].cancel()
        return replies

    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(busy, seed) for seed in range(6)]
        if is_closed_early:
            futures[0].result(30)
            backend.close()
        replies = [reply for future in futures for reply in future.result(30)]
    for reply in replies:
        try:
            reply.result(30)
        except ForkrootError:
            assert reply.error() is not None
    if not is_closed_early:
        backend.check()
        backend.close()
    assert [endings[reply] for reply in replies] == [1] * 150


def test_a_finished_call_is_forgotten(backend):
    replies = [backend.submit(ask(f"call {number}")) for number in range(5)]
    refused = backend.submit(ask(""))
    for reply in replies:
        reply.result(60)
    traces = [weakref.ref(reply) for reply in [*replies, refused]]
    del replies, reply, refused
    backend.submit(ask("another")).result(60)
    gc.collect()
    assert [trace() for trace in traces] == [None] * 6


@pytest.mark.parametrize("constraint", [None, Regex("(ab){2}c?")])
def test_a_finished_call_is_freed_without_garbage_collection(backend, constraint):
    gc.collect()
    gc.disable()
    try:
        replies = [backend.submit(ask(str(n), constraint=constraint)) for n in range(5)]
        traces = [weakref.ref(reply) for reply in replies]
        assert all(reply.result(60).text for reply in replies)
        del replies
        backend.submit(ask("another")).result(60)
        assert [trace() for trace in traces] == [None] * 5
    finally:
        gc.enable()


def test_an_action_at_the_end_may_call_the_backend_again(backend):
    texts = []
    finished = threading.Event()

    def again(reply) -> None:
        texts.append(reply.result().text)
        if len(texts) == 3:
            backend.check()
            finished.set()
            return
        backend.submit(ask(f"call {len(texts)}")).when_done(again)

    backend.submit(ask("call")).when_done(again)
    assert finished.wait(60)
    assert len(set(texts)) == 3


def test_an_action_that_raises_does_not_stop_the_engine(backend, caplog):
    def broken(reply) -> None:
        raise asyncio.CancelledError

    caplog.set_level(logging.CRITICAL)
    backend.submit(ask("one")).when_done(broken)
    assert backend.submit(ask("two")).result(60).text


def test_an_idle_engine_lets_roots_time_out():
    with start(root_timeout=0.01) as backend:
        backend.submit(ask("root", hint=ForkHint("root"), sampling={"max_tokens": 0})).result(60)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            locks = [view.lock_count for view in backend.snapshot() if view.parent >= 0]
            if locks == [0]:
                break
        assert locks == [0]


# --- endings -----------------------------------------------------------------------------------


def test_closing_ends_open_calls_and_may_be_repeated():
    runner = Gate()
    backend = start(runner, max_running=1)
    replies = [backend.submit(ask(f"call {number}")) for number in range(3)]
    assert runner.entered.wait(60)
    threads = [threading.Thread(target=backend.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    runner.open.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    backend.close()
    for reply in replies:
        with pytest.raises(BackendClosed, match="the backend was closed before the call ended"):
            reply.result(0)


def test_after_closing_every_call_is_answered_by_the_reason():
    backend = start()
    done = backend.submit(ask("done"))
    done.result(60)
    backend.close()
    reply = backend.submit(ask("late"))
    assert isinstance(reply.error(), BackendClosed)
    assert "already closed when it was called" in str(reply.error())
    assert isinstance(backend.submit(ask("")).error(), InvalidCall)
    for question in (backend.check, backend.snapshot, backend.clear_cache, backend.reset_counters):
        with pytest.raises(BackendClosed, match="already closed when it was called"):
            question()
    assert backend.info().counters["calls"] == 1
    done.cancel()
    reply.cancel()


def test_an_action_may_close_the_backend():
    backend = start()
    closed = threading.Event()

    def close(reply) -> None:
        backend.close()
        closed.set()

    other = backend.submit(ask("other", sampling={"max_tokens": 200}))
    backend.submit(ask("one", sampling={"max_tokens": 1})).when_done(close)
    assert closed.wait(60)
    with pytest.raises(BackendClosed):
        other.result(60)


@pytest.mark.parametrize(
    "fault", [KeyboardInterrupt("fault"), SystemExit("fault"), GeneratorExit("fault")]
)
def test_every_call_ends_when_the_engine_dies(caplog, fault):
    caplog.set_level(logging.CRITICAL)
    runner = Gate()
    backend = start(runner, max_running=2)
    replies = [backend.submit(ask(f"call {number}")) for number in range(5)]
    assert runner.entered.wait(60)
    runner.fault = fault
    runner.open.set()
    for reply in replies:
        with pytest.raises(BackendClosed, match=r"the engine died: \w+\('fault'\)"):
            reply.result(60)
        assert reply.error().__cause__ is fault
    late = backend.submit(ask("late"))
    assert late.error().__cause__ is fault
    for question in (backend.check, backend.info):
        with pytest.raises(EngineDied, match="the engine died"):
            question()
    assert isinstance(backend.wait(), EngineDied)
    backend.close()


def test_every_call_ends_when_the_engine_dies_in_a_broken_state(caplog):
    """The runner reports wrong results: the engine fails, not the call."""

    class Liar(Gate):
        def run(self, batch: Batch) -> Outcome:
            outcome = super().run(batch)
            return Outcome(outcome.tokens[:0], outcome.logprobs[:0])

    caplog.set_level(logging.CRITICAL)
    runner = Liar()
    backend = start(runner)
    replies = [backend.submit(ask(f"call {number}", sampling={"n": 2})) for number in range(3)]
    assert runner.entered.wait(60)
    runner.open.set()
    for reply in replies:
        with pytest.raises(BackendClosed, match="the engine died"):
            reply.result(60)
    backend.close()


def test_a_runner_that_raises_fails_its_calls_and_the_engine_goes_on():
    runner = Gate(is_open=True)
    runner.fault = MemoryError("no room")
    with start(runner) as backend:
        reply = backend.submit(ask("one"))
        with pytest.raises(CallFailed, match="no room"):
            reply.result(60)
        runner.fault = None
        assert backend.submit(ask("one")).result(60).text
        backend.check()


def test_leaving_python_with_open_calls_ends_quietly():
    code = """
import threading
from forkroot.core.api.config import EngineConfig
from forkroot.core.local import LocalBackend
from forkroot.core.api.protocol import Call, Sampling, Text
from forkroot.benchmarks.common.fake_runner import FakeRunner, byte_tokenizer
config = EngineConfig(num_slots=600, context_len=500, max_running=8, chunk_tokens=64)
backend = LocalBackend("fake", config, byte_tokenizer(), FakeRunner(600), 257, frozenset())
reply = backend.submit(Call((Text("x"),), Sampling(max_tokens=450)))
other = LocalBackend("fake", config, byte_tokenizer(), FakeRunner(600), 257, frozenset())
reply.when_done(lambda reply: print("ended"))
"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ended\n", "")


# --- models ------------------------------------------------------------------------------------


def test_a_model_is_a_folder_or_the_one_in_the_box(tmp_path):
    assert model_folder(tmp_path) == tmp_path
    assert (model_folder("tiny") / "config.json").is_file()
    with pytest.raises(InvalidModel, match="model='no-such-folder' is not a folder"):
        model_folder("no-such-folder")


def test_a_bad_setting_is_named_before_anything_is_loaded():
    with pytest.raises(InvalidCall, match=r"num_slotz=3: .*did you mean num_slots\?"):
        LocalBackend.from_folder("tiny", num_slotz=3)
    with pytest.raises(InvalidCall, match="invalid device='abacus': expected cpu"):
        LocalBackend.from_folder("tiny", device="abacus")


@pytest.mark.parametrize(
    ("cuda", "why"),
    [
        (None, "without CUDA; install a CUDA build"),
        ("12.8", "has CUDA 12.8 and sees no GPU"),
    ],
)
def test_a_missing_gpu_is_reported_with_the_reason(
    cuda: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    monkeypatch.setattr("torch.version.cuda", cuda)
    message = f"invalid device='cuda': expected cpu; torch .* {why}"
    with pytest.raises(InvalidCall, match=message):
        LocalBackend.from_folder("tiny", device="cuda")


@pytest.mark.parametrize(("constraint_bytes", "num_compiled"), [(1 << 20, 2), (0, 3)])
def test_compiled_constraints_are_kept_as_far_as_the_setting_allows(constraint_bytes, num_compiled):
    with start(constraint_bytes=constraint_bytes) as backend:
        for pattern in ("a{3}", "b{3}", "a{3}"):
            call = replace(ask("x"), constraint=Regex(pattern))
            assert backend.submit(call).result(60).text == pattern[0] * 3
        assert backend.info().counters["compile_seconds_le_inf"] == num_compiled


def test_a_call_ends_at_its_deadline_while_its_constraint_is_compiled(
    backend: LocalBackend,
) -> None:
    """The deadline counts from the submission, which does not wait for the compiler."""
    slow = Regex("(a|b)*a(a|b){14}")
    reply = backend.submit(replace(ask("a"), constraint=slow, deadline=0.01))
    with pytest.raises(DeadlineExceeded, match="constraint"):
        reply.result(60)
    cancelled = backend.submit(replace(ask("a"), constraint=slow))
    cancelled.cancel()
    assert cancelled.result(60).outputs[0].finish_reason == "abort"
    assert backend.submit(ask("a")).result(60).outputs
