"""Where a compiled program is run: here, or as a whole by the server of its backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from typing import Any

from ...core.api.protocol import ForkHint, InvalidCall
from ...core.media.sources import image_data, video_data
from .compiler.graph.graph import Graph
from .compiler.graph.nodes import Argument, Media
from .compiler.graph.values import Listed, Mapped, State, Value, arguments_of
from .compiler.opening import opening_of
from .compiler.passes.names import PASSES
from .language.settings import Settings
from .remote.remote_run import RemoteRun, hindrance
from .run import AnyRun, Run
from .state import ProgramState


class Placing:
    """Makes the runs of one graph, as `Run` does."""

    def __init__(self, graph: Graph, passes: frozenset[str]) -> None:
        self._graph = graph
        self._passes = None if passes == frozenset(PASSES) else tuple(sorted(passes))
        self._fixed = {it.name: it.value for it in graph.parameters if it.is_fixed}
        self._shown = {it.argument: it for it in graph.nodes if isinstance(it, Media)}
        values = [it.value for it in graph.blocks if it.value is not None]
        self._returns_state = any(map(_has_state, values))
        self._in_texts = {it.name for it in graph.nodes if isinstance(it, Argument)}
        self._in_texts |= {name for value in values for name in arguments_of(value)}
        self._sent: tuple[str, bytes] | None = None

    def new_run(
        self,
        body: Callable[..., Any],
        settings: Settings,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        state_type: type[ProgramState],
        worker: ThreadPoolExecutor | None = None,
        hint: ForkHint | None = None,
    ) -> AnyRun:
        """A run on the server of its backend where that can be, else here. Raises InvalidCall where
        it cannot and `remote` is set."""
        try:
            arguments = self._arguments(body, settings, args, kwargs)
            if arguments is not None:
                digest, graph = self._content()
                opening = opening_of(self._graph, arguments)
                return RemoteRun(
                    digest, graph, settings, arguments, self._passes, state_type, opening
                )
        except (InvalidCall, TypeError):
            if settings.remote:
                raise
        return Run(body, settings, args, kwargs, state_type, worker, hint)  # may raise the same

    def _arguments(
        self,
        body: Callable[..., Any],
        settings: Settings,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> dict[str, Any] | None:
        """The arguments that are sent; None where nothing is. Raises TypeError for what are not
        the program's arguments, and InvalidCall."""
        if settings.remote is False:
            return None
        reason = "the program returns a state" if self._returns_state else hindrance(settings)
        if reason is not None:
            if settings.remote:
                raise InvalidCall("remote", True, f"None or False: {reason}")
            return None
        bound = signature(body).bind(None, *args, **kwargs)
        _, *given = bound.arguments.items()
        for name, value in given:
            if name in self._fixed and value != self._fixed[name]:
                allowed = f"{self._fixed[name]!r:.60}: the program was compiled for it"
                raise InvalidCall(name, value, allowed)
        return {name: self._data(name, value) for name, value in given if name not in self._fixed}

    def _data(self, name: str, value: Any) -> Any:
        """What is sent of an argument: of a picture or a clip its bytes, which are read here."""
        node = self._shown.get(name)
        if node is None or isinstance(value, bytes):
            return value
        if name in self._in_texts:
            allowed = "bytes, or an argument that is not text, too: a picture is sent as bytes"
            raise InvalidCall(name, value, allowed)
        return image_data(value) if node.num_frames is None else video_data(value)

    def _content(self) -> tuple[str, bytes]:
        """The digest of the graph, and its JSON."""
        if self._sent is None:
            self._sent = self._graph.digest(), self._graph.to_json().encode()
        return self._sent


def _has_state(value: Value) -> bool:
    match value:
        case State():
            return True
        case Listed(items=items):
            return any(map(_has_state, items))
        case Mapped(pairs=pairs):
            return any(_has_state(item) for _, item in pairs)
    return False
