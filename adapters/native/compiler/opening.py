"""What the first call of a run begins with, as far as it is known before the run: where runs that
begin alike are kept together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....core.api.protocol import Image, ProgramError, Prompt, Video
from ..interpreter.transcript import Transcript
from ..language import expressions as language
from .graph.graph import Graph
from .graph.nodes import Argument, ConstantText, Media, Node, RoleBegin, RoleEnd

MOST_CHARS = 1 << 18


def opening_of(graph: Graph, arguments: Mapping[str, Any]) -> Prompt:
    """The prompt that the texts of the main stream are before its first answer or read, with these
    arguments in it; at most about `MOST_CHARS` characters. An argument that is not a text ends it:
    nothing is formatted."""
    given = {it.name: it.value for it in graph.parameters if not it.is_required} | dict(arguments)
    transcript, num_chars = Transcript(), 0
    try:
        for node in _main(graph):
            text = _text_of(node, given)
            if text is not None:
                transcript.add_text(text[: MOST_CHARS - num_chars])
                num_chars += len(text)
            elif isinstance(node, RoleBegin):
                transcript.extend((language.RoleBegin(node.role),))
            elif isinstance(node, RoleEnd):
                transcript.extend((language.RoleEnd(),))
            elif isinstance(node, Media) and node.data is not None:
                is_image = node.num_frames is None
                data = node.data
                transcript.add_media(Image(data) if is_image else Video(data, node.num_frames or 1))
            else:
                break
            if num_chars >= MOST_CHARS:
                break
    except ProgramError:  # the run itself raises it
        pass
    return transcript.prompt()


def _main(graph: Graph) -> Iterator[Node]:
    first = graph.blocks[0]
    for node in graph.nodes[first.start : first.end]:
        if node.stream == 0:
            yield node


def _text_of(node: Node, arguments: Mapping[str, Any]) -> str | None:
    """The text that a node appends, where it is known."""
    if isinstance(node, ConstantText):
        return node.text
    if not isinstance(node, Argument) or node.spec or node.form == "repr":
        return None
    value = arguments.get(node.name)
    return value if isinstance(value, str) else None
