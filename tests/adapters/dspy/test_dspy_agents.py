"""Agents: the tool that an answer names gets arguments that it takes."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest

dspy = pytest.importorskip("dspy")

import forkroot
from forkroot.adapters.dspy import LM
from forkroot.adapters.dspy.hints import returning
from forkroot.adapters.dspy.hints.returning import Step
from forkroot.adapters.dspy.patterns.agents import ARGUMENTS, NAME, agent_in, tools_in, tools_of
from forkroot.adapters.dspy.patterns.formats import Formats
from forkroot.adapters.hints.prefix import Prefixes
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Backend, Call, Chat, Message, Text
from forkroot.core.common.harmless import hint_errors

from .dspy_requests import lm_of

ADAPTERS = {
    "chat": lambda: dspy.ChatAdapter(use_json_adapter_fallback=False),
    "json": lambda: dspy.JSONAdapter(),
    "xml": lambda: dspy.XMLAdapter(use_json_adapter_fallback=False),
}


def look_up(word: str, times: int = 1) -> str:
    """Look up a word."""
    assert isinstance(word, str)
    return "found" * min(max(times, 0), 2)


def move(place: Literal["left", "right"], is_slow: bool) -> str:
    """Move."""
    assert place in ("left", "right")
    assert isinstance(is_slow, bool)
    return "moved"


def note(**anything: Any) -> str:
    """Note anything down."""
    return "noted"


def agent(*tools: Any) -> Any:
    """An agent with these tools."""
    return dspy.ReAct("question -> answer", tools=list(tools), max_iters=3)


def pattern(react: Any) -> re.Pattern[str]:
    """Of its answers in the chat format."""
    signature = react.react.signature
    found = Formats().pattern(dspy.ChatAdapter(), signature, tools_of(agent_in(signature, [react])))
    assert found is not None
    return re.compile(found)


def answer(name: str, arguments: Any, style: str = "chat") -> str:
    """One in a format."""
    fields = {"next_thought": "Hm.", NAME: name, ARGUMENTS: arguments}
    return written_in(style, fields)


def written_in(style: str, fields: dict[str, Any]) -> str:
    """These fields in a format."""
    if style == "json":
        return json.dumps(fields)
    texts = {key: it if isinstance(it, str) else json.dumps(it) for key, it in fields.items()}
    if style == "xml":
        return "\n\n".join(f"<{key}>\n{value}\n</{key}>" for key, value in texts.items())
    parts = {**texts, "completed": ""}
    return "\n\n".join(f"[[ ## {key} ## ]]\n{value}" for key, value in parts.items()).rstrip()


@pytest.mark.parametrize(
    ("name", "arguments", "is_allowed"),
    [
        ("look_up", {"word": "ab", "times": 2}, True),
        ("look_up", {"word": "ab", "times": "2"}, False),
        ("look_up", {"place": "left", "is_slow": True}, False),
        ("move", {"place": "left", "is_slow": True}, True),
        ("move", {"place": "up", "is_slow": True}, False),
        ("note", {"any": ["thing"]}, True),
        ("finish", {}, True),
        ("finish", {"now": True}, False),
    ],
)
def test_a_tool_is_named_with_arguments_that_it_takes(
    name: str, arguments: Any, is_allowed: bool
) -> None:
    found = pattern(agent(look_up, move, note)).fullmatch(answer(name, arguments))
    assert (found is not None) == is_allowed


def test_a_tool_whose_arguments_have_no_pattern_gets_any() -> None:
    tool = dspy.Tool(note, name="odd", args={"x": {"type": "string", "format": "unheard-of"}})
    tool.has_kwargs = False
    assert pattern(agent(tool)).fullmatch(answer("odd", {"y": 1}))


def test_a_signature_of_other_fields_has_no_tools_though_an_agent_calls() -> None:
    react = agent(look_up)
    assert agent_in(react.extract.predict.signature, [react]) is None
    assert agent_in(react.react.signature, []) is None
    assert agent_in(react.react.signature, [agent(move), react]) is react
    assert [tool.name for tool in tools_of(react)] == ["look_up", "finish"]


class Called(dspy.Signature):
    """Use the tools."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()


@pytest.mark.parametrize("style", ADAPTERS)
@pytest.mark.parametrize(
    ("name", "arguments", "is_allowed"),
    [
        ("look_up", {"word": "ab", "times": 2}, True),
        ("look_up", {"place": "left", "is_slow": True}, False),
        ("move", {"place": "left", "is_slow": True}, True),
        ("look", {"word": "ab", "times": 2}, False),
    ],
)
def test_calls_in_an_output_are_of_the_tools_among_the_inputs(
    style: str, name: str, arguments: Any, is_allowed: bool
) -> None:
    given = tools_in(Called, {"question": "?", "tools": [dspy.Tool(look_up), dspy.Tool(move)]})
    found = Formats().pattern(ADAPTERS[style](), Called, (), given)
    assert found is not None
    value = {"calls": {"tool_calls": [{"name": name, "args": arguments}] * 2}}
    text = json.dumps(value, indent=2) if style == "json" else written_in(style, value)
    assert (re.fullmatch(found, text) is not None) == is_allowed


def test_tools_among_the_inputs_are_looked_for_where_calls_are_wanted_only() -> None:
    signature = dspy.Signature("question, tools: list -> answer")
    assert tools_in(signature, {"question": "?", "tools": [dspy.Tool(look_up)]}) == ()
    assert tools_in(Called, {"question": "?", "tools": ["look_up"]}) == ()
    named = tools_in(Called, {"question": "?", "tools": dspy.Tool(move)})
    assert [tool.name for tool in named] == ["move"]


# --- what is known of its next prompts ----------------------------------------------------------


LONG = "Which of the words in the dictionary is the one that everybody looks up? " * 4


def steps(*names: str, style: str = "chat") -> list[str]:
    """An agent's answers: these tools, and what it found."""
    arguments = {"look_up": {"word": "tree", "times": 1}}
    end = written_in(style, {"reasoning": "So.", "answer": "tree"})
    return [*(answer(name, arguments.get(name, {}), style) for name in names), end]


def last_texts(calls: list[Call]) -> list[str]:
    """The texts of the last messages."""
    prompts = [call.prompt for call in calls]
    assert all(isinstance(prompt, Chat) for prompt in prompts)
    return ["".join(part.text for part in it.messages[-1].content) for it in prompts]


def run_slowly(backend: ScriptedBackend, goals: list[int], found: Any = "a word") -> None:
    """Run an agent whose n-th look-up waits until so many prefixes were sent in all, and finds the
    same always."""
    waits = iter(goals)

    def look_up(word: str, times: int) -> Any:
        """Look up a word."""
        goal = next(waits)
        wait_until(lambda: sum(map(is_sent, backend.calls)) >= goal)
        return found

    with dspy.context(lm=lm_of(backend)):
        agent(look_up)(question=LONG)


def is_sent(call: Call) -> bool:
    """Whether it is the beginning of a prompt."""
    return isinstance(call.prompt, Chat) and call.prompt.open_last


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait, but not for ever."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.mark.parametrize("found", ["A word. " * 30, "", ["one", "two\n"], {"a": 1}, None])
def test_while_a_tool_works_all_that_is_known_of_the_next_prompts_is_computed(
    monkeypatch: pytest.MonkeyPatch, found: Any
) -> None:
    monkeypatch.setattr(returning, "AHEAD_AFTER", 0.0)
    backend = ScriptedBackend(steps("look_up", "look_up", "look_up"))
    run_slowly(backend, [0, 2, 4], found)
    sent = last_texts([call for call in backend.calls if is_sent(call)])
    prompts = last_texts([call for call in backend.calls if call.sampling.max_tokens != 0])
    known = '[[ ## tool_args_1 ## ]]\n{"word": "tree", "times": 1}'
    assert [text.endswith(known) for text in sent] == [True, True, False, False]
    assert prompts[2].startswith(sent[0])
    assert "[[ ## observation_1 ## ]]" in prompts[2][len(sent[0]) :]
    assert all(prompts[3].startswith(text) for text in (sent[1], sent[3]))


@pytest.mark.parametrize("style", ["json", "xml"])
def test_the_same_is_done_in_the_other_formats(monkeypatch: pytest.MonkeyPatch, style: str) -> None:
    monkeypatch.setattr(returning, "AHEAD_AFTER", 0.0)
    backend = ScriptedBackend(steps("look_up", "look_up", "finish", style=style))
    with dspy.context(adapter=ADAPTERS[style]()):
        run_slowly(backend, [0, 2], "a word")
    following, final = last_texts([call for call in backend.calls if is_sent(call)])
    prompts = last_texts([call for call in backend.calls if call.sampling.max_tokens != 0])
    assert prompts[2].startswith(following)
    assert prompts[3].startswith(final)


def test_the_same_is_done_for_an_agent_that_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(returning, "AHEAD_AFTER", 0.0)
    backend = ScriptedBackend(steps("look_up", "look_up", "finish"))
    waits = iter([0, 2])

    async def look_up(word: str, times: int) -> str:
        """Look up a word."""
        goal = next(waits)
        await asyncio.to_thread(wait_until, lambda: sum(map(is_sent, backend.calls)) >= goal)
        return "a word"

    with dspy.context(lm=lm_of(backend)):
        asyncio.run(agent(look_up).acall(question=LONG))
    following, final = last_texts([call for call in backend.calls if is_sent(call)])
    prompts = last_texts([call for call in backend.calls if call.sampling.max_tokens != 0])
    assert prompts[2].startswith(following)
    assert prompts[3].startswith(final)


def test_an_agent_goes_on_though_its_next_prompt_cannot_be_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(step: Any) -> Any:
        raise LookupError("no chats")

    monkeypatch.setattr(returning, "AHEAD_AFTER", 0.0)
    monkeypatch.setattr(Step, "next_chats", broken)
    backend, before = ScriptedBackend(steps("look_up", "look_up", "finish")), hint_errors.total
    waits = iter([0, 1])

    def look_up(word: str, times: int) -> str:
        """Look up a word."""
        goal = before + next(waits)
        wait_until(lambda: hint_errors.total >= goal)
        return "a word"

    with dspy.context(lm=lm_of(backend)):
        assert agent(look_up)(question=LONG).answer == "tree"
    assert hint_errors.total > before


def test_nothing_is_sent_ahead_for_tools_that_are_done_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returning, "AHEAD_AFTER", 60.0)
    backend = ScriptedBackend(steps("look_up", "look_up", "finish"))
    run_slowly(backend, [0, 0])
    assert not any(map(is_sent, backend.calls))


def test_a_prompt_goes_on_only_from_one_that_is_kept_and_where_there_is_room() -> None:
    backend = ScriptedBackend("a")
    prefixes = Prefixes(backend)
    prompt = Chat((Message("user", (Text(LONG),)),), open_last=True)
    assert not prefixes.send_on(prompt, "agent")
    reply = backend.submit(Call((Text(LONG),)))
    size = reply.result().usage.prompt_tokens
    assert prefixes.keep(reply, "agent")
    assert prefixes.send_on(prompt, "agent")
    prefixes.most_kept = 4 * size - 1
    assert not prefixes.send_on(prompt, "final", beside="agent")
    prefixes.most_kept = 4 * size
    assert prefixes.send_on(prompt, "final", beside="agent")
    assert [call.hint.root for call in backend.calls if is_sent(call)] == ["agent", "final"]


@pytest.fixture(scope="module")
def model() -> Iterator[Backend]:
    backend = forkroot.connect("tiny", dtype="float32", num_slots=20_000)
    yield backend
    backend.close()


@pytest.mark.parametrize("style", ADAPTERS)
def test_an_agent_calls_its_tools_without_an_error(model: Backend, style: str) -> None:
    lm = LM(model, cache=False, temperature=2.0, max_tokens=160, seed=1)
    with dspy.context(lm=lm, adapter=ADAPTERS[style]()):
        found = agent(look_up, move)(question="Where?").trajectory
    observations = [value for key, value in found.items() if key.startswith("observation")]
    assert observations
    assert set(observations) <= {"found", "foundfound", "", "moved", "Completed."}


@pytest.mark.parametrize("style", ADAPTERS)
def test_calls_that_an_output_names_can_be_executed(model: Backend, style: str) -> None:
    tools = [dspy.Tool(look_up), dspy.Tool(move)]
    adapter = ADAPTERS[style]()
    adapter.use_native_function_calling = False
    calls = list[Any]()
    for seed in range(6):
        lm = LM(model, cache=False, temperature=2.0, max_tokens=160, seed=seed)
        with dspy.context(lm=lm, adapter=adapter):
            found = dspy.Predict(Called)(question=f"Look up the word {seed}.", tools=tools)
        calls += found.calls.tool_calls
    assert calls
    results = {call.execute(functions=tools) for call in calls}
    assert results <= {"found", "foundfound", "", "moved"}
