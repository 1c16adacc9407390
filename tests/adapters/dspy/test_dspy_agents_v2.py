"""DSPy's second agent, whose tools are called in text: it always gets to its answer."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

dspy = pytest.importorskip("dspy")

import forkroot
from forkroot.adapters.dspy import LM
from forkroot.adapters.dspy.patterns.agents import Named, chosen, tools_in
from forkroot.core.api.protocol import Backend

ADAPTERS = {
    "chat": lambda: dspy.ChatAdapter(use_json_adapter_fallback=False),
    "json": lambda: dspy.JSONAdapter(use_native_function_calling=False),
    "xml": lambda: dspy.XMLAdapter(use_json_adapter_fallback=False),
}
A, B = Named("a", "{}"), Named("b", "{}")


def look_up(word: str) -> str:
    """Look up a word."""
    return word


def noted(**anything: Any) -> str:
    """Note anything down."""
    return "noted"


@pytest.fixture(scope="module")
def model() -> Iterator[Backend]:
    backend = forkroot.connect("tiny", dtype="float32", num_slots=20_000)
    yield backend
    backend.close()


@pytest.mark.parametrize("how", ["call", "acall"])
@pytest.mark.parametrize("style", ADAPTERS)
def test_an_agent_that_must_submit_does(model: Backend, style: str, how: str) -> None:
    for seed in range(3 if how == "call" else 1):
        lm = LM(model, cache=False, temperature=1.0, max_tokens=160, seed=seed)
        agent = dspy.ReActV2("question -> answer, count: int", tools=[look_up], max_iters=2)
        with dspy.context(lm=lm, adapter=ADAPTERS[style]()):
            prediction = agent(question="Where?") if how == "call" else _awaited(agent)
        assert isinstance(prediction.answer, str)
        assert isinstance(prediction.count, int)
        assert prediction.termination_reason in ("submit", "forced_submit")


def _awaited(agent: Any) -> Any:
    return asyncio.run(agent.acall(question="Where?"))


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (None, ((A, B), False)),
        ("auto", ((A, B), False)),
        ("required", ((A, B), True)),
        ({"type": "function", "function": {"name": "b"}}, ((B,), True)),
        ({"type": "function", "function": {"name": "c"}}, ((A, B), False)),
    ],
)
def test_a_choice_of_tools_leaves_those_that_it_names(choice: Any, found: Any) -> None:
    assert chosen((A, B), choice) == found


def test_a_tool_that_takes_any_argument_is_held_to_those_that_it_declares() -> None:
    class Calls(dspy.Signature):
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    declared = dspy.Tool(noted, name="told", args={"place": {"type": "string"}})
    (free, held) = tools_in(Calls, {"tools": [dspy.Tool(noted), declared]})
    assert '"properties": {}, "additionalProperties": true' in free.schema
    assert '{"place": {"type": "string"}}, "additionalProperties": false' in held.schema
