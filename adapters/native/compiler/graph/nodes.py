"""The nodes of a graph: what a program does to its states (paper, appendix "Compiler mode").

Each node belongs to a stream, which is one state of the program. Nodes of a stream run in their
order; an edge between streams is a `Fork`, a `Join`, or a `Read` of another stream's variable. A
node is named by its position in `Graph.nodes`. Nothing here runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .....core.api.protocol import Constraint
from ...language.choices import METHODS

Form: TypeAlias = Literal["text", "format", "str", "repr"]
FORMS: tuple[Form, ...] = ("text", "format", "str", "repr")
JoinMode: TypeAlias = Literal["gather_variable", "concate_and_append"]
JOIN_MODES: tuple[JoinMode, ...] = ("gather_variable", "concate_and_append")
METHOD_NAMES = tuple(METHODS)


@dataclass(frozen=True, slots=True)
class Read:
    """The value of a variable.

    stream: whose state the program reads. source: the node that sets the variable; it may be of
    another stream, from which the read one was forked. item: of a list, as a gen with n > 1 sets.
    """

    name: str
    stream: int
    source: int
    item: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One node. stream: to which it belongs; 0 is the program's own state."""

    stream: int


@dataclass(frozen=True, slots=True)
class ConstantText(Node):
    """Text that the program wrote. continues: it goes on the text of the node before, as the parts
    of one f-string do."""

    text: str
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Argument(Node):
    """An argument of the program as text.

    form: how it becomes text: it is one ("text"), format(value, spec), format(str(value), spec),
      format(repr(value), spec).
    continues: as in `ConstantText`.
    """

    name: str
    form: Form = "format"
    spec: str = ""
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Variable(Node):
    """A variable as text; form, spec and continues as in `Argument`."""

    read: Read
    form: Form = "format"
    spec: str = ""
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Gen(Node):
    """An answer of the model; fields as in the language's own `Gen`. backend: its name in the
    run's `backends`."""

    name: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    constraint: Constraint | None = None
    backend: str | None = None
    is_streamed: bool = False
    resample: bool = False
    scored_from: int | None = None


@dataclass(frozen=True, slots=True)
class Select(Node):
    """One of `options`, chosen by the model. method: a name in `choices.py`."""

    name: str | None
    options: tuple[str, ...]
    method: str = METHOD_NAMES[0]
    backend: str | None = None


@dataclass(frozen=True, slots=True)
class Media(Node):
    """An image, or with `num_frames` a video: either its `data`, or an `argument` of the program
    that gives it (as `image` and `video` take it)."""

    data: bytes | None = None
    argument: str | None = None
    num_frames: int | None = None


@dataclass(frozen=True, slots=True)
class RoleBegin(Node):
    """From here on a chat message of this role."""

    role: str


@dataclass(frozen=True, slots=True)
class RoleEnd(Node):
    """The open chat message ends."""


@dataclass(frozen=True, slots=True)
class ScopeBegin(Node):
    """From here on text is collected for variable `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ScopeEnd(Node):
    """The text since the `ScopeBegin` of the same name becomes variable `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class Fork(Node):
    """Branches go on from here; the `num` nodes behind it are its `ForkItem`s."""

    num: int


@dataclass(frozen=True, slots=True)
class ForkItem(Node):
    """Opens `stream`, which is branch `index` of the node `fork`."""

    fork: int
    index: int


@dataclass(frozen=True, slots=True)
class Join(Node):
    """The branches of the node `fork` end, and their variables or texts are taken over."""

    fork: int
    mode: JoinMode = "gather_variable"


@dataclass(frozen=True, slots=True)
class Begin(Node):
    """Opens `stream`, a new state: that of a program which this one calls as a part of it."""


@dataclass(frozen=True, slots=True)
class End(Node):
    """The stream takes no further node: a copy, or a part, is over."""


TextNode: TypeAlias = ConstantText | Argument | Variable
Call: TypeAlias = Gen | Select
TEXTS = (ConstantText, Argument, Variable)
CALLS = (Gen, Select)
SETTERS = (Gen, Select, ScopeEnd)
OPENERS = (ForkItem, Begin)
