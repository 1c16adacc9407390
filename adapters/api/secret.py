"""The key of an API: shown nowhere, and pickled nowhere."""

from __future__ import annotations

from typing import NoReturn

from ...core.api.owner import NonCopyable, not_picklable

_SHOWN = "..."


class Secret(NonCopyable):
    """A key. Its text is only in the headers of requests."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The key itself."""
        return self._text

    def redacted(self, text: str) -> str:
        """A text of somebody else, such as a server's message, without the key."""
        return text.replace(self._text, _SHOWN)

    def __repr__(self) -> str:
        return _SHOWN

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_picklable(self, "the key in the environment of the other process")
