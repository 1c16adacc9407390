"""Nodes of LangGraph that run in one step: one submission, one root, and nobody waits in vain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from operator import add
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
pytest.importorskip("langgraph.prebuilt", reason="needs langgraph")

from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import create_react_agent

from forkroot.adapters.langchain import ChatForkroot
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.local import LocalBackend

LONG = 20.0  # seconds: a test that waits for so long fails before
RULES = "Say what the word means, in one word. " * 12


class Answers(TypedDict):
    answers: Annotated[list[Any], add]


def fan_out(name: str, nodes: Mapping[str, Callable[[Any], Any]]) -> Any:
    """A graph whose nodes all begin together. name: a new one for each test, for what nodes do is
    remembered by it."""
    graph = StateGraph(Answers)
    for node, action in nodes.items():
        graph.add_node(node, action)
        graph.add_edge(START, node)
    return graph.compile(name=name)


def prompt_of(word: str, first: str = "") -> list[tuple[str, str]]:
    return [("system", first + RULES), ("user", word)]


def run(graph: Any, how: str) -> list[Any]:
    start: Answers = {"answers": []}
    if how == "awaited":
        found: list[Any] = asyncio.run(graph.ainvoke(start))["answers"]
    elif how == "streamed":
        steps = [it for mode, it in graph.stream(start, stream_mode=["messages", "values"])]
        found = steps[-1]["answers"]
    else:
        found = graph.invoke(start)["answers"]
    return found


def be_patient(monkeypatch: pytest.MonkeyPatch, quiet: float = 0.003) -> None:
    monkeypatch.setattr("forkroot.adapters.langchain.hints.steps.PATIENCE", LONG)
    monkeypatch.setattr("forkroot.adapters.langchain.hints.steps.QUIET", quiet)


def nodes_of(
    model: ChatForkroot, how: str, words: list[str], first: str = ""
) -> dict[str, Callable[[Any], Any]]:
    """A node for each word, none of which asks before all have begun. first: of the root."""
    all_started = threading.Barrier(len(words))

    def node(word: str) -> Callable[[Any], Any]:
        def ask(state: Any) -> dict[str, Any]:
            all_started.wait(LONG)
            return {"answers": [model.invoke(prompt_of(word, first))]}

        async def ask_later(state: Any) -> dict[str, Any]:
            return {"answers": [await model.ainvoke(prompt_of(word, first))]}

        return ask_later if how == "awaited" else ask

    return {word: node(word) for word in words}


@pytest.mark.parametrize("how", ["invoked", "awaited", "streamed"])
def test_nodes_that_edges_fan_out_to_are_one_submission(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    be_patient(monkeypatch)
    backend = ScriptedBackend("plant")
    nodes = nodes_of(ChatForkroot(model=backend), how, ["tree", "sea", "hill"])
    assert len(run(fan_out(f"one submission {how}", nodes), how)) == 3
    planting, *calls = backend.calls
    assert (planting.sampling.max_tokens, len(calls)) == (0, 3)
    assert planting.hint is not None and planting.hint.branches == 3
    assert {call.hint.root for call in calls if call.hint} == {planting.hint.root}


@pytest.mark.parametrize("how", ["invoked", "awaited"])
def test_what_the_nodes_of_a_step_share_is_computed_once(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    be_patient(monkeypatch)
    model = ChatForkroot(model=local, temperature=0, max_tokens=4)
    words, first = ["fox", "hill", "sea", "tree"], f"Now {how}: "  # a root that is nowhere yet
    program = fan_out(f"computed once {how}", nodes_of(model, how, words, first))
    local.reset_counters()
    found = run(program, how)
    usages = [answer.usage_metadata for answer in found]
    root = min(usage["input_token_details"]["cache_read"] for usage in usages)
    assert root > 100  # of the first one too: what they share was sent ahead
    total = sum(usage["input_tokens"] + usage["output_tokens"] for usage in usages)
    assert local.info().counters["computed_tokens"] <= total - 3 * root
    alone = [model.invoke(prompt_of(word, first)).content for word in words]
    assert [answer.content for answer in found] == alone


@tool
def lookup(word: str) -> dict[str, str]:
    """Look up a word."""
    return {"result": word.capitalize() + "ton"}


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize("how", ["invoked", "awaited"])
def test_sub_agents_that_run_beside_each_other_share_their_first_turn(
    local: LocalBackend, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    be_patient(monkeypatch)
    model = ChatForkroot(model=local, temperature=0)
    agent = create_react_agent(model, [lookup], prompt=f"Be brief, though {how}. " * 20)
    all_started = threading.Barrier(3)
    words = ["Kenvaf", "Lorzim", "Memhuv"]
    questions = {word: {"messages": [("user", f"Look up {word}.")]} for word in words}

    def node(word: str) -> Callable[[Any], Any]:
        def ask(state: Any) -> dict[str, Any]:
            all_started.wait(LONG)
            return {"answers": [agent.invoke(questions[word])["messages"]]}

        async def ask_later(state: Any) -> dict[str, Any]:
            return {"answers": [(await agent.ainvoke(questions[word]))["messages"]]}

        return ask_later if how == "awaited" else ask

    program = fan_out(f"sub-agents {how}", {word: node(word) for word in words})
    concurrent = run(program, how)
    turns = [messages[1].usage_metadata for messages in concurrent]
    for turn in turns:  # the first one too: what they share was sent ahead
        assert turn["input_token_details"]["cache_read"] > 0.9 * turn["input_tokens"] > 200
    alone = [agent.invoke(questions[word])["messages"] for word in words]
    outcome = [[message.content for message in messages] for messages in concurrent]
    assert outcome == [[message.content for message in messages] for messages in alone]


@pytest.mark.parametrize("how", ["invoked", "awaited"])
def test_a_node_that_runs_alone_waits_for_nobody(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    be_patient(monkeypatch, quiet=LONG)
    backend = ScriptedBackend("yes")
    nodes = nodes_of(ChatForkroot(model=backend), how, ["tree"])
    thread = threading.Thread(target=run, args=(fan_out(f"alone {how}", nodes), how))
    thread.start()
    backend.wait_for(1)
    thread.join(LONG)


def test_a_node_that_did_not_call_beside_others_twice_is_no_longer_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = ScriptedBackend("yes")
    model, is_answered = ChatForkroot(model=backend), threading.Event()

    def ask(state: Any) -> dict[str, Any]:
        found = model.invoke("tree")
        is_answered.set()
        return {"answers": [found]}

    def wait(state: Any) -> dict[str, Any]:
        return {"answers": [is_answered.wait(LONG)]}

    program = fan_out("never calls", {"ask": ask, "wait": wait})
    for _ in range(2):
        is_answered.clear()
        run(program, "invoked")
    be_patient(monkeypatch)
    is_answered.clear()
    thread = threading.Thread(target=run, args=(program, "invoked"))
    thread.start()
    backend.wait_for(3)
    thread.join(LONG)


def test_a_node_that_calls_beside_others_again_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = ScriptedBackend("yes")
    model, all_started = ChatForkroot(model=backend), threading.Barrier(2)
    is_quiet = True

    def ask(state: Any) -> dict[str, Any]:
        all_started.wait(LONG)
        return {"answers": [model.invoke(prompt_of("tree"))]}

    def ask_or_not(state: Any) -> dict[str, Any]:
        all_started.wait(LONG)
        return {"answers": [] if is_quiet else [model.invoke(prompt_of("sea"))]}

    program = fan_out("calls again", {"ask": ask, "ask or not": ask_or_not})
    for _ in range(2):
        run(program, "invoked")
    is_quiet = False
    be_patient(monkeypatch)
    run(program, "invoked")
    backend.calls.clear()
    run(program, "invoked")
    assert {call.hint.branches for call in backend.calls if call.hint} == {2}
