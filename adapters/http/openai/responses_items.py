"""The output of a response while it grows: messages and calls, and their events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...common.toolreader import ArgumentsPiece, CallStart, Piece, TextPiece
from ..wire.names import new_name

Item: TypeAlias = dict[str, Any]
ItemEvent: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Items:
    """Puts pieces of an answer together. Mutable; output: the items so far, the last one perhaps
    open."""

    output: list[Item] = field(default_factory=list)
    _is_open: bool = False

    def take(self, piece: Piece) -> list[ItemEvent]:
        """The events of a piece."""
        match piece:
            case TextPiece(text=text):
                is_new = not self._is_open or self.output[-1]["type"] != "message"
                opening = self.close() + self._open_message() if is_new else []
                self.output[-1]["content"][0]["text"] += text
                kind = "response.output_text.delta"
                return [*opening, self._event(kind, content_index=0, delta=text, logprobs=[])]
            case CallStart(name=name):
                call = {"call_id": _new("call"), "name": name, "arguments": ""}
                item = {"type": "function_call", "id": _new("fc"), **call}
                return self.close() + self._open({**item, "status": "in_progress"})
            case ArgumentsPiece(text=text):
                self.output[-1]["arguments"] += text
                return [self._event("response.function_call_arguments.delta", delta=text)]

    def close(self, status: str = "completed") -> list[ItemEvent]:
        """The events that end the open item, if there is one."""
        if not self._is_open:
            return []
        self._is_open = False
        item = self.output[-1]
        item["status"] = status
        if item["type"] == "message":
            (part,) = item["content"]
            text = {"content_index": 0, "text": part["text"], "logprobs": []}
            ends = [
                self._event("response.output_text.done", **text),
                self._event("response.content_part.done", content_index=0, part=part),
            ]
        else:
            call = {"name": item["name"], "arguments": item["arguments"]}
            ends = [self._event("response.function_call_arguments.done", **call)]
        done = {"output_index": len(self.output) - 1, "item": item}
        return [*ends, {"type": "response.output_item.done", **done}]

    def _open_message(self) -> list[ItemEvent]:
        item = {"type": "message", "id": _new("msg"), "role": "assistant", "content": []}
        events = self._open({**item, "status": "in_progress"})
        self.output[-1]["content"].append(_part(""))
        part = self._event("response.content_part.added", content_index=0, part=_part(""))
        return [*events, part]

    def _open(self, item: Item) -> list[ItemEvent]:
        self.output.append(item)
        self._is_open = True
        shown = {**item, "content": []} if "content" in item else {**item}
        index = len(self.output) - 1
        return [{"type": "response.output_item.added", "output_index": index, "item": shown}]

    def _event(self, kind: str, **fields: Any) -> ItemEvent:
        index = len(self.output) - 1
        return {"type": kind, "item_id": self.output[-1]["id"], "output_index": index, **fields}


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _new(prefix: str) -> str:
    return f"{prefix}_{new_name()}"
