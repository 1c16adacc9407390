"""Runs a graph: its nodes are submitted to interpreters, in order, one for each stream.

Either each read of a variable waits, as in the program that was traced, or no read does: then all
streams get their nodes at once, and a text that needs another stream's variable is appended once
that is there. Tokens, variables and meta information are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

from ....core.api.protocol import ForkHint, InvalidCall, ProgramError
from ..interpreter.context import Context
from ..interpreter.forks import Branch as Forked
from ..interpreter.forks import fork, join
from ..interpreter.hints import root_of, with_outlook
from ..interpreter.interpreter import Interpreter
from ..interpreter.reader import Reader
from ..interpreter.slots import Slot
from ..language.expressions import Constant, Expression, variables_of
from ..language.settings import Settings
from .graph.nodes import Argument, Begin, ConstantText, End, Form, Join, Read, TextNode
from .graph.values import Composed, Given, Inserted, Listed, Mapped, Plain, Set, State, Value
from .lowering import Append, Branch, Compose, Lowered, Op, Show

_TEXT = "text, or an expression such as gen(...)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an execution needs of the language's words. media: `image` or `video`, of a source and
    a number of frames. state: of an interpreter, for the program's caller."""

    media: Callable[[Any, int | None], Expression]
    state: Callable[[Interpreter], Any]


class Execution:
    """One run of a graph on the interpreter of its main stream. is_ahead: no read waits."""

    def __init__(
        self,
        program: Lowered,
        main: Interpreter,
        arguments: Mapping[str, Any],
        surroundings: Surroundings,
        is_ahead: bool,
    ) -> None:
        self._program = program
        self._arguments = arguments
        self._surroundings = surroundings
        self._is_ahead = is_ahead
        self._interpreters = {0: main}
        self._forks: dict[int, list[Forked]] = {}
        self._slots: dict[int, Slot] = {}
        self._fetched: dict[int, Any] = {}
        self._gates: dict[int, list[Slot]] = {}
        self._reads: list[Read] = []
        if program.has_outlooks:
            main.context.first = main.take_hint()

    def run(self) -> Any:
        """Submit all nodes on the way that the selects choose; the program's return value. Raises
        the error of a stream that is read."""
        self._check_backends()
        index = 0
        while True:
            block = self._program.blocks[index]
            for op in self._program.ops[index]:
                self._submit(op)
            for position in tuple(self._gates):
                self._end_gates(position)
            if block.switch is None:
                break
            option = self._value(block.switch.read)
            index = next(it.block for it in block.switch.cases if option in it.options)
        for read in self._reads:
            self._value(read)
        return self._evaluated(block.value or Plain())

    def _submit(self, op: Op) -> None:
        match op:
            case Append(stream=stream, expression=expression):
                self._interpreters[stream].submit(expression)
                if op.is_read:
                    self._keep(op)
            case Compose(stream=stream):
                self._compose(self._interpreters[stream], op)
            case Show(stream=stream, node=node):
                source = self._arguments[str(node.argument)]
                shown = self._surroundings.media(source, node.num_frames)
                self._interpreters[stream].submit(shown)
            case Branch():
                self._fork(op)
            case Join(stream=stream, fork=position, mode=mode):
                self._end_gates(position)
                join(self._interpreters[stream], self._forks[position], mode)
            case Begin(stream=stream):
                self._interpreters[stream] = self._part()
            case End(stream=stream):
                self._interpreters[stream].stream.close()

    def _keep(self, op: Append) -> None:
        """The variable that was set is read later on."""
        interpreter, (name, *_) = self._interpreters[op.stream], variables_of(op.expression)
        if self._is_ahead:
            self._slots[op.position] = interpreter.publish(name)
        elif op.is_stale:
            self._fetched[op.position] = Reader(interpreter).get_var(name)

    def _compose(self, interpreter: Interpreter, op: Compose) -> None:
        if not self._is_ahead or not op.reads:
            interpreter.submit(Constant(self._text(op.parts)))
            return
        self._reads += op.reads
        slots = [self._slots[read.source] for read in op.reads]
        interpreter.submit_text(slots, partial(self._text, op.parts))

    def _fork(self, op: Branch) -> None:
        parent = self._interpreters[op.stream]
        branches = fork(parent, len(op.items), op.num_calls, self._announced(op, parent.context))
        self._forks[op.position] = branches
        for item, branch in zip(op.items, branches, strict=True):
            self._interpreters[item] = branch.interpreter
        if op.most is not None and self._is_ahead:
            gates = [Slot() for _ in branches[op.most :]]
            self._gates[op.position] = gates
            for branch, gate in zip(branches[op.most :], gates, strict=True):
                branch.interpreter.submit_gate(gate)

    def _announced(self, op: Branch, context: Context) -> ForkHint | None:
        """The hint of a fork's root, which all calls behind name that begin with it."""
        if op.root is None or not context.settings.hints:
            return None
        num = op.root.num_others if context.first else op.root.num_calls
        hint = with_outlook(root_of(num, context), op.root.outlook, context.program)
        context.roots[op.position] = hint
        return hint

    def _end_gates(self, position: int) -> None:
        """All branches of the fork have their nodes: the first ones let the others go on, one by
        one, as they end."""
        for branch, gate in zip(self._forks[position], self._gates.pop(position, ()), strict=False):
            branch.interpreter.submit_slot().when_done(gate.set)

    def _part(self) -> Interpreter:
        """A state of its own, with the settings of a part."""
        context = self._interpreters[0].context
        settings = context.settings
        own = Settings(backend=settings.backend, backends=settings.backends)
        return Interpreter(context.part(own))

    def _text(self, parts: tuple[TextNode, ...]) -> str:
        spend, found = self._interpreters[0].context.spend, list[str]()
        for part in parts:
            found.append(self._part_text(part))
            spend(len(found[-1]))
        text = "".join(found)
        spend(-len(text))  # it is counted where it is kept
        return text

    def _part_text(self, part: TextNode) -> str:
        if isinstance(part, ConstantText):
            return part.text
        if isinstance(part, Argument):
            value, field = self._arguments[part.name], f"arguments.{part.name}"
        else:
            value, field = self._value(part.read), part.read.name
        return as_text(value, part.form, part.spec, field)

    def _value(self, read: Read) -> Any:
        """The value of a variable; waits for it."""
        reader = Reader(self._interpreters[read.stream])
        if read.source in self._fetched:
            value = self._fetched[read.source]
        elif not self._is_ahead:
            value = reader.get_var(read.name)
        else:
            slot = self._slots[read.source]
            slot.wait()
            if slot.error is not None:
                reader.get_var(read.name)
                raise ProgramError(f"variable {read.name!r} was not set") from slot.error
            value = slot.value
        if read.item is None:
            return value
        if not isinstance(value, list) or not read.item < len(value):
            raise InvalidCall(read.name, value, f"a list of more than {read.item} answers")
        return value[read.item]

    def _evaluated(self, value: Value) -> Any:
        match value:
            case Plain(value=found):
                return deepcopy(found)
            case Given(name=name):
                return self._counted(self._arguments[name])
            case Set(read=read):
                return self._counted(self._value(read))
            case State(stream=stream):
                return self._surroundings.state(self._interpreters[stream])
            case Composed(parts=parts):
                return "".join(map(self._inserted, parts))
            case Listed(items=items, is_tuple=is_tuple):
                found = [self._evaluated(item) for item in items]
                return tuple(found) if is_tuple else found
            case Mapped(pairs=pairs):
                return {key: self._evaluated(item) for key, item in pairs}

    def _counted(self, value: Any) -> Any:
        self._interpreters[0].context.spend(_size(value))
        return value

    def _inserted(self, part: str | Inserted) -> str:
        if isinstance(part, str):
            return part
        found = as_text(self._evaluated(part.value), part.form, part.spec)
        self._interpreters[0].context.spend(len(found))
        return found

    def _check_backends(self) -> None:
        known = self._interpreters[0].context.settings.backends
        for name in sorted(self._program.backends - set(known)):
            allowed = (
                f"a name in backends= ({sorted(known)}): a graph connects to nothing by itself"
            )
            raise InvalidCall("backend", name, allowed)


def _size(value: Any) -> int:
    """About as many characters as plain data has, as text."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, list | tuple):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return 1 + sum(_size(key) + _size(item) for key, item in value.items())
    return 1


def as_text(value: Any, form: Form, spec: str = "", field: str = "expression") -> str:
    """A value as the text that the program would have made of it. field: named by the error. Raises
    InvalidCall for one that is no text and was to be appended as it is, or that its format does not
    take."""
    try:
        match form:
            case "format":
                return format(value, spec)
            case "str":
                return format(str(value), spec)
            case "repr":
                return format(repr(value), spec)
    except (TypeError, ValueError) as error:
        allowed = f"a value that the format {spec!r} takes ({error})"
        raise InvalidCall(field, value, allowed) from error
    if not isinstance(value, str):
        raise InvalidCall(field, value, _TEXT)
    return value
