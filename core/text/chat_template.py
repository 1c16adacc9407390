"""Chat messages to prompt segments, by the model's own template.

Templates are code from a checkpoint: they run in a sandbox (`sandbox`). It knows nothing of
tokens: a model's own earlier answers keep their ids by going through the template as placeholders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import jinja2
from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

from ..api.files import SETTINGS_BYTES, TEMPLATE_BYTES, read_object, read_text
from ..api.protocol import Chat, InvalidCall, InvalidModel, Message, Segment, Text, UnsupportedCall
from .pictures import Picture, is_picture, kind_of
from .sandbox import BoundedEnvironment

_Content: TypeAlias = str | list[dict[str, str]]  # a text, or its parts
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"  # noncharacters: never part of exchanged text
_PLACEHOLDER = re.compile(f"{_OPEN}([0-9]{{1,9}}){_CLOSE}")
_SHOWN, _HIDDEN = "forkroot-shown", "forkroot-hidden"
_TRAINING_TAG = re.compile(r"{%([-+]?)\s*(end)?generation\s*([-+]?)%}")


class ChatTemplate:
    """A checkpoint's chat template.

    source: the jinja text. names: variables for it, such as bos_token.
    """

    def __init__(self, source: str, names: dict[str, str]) -> None:
        try:
            self._sandbox = _sandbox()
            with self._sandbox.running():
                text = _TRAINING_TAG.sub(_plain_tag, source)
                self._template = self._sandbox.from_string(text)
        except Exception as error:  # a syntax error, or what the compiler makes of it
            raise InvalidModel(f"the chat template cannot be parsed: {error}") from error
        self._names = names

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """The template of a checkpoint folder, or None if it has none."""
        settings: dict[str, Any] = {}
        path = folder / "tokenizer_config.json"
        if path.exists():
            settings = read_object(path, SETTINGS_BYTES)
        beside, source = folder / "chat_template.jinja", settings.get("chat_template")
        if beside.exists():
            source = read_text(beside, TEMPLATE_BYTES)
        if isinstance(source, list):
            named = [it for it in source if isinstance(it, dict) and it.get("name") == "default"]
            source = named[0].get("template") if named else None
        if source is not None and not isinstance(source, str):
            raise InvalidModel(f"{path}: chat_template is {type(source).__name__}; expected text")
        return cls(source, _special_names(settings)) if source else None

    def render(self, chat: Chat, pictures: list[Picture] | None = None) -> list[Segment]:
        """The prompt of a chat: the messages, then the opening of the assistant's answer (or the
        last message left open). Raises InvalidCall for a chat that the template refuses.

        pictures: gets those for which the template writes the model's placeholders; others are
          segments of the prompt. None: the model takes none.
        """
        last = chat.messages[-1]
        if not chat.open_last:
            return self._fill(chat, chat.messages, pictures, add_opening=True)
        if last.role == "assistant":
            opened = self._fill(chat, chat.messages[:-1], pictures, add_opening=True)
            return opened + list(last.content)
        return self._fill(chat, chat.messages, pictures, add_opening=False, cut_last=True)

    def _fill(
        self,
        chat: Chat,
        messages: Sequence[Message],
        pictures: list[Picture] | None,
        add_opening: bool,
        cut_last: bool = False,
    ) -> list[Segment]:
        with_ids: list[Segment] = []
        contents = [self._content(m.content, with_ids, pictures) for m in messages]
        end = f"{_OPEN}{len(with_ids)}{_CLOSE}"
        if cut_last:
            contents[-1] = _closed(contents[-1], end)
        roles = [_without_markers(m.role) for m in messages]
        plain_messages = [
            {"role": role, "content": content}
            for role, content in zip(roles, contents, strict=True)
        ]
        text, found, _ = self._render(plain_messages, chat.tools, add_opening).partition(end)
        pieces = _PLACEHOLDER.split(text)
        if bool(found) is not cut_last or any(
            int(index) >= len(with_ids) for index in pieces[1::2]
        ):
            raise InvalidCall("prompt", "a chat", "messages that its template shows as they are")
        segments: list[Segment] = [Text(piece) for piece in pieces]
        segments[1::2] = [with_ids[int(index)] for index in pieces[1::2]]
        return segments

    def _content(
        self,
        content: tuple[Segment, ...],
        with_ids: list[Segment],
        pictures: list[Picture] | None,
    ) -> _Content:
        """A message's content in a form that the template shows: as text, or in parts where that is
        shown only so, or there are pictures. Segments that carry ids are placeholders, and so are
        pictures that a template cannot show; these go to `with_ids`."""
        in_parts = pictures is not None and any(map(is_picture, content)) and self._shows_parts
        parts: list[dict[str, str]] = []
        for segment in content:
            if in_parts and pictures is not None and isinstance(segment, Picture):
                pictures.append(segment)
                parts.append({"type": kind_of(segment)})
                continue
            if not isinstance(segment, Text) and (pictures is None or not is_picture(segment)):
                kind = type(segment).__name__
                raise UnsupportedCall("prompt", f"{kind} in a message", "text in messages")
            text = ""
            if isinstance(segment, Text) and segment.ids is None:
                text = _without_markers(segment.text)
            else:
                text = f"{_OPEN}{len(with_ids)}{_CLOSE}"
                with_ids.append(segment)
            if not parts or parts[-1]["type"] != "text":
                parts.append({"type": "text", "text": ""})
            parts[-1]["text"] += text
        if in_parts or not self._shows_texts:
            return parts
        return "".join([part["text"] for part in parts])

    @cached_property
    def _shows_texts(self) -> bool:
        """Whether it shows a content that is a text; so it is given one if it shows neither."""
        return _SHOWN in self._try([_SHOWN]) or not self._shows_parts

    @cached_property
    def _shows_parts(self) -> bool:
        """Whether it shows the parts of a content."""
        text = self._try([[{"type": "text", "text": _SHOWN, "note": _HIDDEN}]])
        return _SHOWN in text and _HIDDEN not in text

    def _try(self, contents: Sequence[Any]) -> str:
        """What it makes of a user's messages; nothing where it refuses them."""
        try:
            return self._render([{"role": "user", "content": it} for it in contents], (), False)
        except InvalidCall:
            return ""

    def _render(
        self, plain_messages: Sequence[dict[str, Any]], tools: Sequence[Any], add_opening: bool
    ) -> str:
        try:
            with self._sandbox.running():
                return self._template.render(
                    messages=plain_messages,
                    tools=list(tools) or None,
                    add_generation_prompt=add_opening,
                    **self._names,
                )
        except Exception as error:  # it is a checkpoint's code, and may raise anything
            raise InvalidCall("prompt", "a chat", f"what its template takes: {error}") from error


def _closed(content: _Content, end: str) -> _Content:
    """A content with a mark at the end of its last text."""
    if isinstance(content, str):
        return content + end
    if content and content[-1]["type"] == "text":
        return [*content[:-1], {"type": "text", "text": content[-1]["text"] + end}]
    return [*content, {"type": "text", "text": end}]


def _special_names(settings: dict[str, Any]) -> dict[str, str]:
    """bos_token and its like, given as text or as {"content": text}."""
    names = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        value = settings.get(key)
        text = value.get("content") if isinstance(value, dict) else value
        names[key] = text if isinstance(text, str) else ""
    return names


def _without_markers(text: str) -> str:
    return text.replace(_OPEN, "\ufffd")


def _plain_tag(tag: re.Match[str]) -> str:
    """A tag that does nothing, and trims blanks as the tag does that marks trained text."""
    left, end, right = tag.groups()
    return f"{{%{left or ''} {'endif' if end else 'if true'} {right or ''}%}}"


def _sandbox() -> BoundedEnvironment:
    environment = BoundedEnvironment()
    environment.filters["tojson"] = environment.measured("tojson", _to_json)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    environment.globals["dict"] = lambda *args, **names: dict(*args, **names)  # not the class
    environment.globals["namespace"] = _Names
    return environment


class _Names(Namespace):
    """A template's `namespace()`, which takes no names of Python's own."""

    def __init__(self, *args: Any, **names: Any) -> None:
        super().__init__(*args, **names)
        for name in dict(*args, **names):
            _check_name(name)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: str) -> None:
    if name.startswith("_"):
        raise SecurityError(f"{name!r} is not a valid name in a template")


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON for a prompt: unlike jinja's own filter it escapes nothing for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)
