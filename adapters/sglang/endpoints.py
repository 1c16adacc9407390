"""The backends of SGLang's frontend: a server by its URL, and a model in this process.

Each is a forkroot backend with SGLang's methods, accepted wherever a backend is.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx

from ...core.api.keywords import ENGINE_SETTINGS, UnknownKeyword
from ...core.api.owner import Closing
from ...core.api.protocol import (
    Backend,
    BackendInfo,
    Call,
    CallFailed,
    InvalidCall,
    Reply,
    Sampling,
    Text,
    UnsupportedCall,
)
from ..connection import connect

_log = logging.getLogger(__name__)
_SETTINGS = {  # of SGLang's ServerArgs, by our names
    "tp_size": "ranks",
    "max_total_tokens": "num_slots",
    "max_running_requests": "max_running",
    "context_length": "context_len",
    "chunked_prefill_size": "chunk_tokens",
    "random_seed": "seed",
}


class Endpoint(Closing):
    """A backend with the methods that programs call on one of SGLang's."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        return self.backend.submit(call)

    def cancel(self, reply: Reply) -> None:
        """As the backend's own."""
        self.backend.cancel(reply)

    def info(self) -> BackendInfo:
        """As the backend's own."""
        return self.backend.info()

    def close(self) -> None:
        """As the backend's own."""
        self.backend.close()

    def shutdown(self) -> None:
        """As `close`."""
        self.close()

    @property
    def endpoint(self) -> Endpoint:
        """This endpoint itself."""
        return self

    @property
    def model_info(self) -> dict[str, Any]:
        """The name of the model, as `model_path`."""
        return {"model_path": self.get_model_name()}

    @property
    def chat_template(self) -> Any:
        """The model's own template, by its `name`. Another one that is set here has no effect, and
        a warning says so: chats are rendered where the model is."""
        return SimpleNamespace(name=f"{self.get_model_name()} (its own)")

    @chat_template.setter
    def chat_template(self, template: Any) -> None:
        name = getattr(template, "name", template)
        _log.warning("chat_template=%s has no effect: the model's own is used", name)

    def get_model_name(self) -> str:
        """The name of the model that answers."""
        return self.info().model

    def flush_cache(self) -> bool:
        """Forget what no open call uses, pinned prefixes too. Raises UnsupportedCall for a backend
        without a cache."""
        return flush(self.backend)

    def get_server_info(self) -> dict[str, Any]:
        """What runs there, and its counters."""
        return server_info(self.info())

    def cache_prefix(self, prefix_str: str) -> None:
        """Compute a text ahead, so that calls that begin with it find it. Waits for it."""
        self.submit(Call((Text(prefix_str),), Sampling(max_tokens=0))).result()

    def start_profile(self) -> None:
        """Raises UnsupportedCall: there is no profiler to start."""
        raise UnsupportedCall("start_profile", self, "get_server_info(), which has the counters")

    def stop_profile(self) -> None:
        """Raises UnsupportedCall: there is no profiler to stop."""
        raise UnsupportedCall("stop_profile", self, "get_server_info(), which has the counters")


class RuntimeEndpoint(Endpoint):
    """A forkroot server at a URL (`forkroot serve`). Raises as `connect` does, and UnsupportedCall
    for a chat template or certificates of its own."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        verify: Any = None,
        chat_template_name: str | None = None,
    ) -> None:
        if chat_template_name is not None:
            allowed = "None: the server renders chats by the model's own template"
            raise UnsupportedCall("chat_template_name", chat_template_name, allowed)
        if verify not in (None, True):
            allowed = "None; certificates are those of the environment, as SSL_CERT_FILE"
            raise UnsupportedCall("verify", verify, allowed)
        super().__init__(connect(base_url, api_key=api_key))
        self.base_url = str(base_url).rstrip("/").removesuffix("/v1")
        self.api_key = api_key
        self._texts: dict[int, str] = {}

    @property
    def tokenizer(self) -> RuntimeEndpoint:
        """Itself: `decode` calls the server."""
        return self

    def decode(self, ids: list[int]) -> str:
        """The text of tokens, as the server decodes each."""
        for token in ids:
            if token not in self._texts:
                found = self._request("POST", "/detokenize", {"tokens": [token]})
                self._texts[token] = str(found["prompt"])
        return "".join(self._texts[token] for token in ids)

    def flush_cache(self) -> bool:
        """As `Endpoint.flush_cache`, at the server."""
        self._request("POST", "/flush_cache")
        return True

    def get_server_info(self) -> dict[str, Any]:
        """Facts of the server."""
        found: dict[str, Any] = self._request("GET", "/server_info")
        return found

    def _request(self, method: str, path: str, body: Any = None) -> Any:
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        try:
            answer = httpx.request(
                method, self.base_url + path, json=body, headers=headers, timeout=60.0
            )
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise CallFailed(f"{method} {self.base_url}{path}: {error}") from error


class Runtime(Endpoint):
    """A model in this process; no server is started.

    model_path: as `connect` takes it: "tiny", a checkpoint folder. settings: those of `connect`,
    and SGLang's `tp_size`, `max_total_tokens`, `max_running_requests`, `context_length`,
    `chunked_prefill_size`, `random_seed` and `disable_radix_cache`. Raises UnknownKeyword for
    others, and as `connect` does. log_level, launch_timeout: of SGLang's server, without effect.
    """

    def __init__(
        self,
        model_path: str,
        *,
        log_level: str = "error",
        launch_timeout: float = 300.0,
        **settings: Any,
    ) -> None:
        super().__init__(connect(model_path, **_translated(settings)))
        self.model_path = model_path

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer, as the backend has it."""
        return getattr(self.backend, "tokenizer", None)

    def get_tokenizer(self) -> Any:
        """The model's tokenizer: it has `encode(text)` and `decode(ids)`."""
        return self.tokenizer

    @property
    def url(self) -> str:
        """Raises UnsupportedCall: a model in this process has no address."""
        allowed = "a server: `forkroot serve MODEL`, then RuntimeEndpoint(URL)"
        raise UnsupportedCall("url", self.model_path, allowed)


def flush(backend: Backend) -> bool:
    """Let a backend forget what no open call uses. Raises UnsupportedCall if it cannot."""
    own = getattr(backend, "flush_cache", None)
    if own is not None:
        own()
        return True
    clear = getattr(backend, "clear_cache", None)
    if clear is None:
        allowed = "a backend with a cache: a model in this process, or a RuntimeEndpoint"
        raise UnsupportedCall("backend", backend, allowed)
    clear()
    return True


def server_info(info: BackendInfo) -> dict[str, Any]:
    """Facts of a backend, by SGLang's names."""
    return {
        "model_path": info.model,
        "context_length": info.context_len,
        "vocab_size": info.vocabulary_size,
        "features": sorted(info.features),
        "internal_states": [{**info.counters, **info.load}],
    }


def _translated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of SGLang's servers as those of `connect`. Raises UnknownKeyword."""
    known = {*_SETTINGS, *ENGINE_SETTINGS, "disable_radix_cache"}
    for name, value in settings.items():
        if name not in known:
            raise UnknownKeyword(name, value, known)
    found = {_SETTINGS.get(name, name): value for name, value in settings.items()}
    if "disable_radix_cache" in found:
        value = found.pop("disable_radix_cache")
        if not isinstance(value, bool):
            raise InvalidCall("disable_radix_cache", value, "True or False")
        found["cache"] = not value
    return found
