"""One model in two processes: the same tokens, and an ending where one of them dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import forkroot
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import (
    BackendClosed,
    Call,
    Completion,
    EngineDied,
    ForkHint,
    InvalidModel,
    JsonSchema,
    Sampling,
    Text,
    TokenLogprob,
)
from forkroot.core.local import LocalBackend
from forkroot.core.process.ranks import OtherRanks

from ...preloader import Forks
from .test_process import has_ended, is_alive, numbers_printed_by

pytestmark = pytest.mark.usefixtures("preloaded")
SIZES = {"num_slots": 1500, "context_len": 512, "chunk_tokens": 48}
TINY = Path(forkroot.__file__).parent / "models" / "tiny"
SCHEMA = {"type": "object", "properties": {"n": {"enum": ["one", "two"]}}, "required": ["n"]}


def start(**settings) -> LocalBackend:
    return LocalBackend.from_folder("tiny", **(SIZES | settings))


@pytest.fixture(scope="module")
def two() -> Iterator[LocalBackend]:
    with start(ranks=2) as backend:
        yield backend
        backend.check()


def ask(text: str, max_tokens: int = 24, **options) -> Call:
    return Call((Text(text),), Sampling(max_tokens=max_tokens, temperature=0), **options)


def test_two_ranks_give_the_tokens_of_one(two: LocalBackend) -> None:
    long = "The tide comes in and the tide goes out. " * 12
    calls = [
        *(ask(f"{long}{word}", hint=ForkHint("tide", 4)) for word in ("One", "Two", "Red", "Six")),
        ask("Answer: ", constraint=JsonSchema(SCHEMA)),
        ask("Answer: ", options=("yes", "no")),
        ask("x " * 100, 100),
    ]
    with start() as one:
        for _ in range(2):  # the second time from the cache
            found = [[b.submit(call) for call in calls] for b in (one, two)]
            here, remote = ([reply.result(60) for reply in replies] for replies in found)
            for left, right in zip(here, remote, strict=True):
                assert [o.ids for o in left.outputs] == [o.ids for o in right.outputs]
                for first, second in zip(left.scores, right.scores, strict=True):
                    assert first.logprob == pytest.approx(second.logprob, abs=1e-3)


def test_log_probabilities_on_two_ranks_are_those_of_one(two: LocalBackend) -> None:
    long = "The lighthouse keeper counts the ships. " * 40  # more rows than are scored at a time
    sampled = Sampling(max_tokens=16, temperature=0.8, top_p=0.9, seed=3, logprobs=4)
    calls = [
        Call((Text(long),), sampled, scored_from=1),
        Call((Text("Once upon a time"),), sampled),
        ask("Answer: ", options=("yes", "no", "perhaps"), scoring="exact"),
    ]
    with start() as one:
        found, wanted = ([b.submit(call).result(60) for call in calls] for b in (two, one))
    for mine, other in zip(found, wanted, strict=True):
        assert [it.ids for it in mine.outputs] == [it.ids for it in other.outputs]
        for here, remote in zip(logprobs_of(mine), logprobs_of(other), strict=True):
            assert here.id == remote.id
            assert here.logprob == pytest.approx(remote.logprob, abs=1e-3)
            assert dict(here.top) == pytest.approx(dict(remote.top), abs=1e-3)
        for first, second in zip(mine.scores, other.scores, strict=True):
            assert first.bounds == pytest.approx(second.bounds, abs=1e-3)
    assert len(found[0].prompt_logprobs) > 256


def logprobs_of(answer: Completion) -> list[TokenLogprob]:
    return [*answer.prompt_logprobs, *(it for output in answer.outputs for it in output.logprobs)]


def test_memory_that_runs_out_changes_nothing_either_and_closing_ends_the_ranks() -> None:
    before = children()
    sampling = Sampling(max_tokens=40, temperature=0, ignore_eos=True)
    words = ("River", "Stone", "Cloud", "Field")
    calls = [Call((Text(f"{word} is a word that "),), sampling) for word in words]
    with start() as one, start(ranks=2, num_slots=120) as tight:
        assert len(children() - before) == 1
        want = [one.submit(call).result(60).outputs[0].ids for call in calls]
        replies = [tight.submit(call) for call in calls]
        assert [reply.result(60).outputs[0].ids for reply in replies] == want
        assert tight.info().counters["retracted"] > 0
        tight.check()
    assert children() == before


def children() -> set[int]:
    """Processes that this one started and that run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z":
            found.add(int(stat.parent.name))
    return found


def test_a_dead_rank_ends_every_call_in_a_typed_error_and_leaves_no_process() -> None:
    before = children()
    backend = start(ranks=2)
    (rank,) = children() - before
    endless = Call((Text("a"),), Sampling(max_tokens=400, ignore_eos=True, n=4))
    replies = [backend.submit(endless) for _ in range(4)]
    next_reply = backend.submit(Call((Text("b"),), Sampling(max_tokens=1)))
    next_reply.result(30)
    os.kill(rank, signal.SIGKILL)
    for reply in replies:  # by its death, long before the time-out of a sum
        with pytest.raises(BackendClosed, match="rank"):
            reply.result(60)
    with pytest.raises(BackendClosed, match="rank"):
        backend.submit(endless).result(60)
    backend.close()
    assert children() == before


def test_a_rank_that_dies_while_nothing_runs_ends_the_engine_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = children()
    backend = start(ranks=2)
    assert list(tmp_path.iterdir()) == []  # nor after a SIGKILL of this process
    (rank,) = children() - before
    assert backend.info().load["running"] == 0
    os.kill(rank, signal.SIGKILL)
    error = backend.wait()  # no call comes that could find it
    assert error is not None and "rank 1 of the model has died" in str(error)
    with pytest.raises(EngineDied, match="rank 1"):
        backend.info()
    assert children() == before


def test_a_rank_that_dies_before_all_are_connected_ends_the_wait_for_it() -> None:
    before = children()
    ranks = OtherRanks("dummy:56m", EngineConfig(ranks=2, context_len=64))
    (rank,) = children() - before
    os.kill(rank, signal.SIGKILL)
    with pytest.raises(BackendClosed, match="rank 1 of the model has died"):
        ranks.unless_gone(lambda: threading.Event().wait(60))
    ranks.close()
    assert children() == before


def test_a_rank_that_fails_and_ends_while_others_wait_for_it_says_why(tmp_path: Path) -> None:
    ranks = OtherRanks(str(tmp_path / "nowhere"), EngineConfig(ranks=2, context_len=64))
    with pytest.raises(InvalidModel, match="nowhere"):
        ranks.unless_gone(lambda: threading.Event().wait(60))
    ranks.close()


ENDLESS = Call((Text("a"),), Sampling(max_tokens=400, ignore_eos=True, n=4))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_rank_that_is_stopped_ends_every_call_and_leaves_no_process(overlap: bool) -> None:
    before = children()
    backend = start(ranks=2, overlap=overlap, hang_timeout=2.0)
    (rank,) = children() - before
    replies = [backend.submit(ENDLESS) for _ in range(3)]
    backend.submit(ask("b", 1)).result(30)
    os.kill(rank, signal.SIGSTOP)
    for reply in [*replies, backend.submit(ENDLESS)]:
        with pytest.raises(EngineDied, match="rank 1 of the model hangs: stopped by a signal"):
            reply.result(40)
    backend.close()
    assert children() == before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no kernel ends it")
def test_a_dead_parent_leaves_no_stopped_rank(forks: Forks | None) -> None:
    program = """
        import os, signal
        from pathlib import Path
        from forkroot.core.local import LocalBackend
        from forkroot.core.process.liveness import descendants
        backend = LocalBackend.from_folder("tiny", num_slots=500, context_len=128, ranks=2)
        commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in descendants(os.getpid())}
        (rank,) = (pid for pid, it in commands.items() if b"core.rank" in it.read_bytes())
        os.kill(rank, signal.SIGSTOP)
        print(rank, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    (rank,) = numbers_printed_by(program, forks)
    try:
        assert has_ended(rank)
    finally:
        if is_alive(rank):
            os.kill(rank, signal.SIGKILL)


def test_what_cannot_be_shared_out_is_refused_and_leaves_no_process() -> None:
    before = children()
    with pytest.raises(InvalidModel, match="rank"):
        start(ranks=3)
    assert children() == before


def test_a_checkpoint_that_a_rank_cannot_load_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "broken")
    config = json.loads((tmp_path / "broken" / "config.json").read_text())
    config["num_hidden_layers"] = 6
    (tmp_path / "broken" / "config.json").write_text(json.dumps(config))
    before = children()
    with pytest.raises(InvalidModel, match="layers"):
        LocalBackend.from_folder(tmp_path / "broken", ranks=2, **SIZES)
    assert children() == before
