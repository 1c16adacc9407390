"""What a router and its servers exchange beside a request that is relayed as it came: whose it is,
in a header; and what it used, in a header of the answer, or after it in a comment of its stream."""

from __future__ import annotations

import base64
import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core.api.protocol import Completion, Output, Usage

PREFIX = "/v1/forkroot/relay"  # before the path: a server that knows no relays refuses it
CLIENT_HEADER, REPORT_HEADER = "X-Forkroot-Client", "X-Forkroot-Report"
MARK = b": forkroot "  # the comment, at the beginning of a line
_MOST_IDS = 4096  # tokens that are reported; of more, none
_USED = ("prompt_tokens", "cached_tokens", "completion_tokens", "image_tokens")


@dataclass(frozen=True, slots=True)
class RelayedClient:
    """Whose a relayed request is, as its router knows. deadline: of its calls, in seconds."""

    namespace: str = ""
    tenant: str = ""
    weight: float = 1.0
    deadline: float | None = None

    @classmethod
    def read(cls, header: str) -> RelayedClient:
        """Of a header. Raises ValueError for one that is none."""
        given = json.loads(header)
        if not isinstance(given, dict):
            raise ValueError("not an object")
        found = cls(
            str(given.get("namespace", "")),
            str(given.get("tenant", "")),
            float(given.get("weight", 1.0)),
            None if given.get("deadline") is None else float(given["deadline"]),
        )
        if not 0 < found.weight < 1e9:
            raise ValueError("weight")
        return found


def report_of(completions: list[Completion]) -> bytes:
    """What the calls of a request used, and the tokens of a single one's outputs."""
    usage = sum((it.usage for it in completions), Usage())
    report: dict[str, Any] = {"usage": [getattr(usage, name) for name in _USED]}
    outputs = completions[0].outputs if len(completions) == 1 else ()
    if 0 < sum(len(it.ids) for it in outputs) <= _MOST_IDS:
        packed = (array("i", it.ids).tobytes() for it in outputs)
        report["outputs"] = [base64.b64encode(it).decode() for it in packed]
    return json.dumps(report, separators=(",", ":")).encode()


def completion_of(report: bytes) -> Completion:
    """The completion that a report describes, without its texts; an empty one where it cannot be
    read: then nothing is known of what was used."""
    try:
        given: Mapping[str, Any] = json.loads(report)
        usage = Usage(**dict(zip(_USED, map(int, given["usage"]), strict=False)))
        outputs = [array("i", base64.b64decode(it)) for it in given.get("outputs", ())]
    except (ValueError, TypeError, KeyError, AttributeError):
        return Completion()
    return Completion(tuple(Output("", tuple(it)) for it in outputs), usage)
