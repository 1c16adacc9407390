"""The text that every run of a program begins with, found by running it without its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from inspect import Parameter, signature
from typing import Any

from ..native.language.expressions import Constant, as_expression, flatten
from ..native.program import Program


class _End(BaseException):
    """The program came to what depends on an argument or on the model."""


class _Unknown:
    """An argument that is not given: any use of it ends the probe."""

    def _end(self, *args: Any) -> Any:
        raise _End

    __str__ = __repr__ = __format__ = __len__ = __iter__ = __getitem__ = __call__ = _end
    __radd__ = __bool__ = __int__ = __float__ = __index__ = __contains__ = __eq__ = _end
    __lt__ = __gt__ = __le__ = __ge__ = __hash__ = __mod__ = __rmod__ = __mul__ = _end
    __add__ = __getattr__ = _end


class _ProbeState:
    """Collects the text that a program appends before anything else happens."""

    def __init__(self) -> None:
        self.text = ""

    def __iadd__(self, value: Any) -> _ProbeState:
        if isinstance(value, _Unknown):
            raise _End
        for node in flatten(as_expression(value)):
            if not isinstance(node, Constant):
                raise _End
            self.text += node.text
        return self

    def _end(self, name: str) -> Any:
        raise _End

    __getattr__ = __getitem__ = __contains__ = _end


def common_prefix(program: Program) -> str:
    """The text with which every run of `program` begins, whatever its unbound arguments are.

    The program's function is called; it stops at its first use of the model or of such an argument.
    A `"text" + argument` that it appends counts as a whole, and ends the prefix before the text.
    """
    state = _ProbeState()
    with suppress(_End):
        program.body(state, **_arguments(program))
    return state.text


def _arguments(program: Program) -> Mapping[str, Any]:
    entries = list(signature(program.body).parameters.values())[1:]
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {
        entry.name: program.bound.get(entry.name, _Unknown())
        for entry in entries
        if entry.kind in named and (entry.name in program.bound or entry.default is Parameter.empty)
    }
