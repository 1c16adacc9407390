"""Server-sent events: the data of each event, as bytes come in."""

from __future__ import annotations

import re
from collections.abc import Iterator

_END = re.compile(rb"\r\n|\n|\r(?!\Z)")  # a last \r may be half of \r\n
MAX_LINE = 16 << 20


class EventReader:
    """Cuts a stream of bytes into the data of its events."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def push(self, data: bytes) -> Iterator[str]:
        """The data of the events that are complete with these bytes. Raises ValueError, after the
        events before, for a line that is too long and for bytes that are not UTF-8."""
        *lines, self._rest = _END.split(self._rest + data)
        for line in lines:
            text = self._event(line)
            if text is not None:
                yield text
        if len(self._rest) > MAX_LINE:
            raise ValueError(f"an event of more than {MAX_LINE} bytes")

    def end(self) -> Iterator[str]:
        """The data of an event that the end of the stream completes."""
        return self.push(b"\n\n")

    def _event(self, line: bytes) -> str | None:
        """Take a line; the data of the event that it ends, if it does and there is any."""
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        data, self._data = self._data, []
        return b"\n".join(data).decode("utf-8") if data else None
