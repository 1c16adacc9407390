"""Requests of the OpenAI kind, field by field.

Every optional field may be null; `unknown` decides about unknown fields.
What values are allowed is checked by the protocol, except where a limit of the server is stricter.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from ....core.api.protocol import InvalidCall
from ....core.common.suggestions import did_you_mean

ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def check_role(role: object, field: str) -> None:
    """Raise InvalidCall for a role that is not in ROLES, with a suggestion."""
    if not isinstance(role, str) or role not in ROLES:
        hint = did_you_mean(role, ROLES) if isinstance(role, str) else ""
        raise InvalidCall(field, role, ", ".join(ROLES) + hint)


def _nullable(**facts: Any) -> Any:
    """A field that may be null. facts: for its description; the protocol checks values."""
    return Field(None, json_schema_extra=facts)


class _FirstError(FailFast):
    """Validation of a list ends at its first error: pydantic lists all of them otherwise."""

    __hash__ = object.__hash__  # as members of unions need


def _in_slices(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """A long list, checked in slices: pydantic holds the interpreter lock for each."""
    if not isinstance(given, list) or len(given) <= _SLICE:
        return check(given)
    found: list[Any] = []
    for start in range(0, len(given), _SLICE):
        try:
            found += check(given[start : start + _SLICE])
        except ValidationError as error:
            raise _moved(error, start) from None
    return found


def _moved(error: ValidationError, start: int) -> ValidationError:
    """The same error of a list, its items so many places further on."""
    problems: list[Any] = []
    for it in error.errors(include_url=False):
        place, *inner = it["loc"]
        loc = (place + start if isinstance(place, int) else place, *inner)
        problems.append({"ctx": {}, **it, "loc": loc})
    return ValidationError.from_exception_data(error.title, problems)


T = TypeVar("T")
_SLICE = 1024
Items: TypeAlias = Annotated[list[T], _FirstError(), WrapValidator(_in_slices)]


def _first_error_or_slices(given: Any, check: ValidatorFunctionWrapHandler) -> Any:
    """Many numbers, checked in slices. Of entries that are no numbers the first is checked alone:
    pydantic would list all of them."""
    if not isinstance(given, dict):
        return check(given)
    wrong = (it for it in given.items() if type(it[1]) not in (int, float))
    if (first := next(wrong, None)) is not None:
        return check(dict([first]))
    entries, found = iter(given.items()), {}
    while part := dict(islice(entries, _SLICE)):
        found.update(check(part))
    return found


Numbers: TypeAlias = Annotated[dict[str, float], WrapValidator(_first_error_or_slices)]


class Body(BaseModel):
    """What lies in a request: no text is taken for a number, and no number for true or false, as
    OpenAI's API has it."""

    model_config = ConfigDict(strict=True)


class StreamOptions(Body):
    """include_usage: a last event has the usage. continuous_usage_stats: every event does."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StructuredOutputs(Body):
    """A constraint as vLLM's clients send it. Unknown fields are kept, to be refused by name."""

    model_config = ConfigDict(extra="allow")

    json_: str | dict[str, Any] | bool | None = Field(None, alias="json")
    regex: str | None = None
    choice: Items[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class SamplingFields(Body):
    """How answers are sampled, by the names that all routes share; most are beyond OpenAI."""

    temperature: float | None = _nullable(minimum=0)
    top_p: float | None = _nullable(exclusiveMinimum=0, maximum=1)
    top_k: int | None = _nullable(minimum=-1, maximum=2**31 - 1)
    min_p: float | None = _nullable(minimum=0, maximum=1)
    frequency_penalty: float | None = _nullable(minimum=-2, maximum=2)
    presence_penalty: float | None = _nullable(minimum=-2, maximum=2)
    repetition_penalty: float | None = _nullable(exclusiveMinimum=0, maximum=10)
    seed: int | None = None
    stop: str | Items[str] | None = _nullable(minLength=1, maxItems=16)
    stop_token_ids: Items[int] | None = None
    ignore_eos: bool | None = None
    json_separators: Items[str] | None = None


class RequestFields(SamplingFields):
    """What all requests of OpenAI's kind share. Those from min_tokens on are beyond OpenAI."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool | None = None
    min_tokens: int | None = _nullable(minimum=0)
    cache_salt: str | None = None
    priority: int | None = _nullable(minimum=-100, maximum=100)
    deadline: float | None = _nullable(exclusiveMinimum=0)
    forkroot: dict[str, Any] | None = None


class Generation(RequestFields):
    """What completions and chats share. structured_outputs, guided_*: as vLLM's clients, new and
    old, send constraints."""

    stream_options: StreamOptions | None = None
    max_tokens: int | None = _nullable(minimum=0)
    n: int | None = _nullable(minimum=1, maximum=32)
    logit_bias: Numbers | None = None
    # beyond OpenAI
    regex: str | None = None
    json_schema: str | dict[str, Any] | bool | None = None
    choices: Items[str] | None = None
    grammar: str | None = None
    ebnf: str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: Items[str] | None = None
    guided_grammar: str | None = None
    response_format: dict[str, Any] | None = None


class CompletionRequest(Generation):
    """POST /v1/completions. prompt: a text, token ids, or a list of either."""

    prompt: str | Items[int] | Items[str] | Items[Items[int]]
    echo: bool | None = None
    logprobs: int | None = _nullable(minimum=0, maximum=20)
    suffix: str | None = None
    best_of: int | None = None


class FunctionCall(Body):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str | dict[str, Any] | None = None


class ToolCall(Body):
    """A call that the assistant made in an earlier turn."""

    id: str | None = None
    type: str | None = None
    function: FunctionCall


class ChatMessage(Body):
    """One message. content: a text or a list of parts; may be null beside tool_calls only."""

    role: str = Field(json_schema_extra={"enum": list(ROLES)})
    content: str | Items[str | dict[str, Any]] | None = None
    tool_calls: Items[ToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(Body):
    """A function that may be called. parameters: its JSON schema; null: no parameters."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Body):
    """A tool that the model may use."""

    type: Literal["function"]
    function: Function


class ChatRequest(Generation):
    """POST /v1/chat/completions."""

    messages: Items[ChatMessage] = Field(json_schema_extra={"minItems": 1})
    max_completion_tokens: int | None = _nullable(minimum=0)
    logprobs: bool | None = None
    top_logprobs: int | None = _nullable(minimum=0, maximum=20)
    tools: Items[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class TokenizeRequest(Body):
    """POST /tokenize: a prompt, or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Items[ChatMessage] | None = None
    tools: Items[Tool] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None


class DetokenizeRequest(Body):
    """POST /detokenize."""

    model: str | None = None
    tokens: Items[int]
