"""An agent with two tools that answers several conversations at once, with LangGraph.

    python -m forkroot.examples.agent_langchain

Every prompt begins with the same tools, and each turn with the turns before it: what was computed
once stays. The embedded model is tiny: it calls the right tool with the right argument, and tells
the result in its own words ("The result is49." is how it writes numbers).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from ..adapters.langchain import ChatForkroot
from .retrieval import load_passages
from .savings import Done, Options, RunContext, compare, needed, run_example, show_savings

try:
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
    from langchain_core.tools import tool
    from langgraph.graph import END, START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition
except ImportError as error:
    needed("langgraph", error)

CONVERSATIONS = (
    ("Look up Busnuk.", "Square 12."),
    ("Look up Sittan.", "Square 7."),
    ("Square 31.", "Look up Tevran."),
    ("Look up Hogfep.", "What is the square of 14?"),
    ("What is the square of 9?", "Look up Bontun."),
    ("Look up Jaltol.", "Look up Pefsav."),
    ("Square 13.", "Look up Dazsil."),
    ("Look up Namken.", "Square 3."),
)
TOWN = re.compile(r"\b(?:[Ii]n|from) ([A-Z]\w+)")


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, the tool that the model called for it, its result, and the answer."""

    question: str
    tool: str
    arguments: str
    result: str
    answer: str


@tool
def lookup(word: str) -> dict[str, str]:
    """Look up in which town a person lives, by the passages in the box."""
    texts = {passage.name: passage.text for passage in load_passages()}
    found = TOWN.search(texts.get(word.lower(), ""))
    return {"result": found[1] if found else "unknown"}


@tool
def square(number: int) -> dict[str, str]:
    """Square a number."""
    return {"result": str(number * number)}


TOOLS = (lookup, square)


def agent(context: RunContext) -> Any:
    """A graph of two nodes: the model, and the tools for as long as it calls them."""
    model = ChatForkroot(
        model=context.backend, settings=context.settings, temperature=0, max_tokens=64
    ).bind_tools(TOOLS)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: END})
    graph.add_edge("tools", "model")
    return graph.compile()


def talk(context: RunContext, conversations: Sequence[Sequence[str]]) -> Done[list[list[Turn]]]:
    """Hold all conversations at once, turn by turn."""
    graph = agent(context)
    config = {"metadata": {"forkroot": {"namespace": context.namespace}}}
    histories: list[list[BaseMessage]] = [[] for _ in conversations]
    for requests in zip(*conversations, strict=True):
        states = [
            {"messages": [*history, HumanMessage(request)]}
            for history, request in zip(histories, requests, strict=True)
        ]
        histories = [state["messages"] for state in graph.batch(states, config)]
    usages = [it.usage_metadata for each in histories for it in each if isinstance(it, AIMessage)]
    return Done(
        [list(turns(history)) for history in histories],
        len(usages),
        sum(usage["input_tokens"] for usage in usages if usage),
        sum(usage["input_token_details"]["cache_read"] for usage in usages if usage),
    )


def turns(history: Sequence[BaseMessage]) -> Iterator[Turn]:
    """The turns of a conversation: question, call, result, answer; or, without a call, the first
    and the last of these."""
    starts = [index for index, message in enumerate(history) if message.type == "human"]
    for start, end in zip(starts, [*starts[1:], len(history)], strict=True):
        calls = [call for it in history[start:end] for call in getattr(it, "tool_calls", ())]
        results = [str(it.content) for it in history[start:end] if it.type == "tool"]
        yield Turn(
            str(history[start].content),
            ", ".join(call["name"] for call in calls),
            ", ".join(str(value) for call in calls for value in call["args"].values()),
            ", ".join(json.loads(result)["result"] for result in results),
            str(history[end - 1].content),
        )


def example(options: Options, console: Console) -> None:
    """Hold the conversations with the cache and without, and print traces and savings."""
    conversations = CONVERSATIONS[: options.limit]
    compared = compare(options, lambda context: talk(context, conversations))
    for number, conversation in enumerate(compared.answers, 1):
        console.print(f"[bold]Conversation {number}[/bold]")
        for turn in conversation:
            call = f"{turn.tool}({turn.arguments}) = {turn.result}"
            console.print(f"  {turn.question} → {call} → {turn.answer}", markup=False)
    show_savings(console, compared)


main = partial(run_example, __doc__, example)


if __name__ == "__main__":
    sys.exit(main())
