"""What may be appended to a state, as plain frozen data: the nodes of the language.

Nothing here runs: an interpreter gives the nodes their meaning (paper, section 2 and appendix
"Compiler mode", whose graph nodes these are).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....core.api.protocol import Backend, Constraint, Image, InvalidCall, Video
from ....core.common.suggestions import closest
from ...common.surrogates import check_text
from .choices import Method
from .outlook import Outlook

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_COMMON = "system, user, assistant, and tool or others where it has them"


@dataclass(frozen=True, slots=True)
class Expression:
    """Anything that `state += ...` takes beside text; `+` puts expressions and texts in a row."""

    def __add__(self, other: Expression | str) -> Expression:
        return Row((*flatten(self), *flatten(as_expression(other))))

    def __radd__(self, other: str) -> Expression:
        return Row((*flatten(as_expression(other)), *flatten(self)))

    def __format__(self, spec: str) -> str:
        """Refused: in an f-string an expression would become text that the model reads."""
        kind = type(self).__name__.lower()
        raise InvalidCall("expression", f"a {kind} in an f-string", f'text + {kind}(...), by "+"')


@dataclass(frozen=True, slots=True)
class Row(Expression):
    """Expressions one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """Text that the program wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class Media(Expression):
    """An image or a video."""

    segment: Image | Video


@dataclass(frozen=True, slots=True)
class Split:
    """Divides an answer into texts before it is appended and kept.

    divide: from the answer to as many texts as there are `suffixes`, and one in front of them. The
      first is appended to the prompt and kept as the variable; each other one is kept as a variable
      whose name is that of the answer with the suffix.
    """

    divide: Callable[[str], tuple[str, ...]]
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gen(Expression):
    """An answer of the model, kept as variable `name` and appended to the prompt.

    sampling: the fields of `Sampling` that this answer sets itself; the run sets the others.
    backend: a backend, or the name that the run gave it; None is the run's own.
    resample: the answers are resampled by their log-masses.
    scored_from: as in `Call`; None: that of the run.
    split: how the answer is divided, if it is.
    extra_priority: added to the priority that the run gives its calls.
    outlook: what is known of the calls behind this one; None: nothing.
    """

    name: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    constraint: Constraint | None = None
    backend: Backend | str | None = None
    stream: bool = False
    resample: bool = False
    scored_from: int | None = None
    split: Split | None = None
    extra_priority: int = 0
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """The likeliest of `options`, kept as variable `name` and appended to the prompt.
    extra_priority, outlook: as in `Gen`."""

    name: str | None
    options: tuple[str, ...]
    method: str | Method
    backend: Backend | str | None = None
    extra_priority: int = 0
    outlook: Outlook | None = None


@dataclass(frozen=True, slots=True)
class RoleBegin(Expression):
    """From here on the prompt is a chat message of this role. Raises InvalidCall for no role, and
    for a common one misspelled."""

    role: str

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            _check_role(self.role)


@dataclass(frozen=True, slots=True)
class RoleEnd(Expression):
    """The open chat message ends."""


@dataclass(frozen=True, slots=True)
class ScopeBegin(Expression):
    """From here on text is collected for variable `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ScopeEnd(Expression):
    """The text since the `ScopeBegin` of the same name becomes variable `name`."""

    name: str


def as_expression(value: object) -> Expression:
    """The node for something a program appends. Raises InvalidCall for what cannot be appended."""
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Constant(value)
    raise InvalidCall("expression", value, "text, or an expression such as gen(...)")


def flatten(expression: Expression) -> Iterator[Expression]:
    """The nodes of an expression in order, without rows."""
    if type(expression) is Row:  # an unknown value has no class while a program is traced
        yield from expression.parts
    else:
        yield expression


def variables_of(node: Expression) -> tuple[str, ...]:
    """The variables that a node sets."""
    if not isinstance(node, Gen | Select | ScopeEnd) or node.name is None:
        return ()
    suffixes = node.split.suffixes if isinstance(node, Gen) and node.split is not None else ()
    return node.name, *(f"{node.name}{suffix}" for suffix in suffixes)


def _check_role(name: Any) -> None:
    """A role that only some templates know may have any name, but for one that is nearly a common
    one: what goes on behind it, as "tools", is another."""
    is_name = isinstance(name, str) and name.strip() != ""
    similar = closest(name, _ROLES, 0.8) if is_name else None
    is_misspelled = similar is not None and not name.startswith(similar)
    if not is_name or is_misspelled:
        hint = f"; did you mean {similar}?" if is_misspelled else ""
        raise InvalidCall("role", name, f"what the model's template knows: {_COMMON}{hint}")
    check_text(name, "role")
