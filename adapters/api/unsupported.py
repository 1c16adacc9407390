"""What no API model can do: refused before anything is sent, with the way out."""

from __future__ import annotations

from typing import Any

from ...core.api.protocol import Call, UnsupportedCall
from .settings import ApiSettings

_ELSEWHERE = "; or run a model with forkroot, where it works"
_OF_CALLS = {
    "options": (
        (),
        "none: an API scores no options. Choices(options) as the constraint picks one, unscored",
    ),
    "scored_from": (None, "None: an API scores no prompts" + _ELSEWHERE),
}
_OF_SAMPLING: dict[str, tuple[Any, str]] = {
    "stop_token_ids": ((), "(): token ids are not known here; use stop= with texts"),
    "logit_bias": ({}, "{}: token ids are not known here" + _ELSEWHERE),
    "logprobs": (None, "None: an API names no token ids" + _ELSEWHERE),
    "log_mass": (False, "False: an API reports no log-masses" + _ELSEWHERE),
    "ignore_eos": (False, "False: an API ends its answers itself" + _ELSEWHERE),
    "min_tokens": (0, "0: an API ends its answers itself" + _ELSEWHERE),
}
_BY_BODY = "{default!r}, as {api} has no such field; where a server has one: extra_body="


def check_supported(call: Call, settings: ApiSettings, sent: frozenset[str]) -> None:
    """Raise UnsupportedCall for the first field that the API cannot honour.

    sent: names of the other fields of `Sampling` that its requests have. Hints, namespaces,
    priorities, tenants and weights are advice, and are not sent.
    """
    for name, (default, allowed) in _OF_CALLS.items():
        if getattr(call, name) != default:
            raise UnsupportedCall(name, getattr(call, name), allowed)
    for name, (default, allowed) in _OF_SAMPLING.items():
        value = getattr(call.sampling, name)
        if (dict(value) if name == "logit_bias" else value) != default:
            raise UnsupportedCall(name, value, allowed)
    api = settings.provider.name
    for name, default in DEFAULTS.items():
        value = getattr(call.sampling, name)
        if name not in sent and value != default:
            raise UnsupportedCall(name, value, _BY_BODY.format(default=default, api=api))


DEFAULTS: dict[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "seed": None,
}


def sampled(call: Call, settings: ApiSettings, sent: frozenset[str]) -> dict[str, Any]:
    """The fields of a request that are those of `Sampling`, where they are not the default."""
    found = {name: getattr(call.sampling, name) for name in DEFAULTS if name in sent}
    return {name: value for name, value in found.items() if value != DEFAULTS[name]}


def finished(body: dict[str, Any], settings: ApiSettings) -> dict[str, Any]:
    """A body with `extra_body`, and without the fields of `omit`."""
    return {
        name: value
        for name, value in {**body, **settings.extra_body}.items()
        if name not in settings.omit
    }
