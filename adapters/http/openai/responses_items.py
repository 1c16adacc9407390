"""The output of a response while it grows: messages and calls, and their events."""

from __future__ import annotations

from typing import Any, TypeAlias

from ...common.toolreader import ArgumentsPiece, CallStart, Piece, TextPiece
from ..wire.names import new_name

Item: TypeAlias = dict[str, Any]
ItemEvent: TypeAlias = dict[str, Any]


class Items:
    """Puts pieces of an answer together. Mutable; output: the items so far, the last one perhaps
    open."""

    def __init__(self) -> None:
        self.output: list[Item] = []
        self._is_open = False

    def take(self, piece: Piece) -> list[ItemEvent]:
        """The events of a piece."""
        match piece:
            case TextPiece(text):
                return self._text_events(text)
            case CallStart(name=name):
                return self.close() + self._open(_call(name))
            case ArgumentsPiece(text=text):
                item = self.output[-1]
                item["arguments"] += text
                return [self._event("response.function_call_arguments.delta", delta=text)]

    def close(self, status: str = "completed") -> list[ItemEvent]:
        """The events that end the open item, if there is one."""
        if not self._is_open:
            return []
        self._is_open = False
        item = self.output[-1]
        item["status"] = status
        done = {"output_index": len(self.output) - 1, "item": item}
        ends = self._ends_of_text(item) if item["type"] == "message" else self._end_of_call(item)
        return [*ends, {"type": "response.output_item.done", **done}]

    def _text_events(self, text: str) -> list[ItemEvent]:
        is_new = not self._is_open or self.output[-1]["type"] != "message"
        opening = self.close() + self._open_message() if is_new else []
        part = self.output[-1]["content"][0]
        part["text"] += text
        kind = "response.output_text.delta"
        return [*opening, self._event(kind, content_index=0, delta=text, logprobs=[])]

    def _open_message(self) -> list[ItemEvent]:
        item = {"type": "message", "id": _new("msg"), "role": "assistant", "content": []}
        events = self._open({**item, "status": "in_progress"})
        self.output[-1]["content"].append(_part(""))
        part = self._event("response.content_part.added", content_index=0, part=_part(""))
        return [*events, part]

    def _open(self, item: Item) -> list[ItemEvent]:
        self.output.append(item)
        self._is_open = True
        shown = {**item, "content": []} if item["type"] == "message" else dict(item)
        index = len(self.output) - 1
        return [{"type": "response.output_item.added", "output_index": index, "item": shown}]

    def _ends_of_text(self, item: Item) -> list[ItemEvent]:
        (part,) = item["content"]
        text = {"content_index": 0, "text": part["text"], "logprobs": []}
        return [
            self._event("response.output_text.done", **text),
            self._event("response.content_part.done", content_index=0, part=part),
        ]

    def _end_of_call(self, item: Item) -> list[ItemEvent]:
        call = {"name": item["name"], "arguments": item["arguments"]}
        return [self._event("response.function_call_arguments.done", **call)]

    def _event(self, kind: str, **fields: Any) -> ItemEvent:
        index = len(self.output) - 1
        return {"type": kind, "item_id": self.output[-1]["id"], "output_index": index, **fields}


def _part(text: str) -> Item:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(name: str) -> Item:
    return {
        "type": "function_call",
        "id": _new("fc"),
        "call_id": _new("call"),
        "name": name,
        "arguments": "",
        "status": "in_progress",
    }


def _new(prefix: str) -> str:
    return f"{prefix}_{new_name()}"
