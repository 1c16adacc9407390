"""Keywords that a function does not know: refused by name, with the one that was probably meant."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from ...core.nearest import did_you_mean, nearest
from ...core.protocol import InvalidCall

P = ParamSpec("P")
R = TypeVar("R")

_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


class UnknownKeyword(InvalidCall, TypeError):
    """A keyword that is none of `known`. suggestion: the one that it resembles, or None."""

    def __init__(self, field: str, value: object, known: Collection[str]) -> None:
        names = tuple(sorted(known))
        super().__init__(field, value, ", ".join(names) or "no keywords")
        self.args = (field, value, names)
        self.suggestion = nearest(field, names)

    def __str__(self) -> str:
        return super().__str__() + did_you_mean(self.field, self.args[2])


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a function that can be given by name.

    is_open: it takes any other keyword as well.
    """

    names: frozenset[str]
    is_open: bool = False

    @classmethod
    def of(cls, body: Callable[..., Any], skip: int = 0) -> Parameters:
        """Those of `body`, without its first `skip` ones."""
        entries = list(signature(body).parameters.values())[skip:]
        names = frozenset(entry.name for entry in entries if entry.kind in _BY_NAME)
        return cls(names, any(entry.kind is Parameter.VAR_KEYWORD for entry in entries))

    def check(self, keywords: Mapping[str, Any], others: Iterable[str] = ()) -> None:
        """Raise UnknownKeyword for the first keyword that is neither a parameter nor in `others`,
        unless any is taken."""
        known = self.names.union(others)
        for name, value in keywords.items():
            if not self.is_open and name not in known:
                raise UnknownKeyword(name, value, known)


def checks_keywords(body: Callable[P, R]) -> Callable[P, R]:
    """The same function; a keyword that it does not declare raises UnknownKeyword."""
    parameters = Parameters.of(body)

    @wraps(body)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        parameters.check(kwargs)
        return body(*args, **kwargs)

    return checked
