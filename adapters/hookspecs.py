"""What a plugin may implement: the whole plugin API of forkroot, in pluggy's terms.

A plugin is a module (or object) with functions of these names marked by `hookimpl`, and an entry
point in the group "forkroot.plugins". Hooks run once for each start or request, never per token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pluggy

from ..core.api.protocol import Backend

GROUP = "forkroot.plugins"
hookspec = pluggy.HookspecMarker("forkroot")
hookimpl = pluggy.HookimplMarker("forkroot")


class RegisterAdapter(Protocol):
    """Takes one adapter: its name, where its factory is ("module:Factory", imported at its first
    use), and which top-level modules that needs. Raises ValueError for a name that is taken."""

    def __call__(self, name: str, factory: str, needs: Sequence[str] = ()) -> None: ...


class RegisterBackend(Protocol):
    """Takes a way to do a part of a runtime's work: of which kind ("attention", "constraint" or
    "sampling"), its name, where its factory is, and whether it can work on this machine.

    The name is what `connect(..., attention=name)` (or `constraint=`, `sampling=`) then takes; the
    factory is imported in the process that the engine runs in, and called with:

    attention: one `kernels.devices.Pool`; gives a `kernels.Attention`.
    constraint: token_bytes, end_ids, encode, as `core.fsm.constraints.Constraints` has them; gives
      a function from a `Constraint` to a `core.fsm.guide.Guide`, or to None for one that is left to
      forkroot. It may raise InvalidCall.
    sampling: nothing; gives a `kernels.devices.DeviceSampler`. On GPUs only.

    Raises ValueError for a kind that there is not, and for a name that is taken or has a colon.
    """

    def __call__(
        self, kind: str, name: str, factory: str, available: Callable[[], bool]
    ) -> None: ...


@hookspec
def register_adapters(register: RegisterAdapter) -> None:
    """Name the adapters that this plugin brings; called once. Import none of them here."""


@hookspec
def register_backends(register: RegisterBackend) -> None:
    """Name the parts of a runtime that this plugin brings; called once. Import none of them here:
    an engine imports a part when its name is set."""


@hookspec(firstresult=True)
def load_model(ref: str, config: Mapping[str, Any]) -> Backend | None:
    """Give a running backend for a name that `connect` does not know itself, or None.

    ref: as given to `connect`: no folder, no URL, not "tiny"; "org/name" is looked for on the hub
    where no plugin knows it. config: the other arguments of `connect`, and whether it is to run in
    another `process`. A plugin with an attribute `model_prefixes`, a tuple of texts, is called only
    for names that begin with one of these; its attribute `needs` names modules that it imports when
    it is used. A ForkrootError is the caller's to see; any other is
    taken as None, and logged. `forkroot serve` needs a backend with a `tokenizer` (see
    `adapters.http.server.runtime.Texts`), as those of checkpoint folders have it.
    """


@hookspec
def register_routes(app: Any, runtime: Any) -> None:
    """Add routes to the server of `forkroot serve`, once for each server.

    app: the FastAPI application, with its own routes. runtime:
    `adapters.http.server.runtime.Runtime`.
    """


@hookspec
def runtime_started(runtime: Backend) -> None:
    """A backend has started, by `connect` or under a server. A plugin that is registered later is
    called for all that still exist."""
