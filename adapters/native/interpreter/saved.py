"""Ended states as JSON, and back: what can be read of them. No code is stored, and none is run."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ....core.api.protocol import Image, Text, Video
from ..language.expressions import RoleBegin, RoleEnd
from ..language.plain import decoded, encoded
from .interpreter import Feed, Interpreter
from .transcript import Entry, Piece


@dataclass(frozen=True, slots=True)
class Saved:
    """What can be read of an ended state. num_retries: as `Reader.num_retries`. totals: of its
    run."""

    entries: tuple[Entry, ...]
    values: Mapping[str, Any]
    meta: Mapping[str, Any]
    ret_value: Any
    num_retries: int = 0
    totals: Mapping[str, int | float] = field(default_factory=dict)

    @classmethod
    def of(cls, interpreter: Interpreter) -> Saved:
        """That of a state whose program has ended; after an error, without the variables that were
        to be set again."""
        variables = interpreter.variables
        names = [name for name in variables.values if not variables.is_expected(name)]
        return cls(
            interpreter.transcript.since(0),
            {name: variables.values[name] for name in names},
            {name: variables.meta[name] for name in names},
            interpreter.ret_value,
            interpreter.num_retries,
            interpreter.context.totals.counters,
        )

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Saved:
        """What `as_json` was made of. Raises ValueError, KeyError or TypeError for other JSON."""
        return cls(
            tuple(_entry(*entry) for entry in found["transcript"]),
            decoded(found["variables"]),
            decoded(found["meta"]),
            decoded(found["ret_value"]),
            int(found["retries"]),
            decoded(found.get("totals", {})),
        )

    def as_json(self) -> dict[str, Any]:
        """As plain JSON. Raises InvalidCall for a variable or a `ret_value` that is not plain."""
        return {
            "transcript": [part for entry in self.entries for part in _parts(entry)],
            "variables": encoded(dict(self.values), "state"),
            "meta": encoded(dict(self.meta), "meta"),
            "ret_value": encoded(self.ret_value, "ret_value"),
            "retries": self.num_retries,
            "totals": encoded(dict(self.totals), "totals"),
        }

    def restore(self, interpreter: Interpreter, is_over: bool = True) -> None:
        """Make of a new state the one that was saved; it takes nothing more, as any ended one.
        is_over: otherwise somebody else ends it. Its text is not read twice where it had some."""
        interpreter.transcript.extend(self.entries)
        for name, value in self.values.items():
            interpreter.variables.settle(name, value, self.meta[name])
        if not interpreter.feeds:
            interpreter.feeds.append(Feed(interpreter.transcript.text()))
        interpreter.ret_value, interpreter.num_retries = self.ret_value, self.num_retries
        interpreter.context.totals.count(**self.totals)
        if is_over:
            interpreter.stream.close()


def _parts(entry: Entry) -> list[list[Any]]:
    if isinstance(entry, RoleBegin):
        return [["role", entry.role]]
    if isinstance(entry, RoleEnd):
        return [["end"]]
    found: list[list[Any]] = []
    for segment in entry.segments:
        if isinstance(segment, Image):
            found.append(["image", b64encode(segment.data).decode()])
        elif isinstance(segment, Video):
            found.append(["video", b64encode(segment.data).decode(), segment.num_frames])
    return found or [["answer" if entry.is_answer else "text", entry.text]]


def _entry(kind: str, *fields: Any) -> Entry:
    match kind, *fields:
        case "role", str() as name:
            return RoleBegin(name)
        case ("end",):
            return RoleEnd()
        case (("text" | "answer"), str() as text):
            return Piece(text, (Text(text),), kind == "answer")
        case "image", data:
            return Piece("", (Image(b64decode(data)),))
        case "video", data, num_frames:
            return Piece("", (Video(b64decode(data), cast(int, num_frames)),))
    raise ValueError(f"no entry of a transcript: {kind}")
