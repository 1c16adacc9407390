"""The expressions of SGLang's frontend, made of the nodes of the native language.

Each takes SGLang's arguments in SGLang's order; `gen` and similar functions take those of the
native `gen` (`grammar`, `seed`, ...) by keyword as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...core.api.protocol import InvalidCall, UnsupportedCall
from ..native import primitives
from ..native.language.expressions import (
    Expression,
    Gen,
    RoleBegin,
    RoleEnd,
    Row,
    Select,
    Split,
    as_expression,
    flatten,
)
from .choices import native_method
from .reasoning import separated

Stop = str | Sequence[str] | None

# A number ends where the model writes a blank or a line break behind it, which no model fails to
# do; that it ends its answer there is much less likely.
_NUMBERS = {"int": r"[-+]?[0-9]+[ \n]*", "float": r"[-+]?[0-9]*\.?[0-9]+[ \n]*"}
_AFTER_NUMBERS = (" ", "\n")
_BEHIND_STOP = (  # the arguments of SGLang's gen_int and gen_string behind the fourth
    *("stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p"),
    *("frequency_penalty", "presence_penalty", "ignore_eos", "return_logprob"),
    *("logprob_start_len", "top_logprobs_num", "return_text_in_logprobs"),
)


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: Stop = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: Stop = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: Any = None,
    regex: str | None = None,
    json_schema: Any = None,
    **native: Any,
) -> Expression:
    """Let the model write, and keep the answer as variable `name`; what is None is set by the run.

    With `choices` as `select`. max_tokens=0 with return_logprob: nothing is written, and the meta
    information has the log-probabilities of the token that would come next. Raises InvalidCall for
    what could never run, UnsupportedCall for `stop_regex`.
    """
    given = {key: value for key, value in locals().items() if key != "native" and value is not None}
    if choices is not None:
        return _select_instead(given, native)
    check_no_stop_regex(stop_regex)
    for key in ("stop_regex", "return_text_in_logprobs", "logprob_start_len", "choices_method"):
        given.pop(key, None)
    given |= _number(dtype, stop, given)
    is_peek = max_tokens == 0 and bool(return_logprob)
    if is_peek:
        given["max_tokens"] = 1
    if not given.get("top_logprobs_num", 1):
        del given["top_logprobs_num"]
    node = primitives.gen(**given, **native)
    if not isinstance(node, Gen):
        return node
    node = replace(node, scored_from=scored_from(logprob_start_len, node.scored_from))
    if return_logprob is False:
        node = replace(node, sampling={**node.sampling, "logprobs": None})
    return replace(node, split=Split(lambda text: ("",))) if is_peek else node


def gen_int(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: Stop = None,
    *others: Any,
    **settings: Any,
) -> Expression:
    """As `gen` with dtype=int: the text of a whole number. By place it has no `min_tokens`."""
    given = {"name": name, "max_tokens": max_tokens, "n": n, "stop": stop, **settings}
    return gen(**_with_positional(others, given), dtype=int)


def gen_string(
    name: str | None = None,
    max_tokens: int | None = None,
    n: int | None = None,
    stop: Stop = None,
    *others: Any,
    **settings: Any,
) -> Expression:
    """As `gen` with dtype=str: a text in double quotes, which are part of the answer. By place it
    has no `min_tokens`."""
    given = {"name": name, "max_tokens": max_tokens, "n": n, "stop": stop, **settings}
    return gen(**_with_positional(others, given), dtype=str)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    temperature: float = 0.0,
    choices_method: Any = None,
    **native: Any,
) -> Expression:
    """Let the model choose one of several texts; keep it as variable `name`.

    temperature: 0, as in SGLang: the likeliest is chosen. choices_method: one of the three objects
    of this module, another that is called as these are, or a name of the native `select`.
    """
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 1e-5:
        raise InvalidCall("temperature", temperature, "0: choices are not sampled")
    method = native_method(choices_method)
    node = primitives.select(name, () if choices is None else choices, **native)
    return replace(node, method=method) if isinstance(node, Select) else node


def image(expr: Any) -> Expression:
    """An image: its bytes, the path of a local file, a data: URL, an image of Pillow, or an array.
    Raises InvalidCall for what is none of these, UnsupportedCall for other URLs."""
    return primitives.image(expr)


def video(path: Any, num_frames: int) -> Expression:
    """A video, of which the model is shown `num_frames` frames. Raises as `image`."""
    return primitives.video(path, num_frames)


def system(expr: Expression | str | None = None) -> Expression:
    """A system message; an empty one without `expr`."""
    return role("system", expr)


def user(expr: Expression | str | None = None) -> Expression:
    """A user message; an empty one without `expr`."""
    return role("user", expr)


def assistant(expr: Expression | str | None = None) -> Expression:
    """An assistant message; an empty one without `expr`."""
    return role("assistant", expr)


def role(name: str, expr: Expression | str | None = None) -> Expression:
    """A message of any role that the model's chat template knows."""
    content = () if expr is None else tuple(flatten(as_expression(expr)))
    return Row((RoleBegin(name), *content, RoleEnd()))


def system_begin() -> Expression:
    """From here on the text is a system message."""
    return RoleBegin("system")


def system_end() -> Expression:
    """The system message ends."""
    return RoleEnd()


def user_begin() -> Expression:
    """From here on the text is a user message."""
    return RoleBegin("user")


def user_end() -> Expression:
    """The user message ends."""
    return RoleEnd()


def assistant_begin() -> Expression:
    """From here on the text is an assistant message."""
    return RoleBegin("assistant")


def assistant_end() -> Expression:
    """The assistant message ends."""
    return RoleEnd()


def separate_reasoning(expr: Expression | None = None, model_type: str | None = None) -> Expression:
    """The expression, whose answers lose their reasoning; that of answer `name` is kept as variable
    `name_reasoning_content`. The prompt goes on without it. Raises InvalidCall for a `model_type`
    that is not known."""
    return separated(as_expression(expr), model_type)


def check_no_stop_regex(stop_regex: Any) -> None:
    """Raise UnsupportedCall for a stop by pattern; an empty one is none."""
    if stop_regex:
        allowed = "None: an answer ends at texts (stop=[...]) or has a pattern as a whole (regex=)"
        raise UnsupportedCall("stop_regex", stop_regex, allowed)


def scored_from(logprob_start_len: int | None, default: int | None = None) -> int | None:
    """The first position of the prompt whose token is scored; None: none is. SGLang counts from
    the token before it, and -1 is none."""
    if logprob_start_len is None:
        return default
    if type(logprob_start_len) is not int or logprob_start_len < -1:
        allowed = "a position of the prompt, 0 or more, or -1 for none"
        raise InvalidCall("logprob_start_len", logprob_start_len, allowed)
    return None if logprob_start_len == -1 else logprob_start_len + 1


def _select_instead(given: dict[str, Any], native: dict[str, Any]) -> Expression:
    allowed = {"name", "choices", "temperature", "choices_method"}
    for key in (*given, *native):
        if key not in allowed and key != "backend":
            expected = f"none beside choices, which take only {', '.join(sorted(allowed))}"
            raise InvalidCall(key, given.get(key, native.get(key)), expected)
    return select(**given, **native)


def _with_positional(values: Sequence[Any], given: dict[str, Any]) -> dict[str, Any]:
    """`given`, and the positional values. Raises TypeError as Python does."""
    if len(values) > len(_BEHIND_STOP):
        raise TypeError(f"at most {len(_BEHIND_STOP) + 4} positional arguments")
    positional = dict(zip(_BEHIND_STOP, values, strict=False))
    twice = next((name for name in positional if name in given), None)
    if twice is not None:
        raise TypeError(f"got multiple values for argument {twice!r}")
    return {**given, **positional}


def _number(dtype: type | str | None, stop: Stop, given: dict[str, Any]) -> dict[str, Any]:
    """The pattern and the stops of a number, in place of `dtype`."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", "")
    if name not in _NUMBERS or "regex" in given or "json_schema" in given:
        return {}
    del given["dtype"]
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    return {"regex": _NUMBERS[name], "stop": [*stops, *_AFTER_NUMBERS]}
