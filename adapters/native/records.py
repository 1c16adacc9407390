"""A file of JSON lines behind a header, to which one process appends, and which a kill never
damages.

A line is written whole, so that a killed process loses none that was written; the disk is awaited
once a second and at the end. It knows no program and no backend.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.api.protocol import InvalidCall

_SYNC_INTERVAL = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is. field: its name in errors. mark: what its header says it is. version: of its
    lines. writer, owner: what writes such files, and for what. record: what a line is."""

    field: str
    mark: str
    version: int
    writer: str
    owner: str
    record: str


class RecordFile:
    """The records in `path`, behind a header with `header`, which says whose they are.

    take: called with each record that was there, in order; what it raises of ValueError, KeyError
      and TypeError is a damaged line. A line that was cut off, because the process was killed while
      it wrote, is removed. Raises InvalidCall for a file with another header, one that is damaged,
      in use by another process, or cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        kind: Kind,
        header: Mapping[str, Any],
        take: Callable[[Mapping[str, Any]], object],
    ) -> None:
        self._path = os.fspath(path)
        self._kind = kind
        self._lock = threading.Lock()
        self._synced_at = time.monotonic()
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except (OSError, ValueError) as error:
            raise self._refused(f"a file that can be written ({error})") from error
        try:
            self._read({"forkroot": kind.mark, "version": kind.version, **header}, take)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, record: Mapping[str, Any]) -> None:
        """Write a record; thread-safe. Raises InvalidCall where the file cannot be written."""
        line = _line(record)
        with self._lock:
            try:
                self._write(line)
            except OSError as error:
                raise self._refused(f"a file that can be written ({error})") from error

    def close(self) -> None:
        """Await the disk; another process may use the file from now on."""
        with self._lock:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._refused(f"a file that can be written ({error})") from error
            finally:
                os.close(self._file)
                self._file = -1  # of no file: later records are refused

    def _write(self, line: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError:
            os.ftruncate(self._file, size)
            raise
        if time.monotonic() - self._synced_at >= _SYNC_INTERVAL:
            os.fsync(self._file)
            self._synced_at = time.monotonic()

    def _read(self, header: Mapping[str, Any], take: Callable[[Mapping[str, Any]], object]) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise self._refused("a file")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refused(f"a file that no other {self._kind.owner} uses now") from error
        expected = _line(header)
        with Path(self._path).open("rb") as content:
            first = content.readline()
            if not first.endswith(b"\n") and expected.startswith(first):
                os.ftruncate(self._file, 0)
                self.append(header)
                return
            self._check_header(first, header)
            end = len(first)
            for number, line in enumerate(content, 2):
                if not line.endswith(b"\n"):
                    os.ftruncate(self._file, end)
                    return
                end += len(line)
                self._take(number, line, take)

    def _check_header(self, line: bytes, header: Mapping[str, Any]) -> None:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("forkroot") != self._kind.mark:
            raise self._refused(f"a new file, or one that {self._kind.writer} wrote")
        for name, value in header.items():
            if found.get(name) != value:
                seen = f"{name} is {found.get(name)!r:.200} there and {value!r:.200} here"
                allowed = f"a new file, or the one of this {self._kind.owner} ({seen})"
                raise self._refused(allowed)

    def _take(self, number: int, line: bytes, take: Callable[[Mapping[str, Any]], object]) -> None:
        try:
            take(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            record = self._kind.record
            allowed = f"a file that nobody has changed (line {number} is no {record})"
            raise self._refused(allowed) from error

    def _refused(self, allowed: str) -> InvalidCall:
        return InvalidCall(self._kind.field, self._path, allowed)


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
