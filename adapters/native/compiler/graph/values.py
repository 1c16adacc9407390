"""The return value of a traced program: plain data around arguments and variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from .nodes import Form, Read


@dataclass(frozen=True, slots=True)
class Plain:
    """A value of None, bool, int, float, str, bytes, and lists, tuples and dicts of these."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Given:
    """The argument `name` of the program, as the caller gave it."""

    name: str


@dataclass(frozen=True, slots=True)
class Set:
    """A variable."""

    read: Read


@dataclass(frozen=True, slots=True)
class Inserted:
    """A part of a `Composed` text: an argument or a variable; form and spec as in `Argument`."""

    value: Given | Set
    form: Form = "format"
    spec: str = ""


@dataclass(frozen=True, slots=True)
class Composed:
    """A text of texts, arguments and variables."""

    parts: tuple[str | Inserted, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """A list, or a tuple."""

    items: tuple[Value, ...]
    is_tuple: bool = False


@dataclass(frozen=True, slots=True)
class Mapped:
    """A dict of plain keys."""

    pairs: tuple[tuple[Any, Value], ...]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a stream itself."""

    stream: int


Value: TypeAlias = Plain | Given | Set | Composed | Listed | Mapped | State


def reads_of(value: Value) -> tuple[Read, ...]:
    """The variables in a value, in order."""
    match value:
        case Set(read=read):
            return (read,)
        case Composed(parts=parts):
            inserted = [part.value for part in parts if isinstance(part, Inserted)]
            return tuple(it.read for it in inserted if isinstance(it, Set))
        case Listed(items=items):
            return tuple(read for item in items for read in reads_of(item))
        case Mapped(pairs=pairs):
            return tuple(read for _, item in pairs for read in reads_of(item))
    return ()


def arguments_of(value: Value) -> tuple[str, ...]:
    """The arguments in a value, in order."""
    match value:
        case Given(name=name):
            return (name,)
        case Composed(parts=parts):
            inserted = [part.value for part in parts if isinstance(part, Inserted)]
            return tuple(it.name for it in inserted if isinstance(it, Given))
        case Listed(items=items):
            return tuple(name for item in items for name in arguments_of(item))
        case Mapped(pairs=pairs):
            return tuple(name for _, item in pairs for name in arguments_of(item))
    return ()
