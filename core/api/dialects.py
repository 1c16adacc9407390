"""Drafts of JSON Schema: which one a schema is written in, which keywords they know, and which of
these hold schemas.

A keyword that no draft knows is an annotation: it restricts nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..common.suggestions import closest, did_you_mean

TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_PYTHON_TYPES: Mapping[str, str] = MappingProxyType(
    dict(zip(("dict", "list", "str", "float", "int", "bool", "None"), TYPES, strict=True))
)
DRAFTS: Mapping[str, int] = MappingProxyType(
    {
        **{f"json-schema.org/draft-0{draft}/schema": draft for draft in (3, 4, 6, 7)},
        "json-schema.org/draft/2019-09/schema": 2019,
        "json-schema.org/draft/2020-12/schema": 2020,
    }
)
SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
SCHEMA_MAPS = frozenset(
    (
        *("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"),
        "dependencies",
    )
)
SCHEMAS = frozenset(
    (
        *("not", "if", "then", "else", "contains", "propertyNames", "contentSchema"),
        *("additionalProperties", "additionalItems", "unevaluatedItems", "unevaluatedProperties"),
    )
)
RESTRICTING = frozenset(
    (
        *("type", "enum", "const", "$ref", "$dynamicRef", "$recursiveRef", "format", "pattern"),
        *("minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
        *("multipleOf", "items", "minItems", "maxItems", "uniqueItems", "minContains"),
        *("maxContains", "required", "minProperties", "maxProperties", "dependentRequired"),
    )
)
DRAFT_3 = frozenset(("extends", "disallow", "divisibleBy"))
SINCE: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("const", "contains", "propertyNames"), 6),
        **dict.fromkeys(("if", "then", "else"), 7),
        **dict.fromkeys(("dependentRequired", "dependentSchemas"), 2019),
        **dict.fromkeys(("unevaluatedProperties", "unevaluatedItems"), 2019),
        **dict.fromkeys(("minContains", "maxContains"), 2019),
        "prefixItems": 2020,
    }
)
UNTIL: Mapping[str, int] = MappingProxyType({"dependencies": 7, "additionalItems": 2019})
WIDENING = frozenset(("minContains", "maxContains", "prefixItems"))  # other keywords
_CHANGED_IN_4 = frozenset((*DRAFT_3, "type"))
ANNOTATIONS = frozenset(
    (
        *("title", "description", "default", "examples", "example", "deprecated", "readOnly"),
        *("writeOnly", "$schema", "$id", "id", "$comment", "$anchor", "$dynamicAnchor"),
        *("$recursiveAnchor", "$vocabulary", "contentMediaType", "contentEncoding"),
        *("discriminator", "externalDocs", "xml"),
    )
)
MAX_IGNORED = 256
MAX_LOGGED = 8
MAX_SUBSCHEMAS = 4_096
MISSPELLED = 0.85  # of the letters in common with a known keyword
FORMATS = frozenset(
    (
        *("date", "time", "date-time", "duration", "email", "idn-email", "hostname", "ipv4"),
        *("idn-hostname", "ipv6", "ip", "ipvanyaddress", "uuid", "uri", "iri", "uri-reference"),
        *("iri-reference", "uri-template", "json-pointer", "relative-json-pointer", "regex"),
        *("byte", "base64", "password", "binary", "path", "file-path", "directory-path"),
        *("host-name", "ip-address", "float", "double"),
        *(f"uuid{version}" for version in (1, 3, 4, 5, 6, 7, 8)),
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)
_log = logging.getLogger("forkroot.constraints")
KNOWN = ANNOTATIONS | RESTRICTING | SCHEMAS | SCHEMA_MAPS | SCHEMA_LISTS


class Ignored(NamedTuple):
    """A keyword that restricts nothing, because it is unknown. pointer: its position. hint: "; did
    you mean ...?" where it looks misspelled."""

    pointer: str
    hint: str = ""


def ignored(schema: Any, most: int = MAX_IGNORED) -> list[Ignored]:
    """The unknown keywords and formats of a schema; at most so many, found in its first
    MAX_SUBSCHEMAS subschemas."""
    found: list[Ignored] = []
    todo, num_subschemas = [(schema, "#", draft_of(schema))], 0
    while todo and len(found) < most and num_subschemas < MAX_SUBSCHEMAS:
        subschema, path, draft = todo.pop()
        num_subschemas += 1
        if isinstance(subschema, Mapping):
            draft = draft_of(subschema, draft)
            found += _ignored_here(subschema, path, draft)
            below = [(value, at(path, *keys), draft) for keys, value in subschemas(subschema)]
            todo += below[MAX_SUBSCHEMAS::-1]
    return found[:most]


def log_ignored(schema: Any, field: str, logged: set[str] | None = None) -> None:
    """Log a warning with the unknown keywords and formats of a schema, if it has any. field: where
    the schema was given. logged: texts that were logged before, and are not again; it grows."""
    found = ignored(schema)
    more = f", and {len(found) - MAX_LOGGED} more" if len(found) > MAX_LOGGED else ""
    text = ", ".join(f"{it.pointer:.200}{it.hint}" for it in found[:MAX_LOGGED]) + more
    if not found or (logged is not None and text in logged):
        return
    if logged is not None and len(logged) < MAX_IGNORED:
        logged.add(text)
    _log.warning("%s: ignored unknown keywords and formats: %s", field, text)


def _ignored_here(schema: Mapping[str, Any], path: str, draft: int | None) -> Iterator[Ignored]:
    is_lone = has_lone_ref(schema, draft)
    for keyword in schema:
        if isinstance(keyword, str) and not is_known(keyword, draft):
            yield Ignored(at(path, keyword), did_you_mean(keyword, KNOWN, MISSPELLED))
        elif (
            is_lone and keyword != "$ref" and keyword not in (*ANNOTATIONS, "$defs", "definitions")
        ):
            yield Ignored(at(path, keyword), f", as draft {draft} ignores all beside $ref")
    name = schema.get("format")
    if isinstance(name, str) and name not in FORMATS and not is_lone:
        yield Ignored(at(path, "format"), did_you_mean(name, FORMATS, MISSPELLED))


def at(path: str, *keys: str | int) -> str:
    """The JSON pointer to something below the place of another."""
    steps = (str(key).replace("~", "~0").replace("/", "~1") for key in keys)
    return "/".join((path, *steps))


def draft_of(schema: Any, default: int | None = None) -> int | None:
    """The draft that `$schema` names: 3, 4, 6, 7, 2019 or 2020; `default` where it names none."""
    name = schema.get("$schema") if isinstance(schema, Mapping) else None
    if not isinstance(name, str):
        return default
    return DRAFTS.get(name.partition("://")[2].rstrip("#"), default)


def has_lone_ref(schema: Mapping[str, Any], draft: int | None) -> bool:
    """Whether all keywords beside `$ref` are ignored, as up to draft 7."""
    return draft is not None and draft <= 7 and isinstance(schema.get("$ref"), str)


def normalized(
    schema: Mapping[str, Any], draft: int | None, is_strict: bool = False
) -> Mapping[str, Any]:
    """A schema object in the keywords of later drafts. Keywords of draft 3 are written as
    those of draft 4; keywords beside a lone `$ref` are left out.

    Keywords that the draft does not know, or no longer, are honoured where that allows less; with
    `is_strict` they are left out, as its readers do.
    """
    if has_lone_ref(schema, draft):
        return {"$ref": schema["$ref"]}
    if draft == 3:
        return _from_draft_3(schema)
    unknown = {word for word, since in SINCE.items() if draft is not None and draft < since}
    unknown |= {word for word, until in UNTIL.items() if draft is None or draft > until}
    if not is_strict:
        unknown &= WIDENING
    if unknown & schema.keys():
        return {word: value for word, value in schema.items() if word not in unknown}
    return schema


def _from_draft_3(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    changed = {word: value for word, value in schema.items() if word not in _CHANGED_IN_4}
    if "divisibleBy" in schema:
        changed["multipleOf"] = schema["divisibleBy"]
    if "extends" in schema:
        bases = schema["extends"]
        changed["allOf"] = bases if isinstance(bases, list | tuple) else [bases]
    if "disallow" in schema:
        changed["not"] = _of_type(schema["disallow"])
    if "type" in schema:
        changed |= _of_type(schema["type"])
    if isinstance(dependencies := schema.get("dependencies"), Mapping):
        items = dependencies.items()
        changed["dependencies"] = {k: [it] if isinstance(it, str) else it for k, it in items}
    return changed


def _of_type(types: Any) -> Mapping[str, Any]:
    """What `type` means in draft 3: "any" is any, and a list may hold schemas."""
    options = list(types) if isinstance(types, list | tuple) else [types]
    if "any" in options:
        return {}
    if any(isinstance(it, Mapping) for it in options):
        return {"anyOf": [it if isinstance(it, Mapping) else {"type": it} for it in options]}
    return {"type": types}


def type_suggestion(value: object) -> str:
    """The end of the error for a value of `type` that is refused: "; did you mean ...?" for its
    first name that is no type, or "" where no type is close. Names of Python's types count too."""
    names = value if isinstance(value, list | tuple) else [value]
    unknown = next((it for it in names if isinstance(it, str) and it not in TYPES), "")
    near = closest(unknown, (*TYPES, *_PYTHON_TYPES))
    return f"; did you mean {_PYTHON_TYPES.get(near, near)}?" if near is not None else ""


def is_known(keyword: str, draft: int | None = None) -> bool:
    """Whether a draft knows a keyword, or it is one of those that extend schemas openly."""
    return keyword in KNOWN or keyword.startswith("x-") or (draft == 3 and keyword in DRAFT_3)


def subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The values of a schema object that should be schemas, with their keys."""
    for keyword, value in schema.items():
        if keyword in SCHEMAS:
            yield (keyword,), value
        elif keyword in SCHEMA_MAPS and isinstance(value, Mapping):
            yield from (((keyword, name), item) for name, item in value.items())
        elif keyword == "items" and isinstance(value, Mapping | bool):
            yield (keyword,), value
        elif keyword in (*SCHEMA_LISTS, "items", "extends") and isinstance(value, list | tuple):
            yield from (((keyword, i), item) for i, item in enumerate(value))
