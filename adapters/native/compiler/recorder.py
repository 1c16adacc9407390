"""Records what a program does to its states, with unknown values, as the nodes of one path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, NoReturn

from ....core.api.protocol import Image, InvalidCall, ProgramError
from ..interpreter.variables import UnsetVariable
from ..language import expressions as language
from ..language.choices import METHODS
from ..language.unknown import Form, Marked, Unknown, UnknownMedia
from .errors import Location, NotTraceable, caller_location
from .graph import nodes as graph
from .graph.nodes import Node, Read
from .graph.streams import Streams
from .graph.validation import MAX_NODES, MAX_PATHS, is_name
from .graph.values import Composed, Given, Inserted, Listed, Mapped, Plain, Set, State, Value
from .markers import Markers

_INSTEAD = {
    Given: "fix the argument: compile({name}=...), or leave the decision to a select(...)",
    Set: "branch on a select(...), whose options are known, or run the program uncompiled",
}
_DAMAGED = "changes a text that has unknown parts, other than by putting texts together"
_AS_TEXT = (
    'put it into a text, as in "\\n".join(map(str, s["answers"])), or append it by itself; what'
    " computes with it goes behind run(), or into a program that is not compiled"
)
_LOOKED_UP = (
    'look up the variable of a select by itself, as in table[s["kind"]]: its options are known; or'
    " fix the argument"
)
_ENDLESS = "a loop that ends, or several programs: while it is traced, nothing is answered"
MANY_PATHS = f"branches on selects on more than {MAX_PATHS} paths"
FEWER_PATHS = "compare fewer of them, or append the variables instead"
_PLAIN = (type(None), bool, int, float, bytes)


@dataclass(frozen=True, slots=True)
class Decision:
    """The program branched on a select before the node at `position` of the path."""

    position: int
    read: Read
    options: tuple[str, ...]
    index: int


class Recorder:
    """One path through a program. script: the options that it takes at its first decisions, by
    index; at later ones it takes the first option. Mutable."""

    def __init__(self, markers: Markers, script: Sequence[int] = ()) -> None:
        self.nodes: list[Node] = []
        self.streams = Streams()
        self.decisions: list[Decision] = []
        self.refused: NotTraceable | None = None
        self._markers = markers
        self._script = script
        self._num_streams = 1
        self._location: Location | None = None

    @property
    def main(self) -> Recorded:
        """The program's own state."""
        return Recorded(self, 0)

    def argument(self, name: str) -> Unknown:
        """An argument that each run gives."""
        return Unknown(self, Given(name))

    def begin(self) -> Recorded:
        """A new state, for a program that this one calls as a part of it."""
        stream = self._new_stream()
        self.add(graph.Begin(stream))
        return Recorded(self, stream)

    def add(self, node: Node) -> None:
        """The program does this now. Raises NotTraceable for a program that does not end."""
        if len(self.nodes) >= MAX_NODES:
            self.refuse(f"has more than {MAX_NODES} primitives", _ENDLESS)
        self.streams.add(len(self.nodes), node)
        self.nodes.append(node)

    def marker(self, unknown: Unknown, form: Form, spec: str) -> str:
        """As `Tracer.marker`."""
        if self._markers.is_in(spec):
            self.refuse("has an unknown value in a format specification", "write the width itself")
        try:
            return self._markers.add(Inserted(unknown.reference, form, spec))
        except ValueError as error:
            self.refuse(f"has more than {error}", "divide the program, or run it uncompiled")

    def explained(self, error: Exception) -> tuple[str, str | None]:
        """What a program raised, with names in place of markers; and what to write instead, where
        that is known."""
        kind, texts = type(error).__name__, [it for it in error.args if isinstance(it, str)]
        if isinstance(error, TypeError) and Unknown.__name__ in str(error):
            return f"gives a value that is not known to what takes text only ({error})", _AS_TEXT
        if not any(map(self._markers.is_in, texts)):
            return f"raises {kind}: {error}", None
        shown = ", ".join(map(self._markers.named, texts))
        return f"raises {kind} for a text with unknown parts, {shown!r:.200}", _LOOKED_UP

    def value(self, unknown: Unknown, operation: str) -> Any:
        """As `Tracer.value`."""
        source = self._source(unknown)
        if isinstance(source, graph.Select):
            return self._decided(unknown.reference.read, source.options)
        self._refuse_operation(unknown.reference, operation)

    def has_options(self, unknown: Unknown) -> bool:
        """As `Tracer.has_options`."""
        return isinstance(self._source(unknown), graph.Select)

    def _source(self, unknown: Unknown) -> Node | None:
        """What sets the variable that an unknown is; None for an argument."""
        reference = unknown.reference
        return self.nodes[reference.read.source] if isinstance(reference, Set) else None

    def record(self, stream: int, node: language.Expression) -> None:
        """An expression without rows is appended to a stream."""
        if type(node) is Unknown:
            self._texts(stream, node.text())
            return
        if type(node) is UnknownMedia:
            self._unknown_media(stream, node)
            return
        self._check_known(node)
        match node:
            case language.Constant(text=text):
                self._texts(stream, text)
            case language.Gen():
                self.add(self._gen(stream, node))
            case language.Select(name=name, options=options, method=method):
                backend = self._backend(node.backend)
                self.add(graph.Select(stream, name, options, self._method(method), backend))
            case language.Media(segment=segment):
                num_frames = None if isinstance(segment, Image) else segment.num_frames
                self.add(graph.Media(stream, segment.data, num_frames=num_frames))
            case language.RoleBegin(role=role):
                self.add(graph.RoleBegin(stream, role))
            case language.RoleEnd():
                self.add(graph.RoleEnd(stream))
            case language.ScopeBegin(name=name):
                self.add(graph.ScopeBegin(stream, name))
            case language.ScopeEnd(name=name):
                self.add(graph.ScopeEnd(stream, name))
            case _:
                self.refuse(
                    f"appends {type(node).__name__}", "append text, or a word of the language"
                )

    def read(self, stream: int, name: str) -> Any:
        """The variable, as a program gets it. Raises UnsetVariable."""
        if not isinstance(name, str) or self._markers.is_in(name):
            self.refuse("reads a variable whose name is not known", "write the name itself")
        source = self.streams.setter(stream, name)
        if source is None:
            raise UnsetVariable(name, self.streams.names(stream))
        node = self.nodes[source]
        if isinstance(node, graph.Join):
            items = self.streams.items(node.fork)
            own = [name in self.streams.own_names(item) for item in items]
            return [
                self.read(it, name) if is_own else None
                for it, is_own in zip(items, own, strict=True)
            ]
        num = node.sampling.get("n", 1) if isinstance(node, graph.Gen) else 1
        if num > 1:
            reads = [Read(name, stream, source, item) for item in range(num)]
            return [Unknown(self, Set(read)) for read in reads]
        return Unknown(self, Set(Read(name, stream, source)))

    def returned(self, value: Any, location: Location) -> Value:
        """What the program returned, as data. location: where the program is."""
        self._location = location
        return self._returned(value)

    def _returned(self, value: Any) -> Value:
        if type(value) is Unknown:
            return value.reference  # type: ignore[no-any-return]
        if type(value) in (str, Marked):
            parts = self._split(value)
            return Plain(value) if all(type(it) is str for it in parts) else Composed(parts)
        if type(value) in _PLAIN:
            return Plain(value)
        if type(value) in (list, tuple):
            items = tuple(self._returned(item) for item in value)
            if all(type(item) is Plain for item in items):
                return Plain(value)
            return Listed(items, type(value) is tuple)
        if type(value) is dict:
            pairs = tuple((self._key(key), self._returned(it)) for key, it in value.items())
            if all(type(item) is Plain for _, item in pairs):
                return Plain(value)
            return Mapped(pairs)
        interpreter = getattr(value, "_interpreter", None)
        if isinstance(interpreter, Recorded):
            return State(interpreter.index)
        allowed = "return texts, numbers, lists, tuples, dicts, variables or the state"
        self.refuse(f"returns a {type(value).__name__}", allowed)

    def refuse(self, operation: str, instead: str, location: Location | None = None) -> NoReturn:
        """Raise NotTraceable, and keep it, for a program that catches it."""
        error = NotTraceable(operation, instead, location or self._location or caller_location())
        self.refused = self.refused or error
        raise error

    def fork(self, stream: int, num: Any) -> list[RecordedBranch]:
        """As `fork` of the interpreter."""
        if type(num) is Unknown:
            self._refuse_operation(num.reference, "fork(...)")
        if type(num) is not int or num < 1:
            raise InvalidCall("fork", num, "an integer >= 1")
        fork = len(self.nodes)
        self.add(graph.Fork(stream, num))
        branches = []
        for index in range(num):
            item = self._new_stream()
            self.add(graph.ForkItem(item, fork, index))
            branches.append(RecordedBranch(Recorded(self, item), fork))
        return branches

    def _decided(self, read: Read, options: tuple[str, ...]) -> str:
        for decision in self.decisions:
            if decision.read.source == read.source:
                return options[decision.index]
        number = len(self.decisions)
        if number >= MAX_PATHS:  # each decision adds a path at least
            self.refuse(MANY_PATHS, FEWER_PATHS)
        index = self._script[number] if number < len(self._script) else 0
        self.decisions.append(Decision(len(self.nodes), read, options, index))
        return options[index]

    def _refuse_operation(self, reference: Any, operation: str) -> NoReturn:
        is_argument = isinstance(reference, Given)
        name = reference.name if is_argument else reference.read.name
        what = f"{'argument' if is_argument else 'variable'} {name!r}"
        instead = _INSTEAD[type(reference)].format(name=name)
        location = caller_location()
        if location.primitive is not None:
            operation = f"{location.primitive}(...) has a setting that depends on {what}"
            self.refuse(operation, "write the setting itself, or fix the argument", location)
        self.refuse(f"{operation} of {what}, which is not known before the run", instead, location)

    def _texts(self, stream: int, text: str) -> None:
        continues = False
        for part in self._split(text) or ("",):
            self.add(_text_node(stream, part, continues))
            continues = True

    def _split(self, text: str) -> tuple[str | Inserted, ...]:
        try:
            return self._markers.split(text)
        except ValueError:
            self.refuse(_DAMAGED, 'append f"{value}", text + value, or value by itself')

    def _gen(self, stream: int, node: language.Gen) -> graph.Gen:
        if node.split is not None:
            instead = "use a plain gen(...), or run the program uncompiled"
            self.refuse("divides an answer by a function (separate_reasoning, a peek)", instead)
        backend = self._backend(node.backend)
        settings = node.constraint, backend, node.stream, node.resample, node.scored_from
        return graph.Gen(stream, node.name, node.sampling, *settings)

    def _backend(self, backend: Any) -> str | None:
        if backend is None or isinstance(backend, str):
            return backend
        instead = 'name it: backend="NAME", and run(backends={"NAME": ...})'
        self.refuse("has a backend in it, which is no data", instead)

    def _method(self, method: Any) -> str:
        name = method if isinstance(method, str) else getattr(method, "name", None)
        if name not in METHODS or not (isinstance(method, str) or METHODS[name] == method):
            instead = f"write one of {', '.join(METHODS)}"
            self.refuse("chooses by a method of its own", instead)
        return str(name)

    def _unknown_media(self, stream: int, node: UnknownMedia) -> None:
        reference = node.source.reference
        if not isinstance(reference, Given):
            self.refuse("shows a picture that the model has named", "make it an argument")
        self.add(graph.Media(stream, None, reference.name, node.num_frames))

    def _check_known(self, node: language.Expression) -> None:
        """Refuse settings that hold unknown texts, and names that a graph cannot have."""
        kind = type(node).__name__
        if not isinstance(node, language.Constant):
            for entry in fields(node):
                if self._markers.is_in(_plain_settings(getattr(node, entry.name))):
                    operation = (
                        f"{kind} has a setting ({entry.name}) that depends on an unknown value"
                    )
                    self.refuse(operation, "write the setting itself, or fix the argument")
        name = getattr(node, "name", None)
        if name is not None and not is_name(name):
            self.refuse(f"names a variable {name!r}", "use letters, digits, blanks and _.:/#@+-")

    def _key(self, key: Any) -> Any:
        if type(key) not in (*_PLAIN, str) or self._markers.is_in(key):
            self.refuse("returns a dict with an unknown key", "use plain keys")
        return key

    def _new_stream(self) -> int:
        self._num_streams += 1
        return self._num_streams - 1


class Recorded:
    """One state of a traced program: it takes what an interpreter takes."""

    def __init__(self, recorder: Recorder, index: int) -> None:
        self.recorder, self.index = recorder, index
        self.variables: Any = None

    @property
    def stream(self) -> Recorded:
        """That which is closed, once the state is over."""
        return self

    def submit(self, expression: language.Expression) -> None:
        """Append an expression. Raises ProgramError at the end of the state."""
        self.check_open()
        for node in language.flatten(expression):
            self.recorder.record(self.index, node)

    def read(self, name: str) -> Any:
        """As `Recorder.read`."""
        return self.recorder.read(self.index, name)

    def names(self) -> tuple[str, ...]:
        """The variables of the state."""
        return self.recorder.streams.names(self.index)

    def check_open(self) -> None:
        """As `Stream.check_open`."""
        if not self.recorder.streams.is_open(self.index):
            raise ProgramError("the state has ended (its program returned, or it was joined)")

    def close(self) -> None:
        """The state takes nothing more."""
        if self.recorder.streams.is_open(self.index):
            self.recorder.add(graph.End(self.index))

    def fork(self, num: int) -> list[RecordedBranch]:
        """As `Recorder.fork`. Raises ProgramError at the end of the state."""
        self.check_open()
        return self.recorder.fork(self.index, num)

    def join(self, branches: Sequence[RecordedBranch], mode: Any) -> None:
        """End the branches of one fork, as the interpreter's `join`."""
        if mode not in graph.JOIN_MODES:
            raise InvalidCall("mode", mode, " | ".join(graph.JOIN_MODES))
        self.check_open()
        self.recorder.add(graph.Join(self.index, branches[0].fork, mode))


@dataclass(frozen=True, slots=True)
class RecordedBranch:
    """A branch, and the node that forked it."""

    interpreter: Recorded
    fork: int


def _text_node(stream: int, part: str | Inserted, continues: bool) -> Node:
    match part:
        case Inserted(value=Given(name=name), form=form, spec=spec):
            return graph.Argument(stream, name, form, spec, continues)
        case Inserted(value=Set(read=read), form=form, spec=spec):
            return graph.Variable(stream, read, form, spec, continues)
    assert isinstance(part, str)
    return graph.ConstantText(stream, part, continues)


def _plain_settings(value: Any) -> Any:
    """The texts in a setting, also in those of a constraint."""
    if not is_dataclass(value):
        return value
    return [getattr(value, entry.name) for entry in fields(value)]
