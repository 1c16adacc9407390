"""The file of a batch: one line of JSON for each item that has ended well, behind a header.

The header says which batch it is: a digest of the program and of the items' arguments, the settings
that change answers, the models. A line is written whole as its item ends, so that a killed process
loses no item that has ended; the disk is awaited once a second and at the end. It knows no backend.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getsource, unwrap
from pathlib import Path
from types import CodeType
from typing import Any

from ...core.api.protocol import InvalidCall
from .interpreter.saved import Saved
from .language.plain import encoded
from .language.settings import Settings

_SYNC_INTERVAL = 1.0  # seconds
_KIND = {"forkroot": "batch", "version": 1}


class Checkpoint:
    """The states of the items that have ended, kept in `path`.

    done: those that were there, by the index of their item. A line that was cut off, because the
    process was killed while it wrote, is removed. Raises InvalidCall for a file that is another
    batch's, no checkpoint, damaged, in use by another batch, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._synced_at = time.monotonic()
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        except (OSError, ValueError) as error:
            raise self._refused(f"a file that can be written ({error})") from error
        try:
            self.done = self._read({**_KIND, **header})
        except BaseException:
            os.close(self._file)
            raise

    def add(self, index: int, saved: Saved) -> None:
        """Write the state of an item that has ended; thread-safe. Raises InvalidCall for a state
        that is not plain data, and where the file cannot be written."""
        self._append({"item": index, **saved.as_json()})

    def close(self) -> None:
        """Await the disk; another batch may use the file from now on."""
        with self._lock:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._refused(f"a file that can be written ({error})") from error
            finally:
                os.close(self._file)

    def _append(self, record: Mapping[str, Any]) -> None:
        line = _line(record)
        with self._lock:
            try:
                self._write(line)
            except OSError as error:
                raise self._refused(f"a file that can be written ({error})") from error

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

    def _read(self, header: Mapping[str, Any]) -> dict[int, Saved]:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise self._refused("a file")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise self._refused("a file that no other batch uses now") from error
        content = Path(self._path).read_bytes()
        expected = _line(header)
        if len(content) < len(expected) and expected.startswith(content):
            os.ftruncate(self._file, 0)
            self._append(header)
            return {}
        self._check_header(content.partition(b"\n")[0], header)
        lines = content.split(b"\n")
        if lines[-1]:
            os.ftruncate(self._file, len(content) - len(lines[-1]))
        return dict(map(self._record, range(2, len(lines) + 1), lines[1:-1]))

    def _check_header(self, line: bytes, header: Mapping[str, Any]) -> None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or found.get("forkroot") != _KIND["forkroot"]:
            raise self._refused("a new file, or one that run_batch wrote")
        for name, value in header.items():
            if found.get(name) != value:
                seen = f"{name} is {found.get(name)!r:.200} there and {value!r:.200} here"
                raise self._refused(f"a new file, or the one of this batch ({seen})")

    def _record(self, number: int, line: bytes) -> tuple[int, Saved]:
        try:
            found = json.loads(line)
            return int(found["item"]), Saved.from_json(found)
        except (ValueError, KeyError, TypeError) as error:
            allowed = f"a file that nobody has changed (line {number} is no ended item)"
            raise self._refused(allowed) from error

    def _refused(self, allowed: str) -> InvalidCall:
        return InvalidCall("checkpoint", self._path, allowed)


def header_of(
    body: Callable[..., Any], items: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """What identifies a batch. Raises InvalidCall for arguments that are not plain data, and what
    `BackendInfo` raises where a backend is gone."""
    arguments = [encoded(dict(item), f"items[{index}]") for index, item in enumerate(items)]
    sampling = {**settings.sampling, "scored_from": settings.scored_from}
    return {
        "program": getattr(body, "__qualname__", "program"),
        "source": _digest(_source(body)),
        "models": [settings.find().info().model]
        + [settings.backends[name].info().model for name in sorted(settings.backends)],
        "settings": encoded({name: sampling[name] for name in sorted(sampling)}, "settings"),
        "num_items": len(items),
        "arguments": _digest(json.dumps(arguments, sort_keys=True)),
    }


def _source(body: Callable[..., Any]) -> str:
    """The text of a program, or its code where there is no text, and the plain values that it
    takes from around it."""
    body = unwrap(body)
    found = getattr(body, "source_text", None)  # of a compiled program
    if isinstance(found, str):
        return found
    code: CodeType | None = getattr(body, "__code__", None)
    try:
        text = getsource(body)
    except (OSError, TypeError):
        text = "" if code is None else "\n".join(_instructions(code))
    names = () if code is None else code.co_freevars
    cells = zip(names, getattr(body, "__closure__", None) or (), strict=False)
    return text + "".join(f"\n{name} = {_value(cell)}" for name, cell in cells)


def _instructions(code: CodeType) -> Iterable[str]:
    """What the code does, without the places of its lines."""
    yield f"{code.co_code.hex()} {code.co_names}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _instructions(constant)
        else:
            yield repr(constant)


def _value(cell: Any) -> str:
    try:
        return json.dumps(encoded(cell.cell_contents, "closure"), sort_keys=True)
    except (InvalidCall, ValueError):  # not plain, or not set yet
        return "..."


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
