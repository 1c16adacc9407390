"""How an answer of tool calls ends: for their sake where each is whole, else as it was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from forkroot.adapters.common.toolreader import is_calling
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Call, Completion, Output

from ....serving import serving
from ..conftest import Letters

WHOLE = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
ENDS = [
    (WHOLE, "stop", "tool_calls"),
    (WHOLE, "length", "tool_calls"),
    (f"Well. {WHOLE}\n{WHOLE}\n", "length", "tool_calls"),
    (WHOLE[:-20], "length", "length"),
    (f"{WHOLE} And", "length", "length"),
    ("And", "stop", "stop"),
    (f"No {WHOLE[:10]}", "length", "length"),
    (WHOLE, "abort", "abort"),
]


def answer(call: Call) -> Completion:
    text, reason, _ = ENDS[int(prompt_text(call.prompt).rpartition(" ")[2])]
    return Completion((Output(text, finish_reason=reason),))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Runtime(ScriptedBackend(answer), Letters(), ("tiny",))) as url:
        yield url


@pytest.mark.parametrize(("text", "reason", "reply_body"), ENDS)
def test_calls_that_are_whole_can_be_answered(text: str, reason: Any, reply_body: str) -> None:
    output = Output(text, finish_reason=reason)
    assert is_calling(output, text.count('"name"')) is (reply_body == "tool_calls")


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("place", range(len(ENDS)))
def test_a_chat_ends_for_calls_where_these_are_whole(
    url: str, place: int, is_streamed: bool
) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": f"Number {place}"}]}
    body |= {"tools": tools, "stream": is_streamed}
    reply_body = httpx.post(f"{url}/v1/chat/completions", json=body)
    events = [line[6:] for line in reply_body.text.splitlines() if line.startswith("data: {")]
    last = json.loads(events[-1] if is_streamed else reply_body.text)
    assert last["choices"][0]["finish_reason"] == ENDS[place][2]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("place", range(len(ENDS)))
def test_a_response_is_complete_where_its_calls_are_whole(
    url: str, place: int, is_streamed: bool
) -> None:
    body = {"input": f"Number {place}", "tools": [{"type": "function", "name": "f"}]}
    reply_body = httpx.post(f"{url}/v1/responses", json={**body, "stream": is_streamed})
    events = [line[6:] for line in reply_body.text.splitlines() if line.startswith("data: {")]
    last = json.loads(events[-1])["response"] if is_streamed else reply_body.json()
    is_whole = ENDS[place][2] in ("stop", "tool_calls")
    assert last["status"] == ("completed" if is_whole else "incomplete")
