"""Keywords of a call: those that only our runtime has, as `regex=`, and those that nobody has.

DSPy refuses keywords that it does not know, but at the first call; we do so at once, with a
suggestion. `LM` moves ours into the request's `metadata`, where DSPy's cache sees them too, so that
a call with another pattern is another call. Which ones DSPy carries is found out from DSPy itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import signature
from typing import Any

import dspy
from dspy import lm15

from ...core.api.protocol import (
    SPACED,
    Choices,
    Constraint,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
)
from ..connection import suggestion

KEY = "forkroot"


def _option(kind: Any, allowed: str, default: Any = None) -> Any:
    """A field of `Options` whose values are of this kind."""
    return field(default=default, metadata={"kind": kind, "allowed": allowed})


@dataclass(frozen=True, slots=True)
class Options:
    """Keywords of one call.

    regex, choices, grammar, json_schema: the constraint of the answer, at most one of them; it
      takes the place of the one that follows from the signature. constrain: whether there is one
      that follows from the signature. The others are those of `Sampling` and `Call`.
    """

    regex: str | None = _option(str, "a regular expression as text")
    choices: tuple[str, ...] | None = _option(Sequence, "a list of texts")
    grammar: str | None = _option(str, "a Lark grammar as text")
    json_schema: Mapping[str, Any] | None = _option(Mapping, "a schema in JSON form")
    constrain: bool = _option(bool, "True or False", True)
    min_tokens: int = _option(int, "an integer", 0)
    top_k: int | None = _option(int, "an integer")
    min_p: float = _option(int | float, "a number", 0.0)
    repetition_penalty: float = _option(int | float, "a number", 1.0)
    namespace: str = _option(str, "a text", "")
    priority: int = _option(int, "an integer", 0)
    deadline: float | None = _option(int | float, "a number of seconds")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Checked options. Raises InvalidCall for a name or value that is not allowed."""
        known = {item.name: item.metadata for item in fields(cls)}
        values = dict(given)
        for name, value in given.items():
            if name not in known:
                raise InvalidCall(name, value, "one of " + ", ".join(known))
            kind, allowed = known[name]["kind"], known[name]["allowed"]
            is_kind = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            if not is_kind or (name == "choices" and isinstance(value, str)):
                raise InvalidCall(name, value, allowed)
        if "choices" in values:
            values["choices"] = tuple(values["choices"])
        options = cls(**values)
        options.constraint()
        return options

    def constraint(self) -> Constraint | None:
        """The one that the call names. Raises InvalidCall where it names several."""
        schema = self.json_schema
        ways: dict[str, Constraint | None] = {
            "regex": None if self.regex is None else Regex(self.regex),
            "choices": None if self.choices is None else Choices(self.choices),
            "grammar": None if self.grammar is None else Grammar(self.grammar),
            "json_schema": None if schema is None else JsonSchema(schema, SPACED),
        }
        chosen = {name: way for name, way in ways.items() if way is not None}
        if len(chosen) > 1:
            raise InvalidCall("constraint", sorted(chosen), "one of " + ", ".join(ways))
        return next(iter(chosen.values()), None)


NAMES = frozenset(item.name for item in fields(Options))
CONSTRAINTS = frozenset(("regex", "choices", "grammar", "json_schema"))
_OF_DSPY = frozenset(("n", "num_generations", "rollout_id", "prompt_cache", "request", "metadata"))
CARRIED = frozenset(
    {
        *("max_completion_tokens", "top_p", "stop", "seed", "frequency_penalty"),
        *("presence_penalty", "logit_bias", "logprobs", "top_logprobs", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "reasoning_effort"),
    }
)
_READ = (CARRIED | {"temperature", "max_tokens"}) - {"logit_bias"}  # which we read ourselves
_ALLOWED = {  # where DSPy's error says less
    "temperature": "a number >= 0",
    "max_tokens": "an integer > 0",
    "max_completion_tokens": "an integer > 0",
    "top_p": "a number from 0 to 1",
    "frequency_penalty": "a number from -2 to 2",
    "presence_penalty": "a number from -2 to 2",
    "seed": "an integer",
    "stop": "a text, or a list of texts",
    "logprobs": "True or False",
    "top_logprobs": "an integer, with logprobs=True",
}
_CONSTRUCTED = frozenset(signature(dspy.LM.__init__).parameters) - {"self", "kwargs"}
_KNOWN = NAMES | _OF_DSPY | CARRIED | _CONSTRUCTED


def moved(keywords: Mapping[str, Any], default: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The keywords of a call with ours inside of `metadata`. None means not given. default:
    the metadata of its LM, over which the call's goes. Raises InvalidCall."""
    ours = {name: value for name, value in keywords.items() if name in NAMES and value is not None}
    rest = {name: value for name, value in keywords.items() if name not in NAMES}
    given = rest.get("metadata")
    if not ours and given is None:
        return rest
    plain = {name: list(it) if isinstance(it, tuple) else it for name, it in ours.items()}
    options = {**_section(given), **plain}
    own = _section(default)
    if CONSTRAINTS & options.keys():
        own = {name: value for name, value in own.items() if name not in CONSTRAINTS}
    if own or options:
        Options.of({**own, **options})
        given = {**(given or {}), KEY: {**own, **options}}
    rest["metadata"] = {**(default or {}), **(given or {})}
    return rest


def found(extensions: Mapping[str, Any] | None) -> Options:
    """The options in a request's extensions, in `metadata` or beside it. Raises InvalidCall."""
    outer = extensions or {}
    inner = outer.get("metadata") or {}
    options = {**_section(outer), **_section(inner)}
    return Options.of(options)


def _section(values: Any) -> Mapping[str, Any]:
    section = values.get(KEY, {}) if isinstance(values, Mapping) else {}
    if not isinstance(section, Mapping):
        raise InvalidCall(KEY, section, "a mapping of options")
    return section


def check_keywords(keywords: Mapping[str, Any], others: Iterable[str] = ()) -> None:
    """Raise InvalidCall for a keyword that neither is one of `others` nor reaches a request. Values
    are not checked; None means not given."""
    known = _KNOWN.union(others)
    for name, value in keywords.items():
        if value is None or name in known:
            continue
        if isinstance(_refusal(name, value), lm15.UnsupportedFeatureError):
            allowed = f"keywords of dspy.LM and {', '.join(sorted(NAMES))}{suggestion(name, known)}"
            raise InvalidCall(name, value, allowed)


def check_values(keywords: Mapping[str, Any]) -> None:
    """Raise InvalidCall for the first value that DSPy would refuse with a bare error. None means
    not given."""
    for name, value in keywords.items():
        if value is None or name not in _READ:
            continue
        error = _refusal(name, value)
        if error is not None and not isinstance(error, lm15.UnsupportedFeatureError):
            reason = str(error)
            if not reason.startswith(f"{name} requires"):  # another keyword, which may be there
                allowed = _ALLOWED.get(name, f"a value that DSPy accepts ({reason})")
                raise InvalidCall(name, value, allowed) from error


def _refusal(name: str, value: Any) -> Exception | None:
    """DSPy's error for a request with this value: that it has no place for the name, or of the
    value, or of what it needs beside it."""
    request = {"model": "m", "messages": [{"role": "user", "content": ""}], name: value}
    try:
        lm15.request_from_openai_chat(request)
    except (lm15.UnsupportedFeatureError, TypeError, ValueError) as error:
        return error
    return None
