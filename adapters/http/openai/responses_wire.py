"""Requests to `/v1/responses`, and the chat requests that they amount to.

Nothing is stored between requests: what refers to an earlier answer is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from ....core.api.protocol import InvalidCall, UnsupportedCall
from ..wire.wire import (
    ChatMessage,
    ChatRequest,
    Function,
    FunctionCall,
    Items,
    RequestFields,
    Tool,
    ToolCall,
    check_role,
)


class ResponsesRequest(RequestFields):
    """POST /v1/responses. input: a text, or messages, calls and their outputs."""

    input: str | Items[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    tools: Items[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    background: bool | None = None
    include: Items[str] | None = None
    user: str | None = None


def contents_of(request: ResponsesRequest) -> Iterator[tuple[str, object]]:
    """What may hold pictures, with its field."""
    for index, item in enumerate(request.input if isinstance(request.input, list) else ()):
        for name in ("content", "output"):
            yield f"input[{index}].{name}", item.get(name)


def chat_request_of(request: ResponsesRequest) -> tuple[ChatRequest, list[str]]:
    """The chat that it amounts to, and the field of each message's content. Raises InvalidCall and
    UnsupportedCall."""
    _check_stateless(request)
    found = list(_messages(request))
    chat = ChatRequest(
        messages=[message for _, message in found],
        tools=[_tool(tool, f"tools[{index}]") for index, tool in enumerate(request.tools or ())],
        max_completion_tokens=request.max_output_tokens,
        response_format=_format(request.text),
        tool_choice=request.tool_choice,
        parallel_tool_calls=request.parallel_tool_calls,
        **{name: getattr(request, name) for name in RequestFields.model_fields},
    )
    return chat, [field for field, _ in found]


def _check_stateless(request: ResponsesRequest) -> None:
    for name in ("previous_response_id", "conversation", "background"):
        if getattr(request, name):
            allowed = "null (this server keeps nothing between requests)"
            raise UnsupportedCall(name, getattr(request, name), allowed)
    for wanted in request.include or ():
        if not wanted.startswith("reasoning."):  # of which there is none
            raise UnsupportedCall("include", wanted, "null, or an empty list")


def _messages(request: ResponsesRequest) -> Iterator[tuple[str, ChatMessage]]:
    if request.instructions:
        yield "instructions", ChatMessage(role="system", content=request.instructions)
    if isinstance(request.input, str):
        yield "input", ChatMessage(role="user", content=request.input)
        return
    read = (_message(item, f"input[{index}]") for index, item in enumerate(request.input))
    messages = (it for it in read if it is not None)
    for is_calling, group in groupby(messages, lambda it: bool(it[1].tool_calls)):
        if is_calling:  # calls beside one another are of one message
            calls = [call for _, it in group for call in it.tool_calls or ()]
            yield "input", ChatMessage(role="assistant", tool_calls=calls)
        else:
            yield from group


def _message(item: Mapping[str, Any], field: str) -> tuple[str, ChatMessage] | None:
    """An item of the input as a message, and its content's field; None for items that this model
    ignores."""
    match item.get("type") or "message":
        case "message":
            role: Any = item.get("role")
            check_role(role, f"{field}.role")
            content = _content(item.get("content"), f"{field}.content")
            return f"{field}.content", ChatMessage(role=role, content=content)
        case "function_call":
            given = {name: _string(item, name, field) for name in ("name", "arguments")}
            call = ToolCall(function=FunctionCall(**given))
            return field, ChatMessage(role="assistant", tool_calls=[call])
        case "function_call_output":
            output = _content(item.get("output"), f"{field}.output")
            return f"{field}.output", ChatMessage(role="tool", content=output)
        case "reasoning":
            return None
    allowed = "message, function_call, function_call_output"
    raise UnsupportedCall(f"{field}.type", item.get("type"), allowed)


def _content(content: object, field: str) -> Any:
    is_list = isinstance(content, list) and all(isinstance(it, str | dict) for it in content)
    if not isinstance(content, str) and not is_list:
        raise InvalidCall(field, content, "a text, or a list of parts")
    return content or ""  # an empty list is an empty text


def _string(item: Mapping[str, Any], name: str, field: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise InvalidCall(f"{field}.{name}", value, "a text")
    return value


def _tool(tool: Mapping[str, Any], field: str) -> Tool:
    if tool.get("type") != "function":
        raise UnsupportedCall(f"{field}.type", tool.get("type"), "function")
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidCall(f"{field}.parameters", parameters, "a JSON schema, or null")
    description = tool.get("description")
    function = Function(
        name=_string(tool, "name", field),
        description=description if isinstance(description, str) else None,
        parameters=parameters,
        strict=tool.get("strict") is True,
    )
    return Tool(type="function", function=function)


def _format(text: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """`text.format` as a chat's `response_format`."""
    given = (text or {}).get("format")
    if given is None:
        return None
    if not isinstance(given, dict):
        raise InvalidCall("text.format", given, "an object, or null")
    if given.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": given}
    return given
