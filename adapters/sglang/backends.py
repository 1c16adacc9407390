"""Which backend SGLang's programs run on: the default one, and what may be given as one."""

from __future__ import annotations

from typing import Any

from ...core.api.protocol import Backend, UnsupportedCall
from ..connection import shared
from ..native.language.settings import get_default_backend
from ..native.language.settings import set_default_backend as set_native
from .endpoints import flush, server_info

_SERVED = (
    "a model that forkroot runs: connect(MODEL), Runtime(model_path=...), RuntimeEndpoint(URL)"
)


class GlobalConfig:
    """The settings of SGLang's frontend that concern a whole process.

    verbosity: 2: the text of each run is printed. The others are read by SGLang's own runtime, and
    have no effect here.
    """

    def __init__(self) -> None:
        self.verbosity = 0
        self.skip_special_tokens_in_output = True
        self.spaces_between_special_tokens_in_out = True
        self.enable_precache_with_tracing = True
        self.enable_parallel_encoding = True

    @property
    def default_backend(self) -> Backend | None:
        """What programs run on that name no backend; the native language has the same."""
        return get_default_backend()

    @default_backend.setter
    def default_backend(self, backend: Any) -> None:
        set_default_backend(backend)


global_config = GlobalConfig()


def as_backend(backend: Any) -> Backend | str | None:
    """The backend for what a program gives as its backend: a backend, what `connect` takes, or an
    endpoint of SGLang's own package, whose server must be a forkroot server."""
    if backend is None or isinstance(backend, str) or hasattr(backend, "submit"):
        return backend  # type: ignore[no-any-return]
    source = getattr(backend, "endpoint", backend)
    url = getattr(source, "base_url", None)
    if not isinstance(url, str):
        raise UnsupportedCall("backend", backend, _SERVED)
    key = getattr(source, "api_key", None)
    return shared(url, **({} if key is None else {"api_key": key})).backend


def set_default_backend(backend: Any) -> None:
    """Run programs of this process on `backend` unless a run sets another; None: on none."""
    set_native(as_backend(backend))


def flush_cache(backend: Any = None) -> bool:
    """Let a backend (the default one) forget what no open call uses; False if there is none. Raises
    UnsupportedCall for a backend that has no cache."""
    found = _found(backend)
    return False if found is None else flush(found)


def get_server_info(backend: Any = None) -> dict[str, Any] | None:
    """What a backend (the default one) reports of itself; None if there is none."""
    found = _found(backend)
    if found is None:
        return None
    own = getattr(found, "get_server_info", None)
    return server_info(found.info()) if own is None else own()


def _found(backend: Any) -> Backend | None:
    found = as_backend(backend)
    if isinstance(found, str):
        return shared(found).backend
    return get_default_backend() if found is None else found


class _Elsewhere:
    """A name of SGLang's frontend for what forkroot does not run. Making one raises
    UnsupportedCall."""

    allowed = _SERVED

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        shown = ", ".join(map(repr, args))
        raise UnsupportedCall("backend", f"{type(self).__name__}({shown})", self.allowed)


def _unsupported(name: str, what: str) -> Any:
    return type(name, (_Elsewhere,), {"__doc__": f"{what}: not supported."})


OpenAI = _unsupported("OpenAI", "Models behind OpenAI's API")
Anthropic = _unsupported("Anthropic", "Models behind Anthropic's API")
VertexAI = _unsupported("VertexAI", "Models behind Google's API")
LiteLLM = _unsupported("LiteLLM", "Models behind LiteLLM")
Crusoe = _unsupported("Crusoe", "Models behind Crusoe's API")
Shortfin = _unsupported("Shortfin", "Models behind Shortfin's server")


class ServerArgs(_Elsewhere):
    """The arguments of SGLang's server: not supported; settings are given to `connect`."""

    allowed = "settings of connect(MODEL, ...), Runtime(model_path=..., ...) or `forkroot serve`"
