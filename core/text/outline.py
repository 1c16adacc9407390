"""Prompts as routers compare them: token ids as a model's replicas have them, found faster.

What a template writes around the messages of a chat depends on their roles, hardly ever on their
texts. So it is kept, and the texts are put in; now and then a chat is rendered in full to see that
this still holds. Where a text changes more than that (a template that strips blanks), two prompts
differ sooner than their replicas' would. Never used for what a model reads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

from ..api.protocol import Chat, Segment, Text

_MOST_OUTLINES = 256
_MOST_MESSAGES = 64
_USES = 64  # of an outline, before it is looked at again
_MARK = "\ufdd2{}\ufdd3"  # noncharacters: never part of exchanged text


class Rendering(Protocol):
    """What is needed of a tokenizer."""

    def render(self, chat: Chat) -> Sequence[Segment]:
        """The segments of a chat's prompt."""

    def encode_prompt(self, prompt: Any, most: int | None = None) -> list[int]:
        """Token ids of a whole prompt."""

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """Token ids of a text with names of special tokens in it."""


@dataclass(slots=True)
class _Outline:
    """parts: texts before, between and behind those of the messages; None: it does not hold."""

    parts: list[str] | None
    uses: int = 0


class OutlineEncoder:
    """Encodes prompts with a tokenizer; chats of plain texts by their outlines. For any thread.

    is_plain: whether a text of a message holds no name of a special token that is to stay plain
      text; chats with others are rendered.
    """

    def __init__(
        self, tokenizer: Rendering, is_plain: Callable[[str], bool] = lambda text: True
    ) -> None:
        self._tokenizer, self._is_plain = tokenizer, is_plain
        self._outlines: OrderedDict[tuple[str, ...], _Outline] = OrderedDict()
        self._lock = Lock()

    def encode_prompt(self, prompt: Any, most: int | None = None) -> list[int]:
        """Token ids of a whole prompt. Raises what the tokenizer raises."""
        texts = self._texts(prompt)
        text = None if texts is None else self._outlined(prompt, texts)
        if text is None:
            return self._tokenizer.encode_prompt(prompt, most)
        return self._tokenizer.encode(text, most)

    def _texts(self, prompt: Any) -> list[str] | None:
        """Those of the messages; None for what has to be rendered."""
        if not isinstance(prompt, Chat) or prompt.tools or prompt.open_last:
            return None
        if len(prompt.messages) > _MOST_MESSAGES:
            return None
        texts = []
        for message in prompt.messages:
            if len(message.content) != 1:
                return None
            (segment,) = message.content
            if not isinstance(segment, Text) or segment.ids is not None:
                return None
            texts.append(segment.text)
        return texts if all(map(self._is_plain, texts)) else None

    def _outlined(self, chat: Chat, texts: Sequence[str]) -> str | None:
        roles = tuple(message.role for message in chat.messages)
        with self._lock:
            outline = self._outlines.get(roles)
            if outline is not None and outline.uses % _USES:
                outline.uses += 1
                self._outlines.move_to_end(roles)
                return None if outline.parts is None else _filled(outline.parts, texts)
        uses = 0 if outline is None else outline.uses
        made = _Outline(self._looked_up(chat, texts), uses + 1)
        with self._lock:
            self._outlines[roles] = made
            while len(self._outlines) > _MOST_OUTLINES:
                self._outlines.popitem(last=False)
        return None if made.parts is None else _filled(made.parts, texts)

    def _looked_up(self, chat: Chat, texts: Sequence[str]) -> list[str] | None:
        """The outline of a chat, where it gives the prompt that the template does."""
        marks = [_MARK.format(index) for index in range(len(texts))]
        messages = (
            type(message)(message.role, (Text(mark),))
            for message, mark in zip(chat.messages, marks, strict=True)
        )
        rest, parts = _joined(self._tokenizer.render(Chat(tuple(messages)))), list[str]()
        for mark in marks:
            before, found, rest = rest.partition(mark)
            if not found:
                return None
            parts.append(before)
        parts.append(rest)
        return parts if _filled(parts, texts) == _joined(self._tokenizer.render(chat)) else None


def _joined(segments: Sequence[Segment]) -> str:
    return "".join([it.text for it in segments if isinstance(it, Text)])


def _filled(parts: Sequence[str], texts: Sequence[str]) -> str:
    pieces = [""] * (2 * len(texts) + 1)
    pieces[::2], pieces[1::2] = parts, texts
    return "".join(pieces)
