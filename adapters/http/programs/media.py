"""Pictures and clips among the arguments of a run: as data only, never a path of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.api.protocol import InvalidCall, Shown
from ...native.compiler.graph.graph import Graph
from ...native.compiler.graph.nodes import Media

_ALLOWED = "the bytes of a picture or a clip, or a data: URL of them"


def with_media(graph: Graph, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a run. Raises InvalidCall for one that is shown as a picture or a clip, and
    is not its data: a path would be read here."""
    names = {node.argument for node in graph.nodes if isinstance(node, Media)}
    defaults = {it.name: it.value for it in graph.parameters if not it.is_required}
    for name in names - {None}:
        value = arguments.get(str(name), defaults.get(str(name)))
        frames = value if isinstance(value, list | tuple) else [value]
        for frame in frames:
            is_url = isinstance(frame, str) and frame.startswith("data:")
            if not isinstance(frame, bytes) and not is_url:
                shown = Shown(type(frame).__name__) if not isinstance(frame, str) else frame[:80]
                raise InvalidCall(f"arguments.{name}", shown, _ALLOWED)
    return arguments
