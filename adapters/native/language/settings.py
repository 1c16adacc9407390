"""How a program is run: which backends, which defaults, which help for the runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any

from ....core.api.keywords import ENGINE, Parameters, UnknownKeyword
from ....core.api.protocol import Backend, InvalidCall, InvalidModel, Sampling
from ...connection import shared

_LISTED = {  # what programs may give as a list
    "stop": "a non-empty text, or a list of at most 64 of them",
    "stop_token_ids": "a list of integers >= 0",
}
SAMPLING_FIELDS = frozenset(field.name for field in fields(Sampling))


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything about a run that is not an argument of the program.

    backend: the backend of every `gen` and `select` that names none, its name in `backends`, or
      one as `connect` takes it, which all adapters of the process share; None: the first of
      `backends`, else the process-wide default.
    backends: backends by the names that `gen(..., backend="name")` uses.
    sampling: fields of `Sampling` for every `gen` that does not set them itself.
    hints: announce to the runtime which prefixes calls will share; never changes an answer.
    stream: the run goes on in the background and delivers text as it comes.
    scored_from: as in `Call`, for every `gen` that does not set it itself.
    namespace, priority, deadline: as in `Call`, for every call of the run.
    speculate: one call for several gens: it goes on past its stop, by so many tokens at most; True:
      by as many as the gens behind it may have.
    remote: a compiled program is run by the server of its backend, which is sent the graph once and
      then arguments; None: where the server can; False: each call is sent.
    """

    backend: Backend | str | None = None
    backends: Mapping[str, Backend] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    hints: bool = True
    stream: bool = False
    scored_from: int | None = None
    namespace: str = ""
    priority: int = 0
    deadline: float | None = None
    speculate: int | bool = False
    remote: bool | None = None

    def __post_init__(self) -> None:
        checked_backend(self.backend)
        checked_start(self.scored_from)
        for name in ("hints", "stream"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidCall(name, getattr(self, name), "True or False")
        if type(self.speculate) is not bool and not _is_limit(self.speculate):
            allowed = "True, False, or a number of tokens >= 1"
            raise InvalidCall("speculate", self.speculate, allowed)
        if not (self.remote is None or isinstance(self.remote, bool)):
            raise InvalidCall("remote", self.remote, "True, False or None")
        is_mapping = isinstance(self.backends, Mapping)
        if not (is_mapping and all(hasattr(it, "submit") for it in self.backends.values())):
            raise InvalidCall("backends", self.backends, "a mapping of names to backends")

    def find(self, backend: Backend | str | None = None) -> Backend:
        """The backend of the run. Raises InvalidCall if there is none."""
        if isinstance(backend, str):
            return self._named(backend)
        if backend is not None:
            return backend
        if self.backend is not None:
            return self.find(self.backend)
        if self.backends:
            return next(iter(self.backends.values()))
        found = get_default_backend()
        if found is None:
            allowed = "a backend or a model, such as 'tiny'; pass one or call set_default_backend"
            raise InvalidCall("backend", None, allowed)
        return found

    def _named(self, name: str) -> Backend:
        """One of `backends`, else the one that all adapters of this process share by this name."""
        if name in self.backends:
            return self.backends[name]
        try:
            return shared(name).backend
        except InvalidModel as error:
            allowed = f"a name in backends= ({sorted(self.backends)}), or a model: {error}"
            raise InvalidCall("backend", name, allowed) from error


def _is_limit(value: object) -> bool:
    return type(value) is int and value >= 1


def checked_backend(backend: Backend | str | None) -> Backend | str | None:
    """A backend, or the name of one that a run is given, or None. Raises InvalidCall."""
    if not (backend is None or isinstance(backend, str) or hasattr(backend, "submit")):
        raise InvalidCall("backend", backend, "a backend, or its name in backends=")
    return backend


def checked_start(position: int | None) -> int | None:
    """A position from which a prompt's tokens are scored, or None. Raises InvalidCall."""
    if not (position is None or (type(position) is int and position >= 0)):
        raise InvalidCall("scored_from", position, "a position of the prompt, 0 or more, or None")
    return position


_default = SimpleNamespace(backend=None)  # of the programs of a process


def set_default_backend(backend: Backend | str | None) -> None:
    """Run programs of this process on `backend` unless a run sets another; None: on none. A name
    as `connect` takes it is the backend that all adapters share by it. Raises InvalidCall for what
    is not a backend, and as `connect` does."""
    if isinstance(backend, str):
        backend = shared(backend).backend
    if backend is not None and not hasattr(backend, "submit"):
        raise InvalidCall("backend", backend, f"a backend, such as connect({backend!r}), or None")
    _default.backend = backend


def get_default_backend() -> Backend | None:
    """The backend given to `set_default_backend`."""
    found: Backend | None = _default.backend
    return found


def split_settings(
    keywords: Mapping[str, Any], parameters: Parameters, others: Iterable[str] = ()
) -> tuple[Settings, dict[str, Any]]:
    """Part `keywords` into the settings of a run and the program's own arguments.

    parameters: the program's own; a keyword among them is always the program's. others: keywords
      that were taken before, to be named in an error. Raises UnknownKeyword (an InvalidCall) for a
      keyword that is neither, InvalidCall for a setting whose value is not allowed.
    """
    names = {entry.name for entry in fields(Settings)} - {"sampling"}
    parameters.check(keywords, {*names, *SAMPLING_FIELDS, *others}, ENGINE)
    rest = dict(keywords)
    chosen, sampling = (
        {name: rest.pop(name) for name in keywords if name in wanted - parameters.names}
        for wanted in (names, SAMPLING_FIELDS)
    )
    return Settings(sampling=sampling_fields(sampling), **chosen), rest


def sampling_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` in the types of `Sampling`: one stop text or a list of them becomes a tuple.

    Raises InvalidCall for the first value that is not allowed, here and not only when it is used.
    """
    found = {name: _as_field(name, value) for name, value in given.items()}
    try:
        Sampling(**{"max_tokens": None, **found}).check()
    except UnknownKeyword:
        raise
    except InvalidCall as error:
        allowed = _LISTED.get(error.field, error.allowed)
        raise InvalidCall(error.field, given.get(error.field, error.value), allowed) from None
    return found


def _as_field(name: str, value: Any) -> Any:
    if name == "stop" and isinstance(value, str):
        return (value,)
    if name in ("stop", "stop_token_ids") and isinstance(value, list):
        return tuple(value)
    return value
