"""Programs: what they have written, the calls that they make, and the driver that runs them.

A program is a generator. It yields lists of steps that may run at the same time, each a call or
another program, and is sent back the list of what these gave: completions, or return values.
"""

from __future__ import annotations

import queue
import random
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from string import ascii_lowercase
from typing import Any, TypeAlias

from forkroot.core.api.protocol import Call, ForkHint, Reply, Sampling, Tokens

Ids: TypeAlias = tuple[int, ...]
Step: TypeAlias = "Call | Program"
Program: TypeAlias = Generator[list[Step], list[Any], Any]
Body: TypeAlias = Callable[["ProgramContext"], Program]


@dataclass(frozen=True, slots=True)
class Workload:
    """Programs of one shape. width: how many of them run at a time."""

    name: str
    bodies: list[Body]
    width: int = 32

    def programs(self, hints: bool) -> Iterator[Program]:
        """Fresh runs of the programs, with or without fork hints."""
        context = ProgramContext(hints)
        return (body(context) for body in self.bodies)


class ProgramContext:
    """Where programs begin. hints: whether their forks declare what they share before they call."""

    def __init__(self, hints: bool) -> None:
        self._roots = count()
        self.hints = hints

    def begin(self, *ids: Ids) -> Draft:
        """A new program's draft."""
        return Draft(self, sum(ids, ()))

    def root(self, num: int) -> ForkHint | None:
        """A hint for `num` branches; None where a single one shares nothing, or without hints."""
        return ForkHint(f"root {next(self._roots)}", num) if self.hints and num > 1 else None


class Draft:
    """What a program, or a branch of it, has written so far.

    context: where its program began. ids: its text.
    born: how many tokens of it were its parent's.
    """

    def __init__(self, context: ProgramContext, ids: Ids, hint: ForkHint | None = None) -> None:
        self.context = context
        self._hint = hint
        self.ids = ids
        self.born = len(ids)

    @property
    def own(self) -> Ids:
        """What was written here, and not by the parent."""
        return self.ids[self.born :]

    def add(self, *ids: Ids) -> Draft:
        """Append text."""
        self.ids = sum(ids, self.ids)
        return self

    def gen(self, length: int) -> Program:
        """Append an answer of this length."""
        sampling = Sampling(max_tokens=length, temperature=0.0, ignore_eos=True)
        (answer,) = yield [self._call(sampling)]
        self.ids += answer.outputs[0].ids

    def write(self, text: Ids, length: int) -> Program:
        """Append a text and an answer of this length."""
        yield from self.add(text).gen(length)

    def select(self, options: tuple[str, ...]) -> Program:
        """Append the likeliest of these texts."""
        (answer,) = yield [self._call(Sampling(), options)]
        self.ids += max(answer.scores, key=lambda score: score.logprob).ids

    def fork(self, num: int) -> tuple[list[Step], list[Draft]]:
        """Branches, and the call (none without hints) that plants what they share."""
        hint = self.context.root(num)
        branches = [Draft(self.context, self.ids, hint) for _ in range(num)]
        if hint is None:
            return [], branches
        return [_call(self.ids, Sampling(max_tokens=0), hint)], branches

    def _call(self, sampling: Sampling, options: tuple[str, ...] = ()) -> Call:
        hint, self._hint = self._hint, None
        return _call(self.ids, sampling, hint, options)


def _call(
    ids: Ids, sampling: Sampling, hint: ForkHint | None, options: tuple[str, ...] = ()
) -> Call:
    return Call((Tokens(ids),), sampling, options=options, hint=hint)


def answering(*ids: Ids, length: int) -> Body:
    """A program of one call."""
    return lambda context: context.begin(*ids).gen(length)


class Maker:
    """Draws the texts and lengths of workloads.

    vocabulary: token ids to sample from. share: of the paper's number of programs. size: of its
      lengths.
    """

    def __init__(self, vocabulary: range, share: float, seed: int, size: float = 1.0) -> None:
        self.random = random.Random(seed)
        self._vocabulary = vocabulary
        self._share = share
        self._size = size

    def num(self, full: int, least: int = 4) -> int:
        """How many represent the paper's number."""
        return max(min(least, full), round(full * self._share))

    def length(self, low: int, high: int) -> int:
        """A length from `low` to `high`, scaled."""
        return max(1, round(self.random.randint(low, high) * self._size))

    def lengths(self, num: int, low: int, high: int) -> list[int]:
        """Lengths from `low` to `high`."""
        return [self.length(low, high) for _ in range(num)]

    def ids(self, low: int, high: int | None = None) -> Ids:
        """A text of `low` to `high` tokens that occurs nowhere else."""
        return tuple(self.random.choices(self._vocabulary, k=self.length(low, high or low)))

    def texts(self, num: int, low: int, high: int | None = None) -> list[Ids]:
        """Texts of `low` to `high` tokens."""
        return [self.ids(low, high) for _ in range(num)]

    def option(self) -> str:
        """A text to choose, in characters."""
        return " " + "".join(self.random.choices(ascii_lowercase, k=20))


@dataclass(slots=True, eq=False)
class _Task:
    """A running program: whose step it is, which one, and what its own steps have given."""

    program: Program
    parent: _Task | None
    position: int
    answers: list[Any] = field(default_factory=list)
    num_open: int = 0


class Driver:
    """Runs programs over a backend's `submit`.

    pump: lets the runtime go on until something may have ended; None: it runs by itself.
    """

    def __init__(
        self, submit: Callable[[Call], Reply], pump: Callable[[], None] | None = None
    ) -> None:
        self._submit = submit
        self._pump = pump
        self._ended: queue.SimpleQueue[tuple[_Task, int, Reply]] = queue.SimpleQueue()
        self._results: dict[int, Any] = {}

    def run(self, programs: Iterable[Program], width: int) -> list[Any]:
        """Run every program, `width` of them at a time; what each returned, in their order."""
        self._results = {}
        waiting = enumerate(programs)
        num_started = self._start_next(waiting, width)
        while len(self._results) < num_started:
            before = len(self._results)
            self._wait()
            num_started += self._start_next(waiting, len(self._results) - before)
        return [self._results[index] for index in range(num_started)]

    def _start_next(self, waiting: Iterable[tuple[int, Program]], count: int) -> int:
        started = list(islice(waiting, count))
        for index, program in started:
            self._resume(_Task(program, None, index))
        return len(started)

    def _wait(self) -> None:
        """Take in what has ended, at least one call where the runtime runs by itself."""
        if self._pump is None:
            self._take(*self._ended.get())
        else:
            self._pump()
        while not self._ended.empty():
            self._take(*self._ended.get())

    def _take(self, task: _Task, position: int, reply: Reply) -> None:
        self._deliver(task, position, reply.result())

    def _deliver(self, task: _Task | None, position: int, value: Any) -> None:
        if task is None:
            self._results[position] = value
            return
        task.answers[position] = value
        task.num_open -= 1
        if task.num_open == 0:
            self._resume(task)

    def _resume(self, task: _Task) -> None:
        """Let a program go on to its next steps, and begin these; or to its end."""
        try:
            steps = task.program.send(task.answers) if task.answers else next(task.program)
        except StopIteration as end:
            self._deliver(task.parent, task.position, end.value)
            return
        assert steps, "a program yields at least one step"
        task.answers, task.num_open = [None] * len(steps), len(steps)
        for position, step in enumerate(steps):
            self._begin(task, position, step)

    def _begin(self, task: _Task, position: int, step: Step) -> None:
        if isinstance(step, Call):
            reply = self._submit(step)
            reply.when_done(lambda ended: self._ended.put((task, position, ended)))
        else:
            self._resume(_Task(step, task, position))
