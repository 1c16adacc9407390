"""One answer while it comes in."""

from __future__ import annotations

import json

from ...core.api.protocol import FinishReason, Output, Text
from ..common.tools import Invocation, ToolFormat
from .request import Ending, Event, Piece, Refusal, Request, ToolPiece


class Draft:
    """Takes what comes, and gives what readers may see. Mutable.

    is_over: no more can come that counts. refusal: why there is no answer. num_pieces: of text,
      that came.
    """

    def __init__(self, request: Request) -> None:
        self.refusal: str | None = None
        self.reason: FinishReason | None = None
        self.text = ""
        self.is_cut = False
        self.num_pieces = 0
        self._matched: str | None = None
        self._tools: dict[int, list[str]] = {}
        self._stops = request.stops
        self._strips_blanks = request.strips_blanks
        self._held = ""
        self._half = ""  # of a character outside of the first plane

    @property
    def is_over(self) -> bool:
        """Whether the answer has ended."""
        return self.reason is not None

    def take(self, event: Event) -> str:
        """Text that is certain with this event."""
        match event:
            case Piece(text=text):
                self.num_pieces += 1
                return self._add(self._unicode(text))
            case ToolPiece(number=number, name=name, arguments=arguments):
                tool = self._tools.setdefault(number, ["", ""])
                tool[0] += name
                tool[1] += arguments
            case Refusal(text=text):
                self.refusal = (self.refusal or "") + text
            case Ending(reason=reason, matched=matched) if not self.is_over:
                self.reason, self._matched = reason, matched
                return self._release() + self._calls()
        return ""

    def output(self, text: str | None = None, reason: FinishReason | None = None) -> Output:
        """The answer. text, reason: in place of its own."""
        found = self.text if text is None else text
        segments = (Text(found),) if found else ()
        ending = reason or self.reason or "abort"
        return Output(found, (), ending, self._matched, segments)

    def _unicode(self, text: str) -> str:
        """A piece without lone surrogates: halves of one character may be in two pieces."""
        text, self._half = self._half + text, ""
        if "\ud800" <= text[-1:] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _add(self, text: str) -> str:
        if self.is_over:
            return ""
        if self._strips_blanks:
            text = text.lstrip()
            self._strips_blanks = not text
        self._held += text
        ends = {stop: self._held.find(stop) for stop in self._stops if stop in self._held}
        if ends:
            stop = min(ends, key=lambda it: (ends[it], -len(it)))
            self._held = self._held[: ends[stop]]
            self.reason, self._matched, self.is_cut = "stop", stop, True
            return self._release()
        return self._release(max((_overlap(self._held, it) for it in self._stops), default=0))

    def _release(self, num_held: int = 0) -> str:
        """Take all held characters but the last `num_held` into the text."""
        end = len(self._held) - num_held
        found, self._held = self._held[:end], self._held[end:]
        self.text += found
        return found

    def _calls(self) -> str:
        """Tool calls as our adapters read them in an answer's text. Raises ValueError."""
        calls = []
        for _, (name, arguments) in sorted(self._tools.items()):
            json.loads(arguments or "{}")
            calls.append(Invocation(name, arguments or "{}"))
        found = ToolFormat().write(calls, is_first=not self.text) if calls else ""
        self.text += found
        return found


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text may begin a stop."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
