"""A traced program as data: nodes in the order of the program, in blocks between its switches."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import codecs
from .blocks import Block, Parameter
from .codecs import flag, listed, members, text, whole
from .errors import InvalidGraph
from .nodes import OPENERS, ForkItem, Node
from .serial import read_block, read_node, read_parameter, write_block, write_node, write_parameter
from .validation import MAX_NODES, check_graph

VERSION = 1
MAX_BYTES = 64 << 20
MAX_PARTS = 1_000_000
MAX_NESTING = 100
_FIELDS = ("forkroot", "version", "name", "parameters", "nodes", "blocks", "outputs", "speculate")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """A stream of a graph. parent: from which it was forked, by the node `opened_by`; None: it is
    a state of its own."""

    index: int
    parent: int | None
    opened_by: int | None


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced program. It is checked when it is made, and raises InvalidGraph.

    nodes: in the order of the program; what a node refers to is before it. blocks: ranges of nodes;
    the program begins with the first one. outputs: the variables that a run is for; None: all.
    speculate: as in `Settings`, where a run sets none.
    """

    name: str
    nodes: tuple[Node, ...]
    blocks: tuple[Block, ...]
    parameters: tuple[Parameter, ...] = ()
    outputs: tuple[str, ...] | None = None
    speculate: int | bool = False

    def __post_init__(self) -> None:
        check_graph(self.name, self.parameters, self.nodes, self.blocks, self.outputs)
        if type(self.speculate) is not bool and not (
            type(self.speculate) is int and self.speculate >= 1
        ):
            raise InvalidGraph("speculate", self.speculate, "a boolean, or a number >= 1")

    @property
    def streams(self) -> tuple[StreamInfo, ...]:
        """All streams, in the order in which they are opened."""
        found = [StreamInfo(0, None, None)]
        for position, node in enumerate(self.nodes):
            if isinstance(node, ForkItem):
                found.append(StreamInfo(node.stream, self.nodes[node.fork].stream, position))
            elif isinstance(node, OPENERS):
                found.append(StreamInfo(node.stream, None, position))
        return tuple(found)

    def stream(self, index: int) -> tuple[int, ...]:
        """The positions of the nodes of one stream, of all blocks, in order."""
        return tuple(at for at, node in enumerate(self.nodes) if node.stream == index)

    def paths(self) -> Iterator[tuple[int, ...]]:
        """Every way through the blocks, as their indices."""
        ways: list[tuple[int, ...]] = [(0,)]
        while ways:
            way = ways.pop()
            switch = self.blocks[way[-1]].switch
            if switch is None:
                yield way
            else:
                ways += [(*way, case.block) for case in reversed(switch.cases)]

    def positions(self, path: tuple[int, ...]) -> Iterator[int]:
        """The positions of the nodes of these blocks, in order."""
        for index in path:
            yield from range(self.blocks[index].start, self.blocks[index].end)

    def to_json(self) -> str:
        """The graph as JSON: names, texts, numbers and schemas only. The same graph gives the same
        text. Raises InvalidCall for a schema that is not JSON."""
        found: dict[str, Any] = {
            "forkroot": "graph",
            "version": VERSION,
            "name": self.name,
            "parameters": [write_parameter(parameter) for parameter in self.parameters],
            "nodes": [write_node(node) for node in self.nodes],
            "blocks": [write_block(block) for block in self.blocks],
        }
        if self.outputs is not None:
            found["outputs"] = list(self.outputs)
        if self.speculate:
            found["speculate"] = self.speculate
        try:
            return json.dumps(found, separators=(",", ":"), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidGraph("nodes", self.name, f"schemas that are JSON ({error})") from error

    @classmethod
    def from_json(cls, source: str | bytes) -> Graph:
        """The graph that `to_json` wrote. Runs no code; raises InvalidGraph for anything else, in
        time and memory that are bounded by the length of the text, which is limited."""
        found = members("graph", _parsed(source), _FIELDS, 2)
        if found["forkroot"] != "graph":
            raise InvalidGraph("forkroot", found["forkroot"], "'graph'")
        if found["version"] != VERSION or type(found["version"]) is not int:
            raise InvalidGraph("version", found["version"], f"{VERSION}")
        members("graph", found, _FIELDS, 6)
        num_nodes = len(listed("nodes", found["nodes"]))
        if num_nodes > MAX_NODES:  # before any of them is read
            raise InvalidGraph("nodes", num_nodes, f"at most {MAX_NODES} nodes")
        outputs = found.get("outputs")
        speculate = found.get("speculate", False)
        return cls(
            text.decode("name", found["name"]),
            tuple(map(read_node, *_numbered("nodes", found["nodes"]))),
            tuple(map(read_block, *_numbered("blocks", found["blocks"]))),
            tuple(map(read_parameter, *_numbered("parameters", found["parameters"]))),
            None if outputs is None else codecs.texts.decode("outputs", outputs),
            (whole if type(speculate) is int else flag).decode("speculate", speculate),
        )

    def digest(self) -> str:
        """A name of the content: the SHA-256 of the JSON, in hexadecimal digits."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


def _numbered(field: str, found: Any) -> tuple[list[str], list[Any]]:
    items = listed(field, found)
    return [f"{field}[{index}]" for index in range(len(items))], items


def _parsed(source: str | bytes) -> Any:
    content = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    if not isinstance(content, bytes):
        raise InvalidGraph("graph", source, "the JSON of a graph, as a text or as bytes")
    if len(content) > MAX_BYTES:
        raise InvalidGraph("graph", f"{len(content)} bytes", f"at most {MAX_BYTES}")
    _check_size(content)
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        shown = content[:60].decode(errors="replace")
        made = "JSON, as program.compile().save(PATH) writes it"
        raise InvalidGraph("graph", shown, f"{made} ({error})") from error


def _check_size(content: bytes) -> None:
    """Raise InvalidGraph for JSON of more parts, or nested deeper, than a graph has."""
    num_quotes = content.count(b'"')
    if num_quotes > 4 * MAX_PARTS:
        raise InvalidGraph("graph", f"{num_quotes} quotation marks", f"at most {4 * MAX_PARTS}")
    outside = _STRING.sub(b"", content)
    num_parts = sum(outside.count(mark) for mark in (b",", b"[", b"{"))
    if num_parts > MAX_PARTS:
        raise InvalidGraph("graph", f"{num_parts} values", f"at most {MAX_PARTS}")
    depth = 0
    for mark in re.findall(rb"[\[\]{}]", outside):
        depth += 1 if mark in b"[{" else -1
        if depth > MAX_NESTING:
            raise InvalidGraph("graph", f"nested {depth} deep", f"at most {MAX_NESTING}")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
