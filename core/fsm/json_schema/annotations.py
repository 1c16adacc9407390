"""Logs keywords and formats that JSON Schema does not know, and which restrict nothing."""

from __future__ import annotations

import logging

from ...api.dialects import ignored

MAX_LOGGED = 8
_log = logging.getLogger("forkroot.constraints")


def log_ignored(schema: object, field: str) -> None:
    """Log what is ignored in a schema, if anything is. field: where the schema was given."""
    found = ignored(schema)
    if not found:
        return
    more = f", and {len(found) - MAX_LOGGED} more" if len(found) > MAX_LOGGED else ""
    shown = ", ".join(f"{it.pointer:.200}{it.hint}" for it in found[:MAX_LOGGED])
    _log.warning("%s: ignored unknown keywords and formats: %s%s", field, shown, more)
