"""What became of one request of a load: its times, its tokens, or the reason why it failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request. Times in seconds since the load began.

    due: when it was to be sent. ended: when its answer was complete, or failed. pieces: when each
      piece of text of a stream came. cached_tokens: None if the server does not report it. failure:
      why it failed; None if it did not.
    """

    index: int
    due: float
    ended: float
    pieces: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    completion_tokens: int = 0
    failure: str | None = None

    @property
    def seconds(self) -> float:
        """From when it was due to its end."""
        return self.ended - self.due

    @property
    def first(self) -> float | None:
        """From when it was due to the first text; None where nothing was streamed."""
        return self.pieces[0] - self.due if self.pieces else None

    @property
    def gaps(self) -> list[float]:
        """Between one piece of text and the next."""
        return [after - before for before, after in pairwise(self.pieces)]

    @property
    def per_token(self) -> float | None:
        """Mean time of each token after the first piece; None if there is no other piece."""
        if len(self.pieces) < 2 or self.completion_tokens < 2:
            return None
        return (self.pieces[-1] - self.pieces[0]) / (self.completion_tokens - 1)

    def row(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "index": self.index,
            "due": round(self.due, 6),
            "first": None if self.first is None else round(self.first, 6),
            "seconds": round(self.seconds, 6),
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.completion_tokens,
            "failure": self.failure,
        }


@dataclass(slots=True)
class Answer:
    """An answer while it comes. Mutable. is_ended: its end has arrived."""

    pieces: list[float] = field(default_factory=list)
    usage: Mapping[str, Any] = field(default_factory=dict)
    num_chunks: int = 0
    is_ended: bool = False
    failure: str | None = None

    def take(self, body: Mapping[str, Any], now: float | None = None) -> None:
        """A whole answer, or an event of a stream that came `now`. May raise what reading a body of
        another shape raises."""
        if error := body.get("error"):
            self.failure = f"error in the answer: {_code(error)}"
        if isinstance(usage := body.get("usage"), Mapping):
            self.usage = usage
        for choice in body.get("choices") or ():
            self.is_ended = self.is_ended or bool(choice.get("finish_reason"))
            if _has_text(choice):
                self.num_chunks += 1
                if now is not None:
                    self.pieces.append(now)

    def take_line(self, line: str, now: float) -> None:
        """A line of a stream."""
        name, _, data = line.partition(":")
        if name == "data" and data.strip() == "[DONE]":
            self.is_ended = True
        elif name == "data":
            self.take(json.loads(data), now)

    def outcome(self, index: int, due: float, ended: float) -> Outcome:
        """The outcome. Without reported usage, a piece counts as a token."""
        details = self.usage.get("prompt_tokens_details")
        written = _count(self.usage, "completion_tokens")
        return Outcome(
            index,
            due,
            ended,
            tuple(self.pieces),
            _count(self.usage, "prompt_tokens") or 0,
            _count(details, "cached_tokens"),
            self.num_chunks if written is None else written,
            self.failure or (None if self.is_ended else "cut off before its end"),
        )


def refusal(status: int, data: bytes) -> str:
    """Why a server refused: the status, and the code of the error if it has one."""
    try:
        return f"{status} {_code(json.loads(data)['error'])}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return str(status)


def printable(text: str, width: int = 60) -> str:
    """Text of a server without what steers a terminal, and not longer than `width`."""
    return "".join(char for char in text[:width] if char.isprintable())


def _count(found: object, name: str) -> int | None:
    """A count by its name; None where there is none."""
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, int) else None


def _code(error: object) -> str:
    """The shortest name that an error has."""
    if isinstance(error, Mapping):
        names = (error.get(name) for name in ("code", "type", "message"))
        error = next((name for name in names if name), "unknown")
    return printable(str(error))


def _has_text(choice: Mapping[str, Any]) -> bool:
    message = choice.get("delta") or choice.get("message") or choice
    kinds = ("content", "text", "reasoning_content", "reasoning", "tool_calls")
    return any(message.get(kind) for kind in kinds)
