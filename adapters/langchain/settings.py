"""What a LangChain user says of a model: the fields of `ChatForkroot` and of `Forkroot`.

Constructor and call know the same names; a call's come first. Unknown names are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from langchain_core.utils import secret_from_env
from pydantic import BaseModel, Field, PrivateAttr, SecretStr, field_validator, model_validator

from ...core.protocol import Backend, ForkrootError, InvalidCall, Sampling
from ..connection import Connection, shared
from .counting import num_text_tokens, token_ids
from .errors import as_langchain
from .forks import watch

SAMPLING = (
    *("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "frequency_penalty"),
    *("presence_penalty", "repetition_penalty", "logit_bias", "seed", "ignore_eos", "n"),
)
OPTIONS = (*SAMPLING, "model", "timeout", "logprobs", "top_logprobs", "stream")


class Settings(BaseModel):
    """What model, by which runtime, with which sampling.

    model: "tiny" for the embedded model, a checkpoint folder, the URL of a server of ours, or a
      `Backend`. All of one process with the same `model` and `settings` share one running engine.
    settings: of the runtime, as `forkroot.connect` takes them.
    api_key: for a URL; FORKROOT_API_KEY where it is not given.
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

    @field_validator("timeout", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        """Also timeouts of httpx, as other integrations take them: the time to read counts."""
        return value if value is None or isinstance(value, int | float) else value.read

    @model_validator(mode="after")
    def _checked(self) -> Settings:
        watch()  # a program may fork before it calls a model for the first time
        try:
            self.sampling(None, {}).check()
            if self.max_retries < 0:
                raise InvalidCall("max_retries", self.max_retries, "0 or more")
        except InvalidCall as error:
            raise ValueError(str(error)) from error
        return self

    def connection(self, model: str | None = None) -> Connection:
        """The running runtime, started at the first use. model: another one than the model's own.
        Raises as `forkroot.connect` does."""
        name = self.model if model is None else model
        try:
            if self.backend is not None and name == self.model:
                self._held = self._held or shared(self.backend)
                return self._held
            settings = dict(self.settings)
            if self.api_key is not None and name.startswith(("http://", "https://")):
                settings.setdefault("api_key", self.api_key.get_secret_value())
            return shared(name, **settings)
        except ForkrootError as error:
            raise as_langchain(error) from error

    def get_num_tokens(self, text: str) -> int:
        """Tokens of a text, by the model's own tokenizer."""
        if (own := getattr(self, "custom_get_token_ids", None)) is not None:
            return len(own(text))
        return num_text_tokens(self.connection().backend, text)

    def get_token_ids(self, text: str) -> list[int]:
        """The ids of these tokens. Raises UnsupportedCall for a runtime behind a URL."""
        if (own := getattr(self, "custom_get_token_ids", None)) is not None:
            return list(own(text))
        return token_ids(self.connection().backend, text)

    def sampling(self, stop: Sequence[str] | None, options: Mapping[str, Any]) -> Sampling:
        """The sampling of a call. stop: the call's own, or None. Raises InvalidCall."""
        given = {name: options.get(name, getattr(self, name)) for name in SAMPLING}
        stop = stop if stop is not None else options.get("stop", self.stop)
        stop = (stop,) if isinstance(stop, str) else tuple(stop or ())
        found = {name: value for name, value in given.items() if value is not None}
        found["logit_bias"] = {int(key): bias for key, bias in found.get("logit_bias", {}).items()}
        return Sampling(**{"max_tokens": None, **found}, stop=stop, logprobs=self._top(options))

    def deadline(self, options: Mapping[str, Any]) -> float | None:
        """Seconds that a call may take."""
        timeout: float | None = options.get("timeout", self.timeout)
        return None if timeout is not None and math.isinf(timeout) else timeout

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
        """What tells its answers from those of others: for tracing, and LangChain's cache."""
        names = ("model", "settings", "timeout", "stop", "logprobs", "top_logprobs", *SAMPLING)
        return {name: getattr(self, name) for name in names}

    def _name(self, options: Mapping[str, Any]) -> str:
        """The model's name as the user gave it."""
        return str(options.get("model") or self.model)

    def _top(self, options: Mapping[str, Any]) -> int | None:
        wanted = options.get("logprobs", self.logprobs)
        top = options.get("top_logprobs", self.top_logprobs)
        return int(top or 0) if wanted or top else None


def check_options(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Raise InvalidCall for the first name that a call does not know."""
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        near = get_close_matches(unknown, known, 1)
        guess = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidCall(unknown, options[unknown], f"one of {', '.join(sorted(known))}{guess}")
