"""What every body of an answer begins with."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fastapi.responses import JSONResponse

from ..wire.names import new_name


class Answer(JSONResponse):
    """A body in ASCII: it can also hold what a client sent that is not text."""

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return json.dumps(content, separators=(",", ":")).encode("ascii")


class Envelope(NamedTuple):
    """The identity of one answer, the same in all its pieces."""

    id: str
    model: str
    created: int

    @classmethod
    def new(cls, prefix: str, model: str) -> Envelope:
        """Of an answer that begins now."""
        return cls(f"{prefix}-{new_name()}", model, int(time.time()))

    def body(self, kind: str, choices: Sequence[Any], **more: Any) -> dict[str, Any]:
        """A body with these choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
            **more,
        }
