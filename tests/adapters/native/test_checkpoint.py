"""Batches that survive: what a checkpoint keeps, what it refuses, and what is run again."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from forkroot.adapters.native import Program, assistant, function, gen, image, select, user
from forkroot.adapters.native import batch as batches
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.benchmarks.campaign.faults.batches import batch_killed
from forkroot.core.api.protocol import (
    CallFailed,
    EngineDied,
    InvalidCall,
    Overloaded,
    ProgramError,
    TokenLogprob,
)

pytestmark = pytest.mark.timeout(180)


@function
def ask(s: Any, question: str) -> dict[str, Any]:
    s += question + gen("answer")
    return {"length": len(s["answer"]), "pair": (1, b"\0")}


def echo(call: Any) -> str:
    return prompt_text(call.prompt).upper()


def items(*questions: Any) -> list[dict[str, Any]]:
    return [{"question": question} for question in questions]


def asked(backend: ScriptedBackend) -> list[str]:
    return sorted(prompt_text(call.prompt) for call in backend.calls)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "batch.jsonl"


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The retries that were waited for, in order; none is waited for in truth."""
    found: list[int] = []
    monkeypatch.setattr(batches, "pause_before", lambda num, error: found.append(num) or 0.0)
    return found


def test_finished_items_are_not_asked_again(file: Path) -> None:
    first = ask.run_batch(items(*"abc"), backend=ScriptedBackend(echo), checkpoint=file)
    backend = ScriptedBackend(echo)
    again = ask.run_batch(items(*"abc"), backend=backend, checkpoint=str(file))
    assert backend.calls == []
    for old, new in zip(first, again, strict=True):
        assert new["answer"] == old["answer"]
        assert new.text() == old.text()
        assert new.ret_value == old.ret_value == {"length": 1, "pair": (1, b"\0")}
        assert new.get_meta_info("answer") == old.get_meta_info("answer")
        assert new.error() is None


def test_only_items_that_ended_well_are_kept(file: Path) -> None:
    def failing(call: Any) -> str:
        if prompt_text(call.prompt) == "b":
            raise CallFailed("once")
        return echo(call)

    states = ask.run_batch(items(*"abc"), backend=ScriptedBackend(failing), checkpoint=file)
    assert isinstance(states[1].error(), CallFailed)
    backend = ScriptedBackend(echo)
    states = ask.run_batch(items(*"abc"), backend=backend, checkpoint=file)
    assert asked(backend) == ["b"]
    assert [state["answer"] for state in states] == ["A", "B", "C"]


@function
def chat(s: Any, picture: bytes) -> None:
    s += user("look: " + image(picture))
    s += assistant(gen("first", return_logprob=True) + select("choice", choices=["yes", "no"]))
    group = s.fork(2)
    for branch in group:
        branch += user("more") + assistant(gen("each", n=2))
    group.join()


def test_a_kept_state_reads_as_the_one_that_ended(file: Path) -> None:
    pictures = [{"picture": b"\x89PNG"}]
    (old,) = chat.run_batch(pictures, backend=ScriptedBackend("ok"), checkpoint=file)
    backend = ScriptedBackend("ok")
    (new,) = chat.run_batch(pictures, backend=backend, checkpoint=file)
    assert backend.calls == []
    assert new.messages() == old.messages()
    assert new.messages()[0]["content"][1] == {"type": "image", "data": b"\x89PNG"}
    for name in ("first", "choice", "each"):
        assert new[name] == old[name]
        assert new.get_meta_info(name) == old.get_meta_info(name)
    assert "".join(new.text_iter()) == old.text()
    assert list(new.text_iter("first")) == ["ok"]
    assert "absent" not in new


def test_a_kept_state_takes_nothing_more(file: Path) -> None:
    for _ in range(2):
        (state,) = ask.run_batch(items("a"), backend=ScriptedBackend(echo), checkpoint=file)
        with pytest.raises(ProgramError, match="the state has ended"):
            state += gen("more")
        with pytest.raises(ProgramError, match="the state has ended"):
            state.fork(2)


PLAIN = [
    *(None, True, 3, 0.1, "\ud800 é", b"\xff", [1, (2, [3.5])], {"a": 1}, {"$tuple": [1]}),
    *({1: "x", (2, 3): "y"}, TokenLogprob(5, -0.25, ((5, -0.25), (6, float("-inf"))))),
]


@pytest.mark.parametrize("value", PLAIN, ids=repr)
def test_plain_values_come_back_with_their_types(value: Any, file: Path) -> None:
    def body(s: Any) -> Any:
        s += "a"
        return value

    for _ in range(2):
        (state,) = Program(body).run_batch([{}], backend=ScriptedBackend(), checkpoint=file)
        assert state.ret_value == value
        assert type(state.ret_value) is type(value)
    assert len(file.read_bytes().splitlines()) == 2


def test_a_value_that_cannot_be_kept_is_an_error_of_its_item(file: Path) -> None:
    @function
    def body(s: Any, question: str) -> Any:
        s += question + gen("x")
        return {"deep": [object() if question == "a" else 1]}

    states = body.run_batch(items(*"ab"), backend=ScriptedBackend(echo), checkpoint=file)
    with pytest.raises(InvalidCall, match=r"ret_value\['deep'\]\[0\]=.*expected None, True"):
        states[0].text()
    assert states[1].ret_value == {"deep": [1]}


def test_arguments_that_cannot_be_told_apart_are_refused(file: Path) -> None:
    backend = ScriptedBackend(echo)
    with pytest.raises(InvalidCall, match=r"items\[1\]\['question'\]=<object"):
        ask.run_batch(items("a", object()), backend=backend, checkpoint=file)
    assert not backend.calls and not file.exists()


def answered(prefix: str) -> Program:
    def body(s: Any, question: str) -> None:
        s += prefix + question + gen("answer")

    return Program(body)


def other(s: Any, question: str) -> None:
    s += question + gen("answer") + gen("again")


def test_the_file_of_another_batch_is_refused(file: Path) -> None:
    program, backend = answered("x"), ScriptedBackend(echo)
    program.run_batch(items("a"), backend=backend, temperature=0, checkpoint=file)
    content = file.read_bytes()
    same: dict[str, Any] = {"backend": backend, "temperature": 0, "checkpoint": file}
    for run, match in (
        (lambda: program.run_batch(items("b"), **same), "arguments is"),
        (lambda: program.run_batch(items("a", "a"), **same), "num_items is 1 there and 2 here"),
        (lambda: answered("y").run_batch(items("a"), **same), "source is"),
        (lambda: Program(other).run_batch(items("a"), **same), "program is"),
        (
            lambda: program.run_batch(items("a"), **{**same, "temperature": 1}),
            r"settings is \{.*'temperature': 0\} there and \{.*'temperature': 1\} here",
        ),
        (
            lambda: program.run_batch(
                items("a"), **{**same, "backend": ScriptedBackend(echo, model="other")}
            ),
            r"models is \['scripted'\] there and \['other'\] here",
        ),
    ):
        with pytest.raises(InvalidCall, match=match):
            run()
    assert file.read_bytes() == content
    assert len(backend.calls) == 1


@pytest.mark.parametrize("content", ["my notes", "my notes\nmore\n", '{"a": 1}\n', "[1]\n"])
def test_a_file_that_is_no_checkpoint_is_refused_and_left_alone(content: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(InvalidCall, match="expected a new file, or one that run_batch wrote"):
        ask.run_batch(items("a"), backend=ScriptedBackend(echo), checkpoint=file)
    assert file.read_text() == content


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "absent" / "file", "a\0b", 5):
        with pytest.raises(InvalidCall, match="checkpoint="):
            ask.run_batch(items("a"), backend=ScriptedBackend(echo), checkpoint=path)


def test_a_file_in_use_is_refused(file: Path) -> None:
    backend = ScriptedBackend(echo)

    @function
    def body(s: Any) -> None:
        ask.run_batch(items("a"), backend=backend, checkpoint=file)

    @function
    def same(s: Any, question: str) -> None:
        same.run_batch(items("a"), backend=backend, checkpoint=file)

    (state,) = same.run_batch(items("a"), backend=backend, checkpoint=file)
    assert isinstance(state.error(), InvalidCall)
    assert "a file that no other batch uses now" in str(state.error())


def test_a_line_that_was_cut_off_is_dropped_and_its_item_run_again(file: Path) -> None:
    questions = items(*"abc")
    expected = [s.text() for s in ask.run_batch(questions, backend=ScriptedBackend(echo))]
    ask.run_batch(questions, backend=ScriptedBackend(echo), num_threads=1, checkpoint=file)
    content = file.read_bytes()
    ends = [at + 1 for at, byte in enumerate(content) if byte == ord("\n")]
    cuts = {0, 1, ends[0] - 1, *ends, *(end - 1 for end in ends), *range(0, len(content), 61)}
    for cut in cuts:
        file.write_bytes(content[:cut])
        backend = ScriptedBackend(echo)
        states = ask.run_batch(questions, backend=backend, checkpoint=file)
        kept = max(sum(end <= cut for end in ends) - 1, 0)
        assert asked(backend) == list("abc")[kept:]
        assert [state.text() for state in states] == expected
        assert sorted(file.read_bytes().splitlines()) == sorted(content.splitlines())


def test_a_damaged_line_is_refused(file: Path) -> None:
    ask.run_batch(items(*"ab"), backend=ScriptedBackend(echo), num_threads=1, checkpoint=file)
    header, first, second = file.read_text().splitlines()
    wrong_item = json.dumps({**json.loads(first), "item": "x"})
    for damaged in ("{}", first[:-9], wrong_item, "[]", first.replace('"text"', '"tent"')):
        file.write_text("\n".join((header, damaged, second, "")))
        with pytest.raises(InvalidCall, match="line 2 is no ended item"):
            ask.run_batch(items(*"ab"), backend=ScriptedBackend(echo), checkpoint=file)


def test_a_disk_that_is_full_ends_the_batch_and_leaves_whole_lines(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, room = os.write, 2000

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not os.path.samefile(f"/proc/self/fd/{descriptor}", file):
            return write(descriptor, data)
        if room == 0:
            raise OSError(28, "No space left on device")
        number = write(descriptor, data[:room])
        room -= number
        return number

    monkeypatch.setattr(os, "write", limited)
    backend = ScriptedBackend(echo)
    questions = items(*map(str, range(30)))
    with pytest.raises(InvalidCall, match="No space left on device"):
        ask.run_batch(questions, backend=backend, num_threads=1, checkpoint=file)
    assert len(backend.calls) < 30
    monkeypatch.undo()
    assert file.read_bytes().endswith(b"\n")
    kept = len(file.read_bytes().splitlines()) - 1
    backend = ScriptedBackend(echo)
    ask.run_batch(questions, backend=backend, checkpoint=file)
    assert kept > 0 and len(backend.calls) == 30 - kept


class Faulty:
    """Each question ends in these errors, one after another, before it is answered."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = errors
        self.tries: dict[str, int] = {}

    def __call__(self, call: Any) -> str:
        text = prompt_text(call.prompt)
        number = self.tries[text] = self.tries.get(text, 0) + 1
        if number <= len(self.errors):
            raise self.errors[number - 1]
        return text.upper()


PASSING = (Overloaded("full"), EngineDied("gone", is_replaced=True), Overloaded("full"))


def test_errors_that_pass_are_retried_and_counted(file: Path, pauses: list[int]) -> None:
    for _ in range(2):  # the second time from the file
        backend = ScriptedBackend(Faulty(*PASSING))
        states = ask.run_batch(items(*"ab"), backend=backend, num_threads=1, checkpoint=file)
        assert [state["answer"] for state in states] == ["A", "B"]
        assert [state.num_retries for state in states] == [3, 3]
    assert pauses == [0, 1, 2, 0, 1, 2]


def test_retries_are_bounded(pauses: list[int]) -> None:
    states = ask.run_batch(
        items("a"), backend=ScriptedBackend(Faulty(*PASSING)), max_retries=2, hints=False
    )
    assert isinstance(states[0].error(), Overloaded)
    assert states[0].num_retries == 2
    assert pauses == [0, 1]


def test_without_a_checkpoint_nothing_is_retried_unless_asked_for(pauses: list[int]) -> None:
    backend = ScriptedBackend(Faulty(*PASSING))
    (state,) = ask.run_batch(items("a"), backend=backend)
    assert isinstance(state.error(), Overloaded)
    assert (pauses, len(backend.calls)) == ([], 1)


@pytest.mark.parametrize("error", [EngineDied("for good"), CallFailed("bad"), ValueError("own")])
def test_other_errors_are_not_retried(error: Exception, file: Path, pauses: list[int]) -> None:
    (state,) = ask.run_batch(items("a"), backend=ScriptedBackend(Faulty(error)), checkpoint=file)
    assert state.error() is not None
    assert pauses == []


@pytest.mark.parametrize("max_retries", [-1, 1.5, True, "2"])
def test_an_impossible_number_of_retries_is_refused(max_retries: Any) -> None:
    with pytest.raises(InvalidCall, match="max_retries"):
        ask.run_batch(items("a"), backend=ScriptedBackend(echo), max_retries=max_retries)


def test_an_aborted_batch_does_not_wait_for_its_retries(file: Path) -> None:
    async def run() -> None:
        backend = ScriptedBackend(Faulty(*[Overloaded("full")] * 100))
        task = asyncio.ensure_future(
            ask.arun_batch(items("a"), backend=backend, checkpoint=file, max_retries=100)
        )
        while len(backend.calls) < 3:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    states = ask.run_batch(items("a"), backend=ScriptedBackend(echo), checkpoint=wait_for(file))
    assert states[0]["answer"] == "A"


def wait_for(file: Path) -> Path:
    """The file, once the cancelled batch has ended."""
    import fcntl

    with file.open() as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
    return file


def test_a_batch_that_is_killed_again_and_again_asks_each_item_once() -> None:
    figures = batch_killed(seed=3, items=60, kills=4)
    assert figures["kills"] == 4
    assert figures["answered"] == 60
    assert figures["answered_twice"] == figures["asked_after_answer"] == 0
    assert figures["wrong"] == 0
    assert figures["runs"] == 5
