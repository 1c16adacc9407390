"""The values of a node's fields as plain JSON, and back: strict, typed, without code.

A codec decodes only what it encodes; anything else is an InvalidGraph that names the field.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .....core.api.calls import Choices, Constraint, Grammar, JsonSchema, Regex
from .....core.api.prompts import is_text
from .....core.api.protocol import InvalidCall
from ...language.plain import decoded, encoded
from ...language.settings import sampling_fields
from .errors import InvalidGraph
from .nodes import Read
from .values import Composed, Given, Inserted, Listed, Mapped, Plain, Set, State, Value

_TEXT = "a text without lone surrogates"
_CONSTRAINTS = "an object with one of regex, json_schema, choices, grammar"
_READ = ("name", "stream", "source", "item")


@dataclass(frozen=True, slots=True)
class Codec:
    """How a field is written and read. decode: of the field's place and its JSON; may raise
    InvalidGraph. schema: the JSON schema of what it reads."""

    encode: Callable[[Any], Any]
    decode: Callable[[str, Any], Any]
    schema: Mapping[str, Any]


def _same(value: Any) -> Any:
    return value


def _typed(kind: type, allowed: str) -> Callable[[str, Any], Any]:
    def decode(field: str, found: Any) -> Any:
        if type(found) is not kind or (kind is str and not is_text(found)):
            raise InvalidGraph(field, found, allowed)
        return found

    return decode


text = Codec(_same, _typed(str, _TEXT), {"type": "string"})
whole = Codec(_same, _typed(int, "an integer"), {"type": "integer", "minimum": 0})
flag = Codec(_same, _typed(bool, "true or false"), {"type": "boolean"})


def optional(codec: Codec) -> Codec:
    """The same, or null."""
    return Codec(
        lambda value: None if value is None else codec.encode(value),
        lambda field, found: None if found is None else codec.decode(field, found),
        {"anyOf": [codec.schema, {"type": "null"}]},
    )


def members(field: str, found: Any, names: tuple[str, ...], num_needed: int) -> Mapping[str, Any]:
    """An object that has no other members than these, and the first `num_needed` of them."""
    if not isinstance(found, dict):
        raise InvalidGraph(field, found, "an object")
    for name in found:
        if name not in names:
            raise InvalidGraph(f"{field}.{name}"[:120], found[name], f"no field but {names}")
    for name in names[:num_needed]:
        if name not in found:
            raise InvalidGraph(f"{field}.{name}", None, "a value: the field is missing")
    return found


def listed(field: str, found: Any) -> list[Any]:
    """A list."""
    if not isinstance(found, list):
        raise InvalidGraph(field, found, "a list")
    return found


def _write_read(read: Read) -> dict[str, Any]:
    found = {"name": read.name, "stream": read.stream, "source": read.source}
    return found if read.item is None else {**found, "item": read.item}


def _read_read(field: str, found: Any) -> Read:
    given = members(field, found, _READ, 3)
    kinds = {"name": text, "stream": whole, "source": whole, "item": whole}
    return Read(**{key: kinds[key].decode(f"{field}.{key}", it) for key, it in given.items()})


def _read_texts(field: str, found: Any) -> tuple[str, ...]:
    items = enumerate(listed(field, found))
    return tuple(text.decode(f"{field}[{index}]", item) for index, item in items)


def _read_data(field: str, found: Any) -> bytes:
    try:
        return b64decode(text.decode(field, found), validate=True)
    except ValueError as error:
        if isinstance(error, InvalidGraph):
            raise
        raise InvalidGraph(field, found, f"bytes in base64 ({error})") from error


def _write_sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        name: list(it) if type(it) is tuple else it for name, it in sampling.items()
    }
    bias = found.get("logit_bias")
    if bias is not None:
        found["logit_bias"] = {str(token): value for token, value in bias.items()}
    return found


def _read_sampling(field: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise InvalidGraph(field, found, "an object of the fields of Sampling")
    given = dict(found)
    try:
        if isinstance(given.get("logit_bias"), dict):
            given["logit_bias"] = {int(key): it for key, it in given["logit_bias"].items()}
        return sampling_fields(given)
    except InvalidCall as error:
        raise InvalidGraph(f"{field}.{error.field}", error.value, error.allowed) from error
    except (TypeError, ValueError) as error:
        raise InvalidGraph(field, found, f"the fields of Sampling ({error})") from error


def _write_constraint(constraint: Constraint) -> dict[str, Any]:
    match constraint:
        case Regex(pattern=pattern):
            return {"regex": pattern}
        case JsonSchema(schema=schema, separators=separators, strict=strict):
            found: dict[str, Any] = {"json_schema": schema, "separators": list(separators)}
            return {**found, "strict": True} if strict else found
        case Choices(options=options):
            return {"choices": list(options)}
        case Grammar(source=source, syntax=syntax):
            return {"grammar": source, "syntax": syntax}


def _read_constraint(field: str, found: Any) -> Constraint:
    names = ("regex", "json_schema", "separators", "strict", "choices", "grammar", "syntax")
    given = members(field, found, names, 0)
    match sorted(given):
        case ["regex"]:
            return Regex(text.decode(f"{field}.regex", given["regex"]))
        case ["choices"]:
            return Choices(_read_texts(f"{field}.choices", given["choices"]))
        case ["grammar", "syntax"]:
            source = text.decode(f"{field}.grammar", given["grammar"])
            syntax: Any = given["syntax"]
            if syntax not in ("lark", "ebnf", "gbnf"):
                raise InvalidGraph(f"{field}.syntax", syntax, "lark | ebnf | gbnf")
            return Grammar(source, syntax)
        case ["json_schema", "separators"] | ["json_schema", "separators", "strict"]:
            schema: Any = given["json_schema"]
            if not isinstance(schema, dict | bool):
                raise InvalidGraph(f"{field}.json_schema", schema, "an object or a boolean")
            parts: Any = _read_texts(f"{field}.separators", given["separators"])
            strict = flag.decode(f"{field}.strict", given.get("strict", False))
            return JsonSchema(schema, parts, strict)
    raise InvalidGraph(field, sorted(given), _CONSTRAINTS)


read = Codec(_write_read, _read_read, {"$ref": "#/$defs/read"})
texts = Codec(list, _read_texts, {"type": "array", "items": {"type": "string"}})
data = Codec(
    lambda value: b64encode(value).decode(),
    _read_data,
    {"type": "string", "contentEncoding": "base64"},
)
sampling = Codec(_write_sampling, _read_sampling, {"$ref": "#/$defs/sampling"})
constraint = Codec(_write_constraint, _read_constraint, {"$ref": "#/$defs/constraint"})


def _read_plain(field: str, found: Any) -> Any:
    try:
        return decoded(found)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise InvalidGraph(field, found, f"plain data ({type(error).__name__}: {error})") from error


plain = Codec(lambda value: encoded(value, "value"), _read_plain, {"$ref": "#/$defs/plain"})


def _write_inserted(part: str | Inserted) -> Any:
    if isinstance(part, str):
        return part
    found = {**_write_value(part.value), "form": part.form}
    return {**found, "spec": part.spec} if part.spec else found


def _read_inserted(field: str, found: Any) -> str | Inserted:
    if isinstance(found, str):
        return str(text.decode(field, found))
    given = dict(members(field, found, ("argument", "read", "form", "spec"), 0))
    form = text.decode(f"{field}.form", given.pop("form", "format"))
    spec = text.decode(f"{field}.spec", given.pop("spec", ""))
    inner = _read_value(field, given)
    if not isinstance(inner, Given | Set):
        raise InvalidGraph(field, found, "an argument or a variable")
    return Inserted(inner, form, spec)


def _write_value(value: Value) -> dict[str, Any]:
    match value:
        case Plain(value=found):
            return {"plain": plain.encode(found)}
        case Given(name=name):
            return {"argument": name}
        case Set(read=found):
            return {"read": _write_read(found)}
        case State(stream=stream):
            return {"state": stream}
        case Composed(parts=parts):
            return {"text": [_write_inserted(part) for part in parts]}
        case Listed(items=items, is_tuple=is_tuple):
            return {"tuple" if is_tuple else "list": [_write_value(item) for item in items]}
        case Mapped(pairs=pairs):
            return {"dict": [[plain.encode(key), _write_value(item)] for key, item in pairs]}


def _read_value(field: str, found: Any) -> Value:
    given = members(field, found, tuple(_VALUES), 0)
    if len(given) != 1:
        raise InvalidGraph(field, sorted(given), f"an object with one of {', '.join(_VALUES)}")
    ((name, content),) = given.items()
    return _VALUES[name](f"{field}.{name}", content)


def _read_items(field: str, found: Any) -> tuple[Value, ...]:
    items = enumerate(listed(field, found))
    return tuple(_read_value(f"{field}[{index}]", item) for index, item in items)


def _read_mapped(field: str, found: Any) -> Mapped:
    pairs = []
    for index, pair in enumerate(listed(field, found)):
        where = f"{field}[{index}]"
        if len(listed(where, pair)) != 2:
            raise InvalidGraph(where, pair, "a pair of a key and a value")
        key = plain.decode(where, pair[0])
        if not isinstance(key, str | int | float | bool | bytes | tuple | None):
            raise InvalidGraph(where, key, "a key of plain data")
        pairs.append((key, _read_value(where, pair[1])))
    return Mapped(tuple(pairs))


def _read_composed(field: str, found: Any) -> Composed:
    items = enumerate(listed(field, found))
    return Composed(tuple(_read_inserted(f"{field}[{index}]", item) for index, item in items))


_VALUES: Mapping[str, Callable[[str, Any], Value]] = {
    "plain": lambda field, found: Plain(plain.decode(field, found)),
    "argument": lambda field, found: Given(text.decode(field, found)),
    "read": lambda field, found: Set(_read_read(field, found)),
    "state": lambda field, found: State(whole.decode(field, found)),
    "text": _read_composed,
    "list": lambda field, found: Listed(_read_items(field, found)),
    "tuple": lambda field, found: Listed(_read_items(field, found), True),
    "dict": _read_mapped,
}
value = Codec(_write_value, _read_value, {"$ref": "#/$defs/value"})
