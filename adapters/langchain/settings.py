"""Settings of a model in LangChain: the fields of `ChatForkroot` and of `Forkroot`.

Constructor and call know the same names; a call's come first. Unknown names are refused.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from langchain_core.utils import secret_from_env
from pydantic import (
    BaseModel,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from ...core.api.protocol import (
    Backend,
    BackendInfo,
    Call,
    Constraint,
    ForkrootError,
    InvalidCall,
    Prompt,
    Sampling,
    Text,
    UnsupportedCall,
)
from ..common.surrogates import check_texts
from ..connection import Connection, shared, suggestion, takes_key, trained_len, unnamed
from .errors import as_langchain
from .hints.forks import watch

SAMPLING = (
    *("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty"),
    *("presence_penalty", "repetition_penalty", "logit_bias", "seed", "ignore_eos", "n"),
)
_IN_CALLS = (
    *("regex", "choices", "grammar", "response_format", "tools", "tool_choice"),
    *("parallel_tool_calls", "strict"),
)
Stop: TypeAlias = list[str] | None
OPTIONS = (*SAMPLING, "model", "timeout", "logprobs", "top_logprobs", "stream")


class Settings(BaseModel):
    """What model, by which runtime, with which sampling.

    model: "tiny" for the embedded model, a checkpoint folder, the URL of a forkroot server, or a
      `Backend`. All of one process with the same `model` and `settings` share one running engine.
    settings: of the runtime, as `forkroot.connect` takes them.
    api_key: for a URL, where FORKROOT_API_KEY is taken if it is not given, or for an API model
      ("openai:MODEL"), whose own variable is.
    timeout: seconds that a call may take. max_retries: how often it is tried again where the
      runtime is overloaded, or failed.
    max_tokens: None: as many as the context holds. The rest of the sampling is as in
      `forkroot.Sampling`; None is the default there.
    logprobs, top_logprobs: log-probabilities of the answer's tokens and of their best rivals.
    """

    model: str = "tiny"
    backend: Any = Field(default=None, exclude=True, repr=False)
    settings: dict[str, Any] = Field(default_factory=dict)
    api_key: SecretStr | None = Field(
        default_factory=secret_from_env("FORKROOT_API_KEY", default=None)
    )
    timeout: float | None = None
    max_retries: int = 2
    stop: list[str] | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    n: int = 1
    logprobs: bool = False
    top_logprobs: int | None = None
    streaming: bool = False

    _held: Connection | None = PrivateAttr(None)  # to the backend, with what was seen of prefixes

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, given: Any) -> Any:
        """Refuse unknown names, each with a suggestion."""
        if cls.model_config.get("extra") != "forbid" or not isinstance(given, Mapping):
            return given
        fields = cls.model_fields
        known = {*fields, *(it.alias for it in fields.values() if it.alias)}
        faults = [_unknown(cls, name, given[name], known) for name in given if name not in known]
        if faults:
            raise ValidationError.from_exception_data(cls.__name__, faults)
        return given

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        """A backend given as the model is the backend, and the model what it runs."""
        model = given.get("model") if isinstance(given, Mapping) else None
        if model is None or isinstance(model, str):
            return given
        if isinstance(model, Path):
            return {**given, "model": str(model)}
        if not isinstance(model, Backend):
            allowed = "'tiny', a folder, a URL, or a Backend"
            raise InvalidCall("model", model, allowed)
        return {**given, "backend": model, "model": model.info().model}

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        """Also a single text."""
        return [value] if isinstance(value, str) else value

    @field_validator("timeout", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        """Also timeouts of httpx, as other integrations take them: the time to read counts."""
        return getattr(value, "read", value)

    @model_validator(mode="after")
    def _checked(self) -> Settings:
        watch()  # a program may fork before it calls a model for the first time
        try:
            self.sampling(None, {}).check()
            self.deadline({})
            if self.max_retries < 0:
                raise InvalidCall("max_retries", self.max_retries, "0 or more")
            if self.backend is not None and self.settings:
                allowed = "none beside a backend, which has its own"
                raise InvalidCall("settings", self.settings, allowed)
        except InvalidCall as error:
            raise ValueError(str(error)) from error
        if "model" not in self.model_fields_set and self.backend is None:
            unnamed()
        return self

    def context_len(self) -> int | None:
        """Tokens that prompt and answer may be together, if a backend or a folder knows it."""
        if self.backend is not None:
            info = self._info()
            return None if info is None else info.context_len
        return self.settings.get("context_len") or trained_len(self.model)

    def features(self) -> frozenset[str] | None:
        """Those of the backend, where there is one already."""
        info = self._info()
        return None if info is None else info.features

    def _info(self) -> BackendInfo | None:
        if self.backend is not None:
            with suppress(ForkrootError):  # its first use raises the error
                found: BackendInfo = self.backend.info()
                return found
        return None

    def connection(self, model: str | None = None) -> Connection:
        """The running runtime, started at the first use. model: another one than the model's own.
        Raises as `forkroot.connect` does."""
        name = self.model if model is None else model
        try:
            if not isinstance(name, str):
                raise InvalidCall("model", name, "'tiny', a folder, or a URL")
            if self.backend is not None and name == self.model:
                self._held = self._held or shared(self.backend)
                return self._held
            settings = dict(self.settings)
            is_explicit = "api_key" in self.model_fields_set
            if self.api_key is not None and takes_key(name, is_explicit):
                settings.setdefault("api_key", self.api_key.get_secret_value())
            return shared(name, **settings)
        except ForkrootError as error:
            raise as_langchain(error) from error

    def get_num_tokens(self, text: str) -> int:
        """Tokens of a text, by the model's own tokenizer; where that is elsewhere, those before
        every text too."""
        if (own := getattr(self, "custom_get_token_ids", None)) is not None:
            return len(own(text))
        backend = self.connection().backend
        tokenizer: Any = getattr(backend, "tokenizer", None)
        if tokenizer is not None:
            return len(tokenizer.encode(text))
        return num_tokens(backend, (Text(text),)) if text else 0

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of these tokens. Raises UnsupportedCall for a runtime behind a URL."""
        if (own := getattr(self, "custom_get_token_ids", None)) is not None:
            return list(own(text))
        tokenizer: Any = getattr(self.connection().backend, "tokenizer", None)
        if tokenizer is None:
            allowed = "get_num_tokens: this runtime's tokenizer is elsewhere"
            raise as_langchain(UnsupportedCall("get_token_ids", text, allowed))
        return list(tokenizer.encode(text))

    def sampling(self, stop: Sequence[str] | None, options: Mapping[str, Any]) -> Sampling:
        """The sampling of a call. stop: the call's own, or None. Raises InvalidCall."""
        given = {name: options.get(name, getattr(self, name)) for name in SAMPLING}
        stop = _texts(stop if stop is not None else options.get("stop", self.stop))
        found = {name: value for name, value in given.items() if value is not None}
        found["logit_bias"] = _bias(found.get("logit_bias", {}))
        return Sampling(**{"max_tokens": None, **found}, stop=stop, logprobs=self._top(options))

    def _new_call(
        self,
        prompt: Prompt,
        constraint: Constraint | None,
        stop: Sequence[str] | None,
        options: Mapping[str, Any],
        is_streamed: bool,
    ) -> Call:
        """A call with these options; one with log-probabilities is always streamed, for the texts
        of its tokens. Raises InvalidCall."""
        sampling, deadline = self.sampling(stop, options), self.deadline(options)
        if is_streamed and sampling.n > 1:
            raise InvalidCall("n", sampling.n, "1 in a stream")
        is_streamed = is_streamed or sampling.logprobs is not None
        return Call(prompt, sampling, constraint, stream=is_streamed, deadline=deadline)

    def deadline(self, options: Mapping[str, Any]) -> float | None:
        """Seconds that a call may take. Raises InvalidCall."""
        timeout: Any = options.get("timeout", self.timeout)
        timeout = getattr(timeout, "read", timeout)
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise InvalidCall("timeout", timeout, "a number of seconds > 0, or None")
        return None if timeout is None or math.isinf(timeout) else float(timeout)

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        return self.identity()

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Where the key is found that is not written with the model."""
        return {"api_key": "FORKROOT_API_KEY"}

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Yes; a backend given as an object is not written along."""
        return True

    def identity(self) -> dict[str, Any]:
        """What identifies its answers: for tracing, and LangChain's cache."""
        names = ("model", "settings", "timeout", "stop", "logprobs", "top_logprobs", *SAMPLING)
        return {name: getattr(self, name) for name in names}

    def _name(self, options: Mapping[str, Any]) -> str:
        """The model's name as the user gave it."""
        return str(options.get("model") or self.model)

    def _top(self, options: Mapping[str, Any]) -> int | None:
        wanted = options.get("logprobs", self.logprobs)
        top = options.get("top_logprobs", self.top_logprobs)
        if not isinstance(wanted, bool | None):
            raise InvalidCall("logprobs", wanted, "True or False; top_logprobs sets how many")
        if top is not None and not (type(top) is int and 0 <= top <= 64):
            raise InvalidCall("top_logprobs", top, "an integer from 0 to 64, or None")
        return top or 0 if wanted or top else None


def check_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise InvalidCall for the first name that a call does not know."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        allowed = f"one of {', '.join(sorted(known))}{suggestion(unknown, known)}"
        raise InvalidCall(unknown, options[unknown], allowed)


def num_tokens(backend: Backend, prompt: Prompt) -> int:
    """Tokens of a prompt, its template's included: by the tokenizer where a runtime in this process
    or a child has it; else the prompt is sent for no answer. Raises as a call that does not fit."""
    tokenizer: Any = getattr(backend, "tokenizer", None)
    try:
        if tokenizer is not None:
            return len(tokenizer.encode_prompt(prompt))
        return backend.submit(Call(prompt, Sampling(max_tokens=0))).result().usage.prompt_tokens
    except ForkrootError as error:
        raise as_langchain(error) from error


def _texts(stop: Any) -> tuple[str, ...]:
    """Stop texts, from one or a list of them."""
    texts = (stop,) if isinstance(stop, str) else () if stop is None else stop
    if not isinstance(texts, list | tuple):
        raise InvalidCall("stop", stop, "a text, a list of texts, or None")
    check_texts(texts, "stop")
    return tuple(texts)


def _bias(given: Any) -> dict[int, float]:
    """A bias by token ids, which JSON writes as texts."""
    try:
        return {int(token): bias for token, bias in given.items()}
    except (AttributeError, TypeError, ValueError):
        raise InvalidCall("logit_bias", given, "a dict of token ids to numbers") from None


def _unknown(model: type, name: str, value: Any, known: Collection[str]) -> InitErrorDetails:
    """The error for a keyword that is not a field of the model."""
    suggested = (
        "; it is given to a call, or to bind" if name in _IN_CALLS else suggestion(name, known)
    )
    text = f"{name} is not a field of {model.__name__}{suggested}"
    error = PydanticCustomError("extra_forbidden", "{text}", {"text": text})
    return InitErrorDetails(type=error, loc=(name,), input=value)
