"""The file of a batch: one line of JSON for each item that has ended well, behind a header.

The header says which batch it is: a digest of the program and of the items' arguments, the settings
that change answers, the models. A line is written whole as its item ends, so that a killed process
loses no item that has ended. It knows no backend.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import getsource, unwrap
from types import CodeType
from typing import Any

from ...core.api.protocol import InvalidCall
from .interpreter.saved import Saved
from .language.plain import encoded
from .language.settings import Settings
from .records import Kind, RecordFile

SOURCE = "__forkroot_source__"
_KIND = Kind("checkpoint", "batch", 1, "run_batch", "batch", "ended item")


class Checkpoint:
    """The states of the items that have ended, kept in `path`.

    done: those that were there, by the index of their item. Raises InvalidCall for a file that is
    another batch's, no checkpoint, damaged, in use by another batch, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], header: Mapping[str, Any]) -> None:
        self.done: dict[int, Saved] = {}
        self._file = RecordFile(path, _KIND, header, self._take)

    def add(self, index: int, saved: Saved) -> None:
        """Write the state of an item that has ended; thread-safe. Raises InvalidCall for a state
        that is not plain data, and where the file cannot be written."""
        self._file.append({"item": index, **saved.as_json()})

    def close(self) -> None:
        """Await the disk; another batch may use the file from now on."""
        self._file.close()

    def _take(self, record: Mapping[str, Any]) -> None:
        self.done[int(record["item"])] = Saved.from_json(record)


def header_of(
    body: Callable[..., Any], items: Sequence[Mapping[str, Any]], settings: Settings
) -> dict[str, Any]:
    """What identifies a batch. Raises InvalidCall for arguments that are not plain data, and what
    `BackendInfo` raises where a backend is gone."""
    arguments = [encoded(dict(item), f"items[{index}]") for index, item in enumerate(items)]
    sampling = {**settings.sampling, "scored_from": settings.scored_from}
    return {
        "program": getattr(body, "__qualname__", "program"),
        "source": digest(source_of(body)),
        "models": [settings.find().info().model]
        + [settings.backends[name].info().model for name in sorted(settings.backends)],
        "settings": encoded({name: sampling[name] for name in sorted(sampling)}, "settings"),
        "num_items": len(items),
        "arguments": digest(json.dumps(arguments, sort_keys=True)),
    }


def source_of(body: Callable[..., Any]) -> str:
    """The text of a program, or its code where there is no text, and the plain values that it
    takes from around it. A function that came from another machine has it as its attribute
    SOURCE."""
    body = unwrap(body)
    if isinstance(known := getattr(body, SOURCE, None), str):
        return known
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


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
