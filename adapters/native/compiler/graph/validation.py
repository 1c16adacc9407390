"""Checks a graph: edges lead back only, streams are open, names are names, sizes are bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from .....core.api.calls import Call
from .....core.api.protocol import InvalidCall, Sampling
from ...language.choices import METHODS
from ...language.expressions import RoleBegin as RoleExpression
from .blocks import Block, Parameter
from .errors import InvalidGraph
from .nodes import (
    FORMS,
    JOIN_MODES,
    OPENERS,
    SETTERS,
    TEXTS,
    Argument,
    Fork,
    ForkItem,
    Gen,
    Join,
    Media,
    Node,
    Read,
    RoleBegin,
    ScopeBegin,
    Select,
    Variable,
)
from .streams import Streams, refuse
from .values import Composed, Inserted, Listed, Mapped, State, Value, arguments_of, reads_of

MAX_NODES = 100_000
MAX_PATHS = 64
MAX_NAME = 256
_NAME = re.compile(r"\w[\w .:/#@+-]*")
_NAMES = f"a letter, digit or _, then also blanks and .:/#@+-; at most {MAX_NAME} characters"
_SPECS = "a format of at most 64 characters, without {} and numbers of more than 4 digits"
_SPEC = re.compile(r"(?!.*\d{5})[^{}\x00-\x1f]{0,64}")  # no width that fills the memory


def check_graph(
    name: str,
    parameters: Sequence[Parameter],
    nodes: Sequence[Node],
    blocks: Sequence[Block],
    outputs: Sequence[str] | None,
) -> None:
    """Raise InvalidGraph for the first part that is not allowed."""
    _check_name("name", name)
    for index, parameter in enumerate(parameters):
        _check_argument(f"parameters[{index}].name", parameter.name)
    names = [parameter.name for parameter in parameters]
    if len(set(names)) < len(names):
        raise InvalidGraph("parameters", names, "different names")
    if len(nodes) > MAX_NODES:
        raise InvalidGraph("nodes", len(nodes), f"at most {MAX_NODES} nodes")
    for name in outputs or ():
        _check_name("outputs", name)
    open_names = {parameter.name for parameter in parameters if not parameter.is_fixed}
    for position, node in enumerate(nodes):
        _check_node(position, node, open_names)
    _check_blocks(nodes, blocks, open_names)


def _check_blocks(nodes: Sequence[Node], blocks: Sequence[Block], names: set[str]) -> None:
    if not 0 < len(blocks) < 2 * MAX_PATHS:
        raise InvalidGraph("blocks", len(blocks), f"1 to {2 * MAX_PATHS - 1} blocks")
    _check_ranges(nodes, blocks)
    begun: dict[int, Streams] = {0: Streams()}
    opened: set[int] = {0}
    for index, block in enumerate(blocks):
        if index not in begun:
            raise InvalidGraph(f"blocks[{index}]", index, "the block of a case before it")
        streams = begun.pop(index)
        _go_through(streams, nodes, block, opened)
        if block.switch is None:
            _check_value(f"blocks[{index}].value", block.value, streams, names)
            continue
        if block.value is not None:
            raise InvalidGraph(f"blocks[{index}].value", block.value, "none beside a switch")
        for following in _cases(f"blocks[{index}].switch", index, block, streams):
            if following in begun or not index < following < len(blocks):
                allowed = "a block behind this one that is no other case's: blocks form no cycle"
                raise InvalidGraph(f"blocks[{index}].switch.cases", following, allowed)
            begun[following] = streams.copy()


def _check_ranges(nodes: Sequence[Node], blocks: Sequence[Block]) -> None:
    at = 0
    for index, block in enumerate(blocks):
        if block.start != at or block.end < at:
            allowed = f"{at}, where the block before ends, and an end that is not before it"
            raise InvalidGraph(f"blocks[{index}].start", block.start, allowed)
        at = block.end
    if at != len(nodes):
        raise InvalidGraph("blocks", at, f"blocks that end with the last of {len(nodes)} nodes")


def _go_through(streams: Streams, nodes: Sequence[Node], block: Block, opened: set[int]) -> None:
    before: Node | None = None
    for position in range(block.start, block.end):
        node = nodes[position]
        streams.add(position, node)
        if isinstance(node, OPENERS):
            if node.stream in opened:
                refuse(position, "stream", node.stream, "a stream that no other node opens")
            opened.add(node.stream)
        if isinstance(node, Variable):
            _check_read(f"nodes[{position}].read", node.read, streams)
        if isinstance(node, TEXTS) and node.continues:
            is_text = isinstance(before, TEXTS) and before.stream == node.stream
            if not is_text:
                refuse(position, "continues", True, "False behind what is no text of its stream")
        if isinstance(node, Fork):
            _check_items(position, node, nodes, block)
        before = node


def _check_items(position: int, fork: Fork, nodes: Sequence[Node], block: Block) -> None:
    items = nodes[position + 1 : min(position + 1 + fork.num, block.end)]
    is_whole = len(items) == fork.num
    if not is_whole or not all(isinstance(it, ForkItem) and it.fork == position for it in items):
        refuse(position, "num", fork.num, "as many fork items behind it")


def _cases(field: str, index: int, block: Block, streams: Streams) -> Iterator[int]:
    switch = block.switch
    assert switch is not None
    streams.check_read(f"{field}.read", switch.read)
    source = streams.source(switch.read)
    if not isinstance(source, Select) or switch.read.item is not None:
        raise InvalidGraph(f"{field}.read", switch.read, "a variable that a select sets")
    options = [option for case in switch.cases for option in case.options]
    if sorted(options) != sorted(source.options) or not all(it.options for it in switch.cases):
        raise InvalidGraph(
            f"{field}.cases", options, f"each option of the select: {source.options}"
        )
    yield from (case.block for case in switch.cases)


def _check_read(field: str, read: Read, streams: Streams) -> None:
    streams.check_read(field, read)
    source, item = streams.source(read), read.item
    num = source.sampling.get("n", 1) if isinstance(source, Gen) else 1
    if item is not None and not 0 <= item < num:
        raise InvalidGraph(f"{field}.item", item, f"an index below {num}, or none")


def _check_value(field: str, value: Value | None, streams: Streams, names: set[str]) -> None:
    if value is None:
        raise InvalidGraph(field, value, "a value where the program ends")
    for read in reads_of(value):
        _check_read(field, read, streams)
    for name in arguments_of(value):
        if name not in names:
            raise InvalidGraph(field, name, "a parameter that is not fixed")
    for part in _parts(value):
        if isinstance(part, State) and part.stream not in streams.known:
            raise InvalidGraph(field, part.stream, "a stream that was opened before")
        if isinstance(part, Inserted):
            _check_form(field, part.form, part.spec)


def _parts(value: Value) -> Iterator[Any]:
    yield value
    match value:
        case Listed(items=items):
            yield from (part for item in items for part in _parts(item))
        case Mapped(pairs=pairs):
            yield from (part for _, item in pairs for part in _parts(item))
        case Composed(parts=parts):
            yield from parts


def _check_node(position: int, node: Node, names: set[str]) -> None:
    where = f"nodes[{position}]"
    if not 0 <= node.stream <= MAX_NODES:
        refuse(position, "stream", node.stream, f"a number from 0 to {MAX_NODES}")
    if isinstance(node, (*SETTERS, ScopeBegin)) and node.name is not None:
        _check_name(f"{where}.name", node.name)
    match node:
        case Argument():
            if node.name not in names:
                refuse(position, "name", node.name, f"a parameter: {', '.join(sorted(names))}")
            _check_form(where, node.form, node.spec)
        case Variable():
            _check_form(where, node.form, node.spec)
        case Gen() | Select():
            _check_call(where, node)
        case Media():
            _check_media(position, node, names)
        case RoleBegin():
            _located(where, lambda: RoleExpression(node.role))
        case Fork() if not 1 <= node.num <= MAX_NODES:
            refuse(position, "num", node.num, f"a number from 1 to {MAX_NODES}")
        case Join() if node.mode not in JOIN_MODES:
            refuse(position, "mode", node.mode, " | ".join(JOIN_MODES))


def _check_call(where: str, node: Gen | Select) -> None:
    if node.backend is not None:
        _check_name(f"{where}.backend", node.backend)
    if isinstance(node, Select):
        if node.method not in METHODS:
            raise InvalidGraph(f"{where}.method", node.method, " | ".join(METHODS))
        is_list = node.options and len(set(node.options)) == len(node.options)
        if not is_list or not all(node.options):
            raise InvalidGraph(f"{where}.options", node.options, "different, non-empty texts")
        return

    def check() -> None:
        sampling = Sampling(**{"max_tokens": None, **node.sampling})
        Call((), sampling, node.constraint, scored_from=node.scored_from).check()

    _located(where, check)


def _check_media(position: int, node: Media, names: set[str]) -> None:
    if (node.data is None) == (node.argument is None):
        refuse(position, "data", node.data, "either data or an argument")
    if node.argument is not None and node.argument not in names:
        refuse(position, "argument", node.argument, f"a parameter: {', '.join(sorted(names))}")
    if node.num_frames is not None and node.num_frames < 1:
        refuse(position, "num_frames", node.num_frames, "a number >= 1, or none for an image")


def _located(where: str, check: Any) -> None:
    try:
        check()
    except InvalidCall as error:
        raise InvalidGraph(f"{where}.{error.field}", error.value, error.allowed) from error


def _check_form(where: str, form: str, spec: str) -> None:
    if form not in FORMS:
        raise InvalidGraph(f"{where}.form", form, " | ".join(FORMS))
    if not _SPEC.fullmatch(spec) or (spec and form == "text"):
        raise InvalidGraph(f"{where}.spec", spec, _SPECS)


def is_name(name: str) -> bool:
    """Whether a graph may have a variable of this name."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def _check_name(field: str, name: str) -> None:
    if not is_name(name):
        raise InvalidGraph(field, name, _NAMES)


def _check_argument(field: str, name: str) -> None:
    if len(name) > MAX_NAME or not name.isidentifier() or name.startswith("__"):
        raise InvalidGraph(field, name, "the name of an argument, without two leading underscores")
