"""Hints on the wire: a versioned `forkroot` object in the body of any request.

    {"version": 1, "root": "essay", "prefix_end": 2, "branches": 8}

A client without hints loses nothing, and a field that is not known is ignored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ....core.api.protocol import HINT_VERSION, ForkHint, InvalidCall

MAX_ROOT_LEN = 1024


def hint_of(body: Mapping[str, Any] | None) -> ForkHint | None:
    """The hint that a `forkroot` object gives; None for none, and for one of a later version that
    names no root. Raises InvalidCall, which names the field as "forkroot.root"."""
    if body is None:
        return None
    if not isinstance(body, Mapping):
        raise InvalidCall("forkroot", body, "an object, or null")
    version = _whole(body, "version", least=1)
    root = body.get("root")
    if root is None and version is not None and version > HINT_VERSION:
        return None
    if not _is_root(root):
        raise InvalidCall("forkroot.root", root, f"a text of 1 to {MAX_ROOT_LEN} characters")
    branches, prefix_end = _whole(body, "branches"), _whole(body, "prefix_end")
    return ForkHint(str(root), branches, prefix_end)


def hint_body(hint: ForkHint) -> dict[str, Any]:
    """The `forkroot` object of a hint. A root's name that the wire does not take becomes its
    digest, and a number without a meaning becomes null: no hint makes a call fail."""
    root, numbers = hint.root, {"prefix_end": hint.prefix_end, "branches": hint.branches}
    if not _is_root(root):
        root = hashlib.sha256(root.encode("utf-8", "surrogatepass")).hexdigest()
    known = {name: None if it is None or it < 0 else it for name, it in numbers.items()}
    return {"version": HINT_VERSION, "root": root, **known}


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
