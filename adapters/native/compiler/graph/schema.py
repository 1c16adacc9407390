"""The JSON Schema of a saved graph; `graph.schema.json` beside this file has it for other programs.

What it refuses, `Graph.from_json` refuses too; that also checks what no schema says, such as that
references lead back. `python -m forkroot.adapters.native.compiler.graph.schema` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from .....core.api.protocol import Sampling
from .graph import VERSION
from .nodes import FORMS
from .serial import node_schemas
from .validation import MAX_NAME, MAX_NODES, MAX_PATHS

PATH = Path(__file__).with_name("graph.schema.json")
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_WHOLE = {"type": "integer", "minimum": 0}
_VALUE = {"$ref": "#/$defs/value"}
_READ = {"$ref": "#/$defs/read"}
_PLAIN = {"$ref": "#/$defs/plain"}


def _object(needed: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**needed, **optional},
        "required": list(needed),
        "additionalProperties": False,
    }


def graph_schema() -> dict[str, Any]:
    """The schema of the version that is written now."""
    nodes = node_schemas()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"A compiled program of forkroot, version {VERSION}",
        **_object(
            {
                "forkroot": {"const": "graph"},
                "version": {"const": VERSION},
                "name": {"type": "string", "maxLength": MAX_NAME},
                "parameters": {"type": "array", "items": {"$ref": "#/$defs/parameter"}},
                "nodes": {
                    "type": "array",
                    "maxItems": MAX_NODES,
                    "items": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in nodes]},
                },
                "blocks": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 2 * MAX_PATHS - 1,
                    "items": {"$ref": "#/$defs/block"},
                },
            },
            outputs={"anyOf": [_TEXTS, {"type": "null"}]},
            speculate={"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]},
        ),
        "$defs": {**nodes, **_parts()},
    }


def _parts() -> dict[str, Any]:
    case = _object({"options": _TEXTS, "block": _WHOLE})
    switch = _object({"read": _READ, "cases": {"type": "array", "items": case}})
    given = _object({"name": _TEXT}, value=_PLAIN, is_fixed={"type": "boolean"})
    return {
        "parameter": {**given, "dependentSchemas": {"is_fixed": _fixed_needs_a_value()}},
        "block": _object({"start": _WHOLE, "end": _WHOLE}, value=_VALUE, switch=switch),
        "read": _object({"name": _TEXT, "stream": _WHOLE, "source": _WHOLE}, item=_WHOLE),
        "sampling": {
            "type": "object",
            "propertyNames": {"enum": sorted(entry.name for entry in fields(Sampling))},
        },
        "constraint": {"anyOf": _constraints()},
        "value": {"anyOf": _values()},
        "plain": {"description": "data; an object whose key begins with $ names a type of Python"},
    }


def _fixed_needs_a_value() -> dict[str, Any]:
    is_not = {"properties": {"is_fixed": {"const": False}}}
    return {"anyOf": [{"required": ["value"]}, is_not]}


def _constraints() -> list[dict[str, Any]]:
    schema = {"type": ["object", "boolean"]}
    return [
        _object({"regex": _TEXT}),
        _object({"choices": _TEXTS}),
        _object({"grammar": _TEXT, "syntax": {"enum": ["lark", "ebnf", "gbnf"]}}),
        _object({"json_schema": schema, "separators": _TEXTS}, strict={"type": "boolean"}),
    ]


def _values() -> list[dict[str, Any]]:
    values = {"type": "array", "items": _VALUE}
    pair = {"type": "array", "prefixItems": [_PLAIN, _VALUE], "minItems": 2, "maxItems": 2}
    form = {"form": {"enum": list(FORMS)}, "spec": _TEXT}
    inserted = [_object({"argument": _TEXT}, **form), _object({"read": _READ}, **form)]
    return [
        _object({"plain": _PLAIN}),
        _object({"argument": _TEXT}),
        _object({"read": _READ}),
        _object({"state": _WHOLE}),
        _object({"text": {"type": "array", "items": {"anyOf": [_TEXT, *inserted]}}}),
        _object({"list": values}),
        _object({"tuple": values}),
        _object({"dict": {"type": "array", "items": pair}}),
    ]


def written() -> str:
    """The text of the file."""
    return json.dumps(graph_schema(), indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(written(), encoding="utf-8")
