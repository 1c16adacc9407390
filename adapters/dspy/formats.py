"""From a signature, in the format of the adapter that wrote the prompt, to the answer's pattern.

Knows DSPy's three formats by the parsers that read them, so it serves adapters that inherit one.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from dspy import Adapter, ChatAdapter, JSONAdapter, Signature, XMLAdapter

from .fields import element, property_value, section
from .spelling import Json, Unsayable
from .texts import JSON_CHAR, LEAN_CHAR

Style: TypeAlias = Literal["chat", "json", "xml"]
MOST_KEPT = 512
_log = logging.getLogger(__name__)


class Formats:
    """The patterns of answers, kept by the format and the types of the fields. A field that no
    pattern says (see `schema`) leaves the whole answer free, which is logged once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], str | None] = OrderedDict()

    def pattern(self, adapter: Adapter, signature: type[Signature]) -> str | None:
        """Of the answers that the adapter parses without an error. None: nothing is known; empty:
        there are no fields, for all that is wanted are calls of tools."""
        style = style_of(adapter)
        fields = {name: info.annotation for name, info in signature.output_fields.items()}
        if style is None or not fields:
            return None if style is None else ""
        key = (style, *fields.items())
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        found = _written(style, fields)
        with self._lock:
            self._kept[key] = found
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return found


def style_of(adapter: Adapter) -> Style | None:
    """The format that an adapter parses; None: none of DSPy's."""
    parse = inspect.unwrap(type(adapter).parse)
    styles: dict[Any, Style] = {
        inspect.unwrap(ChatAdapter.parse): "chat",
        inspect.unwrap(JSONAdapter.parse): "json",
        inspect.unwrap(XMLAdapter.parse): "xml",
    }
    return styles.get(parse)


def answer_pattern(style: Style, fields: Mapping[str, Any]) -> str:
    """Of an answer with these output fields, by name and annotation. Raises Unsayable."""
    match style:
        case "chat":
            headed = [f"{_header(name)}\n{section(kind)}\n\n" for name, kind in fields.items()]
            return "".join(headed) + _header("completed")
        case "json":
            values = [(name, property_value(kind)) for name, kind in fields.items()]
            return Json(JSON_CHAR, LEAN_CHAR, indent=2).record(values, 0)
        case "xml":
            return "\n\n".join(f"<{name}>{element(kind)}</{name}>" for name, kind in fields.items())


def _header(name: str) -> str:
    return re.escape(f"[[ ## {name} ## ]]")


def _written(style: Style, fields: Mapping[str, Any]) -> str | None:
    try:
        return answer_pattern(style, fields)
    except Unsayable as error:
        _log.warning("answers with the fields %s are not constrained: %s", list(fields), error)
        return None
