"""Pictures and clips among the arguments of a run: as data only, never a path of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....core.api.protocol import InvalidCall, Shown
from ...native.compiler.graph.graph import Graph
from ...native.compiler.graph.nodes import Media

_ALLOWED = "the bytes of a picture or a clip, or a data: URL of them"


def check_media(graph: Graph, arguments: Mapping[str, Any]) -> None:
    """Raise InvalidCall for an argument that is shown as a picture or a clip and is not its data:
    a path would be read here."""
    given = {it.name: it.value for it in graph.parameters} | dict(arguments)
    for node in graph.nodes:
        if not isinstance(node, Media) or node.argument is None:
            continue
        value = given.get(node.argument)
        is_url = isinstance(value, str) and value[:5].lower() == "data:"
        if not isinstance(value, bytes) and not is_url:
            shown = value[:80] if isinstance(value, str) else Shown(type(value).__name__)
            raise InvalidCall(f"arguments.{node.argument}", shown, _ALLOWED)
