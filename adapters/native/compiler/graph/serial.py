"""Nodes, blocks and parameters as plain JSON, and back; and the JSON schema of a graph's file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from . import codecs
from .blocks import Block, Case, Parameter, Switch
from .codecs import Codec, flag, listed, members, optional, text, whole
from .errors import InvalidGraph
from .nodes import (
    Argument,
    Begin,
    ConstantText,
    End,
    Fork,
    ForkItem,
    Gen,
    Join,
    Media,
    Node,
    RoleBegin,
    RoleEnd,
    ScopeBegin,
    ScopeEnd,
    Select,
    Variable,
)

_OPS: Mapping[str, type[Node]] = {
    "constant": ConstantText,
    "argument": Argument,
    "variable": Variable,
    "gen": Gen,
    "select": Select,
    "media": Media,
    "role_begin": RoleBegin,
    "role_end": RoleEnd,
    "scope_begin": ScopeBegin,
    "scope_end": ScopeEnd,
    "fork": Fork,
    "fork_item": ForkItem,
    "join": Join,
    "begin": Begin,
    "end": End,
}
_NAMES = {kind: name for name, kind in _OPS.items()}
_CODECS: Mapping[str, Codec] = {
    **dict.fromkeys(("text", "form", "spec", "role", "method", "mode", "name"), text),
    **dict.fromkeys(("stream", "num", "fork", "index", "scored_from", "num_frames"), whole),
    **dict.fromkeys(("continues", "is_streamed", "resample"), flag),
    **dict.fromkeys(("backend", "argument"), text),
    "options": codecs.texts,
    "read": codecs.read,
    "data": codecs.data,
    "sampling": codecs.sampling,
    "constraint": codecs.constraint,
}


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a kind of node. default: MISSING for one that must be given."""

    name: str
    codec: Codec
    default: Any


def _fields_of(kind: type[Node]) -> tuple[_Field, ...]:
    found = []
    for entry in fields(kind):
        factory = entry.default_factory
        default = entry.default if factory is MISSING else factory()
        can_be_none = default is None or (kind is Select and entry.name == "name")
        codec = _CODECS[entry.name]
        found.append(_Field(entry.name, optional(codec) if can_be_none else codec, default))
    return tuple(found)


_FIELDS = {kind: _fields_of(kind) for kind in _OPS.values()}


def write_node(node: Node) -> dict[str, Any]:
    """A node as JSON, without the fields that have their defaults."""
    found: dict[str, Any] = {"op": _NAMES[type(node)]}
    for entry in _FIELDS[type(node)]:
        value = getattr(node, entry.name)
        if entry.default is MISSING or value != entry.default:
            found[entry.name] = entry.codec.encode(value)
    return found


def read_node(field: str, found: Any) -> Node:
    """What `write_node` was given. Raises InvalidGraph."""
    op = found.get("op") if isinstance(found, dict) else None
    kind = _OPS.get(op) if isinstance(op, str) else None
    if kind is None:
        raise InvalidGraph(f"{field}.op", op, " | ".join(_OPS))
    entries = {entry.name: entry for entry in _FIELDS[kind]}
    members(field, found, ("op", *entries), 1)
    values = {}
    for name, entry in entries.items():
        if name in found:
            values[name] = entry.codec.decode(f"{field}.{name}", found[name])
        elif entry.default is MISSING:
            raise InvalidGraph(f"{field}.{name}", None, "a value: the field is missing")
    return kind(**values)


def write_block(block: Block) -> dict[str, Any]:
    """A block as JSON."""
    found: dict[str, Any] = {"start": block.start, "end": block.end}
    if block.value is not None:
        found["value"] = codecs.value.encode(block.value)
    if block.switch is not None:
        cases = [{"options": list(it.options), "block": it.block} for it in block.switch.cases]
        found["switch"] = {"read": codecs.read.encode(block.switch.read), "cases": cases}
    return found


def read_block(field: str, found: Any) -> Block:
    """What `write_block` was given. Raises InvalidGraph."""
    given = members(field, found, ("start", "end", "value", "switch"), 2)
    start, end = (whole.decode(f"{field}.{name}", given[name]) for name in ("start", "end"))
    value = codecs.value.decode(f"{field}.value", given["value"]) if "value" in given else None
    switch = _read_switch(f"{field}.switch", given["switch"]) if "switch" in given else None
    return Block(start, end, switch, value)


def _read_switch(field: str, found: Any) -> Switch:
    given = members(field, found, ("read", "cases"), 2)
    read = codecs.read.decode(f"{field}.read", given["read"])
    cases = []
    for index, item in enumerate(listed(f"{field}.cases", given["cases"])):
        where = f"{field}.cases[{index}]"
        case = members(where, item, ("options", "block"), 2)
        options = codecs.texts.decode(f"{where}.options", case["options"])
        cases.append(Case(options, whole.decode(f"{where}.block", case["block"])))
    return Switch(read, tuple(cases))


def write_parameter(parameter: Parameter) -> dict[str, Any]:
    """A parameter as JSON."""
    found: dict[str, Any] = {"name": parameter.name}
    if not parameter.is_required:
        found["value"] = codecs.plain.encode(parameter.value)
    return {**found, "is_fixed": True} if parameter.is_fixed else found


def read_parameter(field: str, found: Any) -> Parameter:
    """What `write_parameter` was given. Raises InvalidGraph."""
    given = members(field, found, ("name", "value", "is_fixed"), 1)
    name = text.decode(f"{field}.name", given["name"])
    is_fixed = flag.decode(f"{field}.is_fixed", given.get("is_fixed", False))
    if "value" not in given:
        if is_fixed:
            raise InvalidGraph(f"{field}.value", None, "a value: the parameter is fixed")
        return Parameter(name)
    value = codecs.plain.decode(f"{field}.value", given["value"])
    return Parameter(name, False, value, is_fixed)


def node_schemas() -> dict[str, Any]:
    """The JSON schema of each kind of node, by its name."""
    return {
        name: {
            "type": "object",
            "properties": {
                "op": {"const": name},
                **{entry.name: entry.codec.schema for entry in _FIELDS[kind]},
            },
            "required": [
                "op",
                *(entry.name for entry in _FIELDS[kind] if entry.default is MISSING),
            ],
            "additionalProperties": False,
        }
        for name, kind in _OPS.items()
    }
