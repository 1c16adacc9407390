"""Which process something belongs to: in a fork of that process its threads are gone, and its lines
to others are not the fork's own; nor can they be sent to another process."""

from __future__ import annotations

import functools
import os
from abc import abstractmethod
from typing import Any, NoReturn, Self

from .protocol import BackendClosed, NotPicklable


class Owner:
    """The process in which this is made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises BackendClosed in a fork of that process."""
        if not self.is_here:
            raise self.fork_error()

    def fork_error(self) -> BackendClosed:
        """The error in a fork of that process."""
        return BackendClosed(
            f"the backend belongs to process {self._pid}, of which this one is a fork; expected one"
            " that is started here, after the fork"
        )


@functools.cache
def first_owner() -> Owner:
    """The process in which this was first called; the same one in its forks."""
    return Owner()


class NonCopyable:
    """Copies of it are the object itself, so copies of what holds it share it."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self


class Closing(NonCopyable):
    """The same, and `with` closes it."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Stop; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ProcessLocal(Closing):
    """The same, and it stays in its process: pickling it raises NotPicklable."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise not_picklable(self, "connect() in the other process, to a model or to a server's URL")


def not_picklable(thing: object, allowed: str) -> NotPicklable:
    """The error for something of this process, for `__reduce_ex__` to raise. allowed: what to do
    instead."""
    name = type(thing).__name__
    return NotPicklable(
        f"a {name} belongs to its process and cannot be pickled; expected {allowed}"
    )
