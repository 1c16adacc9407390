"""The audit log: a file with one line of JSON for each request.

A line names the client by a hash of its key, and has no prompt, no answer and no key.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from ....core.api.protocol import InvalidCall
from ...common.seldom import Seldom

_audit = logging.getLogger("forkroot.audit")
_audit.propagate = False


def note(line: Mapping[str, Any]) -> None:
    """Write what is known of a request that has ended, and the time. Does nothing where no audit
    log is open; never raises."""
    if _audit.handlers:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        _audit.info("%s", json.dumps({"time": now, **line}))


@contextmanager
def audited(path: str | None) -> Iterator[None]:
    """Append all requests to this file while this runs; None: to none. A new file can be read by
    its owner only. A file that is moved or removed, as by logrotate, is made anew.

    Raises InvalidCall where it cannot be written.
    """
    if path is None:
        yield
        return
    try:
        handler = _AuditFile(path)
    except OSError as error:
        allowed = f"a file that can be written ({error.strerror})"
        raise InvalidCall("audit_log", path, allowed) from error
    level = _audit.level
    _audit.setLevel(logging.INFO)
    _audit.addHandler(handler)
    try:
        yield
    finally:
        _audit.removeHandler(handler)
        _audit.setLevel(level)
        with suppress(OSError):  # lines that a full disk did not take
            handler.close()


class _AuditFile(WatchedFileHandler):
    """A failure to write is reported once a second, and harms no request."""

    def __init__(self, path: str) -> None:
        self._seldom = Seldom()
        super().__init__(Path(path), encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # of the look at the file, before the write
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        self._seldom.warn("the audit log could not be written", with_cause=True)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    """A FIFO without a reader is an error, where opening it would wait."""
    return os.open(path, flags | os.O_NONBLOCK, 0o600)
