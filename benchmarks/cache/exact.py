"""Exact hints for the programs of a workload, from a run without any.

The answers of a virtual runtime are the same under every schedule, and so are the calls of each
program. A first run says what each call's program will do after it: that is what a compiled program
knows of itself, and what these hints say.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Listed
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from forkroot.benchmarks.common.programs import Program, Step
from forkroot.core.api.protocol import Call, ForkHint, Tokens
from forkroot.core.common.intervals import longest_chain

Key: TypeAlias = tuple[int, object, int | None, tuple[str, ...]]


@dataclass(slots=True)
class Seen:
    """A call of a program, and when it began and ended, as numbers of its events."""

    call: Call
    begun: int
    ended: int = 0
    text: tuple[int, ...] = ()


class ProgramLog:
    """What each program of a run called. Wraps programs; give it what `Workload.programs` gives."""

    def __init__(self) -> None:
        self.seen: dict[int, list[Seen]] = defaultdict(list)
        self._num_events = 0

    def watch(self, programs: Iterator[Program]) -> Iterator[Program]:
        """The same programs, watched."""
        return (changed(it, partial(self._call, index)) for index, it in enumerate(programs))

    def _call(self, index: int, call: Call) -> Program:
        self._num_events += 1
        seen = Seen(call, self._num_events)
        self.seen[index].append(seen)
        (answer,) = yield [call]
        self._num_events += 1
        seen.ended = self._num_events
        outputs = answer.outputs
        seen.text = ids_of(call) + (tuple(outputs[0].ids) if outputs else ())
        return answer


class Hinted:
    """Programs whose calls carry exact hints, from a log of the same programs. kind: of all of
    them; None: they do not say."""

    def __init__(self, log: ProgramLog, kind: str | None = None) -> None:
        self._hints: dict[Key, deque[ForkHint]] = defaultdict(deque)
        for index, calls in log.seen.items():
            for seen in calls:
                self._hints[_key(index, seen.call)].append(
                    replace(_hint(index, seen, calls), kind=kind)
                )

    def wrap(self, programs: Iterator[Program]) -> Iterator[Program]:
        """The same programs, with hints."""
        return (changed(it, partial(self._hinted, index)) for index, it in enumerate(programs))

    def _hinted(self, index: int, call: Call) -> Call:
        found = self._hints[_key(index, call)]
        hint = found[0] if len(found) == 1 else found.popleft()
        if call.hint is not None:
            own = call.hint
            hint = replace(hint, root=own.root, branches=own.branches, prefix_end=own.prefix_end)
        return replace(call, hint=hint)


def changed(program: Program, change: Callable[[Call], Step]) -> Program:
    """A program with each of its calls changed, also those of the programs that it runs."""
    answers = None
    while True:
        try:
            steps = next(program) if answers is None else program.send(answers)
        except StopIteration as end:
            return end.value
        answers = yield [
            change(step) if isinstance(step, Call) else changed(step, change) for step in steps
        ]


def _hint(index: int, seen: Seen, calls: Listed[Seen]) -> ForkHint:
    later = sorted((it for it in calls if it.begun > seen.ended), key=lambda it: it.begun)
    open_ = (it for it in calls if it.ended > seen.begun and it is not seen)
    num_tokens = sum(it.call.sampling.max_tokens or 0 for it in open_)
    own = seen.text[: len(ids_of(seen.call)) + 1]
    users = [it for it in later if ids_of(it.call)[: len(own)] == own]
    between = [it for it in calls if users and seen.ended < it.begun and it.ended < users[0].begun]
    next_use = 1 + _longest_path(between) if users else 0
    name = f"program {index}"
    return ForkHint("", None, None, 2, name, _longest_path(later), num_tokens, next_use)


def _longest_path(later: Listed[Seen]) -> int:
    """The most of these calls that were made one after another."""
    return longest_chain((it.begun, it.ended) for it in later)


def ids_of(call: Call) -> tuple[int, ...]:
    """The tokens of its prompt."""
    assert not hasattr(call.prompt, "messages")
    return sum((it.ids for it in call.prompt if isinstance(it, Tokens)), ())


def _key(index: int, call: Call) -> Key:
    return index, ids_of(call), call.sampling.max_tokens, call.options


Wrapper: TypeAlias = Callable[[Iterator[Program]], Iterator[Program]]
