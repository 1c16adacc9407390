"""The prompts of a body of SGLang's `/generate`, each with its call as a `PromptRequest`.

Single things and lists of them are one here. What this runtime cannot do is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....core.api.media import Kind
from ....core.api.protocol import (
    SPACED,
    Call,
    Chunk,
    Constraint,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Output,
    Regex,
    Reply,
    Sampling,
    Segment,
    Shown,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)
from ..requests.media import NO_MEDIA, MediaParts, interleaved
from ..requests.reading import sampled, separated
from ..requests.unknown import check_num_compared, check_spelling, no_field
from ..requests.work import Work
from ..server.runtime import Limits, Runtime
from ..wire.hints import hint_of
from .body import GenerateBody, SamplingBody

ANY_OBJECT = "$$ANY$$"
GREEDY_BELOW = 1e-6
NOT_SERVED = (
    *("audio_data", "input_embeds", "session_params", "lora_path"),
    *("token_ids_logprob", "custom_logit_processor", "return_hidden_states", "stop_regex"),
    *("structural_tag", "custom_params"),
)
_MEDIA: tuple[tuple[str, Kind], ...] = (("image_data", "image"), ("video_data", "video"))
_SERVED_NAMES = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens"}
_NAMES = {
    "namespace": "cache_salt",
    "hint": "forkroot",
    "json_schema": "sampling_params.json_schema",
    "regex": "sampling_params.regex",
    "grammar": "sampling_params.ebnf",
    **{name: f"sampling_params.{served}" for name, served in _SERVED_NAMES.items()},
}


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Log-probabilities that are wanted, with so many rivals, and whether with texts.

    start: those of the prompt's tokens after this many, too; None: of no prompt token.
    """

    start: int | None
    num_top: int
    has_text: bool


@dataclass(slots=True)
class PromptRequest:
    """One prompt: a text, or token ids, and what is to be done with it. Mutable.

    call: with no prompt yet. rids: one an answer. start: the number of its first answer among all.
    ids: of its tokens. reply: to its call, once it is submitted; none for an empty prompt after
    which nothing is to be written. outputs: of a stream, as far as they have come.
    media: its pictures, then its clips.
    """

    prompt: str | tuple[int, ...]
    call: Call
    logprobs: LogprobOptions | None
    rids: tuple[str, ...]
    start: int
    keeps_stop: bool
    ids: tuple[int, ...] = ()
    reply: Reply | None = None
    outputs: dict[int, Output] = field(default_factory=dict)
    media: tuple[Image | Video, ...] = ()

    def grown(self, chunk: Chunk) -> Output:
        """An answer of a stream with one more chunk."""
        had = self.outputs.get(chunk.index, Output(""))
        ids, logprobs = had.ids + chunk.ids, had.logprobs + chunk.logprobs
        output = Output(had.text + chunk.text, ids, logprobs=logprobs)
        self.outputs[chunk.index] = output
        return output

    def with_media(self) -> tuple[Segment, ...]:
        """The prompt with its pictures and clips, as `interleaved`. Raises InvalidCall."""
        if not isinstance(self.prompt, str):
            raise UnsupportedCall("input_ids", Shown("ids beside pictures"), "text with them")
        return interleaved(self.prompt, self.media, "image_data")


def submit(runtime: Runtime, prompt_requests: Sequence[PromptRequest]) -> list[Reply]:
    """Submit the calls; one reply for each that has something to do. Raises InvalidCall."""
    for it in prompt_requests:
        ids = it.prompt
        if isinstance(ids, str):
            ids = tuple(runtime.texts.encode_prompt((Text(ids),))) if ids else ()
        elif not ids and it.call.sampling.max_tokens != 0:
            raise InvalidCall("input_ids", [], "at least one token")
        it.ids = ids  # cut here: every answer has their number
    for it in prompt_requests:
        if it.ids or it.media or it.call.sampling.max_tokens != 0:
            prompt = it.with_media() if it.media else (Tokens(it.ids),)
            it.reply = runtime.backend.submit(replace(it.call, prompt=prompt))
    return [it.reply for it in prompt_requests if it.reply is not None]


def error_names_of(prompt_requests: Sequence[PromptRequest]) -> Work:
    """The names that errors of a request's calls use: its own."""
    first, *others = prompt_requests
    names = {**_NAMES, "prompt": "text" if isinstance(first.prompt, str) else "input_ids"}
    if others or not isinstance(first.call.constraint, JsonSchema):
        return Work((), names)
    return Work((), names, {names["json_schema"]: first.call.constraint.schema})


def media_of(body: GenerateBody) -> Iterator[tuple[str, Kind, Any]]:
    """Each picture and clip of a body, with its field."""
    for name, kind in _MEDIA:
        for listed in map(_listed, _listed(getattr(body, name))):
            yield from ((name, kind, it) for it in listed)


def prompt_requests_of(
    body: GenerateBody, limits: Limits, name: str, media: MediaParts = NO_MEDIA
) -> list[PromptRequest]:
    """The prompts of a body. name: of the request, where its body has none. media: how pictures
    are read. Raises InvalidCall, which names the body's field."""
    _refuse_unserved(body, "")
    prompts = _prompts(body)
    check_most("text", len(prompts), 1, limits.max_prompts, "prompts")
    count = len(prompts)
    samplings: list[SamplingBody] = _each("sampling_params", body.sampling_params, count)
    if any((found.n or 1) != (samplings[0].n or 1) for found in samplings):
        raise InvalidCall("sampling_params.n", "several numbers", "one number for all prompts")
    n = samplings[0].n or 1
    check_most("sampling_params.n", n, 1, limits.max_n)
    check_most("sampling_params.n", count * n, 1, limits.max_answers, "answers in all")
    rids = _rids(name if body.rid is None else body.rid, count, n)
    options = _logprob_options(body, samplings, limits)
    given = zip(prompts, samplings, options, _media(body, prompts, media), strict=True)
    return [
        PromptRequest(
            prompt,
            _call(body, sampling, logprobs, limits),
            logprobs,
            rids[index * n : index * n + n],
            index * n,
            bool(sampling.no_stop_trim),
            media=shown,
        )
        for index, (prompt, sampling, logprobs, shown) in enumerate(given)
    ]


def _call(
    body: GenerateBody, params: SamplingBody, logprobs: LogprobOptions | None, limits: Limits
) -> Call:
    """The call of one prompt, still without it."""
    return Call(
        (),
        _sampling(params, logprobs, limits),
        _constraint(params, limits),
        hint=hint_of(body.forkroot),
        stream=bool(body.stream),
        namespace=body.cache_salt or body.extra_key or "",
        priority=body.priority or 0,
        deadline=limits.deadline,
        scored_from=None if logprobs is None or logprobs.start is None else logprobs.start + 1,
    )


def check_most(field: str, value: int, least: int, most: int, of: str = "") -> None:
    """Raise InvalidCall unless least <= value <= most."""
    if not least <= value <= most:
        raise InvalidCall(field, value, f"{least} to {most} {of}".rstrip())


def _prompts(body: GenerateBody) -> list[str | tuple[int, ...]]:
    if (body.text is None) is (body.input_ids is None):
        raise InvalidCall("text", body.text and "...", "either text or input_ids")
    if body.text is not None:
        return [body.text] if isinstance(body.text, str) else [*body.text]
    ids: Sequence[Any] = body.input_ids or []
    if ids and isinstance(ids[0], list):
        return [tuple(one) for one in ids]
    return [tuple(ids)]


def _media(
    body: GenerateBody, prompts: Sequence[object], media: MediaParts
) -> list[tuple[Image | Video, ...]]:
    """The pictures, then the clips, of each prompt. Of several prompts, a list has an entry for
    each: one, a list, or null."""
    found = [list[Image | Video]() for _ in prompts]
    for name, kind in _MEDIA:
        given = getattr(body, name)
        if not given:
            continue
        if not media.accepts:
            raise UnsupportedCall(name, given, "null (this model reads text alone)")
        is_many = isinstance(body.text, list)
        for shown, of_one in zip(
            found, _each(name, given, len(prompts)) if is_many else [given], strict=True
        ):
            shown += [media.of_text(it, kind, name) for it in _listed(of_one)]
    return [tuple(it) for it in found]


def _listed(value: Any) -> list[Any]:
    """None, one, or a list, as a list."""
    return [] if value is None else value if isinstance(value, list) else [value]


def _each(field: str, value: Any, count: int) -> list[Any]:
    """One for each prompt of what may be given once, or as a list."""
    if not isinstance(value, list):
        return [value] * count
    if len(value) not in (1, count):
        raise InvalidCall(field, f"{len(value)} of them", f"one, or {count}: one for each prompt")
    return value * count if len(value) == 1 else value


def _rids(rid: str | list[str], count: int, n: int) -> tuple[str, ...]:
    """An id for each answer; numbered where one name is given for several."""
    if isinstance(rid, str):
        return (rid,) if count * n == 1 else tuple(f"{rid}_{i}" for i in range(count * n))
    if len(rid) != count:
        raise InvalidCall("rid", f"{len(rid)} of them", f"{count}: one for each prompt")
    return tuple(f"{name}_{i}" if n > 1 else name for name in rid for i in range(n))


def _logprob_options(
    body: GenerateBody, samplings: list[SamplingBody], limits: Limits
) -> Iterator[LogprobOptions | None]:
    count = len(samplings)
    wanted = _each("return_logprob", body.return_logprob or False, count)
    starts = _each("logprob_start_len", body.logprob_start_len, count)
    tops = _each("top_logprobs_num", body.top_logprobs_num, count)
    for is_wanted, start, top, sampling in zip(wanted, starts, tops, samplings, strict=True):
        check_most("top_logprobs_num", top or 0, 0, limits.max_top_logprobs)
        check_most("logprob_start_len", start or 0, -1, 1 << 31)
        if start is None or start < 0:
            start = 0 if sampling.max_new_tokens == 0 else None
        has_text = bool(body.return_text_in_logprobs)
        yield LogprobOptions(start, top or 0, has_text) if is_wanted else None


def _sampling(body: SamplingBody, logprobs: LogprobOptions | None, limits: Limits) -> Sampling:
    _refuse_unserved(body, "sampling_params.")
    if body.skip_special_tokens is False:
        raise UnsupportedCall("sampling_params.skip_special_tokens", False, "true")
    given = sampled(body)
    if body.stop == "":  # as SGLang: no text
        del given["stop"]
    check_most("sampling_params.stop", len(given.get("stop", ())), 0, limits.max_stops, "texts")
    own = {
        "min_tokens": body.min_new_tokens,
        "n": body.n,
        "seed": body.sampling_seed,
        "logprobs": None if logprobs is None else logprobs.num_top,
    }
    given |= {name: value for name, value in own.items() if value is not None}
    if 0 <= given.get("temperature", 1) < GREEDY_BELOW:
        given["temperature"] = 0.0
    max_tokens = body.max_new_tokens
    given["max_tokens"] = limits.default_max_tokens if max_tokens is None else max_tokens
    sampling = Sampling(**given, logit_bias=_bias(body.logit_bias or {}))
    try:
        sampling.check()
    except InvalidCall as error:
        name = _SERVED_NAMES.get(error.field, error.field)
        raise InvalidCall(f"sampling_params.{name}", error.value, error.allowed) from None
    return sampling


def _bias(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): bias for token, bias in given.items()}
    except ValueError:
        raise InvalidCall("sampling_params.logit_bias", "...", "token ids as keys") from None


def _constraint(body: SamplingBody, limits: Limits) -> Constraint | None:
    given = {"regex": body.regex, "json_schema": body.json_schema, "ebnf": body.ebnf}
    named = [(name, value) for name, value in given.items() if value is not None]
    if len(named) > 1:
        allowed = f"at most one constraint; {named[0][0]} is set too"
        raise InvalidCall(f"sampling_params.{named[1][0]}", "...", allowed)
    found = _constraint_in(*named[0], limits) if named else None
    if body.json_separators is None:
        return found
    return separated(found, body.json_separators, "sampling_params.json_separators")


def _constraint_in(name: str, value: str | dict[str, Any], limits: Limits) -> Constraint:
    text = value if isinstance(value, str) else json.dumps(value)
    field = f"sampling_params.{name}"
    check_most(field, len(text), 0, limits.max_constraint, "characters")
    if name == "json_schema":
        return JsonSchema(_schema(field, text), SPACED)
    return Regex(text) if name == "regex" else Grammar(text, "ebnf")


def _schema(field: str, text: str) -> dict[str, Any] | bool:
    if text == ANY_OBJECT:
        return {"type": "object"}
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidCall(field, text, f"a schema as JSON text ({error})") from None
    if not isinstance(schema, dict | bool):
        raise InvalidCall(field, text, "a JSON object, or true or false")
    return schema


def _refuse_unserved(body: GenerateBody | SamplingBody, prefix: str) -> None:
    """Raise for what would change an answer and is not served, for what is misspelled, and for a
    sampling parameter by another server's name or at another level, unless it is set at its own
    level as well; nulls and empty values are ignored."""
    extra = body.model_extra or {}
    params_list = body.sampling_params if isinstance(body, GenerateBody) else [body]
    set_names = {name for params in params_list for name in params.model_fields_set}
    compared: set[str] = set()
    for name in extra:
        suggested = _SERVED_NAMES.get(name, name)
        if (
            suggested in SamplingBody.model_fields
            and suggested not in set_names
            and extra[name] is not None
        ):
            raise no_field(prefix + name, "/generate", f"sampling_params.{suggested}")
        if name not in NOT_SERVED:
            check_num_compared(compared, name, prefix.removesuffix(".") or "body")
            check_spelling(name, type(body).model_fields, "/generate", prefix)
    for name in NOT_SERVED:
        if extra.get(name):
            raise UnsupportedCall(prefix + name, extra[name], "null (not served here)")
