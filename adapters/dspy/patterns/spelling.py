"""How values are spelled: as JSON on one line, as indented JSON, or as nested XML.

Each is written as DSPy writes the examples in its prompts, so that an answer that imitates them is
an answer that is allowed. All methods take and give patterns; `depth` is that of the value itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from .scalars import JSON_CHAR, LEAN_CHAR, XML_LEAN_CHAR, XML_TEXT

MOST_ITEMS = 32  # of a list with an upper bound
MOST_CHARS = 1000


class UnsupportedSchema(Exception):
    """What has no pattern; says which part."""


@dataclass(frozen=True, slots=True)
class Json:
    """char, lean_char: of a string; the lean one where characters are counted. indent: blanks for
    each level; None: all on one line."""

    char: str = JSON_CHAR
    lean_char: str = LEAN_CHAR
    indent: int | None = None
    null: str = "null"
    true: str = "true"
    false: str = "false"

    def quoted(self, pattern: str) -> str:
        """A text that matches the pattern, which allows no character to be escaped."""
        return f'"(?:{pattern})"'

    def text(self, low: int, high: int | None) -> str:
        """Any text of such a length."""
        return f'"{counted(self.char, self.lean_char, low, high)}"'

    def constant(self, value: Any, depth: int) -> str:
        """This value of JSON."""
        text = json.dumps(value, ensure_ascii=False, indent=self.indent)
        return re.escape(text.replace("\n", "\n" + " " * (depth * (self.indent or 0))))

    def record(self, fields: Sequence[tuple[str, str]], depth: int) -> str:
        """An object of these fields, in order."""
        return self.whole([self.members(fields, depth)] if fields else [], depth)

    def members(self, fields: Sequence[tuple[str, str]], depth: int) -> str:
        """What stands for these fields, in order, in an object."""
        names = [re.escape(json.dumps(name, ensure_ascii=False)) for name, _ in fields]
        pairs = [f"{name}: {value}" for name, (_, value) in zip(names, fields, strict=True)]
        return self._comma(depth).join(pairs)

    def whole(self, members: Sequence[str], depth: int) -> str:
        """An object of such members, in order."""
        return self._enclosed("{}", self._comma(depth).join(members), depth)

    def mapping(self, value: str, depth: int, is_empty: bool) -> str:
        """An object of any fields with such values; is_empty: it can have none."""
        pair = f'"{self.lean_char}{{1,40}}": {value}'
        return self._filled("{}", f"{pair}(?:{self._comma(depth)}{pair})*", depth, is_empty)

    def array(self, items: Sequence[str], depth: int) -> str:
        """A list of exactly these items."""
        return self._enclosed("[]", self._comma(depth).join(items), depth)

    def repeated(self, item: str, depth: int, low: int, high: int | None) -> str:
        """A list of such items."""
        if high == 0:
            return r"\[\]"
        more = times(max(low - 1, 0), None if high is None else high - 1)
        inside = f"{item}(?:{self._comma(depth)}{item}){more}"
        return self._filled("[]", inside, depth, low == 0)

    def _comma(self, depth: int) -> str:
        return ", " if self.indent is None else f",{self._line(depth + 1)}"

    def _line(self, depth: int) -> str:
        return "" if self.indent is None else "\n" + " " * (depth * self.indent)

    def _enclosed(self, marks: str, inside: str, depth: int) -> str:
        start, end = map(re.escape, marks)
        if not inside:
            return start + end
        return start + self._line(depth + 1) + inside + self._line(depth) + end

    def _filled(self, marks: str, inside: str, depth: int, is_empty: bool) -> str:
        whole = self._enclosed(marks, inside, depth)
        return f"(?:{re.escape(marks)}|{whole})" if is_empty else whole


@dataclass(frozen=True, slots=True)
class Xml(Json):
    """What stands inside of an element. Fields and items are elements of their own; what XML as
    DSPy reads it cannot say, no pattern is asked for (see `fields`)."""

    null: str = ""

    def quoted(self, pattern: str) -> str:
        """As `Json`."""
        return f"(?:{pattern})"

    def text(self, low: int, high: int | None) -> str:
        """As `Json`. Blanks at the ends do not count for DSPy."""
        return XML_TEXT if high is None else f"{XML_LEAN_CHAR}{{0,{min(high, MOST_CHARS)}}}"

    def constant(self, value: Any, depth: int) -> str:
        """As `Json`."""
        return re.escape(escape(value if isinstance(value, str) else json.dumps(value)))

    def record(self, fields: Sequence[tuple[str, str]], depth: int) -> str:
        """As `Json`."""
        return "".join(f"<{name}>{value}</{name}>" for name, value in fields)

    def mapping(self, value: str, depth: int, is_empty: bool) -> str:
        """Not to be said: nothing keeps two entries from having one key."""
        raise UnsupportedSchema("mappings as nested XML")

    def array(self, items: Sequence[str], depth: int) -> str:
        """As `Json`."""
        return self.record([("item", item) for item in items], depth)

    def repeated(self, item: str, depth: int, low: int, high: int | None) -> str:
        """As `Json`."""
        return f"(?:<item>{item}</item>){times(low, high)}"


def counted(char: str, lean_char: str, low: int, high: int | None) -> str:
    """So many characters."""
    if (low, high) == (0, None):
        return f"{char}*"
    low = min(low, MOST_CHARS)
    return f"{lean_char}{{{low},{'' if high is None else max(low, min(high, MOST_CHARS))}}}"


def times(low: int, high: int | None) -> str:
    """How often the group before it is repeated."""
    if (low, high) == (0, None):
        return "*"
    return f"{{{low},{'' if high is None else max(low, min(high, MOST_ITEMS))}}}"
