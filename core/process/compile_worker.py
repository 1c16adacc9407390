"""The child's side of `core.process.compile_pool`: constraints in, automata out, one at a time."""

from __future__ import annotations

import gc
import json
import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..api.protocol import CallFailed, Choices, ForkrootError, Grammar, JsonSchema, Regex
from ..fsm.forget import forget_compiled
from ..fsm.grammar.explore import Known
from ..fsm.grammar.matcher import Library
from ..fsm.plan import Unrepeated, plan_of
from ..fsm.regex.dfa import Dfa
from ..fsm.regex.errors import NotRegular
from ..fsm.tokens.finish import ShortestFinish
from ..fsm.tokens.regular import automaton
from ..fsm.tokens.vocabulary import Vocabulary
from .ipc import Connection, serve_parent

_AUTOGROUP = Path("/proc/self/autogroup")


def main(fd: int, niceness: str) -> None:
    """Compile for the parent at the other end of this socket until it goes. niceness: beside that
    of the parent."""
    with suppress(OSError):
        os.nice(int(niceness))
        if _AUTOGROUP.exists():  # niceness counts within it, and it is of this process alone
            _AUTOGROUP.write_text(niceness)
    serve_parent(fd, serve)


def serve(connection: Connection) -> None:
    """Take the vocabulary, then answer every message. Garbage is collected in between: collections
    double the time."""
    gc.disable()
    messages = connection.messages()
    library, last_tenant = Library(read_vocabulary(*next(messages))), ""
    for kind, source, field, tenant in messages:
        gc.collect()
        if tenant != last_tenant:
            forget_compiled(library.vocabulary)
            last_tenant = tenant
        try:
            connection.send("made", compiled(kind, source, field, library))
        except NotRegular as error:
            connection.send("not regular", str(error.value), error.allowed)
        except Exception as error:
            text = f"the constraint could not be compiled: {error!r}"
            known = error if isinstance(error, ForkrootError) else CallFailed(text)
            connection.send("refused", known)


def read_vocabulary(sizes: bytes, data: bytes, end_ids: tuple[int, ...]) -> Vocabulary:
    """The vocabulary that the parent sent: the length of each token, and all their bytes."""
    ends = np.cumsum(np.frombuffer(sizes, np.int32)).tolist()
    return Vocabulary([data[start:end] for start, end in pairwise([0, *ends])], end_ids)


def compiled(kind: str, source: Any, field: str, library: Library) -> Any:
    """A serialized automaton; for a schema or grammar, the kind and data of its plan, and the
    shapes of its distinct lists. Raises as the compilers do."""
    constraint: JsonSchema | Grammar
    match kind:
        case "regex" | "choices":
            made = Regex(source) if kind == "regex" else Choices(source)
            return serialized(automaton(made, field), library)
        case "grammar":
            constraint = Grammar(*source)
        case _:
            text, *separators = source
            constraint = JsonSchema(json.loads(text), tuple(separators))
    found = plan_of(constraint, lambda: library)
    plan, shapes = found if isinstance(found, Unrepeated) else (found, ())
    rows = tuple(map(tuple, shapes))
    if isinstance(plan, Known):
        return "known", tuple(plan), rows
    return "automaton", serialized(plan.dfa, library), rows


def serialized(dfa: Dfa, library: Library) -> tuple[Any, ...]:
    """An automaton and its shortest ends as plain data."""
    starts, kinds = dfa.partition
    return (
        np.ascontiguousarray(dfa.table).tobytes(),
        dfa.table.dtype.str,
        dfa.table.shape,
        np.ascontiguousarray(dfa.accepting, bool).tobytes(),
        int(dfa.start),
        starts.astype(np.int32).tobytes(),
        kinds.astype(np.intp).tobytes(),
        ShortestFinish(dfa, library.vocabulary).num_tokens.tobytes(),
    )
