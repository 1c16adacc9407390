"""Texts whose `repr` does not show them, as tracebacks with local variables print it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HiddenText(str):
    """A text, such as a key, that is itself wherever it is used, and "..." where it is printed as a
    part of something."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'...'"


def with_hidden_key(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a backend with a key that is not printed."""
    key = settings.get("api_key")
    hidden = {"api_key": HiddenText(key)} if isinstance(key, str) else {}
    return {**settings, **hidden}
