"""From a signature, in the format of the adapter that wrote the prompt, to the answer's pattern.

Knows DSPy's three formats by the parsers that read them, so it serves adapters that inherit one.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from dspy import Adapter, ChatAdapter, JSONAdapter, Signature, XMLAdapter

from .agents import Named, calls_of, with_calls
from .fields import element, property_value, section
from .spelling import Json, UnsupportedSchema

Style: TypeAlias = Literal["chat", "json", "xml"]
MOST_KEPT = 512
_OBJECT = Json(indent=2)
_log = logging.getLogger(__name__)


class Formats:
    """The patterns of answers, kept by the format and the types of the fields. A field that no
    pattern says (see `schema`) leaves the whole answer free, which is logged once."""

    def __init__(self) -> None:
        self._written = lru_cache(MOST_KEPT)(_written)

    def pattern(
        self,
        adapter: Adapter,
        signature: type[Signature],
        tools: tuple[Named, ...] = (),
        given: tuple[Named, ...] = (),
        is_demanded: bool = False,
    ) -> str | None:
        """Of the answers that the adapter parses without an error. None: nothing is known; empty:
        there are no fields, for all that is wanted are calls of tools.

        tools: those that the answer may name in its fields, with arguments that they take. given:
        those that a field of calls may hold; is_demanded: it holds one at least.
        """
        style = style_of(adapter)
        fields = {name: info.annotation for name, info in signature.output_fields.items()}
        if style is None or not fields:
            return None if style is None else ""
        return self._written(style, tuple(fields.items()), tools, given, is_demanded)


def style_of(adapter: Adapter) -> Style | None:
    """The format that an adapter parses; None: none of DSPy's."""
    parse = inspect.unwrap(type(adapter).parse)
    styles: dict[Any, Style] = {
        inspect.unwrap(ChatAdapter.parse): "chat",
        inspect.unwrap(JSONAdapter.parse): "json",
        inspect.unwrap(XMLAdapter.parse): "xml",
    }
    return styles.get(parse)


def answer_pattern(
    style: Style, fields: Mapping[str, Any], calls: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Of an answer with these output fields, by name and annotation. Raises UnsupportedSchema.

    calls: what some of the fields, neighbours of one another, may be together.
    """
    call_fields = list(calls[0]) if calls else []
    parts = list[str]()
    for name, kind in fields.items():
        if name not in call_fields:
            parts.append(_part(style, {name: kind}))
        elif name == call_fields[0]:
            parts.append(f"(?:{'|'.join(_part(style, way) for way in calls)})")
    match style:
        case "chat":
            return "".join(parts) + _header("completed")
        case "json":
            return _OBJECT.whole(parts, 0)
        case "xml":
            return "\n\n".join(parts)


def _part(style: Style, fields: Mapping[str, Any]) -> str:
    """What stands for these fields in an answer."""
    match style:
        case "chat":
            return "".join(f"{_header(name)}\n{section(it)}\n\n" for name, it in fields.items())
        case "json":
            return _OBJECT.members([(name, property_value(it)) for name, it in fields.items()], 0)
        case "xml":
            return "\n\n".join(f"<{name}>{element(it)}</{name}>" for name, it in fields.items())


def _header(name: str) -> str:
    return re.escape(f"[[ ## {name} ## ]]")


def _written(
    style: Style,
    items: tuple[tuple[str, Any], ...],
    tools: tuple[Named, ...],
    given: tuple[Named, ...],
    is_demanded: bool,
) -> str | None:
    """The pattern; without what tools take, where that cannot be said."""
    fields = dict(items)
    if tools or given:
        with contextlib.suppress(UnsupportedSchema):
            return answer_pattern(style, with_calls(fields, given, is_demanded), calls_of(tools))
    try:
        return answer_pattern(style, fields)
    except UnsupportedSchema as error:
        _log.warning("answers with the fields %s are not constrained: %s", list(fields), error)
        return None
