"""A compiled program does what the program does: tokens, variables and meta information."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from forkroot import Graph, connect, function, gen
from forkroot.adapters.native.compiled import CompiledProgram
from forkroot.adapters.native.compiler.passes.names import PASSES
from forkroot.adapters.native.interpreter import stream
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, CallFailed, ForkrootError
from forkroot.examples.essay_judge import essay_judge

from .programs import CASES, Case, answer, branching, crossing, forks, nested, run, seen

pytestmark = pytest.mark.timeout(120)
SETS = [None, (), *(tuple(name for name in PASSES if name != off) for off in PASSES)]
IDS = ["all", "none", *(f"without {name}" for name in PASSES)]


def test_there_are_enough_programs() -> None:
    assert len({case.program.name for case in CASES}) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_passes_and_each_switched_off_change_nothing(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "LOOK_AHEAD", 5.0)  # no matter how slow the machine is
    expected = run(case.program.run, case, {**case.fixed, **case.arguments})
    graph = case.program.compile(**case.fixed).graph
    again = Graph.from_json(graph.to_json())
    assert again == graph
    for passes, name in zip(SETS, IDS, strict=True):
        state_type = case.program._state_type
        compiled = CompiledProgram(again, passes, state_type=state_type)
        assert run(compiled.run, case, case.arguments) == expected, name


@pytest.mark.parametrize("program", [forks, nested, crossing, branching], ids=lambda it: it.name)
def test_answers_that_come_in_any_order_change_nothing(program: Any) -> None:
    compiled = program.compile()
    name = next(iter(compiled.graph.parameters)).name
    source = random.Random(program.name)
    for text in ("tea", "coffee", "a", "b"):
        expected = seen(program.run(**{name: text}, backend=ScriptedBackend(answer)))
        late = ScriptedBackend(answer, delay=lambda _: source.choice((0.0, 0.001, 0.004)))
        assert seen(compiled.run(**{name: text}, backend=late)) == expected


@pytest.mark.parametrize("passes", [None, ()], ids=["all", "none"])
def test_an_error_of_a_call_is_that_of_the_run(passes: Any) -> None:
    compiled = crossing.compile(passes=passes)
    for failing in range(4):
        numbers = iter(range(100))

        def script(call: Call, numbers: Any = numbers, failing: int = failing) -> Any:
            if call.sampling.max_tokens != 0 and next(numbers) == failing:
                return CallFailed("broken")
            return answer(call)

        with pytest.raises(CallFailed, match="broken"):
            compiled.run(topic="tea", backend=ScriptedBackend(script))


@function
def waiting(s: Any) -> None:
    first, second = s.fork(2)
    first += "one" + gen("a")
    s += first["a"]
    second += "two" + gen("b")
    s += second["b"]


def test_no_read_of_a_variable_keeps_another_stream_waiting() -> None:
    backend = ScriptedBackend(answer, is_held=True)
    state = waiting.compile().stream(backend=backend, hints=False)
    backend.wait_for(2)
    backend.release()
    state.sync()
    backend = ScriptedBackend(answer, is_held=True)
    state = waiting.compile(passes=()).stream(backend=backend, hints=False)
    backend.wait_for(1)
    time.sleep(0.02)
    assert len(backend.calls) == 1
    backend.release()
    backend.wait_for(2)
    backend.release()
    state.sync()


def test_the_embedded_model_writes_the_same() -> None:
    items = [
        {"topic": "tea", "essay": "Tea is clear. It is good."},
        {"topic": "the sea", "essay": "Cats are soft."},
    ]
    with connect("tiny") as backend:
        compiled = essay_judge.compile()
        for passes in (None, ()):
            again = CompiledProgram(compiled.graph, passes)
            for item in items:
                one = essay_judge.run(**item, backend=backend, temperature=0)
                other = again.run(**item, backend=backend, temperature=0)
                assert _answers(other) == _answers(one)
        together = compiled.run_batch(items * 3, backend=backend, temperature=0)
        assert [it.text() for it in together] == [
            essay_judge.run(**item, backend=backend, temperature=0).text() for item in items * 3
        ]


def _answers(state: Any) -> dict[str, Any]:
    """What a state has, but for what tells of the cache."""
    found = seen(state)
    del found["totals"]
    found["meta"] = {name: _without_cache(meta) for name, meta in found["meta"].items()}
    return found


def _without_cache(meta: Any) -> Any:
    if isinstance(meta, list):
        return [_without_cache(it) for it in meta]
    if not isinstance(meta, dict):
        return meta
    return {key: it for key, it in meta.items() if key not in ("cached_tokens", "root_tokens")}


def test_missing_and_unknown_arguments_are_refused() -> None:
    compiled = forks.compile()
    with pytest.raises((TypeError, ForkrootError), match="topic"):
        compiled.run(backend=ScriptedBackend(answer))
    with pytest.raises(ForkrootError, match="topc"):
        compiled.run(topc="tea", backend=ScriptedBackend(answer))
