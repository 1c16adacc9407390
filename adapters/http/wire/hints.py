"""Hints on the wire: a versioned `forkroot` object in the body of any request.

    {"version": 3, "root": "essay", "prefix_end": 2, "branches": 8, "program": "writer 7",
     "kind": "writer", "calls_left": 3, "tokens_left": 600, "next_use": 1, "pause": 0.5}

All but `root` (or `program` or `kind`, where nothing is shared) may be left out, and none is
needed. Version 2 has no `kind`, and there one of the other two is needed.
A client without hints loses nothing, and a field that is not known is ignored.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from ....core.api.program_report import MAX_KIND_LEN, is_kind, kind_of
from ....core.api.protocol import HINT_VERSION, ForkHint, InvalidCall

MAX_ROOT_LEN = 1024
_NUMBERS = "prefix_end", "branches", "calls_left", "tokens_left", "next_use"
_ALWAYS = "version", "root", "prefix_end", "branches"


def hint_of(body: Mapping[str, Any] | None) -> ForkHint | None:
    """The hint that a `forkroot` object gives; None for none, and for one of a later version that
    names no root. Raises InvalidCall, which names the field as "forkroot.root"."""
    if body is None:
        return None
    if not isinstance(body, Mapping):
        raise InvalidCall("forkroot", body, "an object, or null")
    version = _whole(body, "version", least=1)
    root, program, kind = body.get("root"), body.get("program"), body.get("kind")
    if program is not None and not _is_root(program):
        raise InvalidCall("forkroot.program", program, f"a text of 1 to {MAX_ROOT_LEN} characters")
    if kind is not None and not is_kind(kind):
        allowed = f"a text of 1 to {MAX_KIND_LEN} characters that can be printed"
        raise InvalidCall("forkroot.kind", kind, allowed)
    is_named = program is not None or kind is not None
    if root is None and not is_named and version is not None and version > HINT_VERSION:
        return None
    if root is None and is_named:
        root = ""
    elif not _is_root(root):
        raise InvalidCall("forkroot.root", root, f"a text of 1 to {MAX_ROOT_LEN} characters")
    numbers: Any = {name: _whole(body, name) for name in _NUMBERS}
    return ForkHint(str(root), program=program, pause=_seconds(body), kind=kind, **numbers)


def hint_body(hint: ForkHint) -> dict[str, Any]:
    """The `forkroot` object of a hint. A root's name that the wire does not take becomes its
    digest, and a number without a meaning becomes null: no hint makes a call fail."""
    numbers = {name: getattr(hint, name) for name in _NUMBERS}
    known = {name: None if it is None or it < 0 else it for name, it in numbers.items()}
    body = {"version": HINT_VERSION, "root": _name(hint.root), **known}
    kind = kind_of(hint.kind) or None
    body |= {"kind": kind, "program": None if hint.program is None else _name(hint.program)}
    if hint.root == "" and (kind, hint.program) != (None, None):
        body["root"] = None
    if hint.pause is not None and 0 <= hint.pause < math.inf:
        body["pause"] = hint.pause
    return {name: it for name, it in body.items() if it is not None or name in _ALWAYS}


def _name(text: str) -> str:
    if _is_root(text):
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _seconds(body: Mapping[str, Any]) -> float | None:
    value = body.get("pause")
    if value is None or (type(value) in (int, float) and 0 <= value < math.inf):
        return value
    raise InvalidCall("forkroot.pause", value, "a finite number of seconds >= 0, or null")


def _whole(body: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    value = body.get(name)
    if value is None or (type(value) is int and value >= least):
        return value
    raise InvalidCall(f"forkroot.{name}", value, f"an integer >= {least}, or null")


def _is_root(value: object) -> bool:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_ROOT_LEN:
        return False
    try:
        return bool(value.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return False
