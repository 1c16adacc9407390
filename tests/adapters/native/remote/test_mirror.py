"""A state here reads as the one of the run elsewhere, while it goes on and when it has ended."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forkroot.adapters.native import ProgramState, assistant, function, gen, select, user
from forkroot.adapters.native.interpreter.variables import UnsetVariable
from forkroot.adapters.native.language.settings import Settings
from forkroot.adapters.native.remote.mirror import Mirror
from forkroot.adapters.native.remote.progress import Progress
from forkroot.adapters.native.run import Run
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import CallFailed, CallTooLarge, ProgramError

pytestmark = pytest.mark.timeout(180)


@function
def report(s: Any, topic: str) -> dict[str, Any]:
    s += f"On {topic}: " + gen("summary", max_tokens=8) + " Good? "
    s += select("verdict", choices=["yes", "no"])
    group = s.fork(3)
    for branch in group:
        branch += " detail: " + gen("detail", n=1)
    group.join()
    with s.var_scope("end"):
        s += " The end."
    s += gen("summary")
    return {"verdict": s["verdict"], "pair": (1, b"\0")}


@function
def talk(s: Any, topic: str) -> None:
    s += user(topic) + assistant("Well, " + gen("answer"))


def begun(program: Any, settings: Settings, spend: Any = lambda num: None) -> Run:
    return Run(
        program.body,
        settings,
        (),
        {"topic": "tea"},
        ProgramState,
        ThreadPoolExecutor(1),
        spend=spend,
    )


def mirrored(
    run: Run, see: Callable[[dict[str, Any], Mirror], object] = lambda event, mirror: None
) -> tuple[Mirror, list[dict[str, Any]]]:
    """The mirror of a run, through JSON, and the events that made it."""
    mirror, events = Mirror(Settings(backend=ScriptedBackend())), list[dict[str, Any]]()

    async def follow() -> None:
        thread = asyncio.create_task(asyncio.to_thread(run.execute))
        async for batch in Progress(run.interpreter).events():
            for event in json.loads(json.dumps(batch)):
                events.append(event)
                mirror.take(event)
                see(event, mirror)
        await thread

    asyncio.run(follow())
    error, state = run.failure(), json.loads(json.dumps(run.saved(0).as_json()))
    if error is None:
        mirror.end(state)
    else:
        assert isinstance(error, CallFailed)
        notes = list(getattr(error, "__notes__", []))
        mirror.fail(CallFailed(str(error)), {"state": state, "notes": notes})
    return mirror, events


def reading(state: ProgramState, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "text": state.text(),
        "messages": state.messages(),
        "values": {name: state[name] for name in names},
        "meta": {name: state.get_meta_info(name) for name in names},
        "totals": state.get_meta_info(),
        "ret_value": state.ret_value,
        "pieces": "".join(state.text_iter()),
    }


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(
    ("program", "names"),
    [(report, ("summary", "verdict", "detail", "end")), (talk, ("answer",))],
)
def test_a_mirror_reads_as_the_state_of_the_run(
    program: Any, names: tuple[str, ...], is_streamed: bool
) -> None:
    run = begun(program, Settings(backend=ScriptedBackend("yes"), stream=is_streamed))
    mirror, _ = mirrored(run)
    mine = ProgramState(mirror.interpreter, is_outside=True)
    assert reading(mine, names) == reading(run.state, names)
    assert "absent" not in mine
    with pytest.raises(UnsetVariable) as caught:
        mine["absent"]
    assert caught.value.args == ("absent", tuple(sorted(names)), ())


def test_events_come_in_the_order_of_the_program_and_answers_piece_by_piece() -> None:
    backend = ScriptedBackend("yes or no", chunk_len=3)
    _, events = mirrored(begun(talk, Settings(backend=backend, stream=True)))
    kinds = [next(iter(event)) for event in events]
    assert kinds[:2] == ["text", "text"]
    assert [kind for kind in kinds if kind in ("begin", "end", "set")] == ["begin", "end", "set"]
    pieces = [event["piece"] for event in events if "piece" in event]
    assert "".join(pieces) == "yes or no"
    assert events[-1]["set"] == "answer"


def test_variables_are_there_before_the_program_has_ended() -> None:
    backend = ScriptedBackend("yes", is_held=True)
    seen: list[str] = []

    def see(event: dict[str, Any], mirror: Mirror) -> None:
        mine = ProgramState(mirror.interpreter, is_outside=True)
        if event.get("set") == "summary" and not seen:
            seen.append(mine["summary"])
            assert not mirror.interpreter.stream.is_closed

    run = begun(report, Settings(backend=backend))

    def release() -> None:
        for num in range(1, 7):
            backend.wait_for(num + (num > 2))
            backend.release()

    with ThreadPoolExecutor(1) as threads:
        released = threads.submit(release)
        mirrored(run, see)
        released.result(60)
    assert seen == ["yes"]


@pytest.mark.parametrize("is_heard", [True, False])
def test_an_error_leaves_what_was_set_before_and_keeps_its_type_and_notes(is_heard: bool) -> None:
    """is_heard: the mirror has heard of the first "again" before the program sets it again."""
    backend = ScriptedBackend(["fine", CallFailed("it broke")], is_held=True)
    heard = threading.Event()

    @function
    def waiting(s: Any, topic: str) -> None:
        s += topic + gen("first")
        with s.var_scope("again"):
            s += "a"
        if is_heard:
            backend.release(0)
            assert heard.wait(60)
        s += gen("second")
        with s.var_scope("again"):
            s += "b"
        for num in range(2):
            backend.wait_for(num + 1, 60)
            backend.release(num)

    def see(event: dict[str, Any], mirror: Mirror) -> None:
        if event.get("set") == "again":
            assert is_heard
            assert ProgramState(mirror.interpreter, is_outside=True)["again"] == "a"
            heard.set()

    run = begun(waiting, Settings(backend=backend))
    mirror, _ = mirrored(run, see)
    mine, own = ProgramState(mirror.interpreter, is_outside=True), run.state
    for state in (mine, own):
        assert state["first"] == "fine"
        for name in ("second", "again"):
            with pytest.raises(CallFailed, match="it broke") as caught:
                state[name]
            assert caught.value.__notes__ == ["in gen('second')"]
    assert mine.get_meta_info("first") == own.get_meta_info("first")


def test_a_variable_that_was_never_set_is_the_same_error() -> None:
    mirror = Mirror(Settings(backend=ScriptedBackend()))
    mirror.fail(ProgramError("..."), {"unset": ["a", ["b", "c"], ["d"]]})
    with pytest.raises(UnsetVariable, match="'a' was never set; set so far: 'b', 'c'; on their"):
        ProgramState(mirror.interpreter, is_outside=True).sync()


@pytest.mark.parametrize(
    "report",
    [
        {"piece": 5},
        {"set": "a", "value": {"$bytes": "%"}, "meta": {}},
        {"set": "a", "value": {"$unknown": 1}, "meta": {}},
        {"begin": ["a"]},
    ],
)
def test_what_is_no_report_ends_the_run_or_is_ignored_but_never_raises(report: Any) -> None:
    mirror = Mirror(Settings(backend=ScriptedBackend()))
    mirror.take(report)
    mirror.end({"transcript": [["no such"]]})
    with pytest.raises(CallFailed, match="cannot be read"):
        ProgramState(mirror.interpreter, is_outside=True).sync()


def test_all_text_of_a_run_is_counted_before_it_is_kept() -> None:
    spent: list[int] = []
    run = begun(talk, Settings(backend=ScriptedBackend("yes")), spent.append)
    run.execute()
    assert sum(spent) == len(run.state.text())

    def refuse(num: int) -> None:
        spent.append(num)
        if sum(spent) > 100:
            raise CallTooLarge("program", "...", "less")

    spent.clear()

    @function
    def doubling(s: Any, topic: str) -> None:
        s += topic
        for name in "abcdefghijklmnopqrstuvwxyz" * 4:
            with s.var_scope(name):
                s += s.text()

    run = begun(doubling, Settings(backend=ScriptedBackend("yes")), refuse)
    run.execute()
    assert isinstance(run.failure(), CallTooLarge)
    assert sum(spent) < 400
