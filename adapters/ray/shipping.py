"""Programs on their way to the actors of a job, by what they are and not by where they are.

Ray pickles what goes to an actor. A program of a script (`__main__`), or of a module that only the
driver has, cannot be found there by its name: it goes as its function and what is bound.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from ray.cloudpickle import CloudPickler

from ..native.checkpoint import SOURCE, source_of
from ..native.program import Program


def packed(program: Program) -> bytes:
    """A program, and those that it calls. For Ray's own messages only."""
    file = io.BytesIO()
    _Pickler(file).dump(program)
    return file.getvalue()


def unpacked(data: bytes) -> Program:
    """The program, in an actor that Ray gave the bytes."""
    program: Program = pickle.loads(data)
    return program


class _Pickler(CloudPickler):  # type: ignore[misc]
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, Program):
            parts = thing.body, thing.name, thing.bound, thing.speculate
            return _program, (type(thing), source_of(thing.body), *parts)
        return super().reducer_override(thing)


def _program(
    kind: type[Program],
    source: str,
    body: Callable[..., Any],
    name: str,
    bound: Mapping[str, Any],
    speculate: int,
) -> Program:
    setattr(body, SOURCE, source)  # all machines agree on it, whichever files they have
    return kind(body, name, bound, speculate)
