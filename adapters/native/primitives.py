"""The words that programs write: each checks its arguments and makes a node of the language."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ...core.protocol import (
    Backend,
    Constraint,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Regex,
    Video,
)
from .choices import find_method
from .expressions import (
    Expression,
    Gen,
    Media,
    RoleBegin,
    RoleEnd,
    Row,
    Select,
    as_expression,
    flatten,
)
from .sampling import SAMPLING_FIELDS, sampling_fields

_DTYPES = {
    "int": r"[+-]?[0-9]+",
    "float": r"[+-]?[0-9]+(\.[0-9]+)?",
    "bool": r"(True|False)",
    "str": r'"[^"\\\n]*"',
}


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[int, float] | None = None,
    seed: int | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool = False,
    top_logprobs_num: int = 0,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: str = "token_length_normalized",
    regex: str | None = None,
    json_schema: Mapping[str, Any] | str | bool | None = None,
    grammar: str | Grammar | None = None,
    backend: Backend | str | None = None,
    stream: bool = False,
) -> Expression:
    """Let the model write; keep the answer as variable `name`, a list of texts if n > 1.

    What is None is set by the run. At most one of dtype (int, float, bool, str), choices, regex,
    json_schema and grammar; choices makes this a `select`. return_logprob: log-probabilities in
    the meta information, with top_logprobs_num rivals for each token.
    """
    given = dict(locals())
    given["logprobs"] = top_logprobs_num if return_logprob or top_logprobs_num else None
    sampling = sampling_fields(
        {key: value for key, value in given.items() if key in SAMPLING_FIELDS and value is not None}
    )
    constraint = _constraint(regex=regex, json_schema=json_schema, grammar=grammar, dtype=dtype)
    if choices is None:
        return Gen(_checked_name(name), sampling, constraint, backend, stream)
    if sampling or constraint is not None:
        extra = sorted(sampling) or constraint
        raise InvalidCall("gen", extra, "choices beside name, choices_method and backend only")
    return select(name, choices, choices_method=choices_method, backend=backend)


def gen_int(name: str | None = None, max_tokens: int | None = None, **settings: Any) -> Expression:
    """As `gen`, for the text of a whole number."""
    return gen(name, max_tokens, dtype=int, **settings)


def gen_string(
    name: str | None = None, max_tokens: int | None = None, **settings: Any
) -> Expression:
    """As `gen`, for a text in double quotes (which are part of the answer) on one line."""
    return gen(name, max_tokens, dtype=str, **settings)


def select(
    name: str | None = None,
    choices: Sequence[str] = (),
    *,
    choices_method: str = "token_length_normalized",
    backend: Backend | str | None = None,
) -> Expression:
    """Let the model choose one of several texts; keep the chosen text as variable `name`.

    choices_method: see `choices.py`. The scores of all options are in the meta information.
    """
    options = choices if isinstance(choices, str) else tuple(choices)
    if isinstance(options, str) or not options or not all(_is_text(text) for text in options):
        raise InvalidCall("choices", choices, "a list of one or more non-empty texts")
    return Select(_checked_name(name), options, find_method(choices_method).name, backend)


def image(source: bytes | str | PathLike[str]) -> Expression:
    """An encoded image: its bytes, or the path of a local file, read here and now."""
    return Media(Image(_read(source)))


def video(source: bytes | str | PathLike[str], num_frames: int) -> Expression:
    """An encoded video, of which the model is shown `num_frames` evenly spaced frames."""
    if type(num_frames) is not int or num_frames < 1:
        raise InvalidCall("num_frames", num_frames, "an integer >= 1")
    return Media(Video(_read(source), num_frames))


def system(content: Expression | str) -> Expression:
    """A system message."""
    return role("system", content)


def user(content: Expression | str) -> Expression:
    """A user message."""
    return role("user", content)


def assistant(content: Expression | str) -> Expression:
    """An assistant message; a `gen` in it writes the rest of that message."""
    return role("assistant", content)


def role(name: str, content: Expression | str) -> Expression:
    """A chat message of any role that the model's chat template knows."""
    return Row((RoleBegin(name), *flatten(as_expression(content)), RoleEnd()))


def _constraint(
    regex: str | None,
    json_schema: Mapping[str, Any] | str | bool | None,
    grammar: str | Grammar | None,
    dtype: type | str | None,
) -> Constraint | None:
    found: list[Constraint] = []
    if regex is not None:
        found.append(Regex(regex))
    if json_schema is not None:
        found.append(JsonSchema(_schema(json_schema)))
    if grammar is not None:
        found.append(grammar if isinstance(grammar, Grammar) else Grammar(grammar))
    if dtype is not None:
        found.append(Regex(_dtype_pattern(dtype)))
    if len(found) > 1:
        raise InvalidCall("gen", found, "one of dtype, regex, json_schema, grammar")
    return found[0] if found else None


def _schema(schema: Mapping[str, Any] | str | bool) -> Mapping[str, Any] | bool:
    if not isinstance(schema, str):
        return schema
    try:
        parsed: Mapping[str, Any] | bool = json.loads(schema)
    except ValueError as error:
        raise InvalidCall("json_schema", schema, "a schema, or its JSON text") from error
    return parsed


def _dtype_pattern(dtype: type | str) -> str:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
    if name not in _DTYPES:
        raise InvalidCall("dtype", dtype, " | ".join(_DTYPES))
    return _DTYPES[name]


def _checked_name(name: str | None) -> str | None:
    if name is not None and not _is_text(name):
        raise InvalidCall("name", name, "a non-empty text, or None")
    return name


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _read(source: bytes | str | PathLike[str]) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        raise InvalidCall("source", source, "bytes, or the path of a readable file") from error
