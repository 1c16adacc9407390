"""Overlap with one model in two processes: the tokens of one rank without it, and an ending for
every call where a rank dies with a batch in flight."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forkroot.core.api.batch import Batch, Outcome
from forkroot.core.api.protocol import (
    BackendClosed,
    Call,
    ForkHint,
    JsonSchema,
    Regex,
    Sampling,
    Text,
)
from forkroot.core.engine.overlap import Launcher
from forkroot.core.local import LocalBackend
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.ranks import RankedRunner
from forkroot.core.process import ranks
from forkroot.core.process.ipc import spawn
from forkroot.core.process.ranks import OtherRanks

from .test_ranks import SIZES, children

pytestmark = pytest.mark.usefixtures("preloaded")
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "size": {"enum": ["small", "large"]}},
    "required": ["city", "size"],
    "additionalProperties": False,
}
LONG = "The tide comes in and the tide goes out. " * 6


def start(**settings: Any) -> LocalBackend:
    return LocalBackend.from_folder("tiny", **(SIZES | settings))


def ask(text: str, max_tokens: int = 20, call: dict[str, Any] | None = None, **sampling) -> Call:
    params = {"temperature": 0.0, "max_tokens": max_tokens, **sampling}
    return Call((Text(text),), Sampling(**params), **(call or {}))


CALLS = (
    ask(LONG + "One", call={"hint": ForkHint("tide", 3)}),
    ask(LONG + "Two", call={"hint": ForkHint("tide", 3)}, temperature=1.0, seed=4, top_p=0.9),
    ask(LONG + "Red", call={"hint": ForkHint("tide", 3)}, frequency_penalty=0.7, logprobs=2),
    ask("The capital of France is", stop=(".", ",")),
    ask("Answer: ", 60, {"constraint": JsonSchema(SCHEMA)}),
    ask(
        "Phone: ", 40, {"constraint": Regex("[0-9]{3} and then [0-9]{2}")}, temperature=1.0, seed=7
    ),
    ask("Answer: ", 0, {"options": ("yes", "no", "maybe")}),
    ask("Answer: ", 0, {"options": ("yes", "no"), "scoring": "exact"}),
    ask("A list of words:", 30, n=4, temperature=1.0, seed=2, ignore_eos=True),
    *(ask(f"{word} is a word that ", 30, ignore_eos=True) for word in ("River", "Stone", "Field")),
    ask("x " * 40, 20, ignore_eos=True, min_tokens=5, logit_bias={65: 2.0}),
)


DOOMED = tuple(ask(f"{LONG} {word}", 60, ignore_eos=True) for word in "abc")  # to be cancelled


@pytest.fixture(scope="module")
def wanted() -> dict[int, Any]:
    """What each call, by its identity, gets by itself on one rank without overlap."""
    with start(overlap=False, max_running=4) as one:
        return {id(call): one.submit(call).result(60) for call in (*CALLS, *DOOMED)}


def check_results(found: Any, wanted: Any) -> None:
    assert [o.ids for o in found.outputs] == [o.ids for o in wanted.outputs]
    assert [o.text for o in found.outputs] == [o.text for o in wanted.outputs]
    for mine, other in zip(found.outputs, wanted.outputs, strict=True):
        for left, right in zip(mine.logprobs, other.logprobs, strict=True):
            assert left.logprob == pytest.approx(right.logprob, abs=1e-3)
    for mine, other in zip(found.scores, wanted.scores, strict=True):
        assert mine.logprob == pytest.approx(other.logprob, abs=1e-3)


SETTINGS = {
    "all at once": {},
    "short memory, no jumps": {"num_slots": 150, "jumps": False},
    "a host behind it": {"num_slots": 150, "host_slots": 2000},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_two_ranks_with_overlap_give_the_tokens_of_one_without(name: str, wanted) -> None:
    rng, is_short = random.Random(len(name)), "num_slots" in SETTINGS[name]
    with start(ranks=2, overlap=True, **SETTINGS[name]) as two:
        for _ in range(5):  # how many calls run at a time depends on the machine
            check_round(two, rng, wanted)
            if not is_short or two.info().counters["retracted"]:
                break
            two.clear_cache()
        two.check()
        assert two.info().counters["retracted"] > 0 or not is_short


def check_round(two: Any, rng: random.Random, wanted: Any) -> None:
    replies = [two.submit(call) for call in rng.sample(CALLS, len(CALLS))]
    doomed = [two.submit(call) for call in DOOMED]
    for reply in doomed:
        time.sleep(0.05)
        two.cancel(reply)
    for reply in replies:
        check_results(reply.result(60), wanted[id(reply.call)])
    for reply in doomed:
        ids = reply.result(60).outputs[0].ids
        assert ids == wanted[id(reply.call)].outputs[0].ids[: len(ids)]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_rank_whose_memory_runs_out_now_and_then_changes_no_answer(
    overlap: bool, wanted, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def is_out_of_memory(others: OtherRanks, number: int) -> bool:
        seen.append(number in others._out_of_memory)
        return seen[-1]

    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(ranks, "start_rank", lambda device: spawn("scarce", device))
    monkeypatch.setattr(OtherRanks, "is_out_of_memory", is_out_of_memory)
    with start(ranks=2, overlap=overlap) as two:
        for call, reply in [(call, two.submit(call)) for call in CALLS]:
            check_results(reply.result(60), wanted[id(call)])
        two.check()
        assert any(seen) and two.info().counters["failed_calls"] == 0


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_a_rank_that_dies_with_a_batch_in_flight_ends_every_call_in_a_typed_error(delay) -> None:
    before = children()
    backend = start(ranks=2, overlap=True)
    (rank,) = children() - before
    endless = ask("a", 400, ignore_eos=True, n=4)
    replies = [backend.submit(endless) for _ in range(4)]
    backend.submit(ask("b", 2)).result(30)
    time.sleep(delay)
    os.kill(rank, signal.SIGKILL)
    for reply in [*replies, backend.submit(endless)]:  # long before the time-out of a sum
        with pytest.raises(BackendClosed, match="rank"):
            reply.result(60)
    backend.close()
    assert children() == before


# --- a device that waits for a rank in its own queue, as NCCL does -------------------------------


class Stuck:
    """A runner whose device computes nothing any more once a rank is gone, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.is_waiting = threading.Event()

    def record_steps(self) -> None:
        """Nothing to be recorded."""

    def launch(self, batch: Batch) -> Stuck:
        return self

    def sample(self, sampling_params: Any) -> None:
        """Enqueued on the device."""

    def result(self) -> Outcome:
        self.is_waiting.set()
        assert self.let_go.wait(60), "nobody let the device go"
        return Outcome(np.array([7]), np.zeros(1, np.float32))  # of what a rank has left undone


class Mortal:
    """Ranks that can die. sent: the messages to them."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._is_gone = False
        self._when_gone: Any = None

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def check(self) -> None:
        if self._is_gone:
            raise BackendClosed("rank 1 of the model has died")

    def when_gone(self, action: Any) -> None:
        self._when_gone = action

    def watch(self, report: Any) -> None:
        """It dies, and does not hang."""

    def is_out_of_memory(self, number: int) -> bool:
        return False

    def die(self) -> None:
        self._is_gone = True
        self._when_gone()


def a_batch() -> Batch:
    one = np.zeros(1, np.int32)
    return Batch(
        ids=np.array([5]),
        positions=np.zeros(1, np.int64),
        slots=one,
        rows=one,
        starts=one,
        lens=one + 1,
        table=np.zeros((1, 4), np.int32),
        sampled=one,
        sampling_params=(),
    )


def test_a_wait_for_the_device_ends_where_a_rank_dies_and_its_result_is_dropped() -> None:
    device, others = Stuck(), Mortal()
    runner: Any = device
    ranked = RankedRunner(runner, Ranks(0, 2, abort=device.let_go.set), others)
    assert isinstance(ranked, Launcher)
    launched = ranked.launch(a_batch())
    launched.sample(())
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            launched.result()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert device.is_waiting.wait(60)
    others.die()
    thread.join(60)
    assert not thread.is_alive()
    assert isinstance(errors[0], BackendClosed) and "rank 1" in str(errors[0])
    with pytest.raises(BackendClosed, match="rank 1"):
        ranked.launch(a_batch())
    assert len(others.sent) == 1
