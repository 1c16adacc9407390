"""One output field of a signature as a pattern of what DSPy's parsers read as its type.

There are three ways to write a field: a section of the chat format, a property of the JSON object,
an element of XML. What an annotation's values look like is asked of Pydantic; which spelling of a
Literal or an Enum is read is asked of DSPy's own parser.
"""

from __future__ import annotations

import enum
import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin
from xml.sax.saxutils import escape

from dspy import Code, Reasoning
from dspy.adapters.utils import parse_value
from dspy.adapters.xml_adapter import XMLAdapter
from pydantic import TypeAdapter

from ....core.fsm.json_schema.facts import Arrays, Node
from ....core.fsm.json_schema.keywords import applied
from .scalars import (
    CHAT_TEXT,
    JSON_CHAR,
    LEAN_CHAR,
    XML_JSON_CHAR,
    XML_LEAN_CHAR,
    XML_SOME_TEXT,
    XML_TEXT,
)
from .schema import Writer
from .spelling import Json, UnsupportedSchema, Xml

TRUTH = "(?:True|False)"
_INDENTED = Json(indent=2)
_LINE_IN_XML = Json(XML_JSON_CHAR, XML_LEAN_CHAR)
_XML_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Arguments:
    """In an annotation's place: the arguments of one tool, where DSPy knows them as a `dict`.

    schema: JSON Schema of an object.
    """

    schema: Mapping[str, Any]


def section(annotation: Any) -> str:
    """What may stand below a header of the chat format. Raises UnsupportedSchema."""
    return _simple(annotation, CHAT_TEXT, str) or Writer(schema_of(annotation)).pattern()


def property_value(annotation: Any) -> str:
    """The value of a property of the JSON adapter's object. Raises UnsupportedSchema."""
    if annotation is str or _is_wrapped_text(annotation):
        return _INDENTED.text(0, None)
    if is_text(annotation):
        return f"(?:{_INDENTED.text(0, None)}|null)"
    if is_named(annotation):
        return _names(annotation, json.dumps)
    return _Twice(schema_of(annotation), _INDENTED).pattern(depth=1)


def element(annotation: Any) -> str:
    """What may stand in an element of the XML adapter. Raises UnsupportedSchema."""
    if _is_wrapped_text(annotation):
        return f"\n{XML_SOME_TEXT}\n"
    if simple := _simple(annotation, XML_TEXT, escape):
        return f"\n{simple}\n"
    if not isinstance(annotation, Arguments) and XMLAdapter._uses_nested_xml(annotation):
        writer = Writer(TypeAdapter(annotation).json_schema(by_alias=False), Xml())
        if _is_plain(writer, writer.root):
            return writer.pattern()
    return f"\n{Writer(schema_of(annotation), _LINE_IN_XML).pattern()}\n"


def _simple(annotation: Any, text: str, spell: Callable[[Any], str]) -> str | None:
    """The values of a type that needs no schema: a text, a Literal, an Enum, a bool."""
    if is_text(annotation):
        return text
    if is_named(annotation):
        return _names(annotation, spell)
    return TRUTH if annotation is bool else None


def is_text(annotation: Any) -> bool:
    """Whether every text is read as a value of it."""
    if annotation in (str, Any) or _is_wrapped_text(annotation):
        return True
    is_union = get_origin(annotation) in (Union, types.UnionType)
    return is_union and {str, type(None)} <= set(get_args(annotation))


def is_named(annotation: Any) -> bool:
    """Whether it lists its values: a Literal or an Enum."""
    return get_origin(annotation) is Literal or isinstance(annotation, enum.EnumMeta)


def schema_of(annotation: Any) -> Mapping[str, Any]:
    """Pydantic's JSON schema of an annotation. Raises UnsupportedSchema if it has none."""
    if isinstance(annotation, Arguments):
        return annotation.schema
    try:
        return TypeAdapter(annotation).json_schema()
    except Exception as error:
        message = str(error).partition("\n")[0]
        raise UnsupportedSchema(
            f"the type {annotation!r} ({type(error).__name__}: {message})"
        ) from error


class _Twice(Writer):
    """Writes what DSPy reads twice: a string that is a whole value is parsed as JSON once more, if
    its type is not `str` itself. So the string holds JSON where its plain text would be misread."""

    def pattern(self, depth: int = 0) -> str:
        """As `Writer`."""
        ways = list[str]()
        for branch in self._branches(self.root):
            found = self._string_twice(branch) or self.write(branch, depth)
            if found is not None:
                ways.append(found)
        if not ways:
            raise UnsupportedSchema("a schema that no value of bounded depth meets")
        return f"(?:{'|'.join(dict.fromkeys(ways))})"

    def _branches(self, node: Node) -> Iterator[Node]:
        target, facts = self.target(node), self.facts(self.target(node))
        if target is not node:
            is_leaf = facts.values is not None or facts.types == ("string",)
            yield target if is_leaf else node
        elif branches := applied(node, "anyOf"):
            for branch in branches:
                yield from self._branches(branch)
        else:
            yield node

    def _string_twice(self, node: Node) -> str | None:
        facts = self.facts(node)
        if facts.values is not None:
            return f"(?:{'|'.join(re.escape(_encoded(it.value)) for it in facts.values)})"
        if facts.types != ("string",):
            return None
        inner = self.string(node, facts).removeprefix('"').removesuffix('"')
        return f'"\\\\"(?:{inner.replace(JSON_CHAR, LEAN_CHAR)})\\\\""'


def _encoded(value: Any) -> str:
    once = json.dumps(value, ensure_ascii=False)
    return json.dumps(once, ensure_ascii=False) if isinstance(value, str) else once


def _is_wrapped_text(annotation: Any) -> bool:
    """Whether it is one of DSPy's types that are read from any text."""
    return isinstance(annotation, type) and issubclass(annotation, Code | Reasoning)


def _names(annotation: Any, spell: Callable[[Any], str]) -> str:
    """The values of a Literal or Enum: each in the first form that DSPy reads as that value."""
    is_json = spell is json.dumps
    values = annotation if isinstance(annotation, enum.EnumMeta) else get_args(annotation)
    found = dict.fromkeys(
        re.escape(spell(form))
        for value in values
        for form in [next(_read_as(value, annotation, is_json), None)]
        if form is not None
    )
    if not found:
        raise UnsupportedSchema(f"values of {annotation!r} that DSPy can read")
    return f"(?:{'|'.join(found)})"


def _read_as(value: Any, annotation: Any, is_json: bool) -> Iterator[Any]:
    for form in _forms(value, is_json):
        try:
            read = parse_value(form if is_json else form.strip(), annotation)
        except Exception:  # Pydantic's, of json_repair, or of the type itself: no such form
            continue
        is_line = not isinstance(form, str) or (len(form.splitlines()) < 2 and "[[ " not in form)
        if type(read) is type(value) and read == value and is_line:
            yield form


def _forms(value: Any, is_json: bool) -> list[Any]:
    if isinstance(value, enum.Enum):
        member = value.value
        is_plain = isinstance(member, str | int | float if is_json else str)
        return [member, value.name] if is_plain else [value.name]
    if is_json:
        return [value, str(value)]
    return [str(value), json.dumps(value, ensure_ascii=False)]


def _is_plain(writer: Writer, node: Node, open_: tuple[str, ...] = ()) -> bool:
    """Whether nested XML, as DSPy reads it, tells these values apart: fields with plain names,
    lists, numbers, texts that need not be there, and what may be missing."""
    target, facts = writer.target(node), writer.facts(node)
    if target is not node:
        return target.path in open_ or _is_plain(writer, target, (*open_, target.path))
    if branches := applied(node, "anyOf"):
        others = [branch for branch in branches if branch.schema != {"type": "null"}]
        return len(others) == 1 and _is_plain(writer, others[0], open_)
    if facts.values is not None:
        values = [it.value for it in facts.values]
        return all(isinstance(value, str) and value and value == value.strip() for value in values)
    match facts.types:
        case ("object",):
            fields = facts.objects.properties if facts.objects else {}
            return bool(fields) and all(
                _XML_NAME.fullmatch(name) and _is_plain(writer, nodes[0], open_)
                for name, nodes in fields.items()
            )
        case ("array",):
            arrays = facts.arrays or Arrays()
            rest = () if arrays.prefix else arrays.rest or ()
            return bool(rest) and _is_plain(writer, rest[0], open_)
        case ("string",):
            return facts.strings is None or facts.strings.low == 0
    return facts.types in (("integer",), ("number",), ("boolean",))
