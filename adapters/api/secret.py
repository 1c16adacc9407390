"""The key of an API: shown nowhere, and pickled nowhere."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import NoReturn
from urllib.parse import quote

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
        """A text of somebody else, such as a server's message, without the key, however it is
        written there: in JSON, in a URL, in base64, or as Python prints it."""
        for written in self._written():
            text = text.replace(written, _SHOWN)
        return text

    def _written(self) -> set[str]:
        key = self._text
        in_json = json.dumps(key)[1:-1]
        found = {key, in_json, in_json.replace("/", "\\/"), repr(key)[1:-1], quote(key, safe="")}
        for start in range(3):  # where it begins in the groups of base64 is not known
            data = b64encode(bytes(start) + key.encode()).decode().rstrip("=")
            if len(data) > 12:
                found.add(data[4 if start else 0 : -1])
        return found

    def __repr__(self) -> str:
        return _SHOWN

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_picklable(self, "the key in the environment of the other process")
