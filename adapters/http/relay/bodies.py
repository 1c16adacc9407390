"""Which requests can be relayed: those whose body says in plain fields what a router must know.

All else (tools, pictures, constraints, several prompts, unknown fields, what is not valid) is read
by the routes, whose errors and refusals it gets. What fields hold is checked where the request
goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ....core.api.protocol import Call, Chat, InvalidCall, Message, Prompt, Sampling, Text
from ..server.runtime import Limits
from ..wire.hints import hint_of
from ..wire.wire import ROLES

_PLAIN = frozenset(
    (
        *("model", "stream", "stream_options", "max_tokens", "n", "seed", "user", "stop"),
        *("temperature", "top_p", "top_k", "min_p", "min_tokens", "ignore_eos", "logprobs"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "stop_token_ids"),
        *("cache_salt", "priority", "forkroot"),
    )
)
_OF_CHATS = _PLAIN | {"messages", "max_completion_tokens", "top_logprobs"}
_OF_COMPLETIONS = _PLAIN | {"prompt"}
_OF_MESSAGES = frozenset(("role", "content", "name"))


class Relayed(NamedTuple):
    """A body that can be relayed. call: what it is placed by. num_held: tokens that it may
    generate, as far as it says."""

    call: Call
    is_stream: bool
    num_held: int


def relayed_of(path: str, given: Any, names: tuple[str, ...], limits: Limits) -> Relayed | None:
    """What a router must know of a body of JSON; None where it cannot be relayed. names: of the
    model; the first is the one that the replicas know."""
    if not isinstance(given, dict) or not given.keys() <= _FIELDS[path]:
        return None
    stream = given.get("stream")
    if given.get("model") not in (None, names[0]) or stream not in (None, True, False):
        return None
    num, most = given.get("n"), given.get("max_completion_tokens")
    most = given.get("max_tokens") if most is None else most
    if not (_is_within(num, limits.max_n) and _is_within(most, None)):
        return None
    if not all(_is_small(given.get(name), limits.max_stops) for name in _LISTS):
        return None
    if not all(_is_within(given.get(name), limits.max_top_logprobs) for name in _NUMS_TOP):
        return None
    salt, prompt = given.get("cache_salt"), _PROMPTS[path](given)
    if prompt is None or not isinstance(salt, str | None):
        return None
    try:
        hint = hint_of(given.get("forkroot"))
    except InvalidCall:
        return None
    sampling = Sampling(max_tokens=most, n=num or 1)
    call = Call(prompt, sampling, hint=hint, stream=bool(stream), namespace=salt or "")
    return Relayed(call, bool(stream), (most or 0) * (num or 1))


_LISTS = ("stop", "stop_token_ids")
_NUMS_TOP = ("logprobs", "top_logprobs")


def _is_within(value: Any, most: int | None) -> bool:
    if value is None or isinstance(value, bool):
        return True
    return isinstance(value, int) and value >= 0 and (most is None or value <= most)


def _is_small(value: Any, most: int) -> bool:
    return not isinstance(value, list) or len(value) <= most


def _chat(given: Mapping[str, Any]) -> Prompt | None:
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    turns = []
    for it in messages:
        if not isinstance(it, dict) or not it.keys() <= _OF_MESSAGES:
            return None
        role, content = it.get("role"), it.get("content")
        if not isinstance(role, str) or role not in ROLES or not isinstance(content, str):
            return None
        turns.append(Message(ROLES[role], (Text(content),)))
    return Chat(tuple(turns))


def _completion(given: Mapping[str, Any]) -> Prompt | None:
    prompt = given.get("prompt")
    return (Text(prompt),) if isinstance(prompt, str) else None


_PROMPTS: Mapping[str, Callable[[Mapping[str, Any]], Prompt | None]] = {
    "/v1/chat/completions": _chat,
    "/v1/completions": _completion,
}
_FIELDS = {"/v1/chat/completions": _OF_CHATS, "/v1/completions": _OF_COMPLETIONS}
PATHS = frozenset(_PROMPTS)
