"""The child's side of `core.workshop`: constraints in, automata out, one after another."""

from __future__ import annotations

import gc
import json
from itertools import pairwise
from typing import Any

import numpy as np

from .frames import Line, answer
from .fsm.dfa import Dfa
from .fsm.finish import ShortestFinish
from .fsm.refusals import NotRegular
from .fsm.regular import automaton
from .fsm.schema import schema_pattern
from .fsm.vocabulary import Vocabulary
from .protocol import CallFailed, Choices, ForkrootError, Regex


def main(fd: int) -> None:
    """Compile for the parent at the other end of this socket until it goes."""
    answer(fd, serve)


def serve(line: Line) -> None:
    """Take the vocabulary, then answer every message. Garbage is collected in between: collections
    double the time."""
    gc.disable()
    messages = line.messages()
    vocabulary = read_vocabulary(*next(messages))
    for kind, source, field in messages:
        gc.collect()
        try:
            line.send("made", made(kind, source, field, vocabulary))
        except NotRegular as error:
            line.send("not regular", str(error.value), error.allowed)
        except ForkrootError as error:
            line.send("refused", error)
        except Exception as error:
            line.send("refused", CallFailed(f"the constraint could not be compiled: {error!r}"))


def read_vocabulary(sizes: bytes, data: bytes, end_ids: tuple[int, ...]) -> Vocabulary:
    """The vocabulary that the parent sent: the length of each token, and all their bytes."""
    ends = np.cumsum(np.frombuffer(sizes, np.int32)).tolist()
    return Vocabulary([data[start:end] for start, end in pairwise([0, *ends])], end_ids)


def made(kind: str, source: Any, field: str, vocabulary: Vocabulary) -> Any:
    """A pattern for a schema, a written automaton for all else. Raises as these do."""
    if kind == "schema":
        return schema_pattern(json.loads(source))
    dfa = automaton(Regex(source) if kind == "regex" else Choices(source), field)
    return written(dfa, ShortestFinish(dfa, vocabulary))


def written(dfa: Dfa, finish: ShortestFinish) -> tuple[Any, ...]:
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
        finish.num_tokens.tobytes(),
    )
