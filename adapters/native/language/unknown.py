"""Stands for a value that is not known while a program is traced: an argument, or a variable.

It may become text: in an f-string, by `str()`, by "+", by `state += it`. Whatever else is asked of
it, the tracer decides: one of finitely many options is chosen, anything else is not traceable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, Protocol, TypeAlias

from .expressions import Constant, Expression, Row, as_expression, flatten

Form: TypeAlias = Literal["text", "format", "str", "repr"]


class Tracer(Protocol):
    """What an unknown asks."""

    def marker(self, unknown: Unknown, form: Form, spec: str) -> str:
        """A text that stands for the unknown's text in this form."""

    def has_options(self, unknown: Unknown) -> bool:
        """Whether `value` gives one."""

    def value(self, unknown: Unknown, operation: str) -> Any:
        """The value of the unknown on this path, where it is one of some options; raises
        NotTraceable, which names the operation, where it is not."""


class Unknown(Expression):
    """A value that a run will have. reference: what it is, for the tracer."""

    __slots__ = ("_tracer", "reference")

    def __init__(self, tracer: Tracer, reference: Any) -> None:
        object.__setattr__(self, "_tracer", tracer)
        object.__setattr__(self, "reference", reference)

    def text(self, form: Form = "text", spec: str = "") -> str:
        """A marker, from which the tracer makes a node."""
        tracer: Tracer = object.__getattribute__(self, "_tracer")
        return tracer.marker(self, form, spec)

    def known(self, operation: str) -> Any:
        """The value on this path. Raises NotTraceable."""
        tracer: Tracer = object.__getattribute__(self, "_tracer")
        return tracer.value(self, operation)

    def has_options(self) -> bool:
        """Whether it is one of the options of a select."""
        tracer: Tracer = object.__getattribute__(self, "_tracer")
        return tracer.has_options(self)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return type(self.known("isinstance(...)"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.known(f".{name}"), name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"the value is not known: it takes no attribute {name!r}")

    def __format__(self, spec: str) -> str:
        return Marked(self, "format", spec)

    def __str__(self) -> str:
        return Marked(self, "str")

    def __repr__(self) -> str:
        return Marked(self, "repr")

    def __add__(self, other: Any) -> Any:
        if type(other) in (str, Marked):
            return self.text() + other
        if type(other) is Unknown:
            return self.text() + other.text()
        if isinstance(other, Expression):
            return Row((Constant(self.text()), *flatten(as_expression(other))))
        return self.known("+") + other

    def __radd__(self, other: Any) -> Any:
        if type(other) in (str, Marked):
            return other + self.text()
        return other + self.known("+")

    def __hash__(self) -> int:
        return hash(self.known("as a key of a dict or set"))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.known("(...)")(*args, **kwargs)


class Marked(str):
    """The text of one unknown value, by `str`, `repr` or an f-string without anything else: a
    marker, of which may be asked what may be asked of the value."""

    _unknown: Unknown
    _form: Form
    _spec: str

    def __new__(cls, unknown: Unknown, form: Form, spec: str = "") -> Marked:
        found = super().__new__(cls, unknown.text(form, spec))
        found._unknown, found._form, found._spec = unknown, form, spec
        return found

    def __format__(self, spec: str) -> str:
        if type(spec) is str and spec == "":
            return self
        if self._spec:  # a text that was made by another specification
            return format(self._known("format(...)"), spec)
        return Marked(self._unknown, "repr" if self._form == "repr" else "str", spec)

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        if type(other) is Marked and str.__eq__(self, other):
            return True
        known: Any = other
        if type(known) is Unknown:
            known = known.known("==")
        elif type(known) is Marked:
            known = known._known("==")
        return bool(self._known("==") == known)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        """Of the option of a select, else of the marker, by which the same text is found again."""
        is_option = self._unknown.has_options()
        return hash(self._known("as a key")) if is_option else str.__hash__(self)

    def __len__(self) -> int:
        return len(self._known("len(...)"))

    def __bool__(self) -> bool:
        return bool(self._known("bool(...), as in `if` and `and`"))

    def _known(self, operation: str) -> str:
        value = self._unknown.known(operation)
        made = str(value) if self._form == "str" else value
        return format(repr(value) if self._form == "repr" else made, self._spec)


@dataclass(frozen=True, slots=True)
class UnknownMedia(Expression):
    """An image, or with `num_frames` a video, whose source is not known."""

    source: Unknown
    num_frames: int | None = None


def check_known(value: object, operation: str) -> None:
    """Raise NotTraceable for a value that is not known, and has no options."""
    if type(value) is Unknown:
        value.known(operation)


def _operation(name: str, shown: str, apply: Callable[..., Any]) -> None:
    def run(self: Unknown, *others: Any) -> Any:
        values = [it.known(shown) if type(it) is Unknown else it for it in others]
        return apply(self.known(shown), *values)

    run.__name__ = name
    setattr(Unknown, name, run)


def _reversed(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, other: apply(other, value)


def _define_operations() -> None:
    import operator as op

    for name, shown, apply in (
        ("__bool__", "bool(...), as in `if` and `and`", bool),
        ("__len__", "len(...)", len),
        ("__iter__", "iteration", iter),
        ("__getitem__", "[...]", op.getitem),
        ("__contains__", "in", op.contains),
        ("__int__", "int(...)", int),
        ("__float__", "float(...)", float),
        ("__index__", "as an index", op.index),
        ("__eq__", "==", op.eq),
        ("__ne__", "!=", op.ne),
        ("__lt__", "<", op.lt),
        ("__le__", "<=", op.le),
        ("__gt__", ">", op.gt),
        ("__ge__", ">=", op.ge),
        ("__neg__", "-", op.neg),
        ("__sub__", "-", op.sub),
        ("__mul__", "*", op.mul),
        ("__mod__", "%", op.mod),
        ("__truediv__", "/", op.truediv),
        ("__floordiv__", "//", op.floordiv),
        ("__rsub__", "-", _reversed(op.sub)),
        ("__rmul__", "*", _reversed(op.mul)),
        ("__rtruediv__", "/", _reversed(op.truediv)),
    ):
        _operation(name, shown, apply)


_define_operations()
