"""How an API is reached: what `connect("openai:MODEL", ...)` takes, checked before anything is
sent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

import httpx

from ...core.api.hidden import HiddenText, with_hidden_key
from ...core.api.keywords import ENGINE_SETTINGS, KeywordOwner, suggestion_for
from ...core.api.protocol import InvalidCall, InvalidModel, Shown
from .prices import Prices
from .secret import Secret

_OF_ENGINES = KeywordOwner(ENGINE_SETTINGS, "{name} is of an engine, and this model has none here")
_SECONDS = "a number of seconds > 0"
PROMPTS = ("auto", "completions", "chat")
PREFILLS = ("auto", "send", "refuse")


@dataclass(frozen=True, slots=True)
class Provider:
    """A wire, and where it is spoken. key, base_url: the names of environment variables."""

    name: str
    default_url: str
    key: str
    base_url: str


PROVIDERS: Mapping[str, Provider] = MappingProxyType(
    {
        it.name: it
        for it in (
            Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
            Provider(
                "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"
            ),
        )
    }
)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """One model of one API.

    api_key: None: that of the environment. base_url: as the provider's own clients take it.
    prompts: where plain text goes: to the route of completions, to that of chats as one user
      message, or ("auto") to the first if the server has it.
    prefill: whether the beginning of an answer may be sent, for a chat whose last message is open;
      "auto": not to OpenAI itself, which starts a new answer behind it.
    max_concurrency: requests at a time; further ones wait.
    max_retries: of one request, after errors that pass by themselves.
    connect_timeout: seconds in which a connection must be made. silence: seconds without a byte of
      the answer after which the call fails. longest: seconds of one request with its
      answer, however slowly that comes. max_body: bytes of one answer.
    omit: fields of requests that are never sent, as "temperature" to models that refuse it.
    extra_body: fields that every request has, as {"reasoning_effort": "low"}.
    default_max_tokens: sent where a call has no limit and the API demands one.
    context_len: tokens of prompt and answer, if known; 0: unknown.
    """

    provider: Provider
    model: str
    api_key: Secret | None = None
    base_url: str = ""
    prompts: str = "auto"
    prefill: str = "auto"
    max_concurrency: int = 32
    max_retries: int = 5
    connect_timeout: float = 10.0
    silence: float = 600.0
    longest: float = 3600.0
    max_body: int = 64 << 20
    omit: tuple[str, ...] = ()
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    default_max_tokens: int = 4096
    context_len: int = 0
    prices: Prices | None = None

    @classmethod
    def of(cls, ref: str, given: Mapping[str, Any]) -> ApiSettings:
        """The settings of a name such as "openai:gpt-4o". Raises InvalidCall, InvalidModel."""
        given = with_hidden_key(given)
        name, _, model = ref.partition(":")
        provider = PROVIDERS[name]
        if not model.strip():
            raise InvalidModel(f"{ref!r} names no model; expected one, as in '{name}:MODEL'")
        for unknown in given.keys() - SETTINGS:
            allowed = ", ".join(SETTINGS) + suggestion_for(unknown, SETTINGS, _OF_ENGINES)
            raise InvalidCall(unknown, given[unknown], allowed)
        for setting, (allowed, is_allowed) in _RULES.items():
            if setting in given and not is_allowed(given[setting]):
                raise InvalidCall(setting, given[setting], allowed)
        values = {key: value for key, value in given.items() if key not in ("api_key", "base_url")}
        if values.get("prices") is not None:
            values["prices"] = Prices.of(values["prices"])
        values["omit"] = tuple(values.get("omit", ()))
        url = _base_url(provider, given.get("base_url"))
        key = _key(provider, given.get("api_key"), url)
        return replace(cls(provider, model), api_key=key, base_url=url, **values)

    @property
    def is_own_host(self) -> bool:
        """Whether this is the provider's own server, whose limits are known."""
        return httpx.URL(self.base_url).host == httpx.URL(self.provider.default_url).host

    def redacted(self, text: str) -> str:
        """A text of the server without the key."""
        return text if self.api_key is None else self.api_key.redacted(text)


SETTINGS = tuple(it.name for it in fields(ApiSettings) if it.name not in ("provider", "model"))


def _is_whole(low: int) -> Any:
    return lambda value: type(value) is int and value >= low


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e9


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, list | tuple | set | frozenset)
    return is_list and all(isinstance(name, str) for name in value)


_RULES: Mapping[str, tuple[str, Any]] = {
    "prompts": (" | ".join(PROMPTS), lambda value: value in PROMPTS),
    "prefill": (" | ".join(PREFILLS), lambda value: value in PREFILLS),
    "max_concurrency": ("an integer >= 1", _is_whole(1)),
    "max_retries": ("an integer >= 0", _is_whole(0)),
    "connect_timeout": (_SECONDS, _is_seconds),
    "silence": (_SECONDS, _is_seconds),
    "longest": (_SECONDS, _is_seconds),
    "max_body": ("a number of bytes >= 1", _is_whole(1)),
    "omit": ("a list of names of fields", _are_names),
    "extra_body": ("a mapping", lambda value: isinstance(value, Mapping)),
    "default_max_tokens": ("an integer >= 1", _is_whole(1)),
    "context_len": ("an integer >= 0", _is_whole(0)),
}


def _base_url(provider: Provider, given: Any) -> str:
    found = given or os.environ.get(provider.base_url) or provider.default_url
    try:
        url = httpx.URL(found)
    except (httpx.InvalidURL, TypeError):
        url = httpx.URL()
    extra = url.userinfo or url.query or url.fragment
    if url.scheme not in ("http", "https") or not url.host or extra:
        allowed = f"a URL such as {provider.default_url}, with no user, password and query in it"
        raise InvalidCall("base_url", Shown("...") if extra else found, allowed)
    return str(url).rstrip("/")


def _key(provider: Provider, given: Any, url: str) -> Secret | None:
    found = given
    if found is None and os.environ.get(provider.key):
        found = HiddenText(os.environ[provider.key])
    if found is None:
        if httpx.URL(url).host == httpx.URL(provider.default_url).host:
            raise InvalidCall("api_key", None, f"a key, as api_key=..., or {provider.key} set")
        return None
    if isinstance(found, Secret):
        return found
    is_text = isinstance(found, str) and found.strip() == found != ""
    if not (is_text and found.isascii() and found.isprintable()):
        raise InvalidCall("api_key", Shown("..."), "a text of visible ASCII characters")
    return Secret(found)
