"""Chat messages to prompt segments, by the model's own template.

Templates are code from a checkpoint: they run in an immutable sandbox (jinja2). It knows nothing of
tokens: a model's own earlier answers keep their ids by going through the template as placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .protocol import Chat, InvalidCall, InvalidModel, Message, Segment, Text, UnsupportedCall

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # noncharacters: never part of exchanged text
_HOLE = re.compile(f"{_OPEN}(\\d+){_CLOSE}")
_TRAINING_TAG = re.compile(r"{%-?\s*(?:end)?generation\s*-?%}")


class ChatTemplate:
    """A checkpoint's chat template.

    source: the jinja text. names: variables for it, such as bos_token.
    """

    def __init__(self, source: str, names: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(_TRAINING_TAG.sub("", source))
        except jinja2.TemplateError as error:
            raise InvalidModel(f"the chat template cannot be parsed: {error}") from error
        self._names = names

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """The template of a checkpoint folder, or None if it has none."""
        settings: dict[str, Any] = {}
        path = folder / "tokenizer_config.json"
        if path.is_file():
            try:
                settings = json.loads(path.read_text("utf-8"))
            except ValueError as error:
                raise InvalidModel(f"{path} is not JSON: {error}") from error
        beside = folder / "chat_template.jinja"
        source = beside.read_text("utf-8") if beside.is_file() else settings.get("chat_template")
        if isinstance(source, list):
            source = next((t["template"] for t in source if t["name"] == "default"), None)
        return cls(source, _special_names(settings)) if source else None

    def render(self, chat: Chat) -> list[Segment]:
        """The prompt of a chat: the messages, then the opening of the assistant's answer (or the
        last message left open). Raises InvalidCall for a chat that the template refuses."""
        last = chat.messages[-1]
        if not chat.open_last:
            return self._fill(chat, chat.messages, add_opening=True)
        if last.role == "assistant":
            opened = self._fill(chat, chat.messages[:-1], add_opening=True)
            return opened + list(last.content)
        return self._fill(chat, chat.messages, add_opening=False, cut_last=True)

    def _fill(
        self, chat: Chat, messages: Sequence[Message], add_opening: bool, cut_last: bool = False
    ) -> list[Segment]:
        kept: list[Segment] = []
        shown = [{"role": m.role, "content": _with_holes(m.content, kept)} for m in messages]
        if cut_last:
            shown[-1]["content"] += f"{_OPEN}{len(kept)}{_CLOSE}"
        text = self._render(shown, chat, add_opening)
        if cut_last:
            text = text.partition(f"{_OPEN}{len(kept)}{_CLOSE}")[0]
        pieces = _HOLE.split(text)
        segments: list[Segment] = [Text(piece) for piece in pieces]
        segments[1::2] = [kept[int(number)] for number in pieces[1::2]]
        return segments

    def _render(self, shown: list[dict[str, str]], chat: Chat, add_opening: bool) -> str:
        try:
            return self._template.render(
                messages=shown,
                tools=list(chat.tools) or None,
                add_generation_prompt=add_opening,
                **self._names,
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise InvalidCall("prompt", "a chat", f"what its template takes: {error}") from error


def _with_holes(content: tuple[Segment, ...], kept: list[Segment]) -> str:
    """A message's text, in which segments that carry ids are placeholders; these go to `kept`."""
    text = ""
    for segment in content:
        if not isinstance(segment, Text):
            kind = type(segment).__name__
            raise UnsupportedCall("prompt", f"{kind} in a message", "text in messages")
        if segment.ids is None:
            text += segment.text.replace(_OPEN, "\ufffd")
        else:
            text += f"{_OPEN}{len(kept)}{_CLOSE}"
            kept.append(segment)
    return text


def _special_names(settings: dict[str, Any]) -> dict[str, str]:
    """bos_token and its like, given as text or as {"content": text}."""
    names = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        names[key] = text or ""
    return names


def _to_json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
