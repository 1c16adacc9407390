"""Anthropic's wire: the Messages API, by its public documentation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.api.protocol import Call, Chat, FinishReason, UnsupportedCall
from .failures import Failure, interrupted
from .messages import Picture, Turn, tool_choice, turns_of
from .request import Ending, Event, Piece, Refusal, Request, Tokens, ToolPiece, counted, text_of
from .settings import ApiSettings
from .structured import Form, form_of
from .unsupported import check_supported, finished, sampled

_PATH = "/v1/messages"
_SENT = frozenset(("temperature", "top_p", "top_k"))
_VERSION = "2026-10-21"
_SAMPLED_VERSION = "2023-06-01"  # the last one with parameters of sampling
_MODES = {"auto": "auto", "required": "any", "named": "tool"}
_LENGTHS = ("max_tokens", "model_context_window_exceeded")
_PREFILL = (
    'False, or an empty last message, or connect(..., prefill="send") for a model whose answer may'
    " be begun; a program may let gen() write the whole message, or run with speculate="
)


class AnthropicWire:
    """As `request.Wire`."""

    is_single = True

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings

    def request(self, call: Call, number: int) -> Request:
        """As `Wire.request`. Stops of blanks only, which the API refuses, are honoured here: such
        an answer is streamed and left where it stops."""
        check_supported(call, self._settings, _SENT)
        if call.sampling.temperature > 1:
            raise UnsupportedCall("temperature", call.sampling.temperature, "at most 1")
        turns, is_begun = turns_of(call.prompt), False
        if isinstance(call.prompt, Chat) and call.prompt.open_last:
            is_begun = self._open(turns)
        lead = 0
        while lead < len(turns) and turns[lead].role in ("system", "developer"):
            lead += 1
        body = {
            "model": self._settings.model,
            "max_tokens": call.sampling.max_tokens or self._settings.default_max_tokens,
            "messages": list(map(_message, turns[lead:])),
            **sampled(call, self._settings, _SENT),
        }
        if lead:
            body["system"] = "\n\n".join(turn.text for turn in turns[:lead])
        sent = [stop for stop in call.sampling.stop if stop.strip()]
        if sent:
            body["stop_sequences"] = sent
        form = self._constrain(call, body)
        kept = tuple(stop for stop in call.sampling.stop if not stop.strip())
        is_streamed = call.stream or bool(kept)
        if is_streamed:
            body["stream"] = True
        body = finished(body, self._settings)
        version = _SAMPLED_VERSION if _SENT & body.keys() else _VERSION
        headers = {"anthropic-version": version}
        return Request(_PATH, body, is_streamed, kept, is_begun, form, headers)

    def adapts(self, request: Request, failure: Failure) -> bool:
        """As `Wire.adapts`: there is one way only."""
        return False

    def events(self, value: Mapping[str, Any], request: Request) -> Sequence[Event]:
        """As `Wire.events`."""
        match value["type"]:
            case "error":
                raise interrupted(self._settings, value["error"])
            case "message":
                blocks = enumerate(value["content"])
                parts = [event for pair in blocks for event in _block(*pair)]
                return [*parts, _tokens(value["usage"]), *_ending(value)]
            case "message_start":
                return [_tokens(value["message"].get("usage") or {})]
            case "content_block_start":
                return _block(int(value["index"]), value["content_block"], is_start=True)
            case "content_block_delta":
                return _delta(int(value["index"]), value["delta"])
            case "message_delta":
                usage = value.get("usage") or {}
                return [_tokens(usage), *_ending(value["delta"])]
        return ()

    def _open(self, turns: list[Turn]) -> bool:
        """Prepare the open last message; whether blanks at its end are left out, as the API refuses
        them there."""
        last = turns.pop()
        if not last.parts and last.role == "assistant":
            return False
        if self._settings.prefill == "refuse" or last.role != "assistant":
            raise UnsupportedCall("prompt.open_last", True, _PREFILL)
        text = last.text.rstrip()
        if text:
            turns.append(Turn("assistant", (text,)))
        return text != last.text

    def _constrain(self, call: Call, body: dict[str, Any]) -> Form | None:
        """Add tools and the format of the answer."""
        tools = call.prompt.tools if isinstance(call.prompt, Chat) else ()
        if tools:
            body["tools"] = [_tool(tool["function"]) for tool in tools]
        choice = tool_choice(call)
        if choice is None:
            assert call.constraint is not None
            form = form_of(call.constraint, is_anthropic=True)
            body["output_config"] = {"format": {"type": "json_schema", "schema": form.schema}}
            return form
        if tools and (choice.mode != "auto" or not choice.is_parallel):
            given: dict[str, Any] = {"type": _MODES[choice.mode]}
            if choice.name is not None:
                given["name"] = choice.name
            if not choice.is_parallel:
                given["disable_parallel_tool_use"] = True
            body["tool_choice"] = given
        return None


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    found = {"name": function["name"], "input_schema": parameters}
    if function.get("description"):
        found["description"] = function["description"]
    return found


def _message(turn: Turn) -> dict[str, Any]:
    if turn.result_of is not None:
        content: Any = turn.text if turn.is_text else list(map(_part, turn.parts))
        result = {"type": "tool_result", "tool_use_id": turn.result_of, "content": content}
        return {"role": "user", "content": [result]}
    if turn.is_text and not turn.uses:
        return {"role": turn.role, "content": turn.text}
    uses = [
        {
            "type": "tool_use",
            "id": use.id,
            "name": use.name,
            "input": json.loads(use.arguments or "{}"),
        }
        for use in turn.uses
    ]
    parts = [_part(part) for part in turn.parts if part]
    return {"role": turn.role, "content": [*parts, *uses]}


def _part(part: str | Picture) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.kind, "data": part.data}
    return {"type": "image", "source": source}


def _block(number: int, block: Mapping[str, Any], is_start: bool = False) -> list[Event]:
    """A block of content: a whole one, or its start, whose input is still to come."""
    match block["type"]:
        case "text":
            text = text_of(block["text"])
            return [Piece(0, text)] if text else []
        case "tool_use":
            arguments = "" if is_start else json.dumps(block["input"], ensure_ascii=False)
            return [ToolPiece(0, number, str(block["name"]), arguments)]
    return []


def _delta(number: int, delta: Mapping[str, Any]) -> list[Event]:
    match delta["type"]:
        case "text_delta":
            return [Piece(0, text_of(delta["text"]))]
        case "input_json_delta":
            return [ToolPiece(0, number, "", str(delta["partial_json"]))]
    return []


def _ending(message: Mapping[str, Any]) -> list[Event]:
    reason = message.get("stop_reason")
    if reason is None:
        return []
    found: FinishReason = "length" if reason in _LENGTHS else "stop"
    matched = message.get("stop_sequence")
    ending = Ending(0, found, matched if isinstance(matched, str) else None)
    if reason == "refusal":
        details = message.get("stop_details") or {}
        text = str(details.get("explanation") or "the model refuses to answer")
        return [Refusal(0, text), ending]
    return [ending]


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    """Tokens that a message reports; those of the prompt are in three parts."""
    read, completion = counted(usage.get("cache_read_input_tokens")), usage.get("output_tokens")
    written = None if completion is None else counted(completion)
    if usage.get("input_tokens") is None:
        return Tokens(None, None, written)
    prompt = counted(usage["input_tokens"]) + counted(usage.get("cache_creation_input_tokens"))
    return Tokens(prompt + read, read, written)
