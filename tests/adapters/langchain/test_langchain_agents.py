"""LangGraph's agents run on the embedded model, and their turns share what came before."""

from __future__ import annotations

import asyncio
import threading
from operator import add
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
pytest.importorskip("langgraph.prebuilt", reason="needs langgraph")

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition
from langgraph.types import Send

from forkroot.adapters.langchain import ChatForkroot
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.local import LocalBackend


@tool
def lookup(word: str) -> dict[str, str]:
    """Look up a word."""
    return {"result": word.capitalize() + "ton"}


@pytest.fixture
def model(local: LocalBackend) -> ChatForkroot:
    return ChatForkroot(model=local, temperature=0)


def steps_of(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages[1:]]


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
def test_a_ready_made_agent_asks_its_tool_and_answers(model: ChatForkroot) -> None:
    agent = create_react_agent(model, [lookup])
    question = {"messages": [("user", "Look up Memhuv.")]}
    messages = agent.invoke(question)["messages"]
    assert steps_of(messages) == [AIMessage, ToolMessage, AIMessage]
    assert messages[1].tool_calls[0]["args"] == {"word": "Memhuv"}
    assert "Memhuvton" in messages[-1].content
    awaited = asyncio.run(agent.ainvoke(question))["messages"]
    assert [message.content for message in awaited] == [message.content for message in messages]


class Words(TypedDict):
    words: list[str]
    answers: Annotated[list[AIMessage], add]


def map_reduce(ask: Any) -> Any:
    """A graph that asks for each word at once. ask: a node."""
    graph = StateGraph(Words)
    graph.add_node("ask", ask)
    sends = lambda state: [Send("ask", {"word": word}) for word in state["words"]]  # noqa: E731
    graph.add_conditional_edges(START, sends, ["ask"])
    graph.add_edge("ask", END)
    return graph.compile()


RULES = "Say what the word means, in one word. " * 12
INITIAL_STATE: dict[str, Any] = {
    "words": ["tree", "sea", "hill", "fox", "rain", "boat"],
    "answers": [],
}


def test_tasks_that_are_sent_to_one_step_are_one_submission(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forkroot.adapters.langchain.hints.steps.PATIENCE", 20.0)
    backend = ScriptedBackend("plant")
    model, all_started = ChatForkroot(model=backend), threading.Barrier(6)
    chain = RunnableLambda(lambda word: [("system", RULES), ("user", word)]) | model

    def ask(state: Any) -> dict[str, list[AIMessage]]:
        all_started.wait(60)
        return {"answers": [chain.invoke(state["word"])]}

    assert len(map_reduce(ask).invoke(INITIAL_STATE)["answers"]) == 6
    planting, *calls = backend.calls
    assert (planting.sampling.max_tokens, len(calls)) == (0, 6)
    assert planting.hint is not None and planting.hint.branches == 6
    assert {call.hint.root for call in calls if call.hint} == {planting.hint.root}


@pytest.mark.parametrize("is_awaited", [False, True])
def test_what_sent_tasks_share_is_computed_once(local: LocalBackend, is_awaited: bool) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=4)
    prompts = {word: [("system", RULES), ("user", word)] for word in INITIAL_STATE["words"]}
    alone = [model.invoke(prompt).content for prompt in prompts.values()]

    def ask(state: Any) -> dict[str, list[AIMessage]]:
        return {"answers": [model.invoke(prompts[state["word"]])]}

    async def ask_later(state: Any) -> dict[str, list[AIMessage]]:
        return {"answers": [await model.ainvoke(prompts[state["word"]])]}

    program = map_reduce(ask_later if is_awaited else ask)
    local.clear_cache()
    local.reset_counters()
    found = (
        asyncio.run(program.ainvoke(INITIAL_STATE)) if is_awaited else program.invoke(INITIAL_STATE)
    )
    assert [answer.content for answer in found["answers"]] == alone
    usages = [answer.usage_metadata for answer in found["answers"]]
    root = sorted(usage["input_token_details"]["cache_read"] for usage in usages)[1]
    assert root > 100  # but of the first, perhaps: on a busy machine it may come alone
    computed = local.info().counters["computed_tokens"]
    written = sum(usage["output_tokens"] for usage in usages)
    assert computed < 2 * root + written


def test_a_graph_of_ones_own_streams_and_shares_its_turns(model: ChatForkroot) -> None:
    bound = model.bind_tools([lookup])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    agent = graph.compile()
    question = {"messages": [("user", "Look up Kenvaf.")]}
    tokens = [chunk.text for chunk, _ in agent.stream(question, stream_mode="messages")]
    messages = agent.invoke(question)["messages"]
    assert messages[-1].content in "".join(tokens)
    cached = messages[-1].usage_metadata["input_token_details"]["cache_read"]
    assert cached >= messages[1].usage_metadata["input_tokens"]
