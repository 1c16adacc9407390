"""The words that programs write: each checks its arguments and makes a node of the language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

from ...core.api.keywords import ENGINE, KeywordOwner, checks_keywords
from ...core.api.protocol import Backend, Choices, Grammar, Image, InvalidCall, Video
from ...core.media.sources import Source, image_data, video_data
from .language.choices import find_method
from .language.constraints import Schema, constraint_of
from .language.expressions import (
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
from .language.settings import SAMPLING_FIELDS, checked_backend, checked_start, sampling_fields
from .language.unknown import Unknown, UnknownMedia, check_known

_OF_RUNS = KeywordOwner(
    ("backends", "deadline", "hints", "namespace", "priority"),
    "{name} is of a whole run: program.run(..., {name}=...)",
)
_LIMITS = ("dtype", "regex", "json_schema", "grammar", "choices")


@checks_keywords(_OF_RUNS, ENGINE)
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
    log_mass: bool | None = None,
    scored_from: int | None = None,
    resample: bool = False,
    dtype: type | str | None = None,
    choices: Sequence[str] | None = None,
    choices_method: str = "token_length_normalized",
    regex: str | None = None,
    json_schema: Schema | None = None,
    grammar: str | Grammar | None = None,
    backend: Backend | str | None = None,
    stream: bool = False,
) -> Expression:
    """Let the model write; keep the answer as variable `name`, a list of texts if n > 1.

    What is None is set by the run. At most one of dtype (int, float, bool, str, or a class as for
    json_schema), choices, regex, json_schema (a mapping, its JSON text, a Pydantic model, a
    dataclass, a TypedDict) and grammar; choices makes this a `select`.
    return_logprob: log-probabilities in the meta information, with the top_logprobs_num most likely
    tokens of each. scored_from: there too, those of the prompt's tokens from this position on, as
    `prompt_logprobs`. log_mass: there too, as in `Output`. resample: resample the n answers by
    their log-masses (`resampling.py`). Raises InvalidCall for what could never run.
    """
    given = {key: value for key, value in locals().items() if value is not _DEFAULTS[key]}
    _check_combination(given)
    for switch in ("return_logprob", "stream"):
        if not isinstance(given.get(switch), bool | None):
            raise InvalidCall(switch, given[switch], "True or False")
    backend = checked_backend(backend)
    if choices is not None:
        return select(name, choices, choices_method=choices_method, backend=backend)
    fields = {key: value for key, value in given.items() if key in SAMPLING_FIELDS}
    if return_logprob or top_logprobs_num:
        fields["logprobs"] = _checked_top_logprobs(top_logprobs_num)
    if resample:
        fields["log_mass"] = True
    constraint = constraint_of(dtype=dtype, regex=regex, json_schema=json_schema, grammar=grammar)
    sampling = sampling_fields(fields)
    checked_name, start = _checked_name(name), checked_start(scored_from)
    return Gen(checked_name, sampling, constraint, backend, stream, resample, start)


_DEFAULTS = {entry.name: entry.default for entry in signature(gen).parameters.values()}


def gen_int(name: str | None = None, max_tokens: int | None = None, **settings: Any) -> Expression:
    """As `gen`, for the text of a whole number."""
    return gen(name, max_tokens, dtype=int, **settings)


def gen_string(
    name: str | None = None, max_tokens: int | None = None, **settings: Any
) -> Expression:
    """As `gen`, for a text in double quotes (which are part of the answer) on one line."""
    return gen(name, max_tokens, dtype=str, **settings)


@checks_keywords(_OF_RUNS, ENGINE)
def select(
    name: str | None = None,
    choices: Sequence[str] = (),
    *,
    choices_method: str = "token_length_normalized",
    backend: Backend | str | None = None,
) -> Expression:
    """Let the model choose one of several texts; keep the chosen text as variable `name`.

    choices: different, non-empty texts. choices_method: see `choices.py`. The scores of all options
    are in the meta information. Raises InvalidCall.
    """
    is_list = isinstance(choices, Iterable) and not isinstance(choices, str)
    options = tuple(choices) if is_list else ()
    if not options or not all(_is_text(text) for text in options):
        raise InvalidCall("choices", choices, "a list of one or more non-empty texts")
    Choices(options).check()
    method = find_method(choices_method).name
    return Select(_checked_name(name), options, method, checked_backend(backend))


def image(source: Source) -> Expression:
    """A picture: encoded bytes, the path of a local file (read here and now), a data: URL, an image
    of Pillow, or an array of uint8 [height, width, 3]. Raises InvalidCall."""
    if type(source) is Unknown:
        return UnknownMedia(source)
    return Media(Image(image_data(source)))


def video(source: Source, num_frames: int) -> Expression:
    """A clip, of which the model is shown `num_frames` evenly spaced frames: as `image`, or frames,
    as a list of images or an array of uint8 [frames, height, width, 3]. Raises InvalidCall."""
    check_known(num_frames, "num_frames")
    if type(num_frames) is not int or num_frames < 1:
        raise InvalidCall("num_frames", num_frames, "an integer >= 1")
    if type(source) is Unknown:
        return UnknownMedia(source, num_frames)
    return Media(Video(video_data(source), num_frames))


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
    """A chat message of any role that the model's chat template knows. Raises InvalidCall for no
    role, and for one of those that all templates know, misspelled."""
    return Row((RoleBegin(name), *flatten(as_expression(content)), RoleEnd()))


def _check_combination(given: Mapping[str, Any]) -> None:
    """Raise InvalidCall for arguments of `gen` that do not go together, by their names."""
    names = [name for name in given if name not in ("name", "choices_method", "backend")]
    limits = [name for name in names if name in _LIMITS]
    if len(limits) > 1:
        allowed = f"at most one of {', '.join(_LIMITS)}; {limits[0]} is set too"
        raise InvalidCall(limits[1], given[limits[1]], allowed)
    if "choices" in given and len(names) > 1:
        other = next(name for name in names if name != "choices")
        allowed = "only name, choices_method and backend together with choices"
        raise InvalidCall(other, given[other], allowed)
    if "resample" not in given:
        return
    n = given.get("n")
    if given["resample"] is not True or not limits or type(n) is not int or n < 2:
        allowed = f"False, or True beside n >= 2 and one of {', '.join(_LIMITS[:-1])}"
        raise InvalidCall("resample", given["resample"], allowed)


def _checked_top_logprobs(number: int) -> int:
    try:
        sampling_fields({"logprobs": number})
    except InvalidCall as error:
        raise InvalidCall("top_logprobs_num", number, error.allowed) from None
    return number


def _checked_name(name: str | None) -> str | None:
    if name is not None and not _is_text(name):
        raise InvalidCall("name", name, "a non-empty text, or None")
    return name


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)
