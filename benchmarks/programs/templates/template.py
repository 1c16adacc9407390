"""A prompt template, the program that it is, and the judgment by hand of what may move in it."""

from __future__ import annotations

import re
import string
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from inspect import Parameter, Signature
from itertools import pairwise
from pathlib import Path
from typing import Any

from forkroot import Program, function, gen

_MARKS = ("stay", "move", "with")


@dataclass(frozen=True, slots=True)
class Message:
    """The texts between two answers or roles, each with its mark: "stay", "move" or "with".

    role: of the chat; None for plain text. answer: the variable that the model writes behind them.
    """

    texts: tuple[str, ...]
    marks: tuple[str, ...]
    role: str | None = None
    answer: str | None = None

    @property
    def text(self) -> str:
        """All of it, with {names} for arguments."""
        return "".join(self.texts)

    def is_legal(self, moved: str) -> bool:
        """Whether a text with {names} is one that the judgment by hand allows."""
        places = _positions(moved, self.texts)
        if places is None:
            return False
        marks = self.marks
        stays = [index for index, mark in enumerate(marks) if mark == "stay"]
        moves = [index for index, mark in enumerate(marks) if mark == "move"]
        held = [index for index, mark in enumerate(marks) if mark == "with"]
        order = sorted(places)
        rank = [order.index(place) for place in places]
        return (
            all(rank[one] < rank[two] for one, two in (*pairwise(stays), *pairwise(moves)))
            and all(rank[index] == rank[index - 1] + 1 for index in held)
            and all(rank[one] < rank[two] for one in moves for two in stays if one < two)
        )


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt template.

    is_movable: whether anything may move. sample: arguments to run it with.
    """

    name: str
    about: str
    messages: tuple[Message, ...]
    sample: dict[str, str]

    @property
    def is_movable(self) -> bool:
        return any("move" in message.marks for message in self.messages)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of its arguments, in order."""
        found = (name for message in self.messages for name in names_of(message.text))
        return tuple(dict.fromkeys(found))

    def program(self) -> Program:
        """The template as a program of the language."""

        def body(s: Any, **arguments: Any) -> None:
            for message in self.messages:
                _append(s, message, arguments)

        kind = Parameter.POSITIONAL_OR_KEYWORD
        parameters = [Parameter(name, kind) for name in ("s", *self.arguments)]
        body.__name__ = body.__qualname__ = self.name
        body.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        return function(body)


def load(name: str) -> tuple[Template, ...]:
    """The templates of a file: "shipped" or "held_out"."""
    text = (Path(__file__).parent / f"{name}.toml").read_text("utf-8")
    return tuple(map(_template, tomllib.loads(text)["template"]))


def names_of(text: str) -> list[str]:
    """The names of the arguments in a text, in order."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name]


def _append(s: Any, message: Message, arguments: dict[str, Any]) -> None:
    content: Any = message.text.format(**arguments)
    if message.answer is not None:
        content = content + gen(message.answer, max_tokens=24)
    if message.role is None:
        s += content
    else:
        s.role(message.role, content)


def _template(found: dict[str, Any]) -> Template:
    messages = tuple(_messages(found["parts"]))
    return Template(found["name"], found["about"], messages, found["sample"])


def _messages(parts: Sequence[Sequence[str]]) -> Iterator[Message]:
    role, texts, marks = None, list[str](), list[str]()
    for mark, text in (*parts, ("role", "")):
        if mark in _MARKS:
            texts.append(text)
            marks.append(mark)
            continue
        answer = text if mark == "gen" else None
        if texts or answer:
            yield Message(tuple(texts), tuple(marks), role, answer)
        texts, marks = [], []
        if mark == "role":
            role = text or None


def _positions(moved: str, texts: Sequence[str]) -> list[int] | None:
    """Where each text stands in the moved one; None if one is missing or something is left over."""
    left, found = _plain(moved), dict[int, int]()
    plain = [_plain(text) for text in texts]
    for index in sorted(range(len(plain)), key=lambda index: -len(plain[index])):
        text = plain[index]
        if left.count(text) != 1:
            return None
        found[index] = left.index(text)
        left = left.replace(text, "\0" * len(text))
    return [found[index] for index in range(len(plain))] if not left.strip("\0") else None


def _plain(text: str) -> str:
    """A text without blanks, which the layout may change, and with single braces."""
    return re.sub(r"\s+", "", text.replace("{{", "{").replace("}}", "}"))
