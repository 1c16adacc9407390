"""OpenAI's wire, as it and every compatible server speaks it: chats and completions."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.api.protocol import Call, Chat, Shown, UnsupportedCall
from .failures import Failure, interrupted
from .messages import Picture, Turn, plain_text, tool_choice, turns_of
from .request import Ending, Event, Piece, Refusal, Request, Tokens, ToolPiece, counted, text_of
from .settings import ApiSettings
from .structured import Form, form_of
from .unsupported import check_supported, finished, sampled

_log = logging.getLogger("forkroot.api")
_CHAT, _COMPLETIONS = "/chat/completions", "/completions"
_NO_ROUTE = (404, 405, 501)
_SENT = frozenset(("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed"))
_ENDINGS = {"length": "length", "max_tokens": "length", "content_filter": "filter"}
_UNKNOWN = (
    *("stream_options", "usage_stats", "extra", "unknown", "unrecognized", "unexpected"),
    *("permitted", "allowed", "supported"),
)
_PREFILL = (
    "False, or an empty last message: OpenAI's API begins a new answer behind the last message. For"
    " a program: let gen() write the whole message, run it with speculate=, or, for a server that"
    ' continues messages, connect(..., prefill="send")'
)


class OpenAIWire:
    """As `request.Wire`. It learns which fields and routes the server has.

    Compatible servers are asked for the tokens so far with each piece of a stream
    (`continuous_usage_stats`), so that those of an answer that is left early are known.
    """

    is_single = False

    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._has_completions = settings.prompts != "chat"
        self._limit = "max_completion_tokens" if settings.is_own_host else "max_tokens"
        options = {"include_usage": True}
        if not settings.is_own_host:
            options["continuous_usage_stats"] = True
        self._stream_options: dict[str, Any] = {"stream_options": options}

    def request(self, call: Call, number: int) -> Request:
        """As `Wire.request`."""
        check_supported(call, self._settings, _SENT)
        body = {"model": self._settings.model, **sampled(call, self._settings, _SENT)}
        if call.sampling.stop:
            body["stop"] = list(call.sampling.stop)
        if call.sampling.n > 1:
            body["n"] = call.sampling.n
        if call.stream:
            body |= {"stream": True, **self._stream_options}
        if self._is_completion(call):
            return self._completion(call, body)
        return self._chat(call, body)

    def adapts(self, request: Request, failure: Failure) -> bool:
        """As `Wire.adapts`: a server without completions gets plain text as a chat, one that
        demands it another name for the limit of tokens, and one that refuses a stream is no longer
        asked to report tokens while it comes."""
        is_optional = request.path == _COMPLETIONS and self._settings.prompts == "auto"
        if is_optional and (failure.status in _NO_ROUTE or "chat model" in failure.message):
            if self._has_completions:
                text = "%s has no completions: plain prompts go as messages of the user"
                _log.info(text, self._settings.base_url)
            self._has_completions = False
            return True
        is_limit = "max_tokens" in request.body and "max_completion_tokens" in failure.message
        if failure.status == 400 and is_limit:
            self._limit = "max_completion_tokens"
            return True
        options = request.body.get("stream_options") or {}
        if options and failure.status in (400, 422) and _names_field(failure):
            is_more = len(options) > 1
            self._stream_options = {"stream_options": {"include_usage": True}} if is_more else {}
            return True
        return False

    def events(self, value: Mapping[str, Any], request: Request) -> Sequence[Event]:
        """As `Wire.events`."""
        if value.get("error"):
            raise interrupted(self._settings, value["error"])
        found: list[Event] = []
        if value.get("usage"):
            found.append(_tokens(value["usage"]))
        for choice in value["choices"]:
            found += _events_of(choice)
        return found

    def _is_completion(self, call: Call) -> bool:
        if isinstance(call.prompt, Chat) or not self._has_completions:
            return False
        is_possible = call.constraint is None and plain_text(call.prompt) is not None
        if self._settings.prompts == "completions" and not is_possible:
            allowed = "plain text without a constraint, or a chat: the route of completions has no"
            raise UnsupportedCall("prompt", Shown("..."), f"{allowed} images and no formats")
        return is_possible

    def _completion(self, call: Call, body: dict[str, Any]) -> Request:
        assert not isinstance(call.prompt, Chat)
        body["prompt"] = plain_text(call.prompt)
        if call.sampling.max_tokens is not None:
            body["max_tokens"] = call.sampling.max_tokens
        return Request(_COMPLETIONS, finished(body, self._settings), call.stream)

    def _chat(self, call: Call, body: dict[str, Any]) -> Request:
        turns = turns_of(call.prompt)
        if isinstance(call.prompt, Chat) and call.prompt.open_last:
            if not (turns[-1].parts or turns[-1].uses) and turns[-1].role == "assistant":
                turns.pop()
            else:
                body |= self._prefill()
        body["messages"] = list(map(_message, turns))
        if call.sampling.max_tokens is not None:
            body[self._limit] = call.sampling.max_tokens
        form = self._constrain(call, body)
        return Request(_CHAT, finished(body, self._settings), call.stream, form=form)

    def _prefill(self) -> dict[str, Any]:
        settings = self._settings
        if settings.prefill == "refuse" or (settings.prefill == "auto" and settings.is_own_host):
            raise UnsupportedCall("prompt.open_last", True, _PREFILL)
        return {"continue_final_message": True, "add_generation_prompt": False}

    def _constrain(self, call: Call, body: dict[str, Any]) -> Form | None:
        """Add tools and the format of the answer."""
        tools = call.prompt.tools if isinstance(call.prompt, Chat) else ()
        choice = tool_choice(call)
        if tools:
            body["tools"] = [dict(tool) for tool in tools]
        if choice is not None:
            if tools and choice.mode == "named":
                function = {"name": choice.name}
                body["tool_choice"] = {"type": "function", "function": function}
            elif tools and choice.mode != "auto":
                body["tool_choice"] = choice.mode
            if tools and not choice.is_parallel:
                body["parallel_tool_calls"] = False
            return None
        assert call.constraint is not None
        form = form_of(call.constraint, is_anthropic=False)
        given = {"name": "answer", "schema": form.schema, "strict": form.is_strict}
        body["response_format"] = {"type": "json_schema", "json_schema": given}
        return form


def _names_field(failure: Failure) -> bool:
    """Whether a refusal may be that of a field which the server does not know."""
    text = f"{failure.param} {failure.message}".lower()
    return any(word in text for word in _UNKNOWN)


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": turn.role, "content": _content(turn)}
    if turn.uses:
        message["content"] = turn.text or None
        message["tool_calls"] = [
            {
                "id": use.id,
                "type": "function",
                "function": {"name": use.name, "arguments": use.arguments},
            }
            for use in turn.uses
        ]
    if turn.result_of is not None:
        message["tool_call_id"] = turn.result_of
    return message


def _content(turn: Turn) -> str | list[dict[str, Any]]:
    if turn.is_text:
        return turn.text
    return [_part(part) for part in turn.parts]


def _part(part: str | Picture) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "image_url", "image_url": {"url": f"data:{part.kind};base64,{part.data}"}}


def _tokens(usage: Mapping[str, Any]) -> Tokens:
    details = usage.get("prompt_tokens_details") or {}
    return Tokens(
        counted(usage.get("prompt_tokens")),
        counted(details.get("cached_tokens")),
        counted(usage.get("completion_tokens")),
    )


def _events_of(choice: Mapping[str, Any]) -> list[Event]:
    """The events of one choice: of a whole answer, or of a piece of a stream."""
    index, found = int(choice.get("index") or 0), list[Event]()
    message = choice.get("message") or choice.get("delta") or {}
    for value in (choice.get("text"), message.get("content")):
        if text := text_of(value):
            found.append(Piece(index, text))
    if message.get("refusal"):
        found.append(Refusal(index, str(message["refusal"])))
    for position, item in enumerate(message.get("tool_calls") or ()):
        function, number = item.get("function") or {}, int(item.get("index", position))
        name, arguments = str(function.get("name") or ""), str(function.get("arguments") or "")
        found.append(ToolPiece(index, number, name, arguments))
    reason = choice.get("finish_reason")
    if reason is not None:
        ending = _ENDINGS.get(reason, "stop")
        if ending == "filter":
            found.append(Refusal(index, "its answer was cut by a content filter"))
        matched = choice.get("matched_stop", choice.get("stop_reason"))
        matched = matched if isinstance(matched, str) else None
        found.append(Ending(index, "length" if ending == "length" else "stop", matched))
    return found
