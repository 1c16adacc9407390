"""From the fields of a request to sampling and constraint, within the server's limits.

JSON by a schema has a blank after each comma and colon unless the request sets others: so is most
of the JSON written that models have read, and what they would write by themselves.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

from ....core.api.protocol import (
    SPACED,
    Choices,
    Constraint,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
    Sampling,
    UnsupportedCall,
)
from ....core.common.suggestions import did_you_mean
from ..server.errors import Fault, Refused
from ..server.runtime import Limits, Runtime
from ..wire.wire import Generation, SamplingFields

_SAMPLED = sorted(SamplingFields.model_fields.keys() - {"json_separators"})
FORMATS = "text | json_object | json_schema"
_STRUCTURED = "one of json, regex, choice, grammar, json_object"
_HOW_TO = frozenset(  # of vLLM: settings of its engine that do not change the answer
    (
        *("disable_fallback", "disable_any_whitespace", "disable_additional_properties"),
        *("whitespace_pattern", "backend", "_backend", "_backend_was_auto"),
    )
)


class RequestedConstraint(NamedTuple):
    """A constraint, and the field of the request that it comes from."""

    field: str
    constraint: Constraint

    @property
    def schemas(self) -> dict[str, Any]:
        """The schema in it, if there is one, by its place in the request."""
        if not isinstance(self.constraint, JsonSchema):
            return {}
        is_within = self.field == "response_format"
        return {self.field + ".json_schema.schema" * is_within: self.constraint.schema}


def check_model(runtime: Runtime, name: str | None) -> None:
    """Raise Refused for a model that is not served here; none is the one that is."""
    if name is not None and name not in runtime.names:
        allowed = f"{', '.join(runtime.names)}{did_you_mean(name[:200], runtime.names)}"
        message = f"the model {name!r:.200} is not served here; expected {allowed}"
        raise Refused(message, Fault(404, "invalid_request_error", "model_not_found", "model"))


def check_stream_options(request: Generation) -> None:
    """Raise InvalidCall for options of a stream where none is wanted, as OpenAI does."""
    if request.stream_options is not None and not request.stream:
        given = request.stream_options.model_dump(exclude_none=True)
        raise InvalidCall("stream_options", given, "null, unless stream is true")


def sampling_of(
    request: Generation,
    limits: Limits,
    max_tokens: int | None,
    logprobs: int | None,
    logprobs_field: str = "logprobs",
) -> Sampling:
    """How the answers are sampled. logprobs_field: the field that gives the number of logprobs.
    Raises InvalidCall for a value over a limit."""
    given = sampled(request)
    stop = given.get("stop", ())
    at_most(stop, "stop", limits.max_stops, "stop texts")
    if not all(stop):
        raise InvalidCall("stop", request.stop, "null, or non-empty texts")
    num = 1 if request.n is None else request.n
    if not 1 <= num <= limits.max_n:
        raise InvalidCall("n", num, f"1 to {limits.max_n}")
    if logprobs is not None and not 0 <= logprobs <= limits.max_top_logprobs:
        raise InvalidCall(logprobs_field, logprobs, f"0 to {limits.max_top_logprobs}, or null")
    given |= {
        "max_tokens": max_tokens,
        "min_tokens": request.min_tokens or 0,
        "top_k": request.top_k or -1,
        "logit_bias": _biases(request.logit_bias or {}),
        "seed": None if request.seed is None else request.seed % 2**63,
    }
    return Sampling(**given, n=num, logprobs=logprobs)


def sampled(body: SamplingFields) -> dict[str, Any]:
    """The fields of `Sampling` that a body sets, of those that all routes share."""
    given = {name: value for name in _SAMPLED if (value := getattr(body, name)) is not None}
    for name in ("stop", "stop_token_ids"):
        if name in given:
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
    return given


def constraint_of(request: Generation, limits: Limits) -> RequestedConstraint | None:
    """What the answers must match. Raises InvalidCall for more than one constraint; the same one
    under several names is one."""
    requested: list[RequestedConstraint] = []
    for it in _constraints(request):
        if all(it.constraint != other.constraint for other in requested):
            requested.append(it)
    if len(requested) > 1:
        names = " and ".join(it.field for it in requested)
        raise InvalidCall(requested[1].field, names, "one constraint in a request")
    for it in requested:
        check_size(it, limits)
    found = requested[0] if requested else None
    if request.json_separators is None:
        return found
    schema = separated(found and found.constraint, request.json_separators, "json_separators")
    return RequestedConstraint(requested[0].field, schema)


def separated(requested: Constraint | None, separators: Sequence[str], field: str) -> JsonSchema:
    """The requested schema, with these separators in its answers. field: which one sets them.
    Raises InvalidCall."""
    if not isinstance(requested, JsonSchema):
        raise InvalidCall(field, separators, "null without a JSON schema")
    schema = replace(requested, separators=tuple(separators))  # type: ignore[arg-type]
    try:
        schema.check()
    except InvalidCall as error:
        raise InvalidCall(field, separators, error.allowed) from None
    return schema


def check_size(requested: RequestedConstraint, limits: Limits) -> None:
    """Raise InvalidCall for a constraint that is larger than a limit."""
    size = size_of(requested.constraint)
    if size > limits.max_constraint:
        allowed = f"at most {limits.max_constraint} characters"
        raise InvalidCall(requested.field, f"{size} characters", allowed)


def at_most(values: tuple[Any, ...], field: str, most: int, kind: str) -> None:
    """Raise InvalidCall for a field with too many values."""
    if len(values) > most:
        raise InvalidCall(field, f"{len(values)} {kind}", f"at most {most}")


def _constraints(request: Generation) -> Iterator[RequestedConstraint]:
    if request.response_format is not None:
        found = _format(request.response_format)
        if found is not None:
            yield RequestedConstraint("response_format", found)
    yield from _read("", _OWN, partial(getattr, request))
    if request.structured_outputs is not None:
        _check_known(request.structured_outputs.model_extra or {})
        given = request.structured_outputs.model_dump(by_alias=True)
        if given["json_object"]:
            given["json"] = {"type": "object"}
        yield from _read("structured_outputs.", _VLLM, given.get)
    yield from _read("guided_", _VLLM, lambda name: getattr(request, _GUIDED[name]))


def _read(
    prefix: str, readers: Mapping[str, Callable[[Any, str], Constraint]], get: Callable[[str], Any]
) -> Iterator[RequestedConstraint]:
    """The constraints in the fields of these readers. get: the value of a field."""
    for name, reader in readers.items():
        if (value := get(name)) is not None:
            yield RequestedConstraint(prefix + name, reader(value, prefix + name))


def _check_known(extra: Mapping[str, Any]) -> None:
    """Raise UnsupportedCall for fields that may be constraints but are unknown here."""
    for name, value in extra.items():
        if value is not None and name not in _HOW_TO:
            raise UnsupportedCall(f"structured_outputs.{name:.100}", value, _STRUCTURED)


def _choices(options: list[str], field: str) -> Choices:
    if not options or not all(options):
        raise InvalidCall(field, options, "a list of one or more non-empty texts, or null")
    return Choices(tuple(options))


def _grammar(source: str, syntax: Literal["ebnf", "gbnf"]) -> Grammar:
    """A grammar in this notation, unless it begins as one of llguidance's."""
    return Grammar(source) if source.lstrip().startswith("%llguidance") else Grammar(source, syntax)


def _json_schema(given: object, field: str) -> JsonSchema:
    return JsonSchema(_schema(given, field), SPACED)


_OWN: Mapping[str, Callable[[Any, str], Constraint]] = {
    "regex": lambda pattern, _: Regex(pattern),
    "json_schema": _json_schema,
    "choices": _choices,
    "grammar": lambda source, _: Grammar(source),
    "ebnf": lambda source, _: _grammar(source, "ebnf"),
}
_VLLM: Mapping[str, Callable[[Any, str], Constraint]] = {
    "json": _json_schema,
    "regex": _OWN["regex"],
    "choice": _choices,
    "grammar": lambda source, _: _grammar(source, "gbnf"),
}
_GUIDED: Mapping[str, str] = {name: f"guided_{name}" for name in _VLLM}


def _format(given: Mapping[str, Any]) -> Constraint | None:
    match given:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return JsonSchema({"type": "object"}, SPACED)
        case {"type": "json_schema", "json_schema": {"schema": schema, **options}}:
            is_strict = options.get("strict") is True
            field = "response_format.json_schema.schema"
            return JsonSchema(_schema(schema, field), SPACED, is_strict)
        case {"type": "json_schema"}:
            allowed = "an object with a schema"
            raise InvalidCall("response_format.json_schema", given.get("json_schema"), allowed)
    kind = given.get("type")
    hint = did_you_mean(kind[:200], FORMATS.split(" | ")) if isinstance(kind, str) else ""
    raise UnsupportedCall("response_format.type", kind, f"{FORMATS}{hint}")


def _schema(given: object, field: str) -> Mapping[str, Any] | bool:
    """A schema, also where it is given as JSON text."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            allowed = f"a JSON schema, or its JSON text; this text is not JSON ({error})"
            raise InvalidCall(field, given, allowed) from error
    if not isinstance(given, Mapping | bool):
        raise InvalidCall(field, given, "a JSON schema: an object, true or false")
    return given


def size_of(constraint: Constraint | None) -> int:
    """Characters of a constraint; 0 of none."""
    match constraint:
        case Regex(pattern=text) | Grammar(source=text):
            return len(text)
        case JsonSchema(schema=schema):
            return len(json.dumps(schema, ensure_ascii=False, default=repr))
        case Choices(options=options):
            return sum(map(len, options))
    return 0


def _biases(given: Mapping[str, float]) -> dict[int, float]:
    biases = {}
    for token, bias in given.items():
        if not token.isdecimal() or not token.isascii() or len(token) > 10:
            raise InvalidCall("logit_bias", token, "token ids as keys")
        biases[int(token)] = bias
    return biases
