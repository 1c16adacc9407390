"""LangGraph's agents run on the embedded model, and their turns share what came before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")
pytest.importorskip("langgraph.prebuilt", reason="needs langgraph")

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, create_react_agent, tools_condition

from forkroot.adapters.langchain import ChatForkroot
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
    asked = {"messages": [("user", "Look up Memhuv.")]}
    messages = agent.invoke(asked)["messages"]
    assert steps_of(messages) == [AIMessage, ToolMessage, AIMessage]
    assert messages[1].tool_calls[0]["args"] == {"word": "Memhuv"}
    assert "Memhuvton" in messages[-1].content
    awaited = asyncio.run(agent.ainvoke(asked))["messages"]
    assert [message.content for message in awaited] == [message.content for message in messages]


def test_a_graph_of_ones_own_streams_and_shares_its_turns(model: ChatForkroot) -> None:
    bound = model.bind_tools([lookup])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([lookup]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    agent = graph.compile()
    asked = {"messages": [("user", "Look up Kenvaf.")]}
    tokens = [chunk.text for chunk, _ in agent.stream(asked, stream_mode="messages")]
    messages = agent.invoke(asked)["messages"]
    assert messages[-1].content in "".join(tokens)
    cached = messages[-1].usage_metadata["input_token_details"]["cache_read"]
    assert cached >= messages[1].usage_metadata["input_tokens"]
