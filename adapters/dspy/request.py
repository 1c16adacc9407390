"""From DSPy's request to the parts of a call: the chat, the sampling, and what the answer must be.

It knows requests, and neither signatures nor runtimes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from dspy import lm15

from ...core.api.protocol import (
    SPACED,
    Chat,
    Constraint,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    Regex,
    Sampling,
    Segment,
    Text,
    UnsupportedCall,
)
from ..common.tools import Invocation, ToolFormat, ToolSpec, check_tools
from .options import Options
from .patterns.schema import Writer
from .patterns.spelling import UnsupportedSchema

MOST_CALLS = 8  # tool calls of one answer
_ROLES = {"developer": "system"}


def chat_of(request: lm15.Request, tool_format: ToolFormat) -> Chat:
    """The messages, the system's first. Raises InvalidCall or a subclass."""
    messages = list[Message]()
    if request.system is not None:
        parts = request.system
        text = (Text(parts),) if isinstance(parts, str) else _segments(parts, tool_format)
        messages.append(Message("system", text))
    for message in request.messages:
        messages += _messages(message, tool_format)
    tools = tuple(tool.shown() for tool in tools_of(request))
    return Chat(tuple(messages), tools=tools)


def tools_of(request: lm15.Request) -> tuple[ToolSpec, ...]:
    """The tools that the model is shown. Raises InvalidCall or a subclass."""
    choice = request.config.tool_choice
    if choice is not None and choice.mode == "none":
        return ()
    tools = list[ToolSpec]()
    for tool in request.tools:
        if not isinstance(tool, lm15.FunctionTool):
            raise UnsupportedCall("tools", tool.name, "function tools")
        tools.append(ToolSpec(tool.name, tool.description or "", tool.parameters))
    check_tools(tools)
    return tuple(tools)


def sampling_of(request: lm15.Request, options: Options) -> Sampling:
    """The sampling settings of the request, with the protocol's defaults."""
    config = request.config
    extensions = config.extensions or {}
    top_k = options.top_k if options.top_k is not None else config.top_k
    given: dict[str, Any] = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": top_k,
        "frequency_penalty": config.frequency_penalty,
        "presence_penalty": config.presence_penalty,
        "seed": config.seed,
        "logprobs": config.logprobs,
        "logit_bias": _bias(extensions.get("logit_bias")),
    }
    return Sampling(
        max_tokens=config.max_tokens,
        min_tokens=options.min_tokens,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        stop=config.stop,
        **{name: value for name, value in given.items() if value is not None},
    )


def constraint_of(
    request: lm15.Request, options: Options, pattern: str | None, tool_format: ToolFormat
) -> Constraint | None:
    """What the answer must be: the call's own constraint, else calls of tools or the signature's
    (`pattern`), else that of the request's `response_format`. Raises InvalidCall or a subclass."""
    named = options.constraint()
    if named is not None or not options.constrain:
        return named or _response_format(request)
    tools = tools_of(request)
    if tools:
        return _tool_pattern(request, tools, pattern, tool_format)
    return Regex(pattern) if pattern else _response_format(request)


def _response_format(request: lm15.Request) -> Constraint | None:
    given = request.config.response_format
    if given is None:
        return None
    schema = given["schema"] if given["type"] == "json_schema" else {"type": "object"}
    return JsonSchema(schema, SPACED)


def _tool_pattern(
    request: lm15.Request, tools: tuple[ToolSpec, ...], pattern: str | None, form: ToolFormat
) -> Constraint | None:
    """Calls that can be read; where none is demanded and the signature has other fields too, calls
    or these. None: free text, in which calls may come, of a request without a signature."""
    choice = request.config.tool_choice or lm15.ToolChoice()
    callable_ = [tool for tool in tools if not choice.allowed or tool.name in choice.allowed]
    if pattern is None:
        pattern = _format_pattern(request)
    if choice.mode == "auto" and pattern is None:
        return None
    closing = re.escape(form.closing())
    try:
        calls = "|".join(
            f"{re.escape(form.opening(tool.name))}{Writer(tool.schema()).pattern()}{closing}"
            for tool in callable_
        )
    except UnsupportedSchema as error:
        raise UnsupportedCall("tools", str(error), "tools with supported arguments") from error
    one = f"(?:{calls})"
    most = 0 if choice.parallel is False else MOST_CALLS - 1
    several = f"{one}(?:{form.gap}{one}){{0,{most}}}"
    if choice.mode == "auto" and pattern:
        return Regex(f"(?:{several})|(?:{pattern})")
    return Regex(several)


def _format_pattern(request: lm15.Request) -> str | None:
    given = request.config.response_format
    if given is None:
        return None
    try:
        return Writer(given.get("schema", {"type": "object"})).pattern()
    except UnsupportedSchema:
        return None


def _messages(message: lm15.Message, tool_format: ToolFormat) -> Iterator[Message]:
    if message.role != "tool":
        role = _ROLES.get(message.role, message.role)
        yield Message(role, _segments(message.parts, tool_format))
        return
    for result in message.parts:
        yield Message("tool", _segments(result.content, tool_format))


def _segments(parts: Any, tool_format: ToolFormat) -> tuple[Segment, ...]:
    """The parts of a message; tool calls as the model writes them."""
    segments = list[Segment]()
    is_first_call = True
    for part in parts:
        match part:
            case lm15.TextPart() | lm15.RefusalPart():
                segments.append(Text(part.text))
            case lm15.DataPart():
                segments.append(Text(json.dumps(part.value, ensure_ascii=False)))
            case lm15.ToolCallPart():
                call = Invocation(part.name, json.dumps(part.input, ensure_ascii=False))
                is_first = is_first_call and not segments
                segments.append(Text(tool_format.write([call], is_first)))
                is_first_call = False
            case lm15.ThinkingPart() | lm15.CitationPart():
                continue
            case lm15.ImagePart():
                segments.append(Image(_image_data(part)))
            case _:
                allowed = "text, data, tool calls and their results, images as bytes or files"
                raise UnsupportedCall("messages", part.type, allowed)
    return tuple(segments)


def _image_data(part: lm15.ImagePart) -> bytes:
    if part.data is None and part.path is None:
        allowed = "an image as bytes, a file or a data:...;base64, URL: nothing is fetched"
        raise UnsupportedCall("messages", part.url or part.file_id, allowed)
    try:
        return bytes(part.bytes)
    except OSError as error:
        raise InvalidCall("messages", str(part.path), f"a readable image ({error})") from error


def _bias(given: Any) -> Mapping[int, float] | None:
    if given is None:
        return None
    try:
        return {int(token): float(bias) for token, bias in given.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidCall("logit_bias", given, "a mapping of token ids to numbers") from None
