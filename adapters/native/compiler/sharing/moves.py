"""Code movement of a whole graph (paper, appendix "Code Movement for Improving Prefix Sharing").

Each proposal of the reorderer passes all checks, or the texts stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from .....core.api.protocol import InvalidCall
from ...movement.checks import Checks, Refusal
from ...movement.parts import Part, shown
from ...movement.rules import Reorderer, why_not
from ..graph.graph import Graph
from .rewriting import rewritten
from .same_nodes import difference
from .stretches import Found, find


@dataclass(frozen=True, slots=True)
class Move:
    """What became of the texts that end the constant prefix of a stream.

    before, after: all of them, with {names} for arguments. prefix_before, prefix_after: the
    constant text in front of the first argument, of the open message. refusal: why they stay as
    they are; None where they were moved.
    """

    stream: int
    before: str
    after: str
    prefix_before: str
    prefix_after: str
    refusal: Refusal | None = None

    @property
    def is_moved(self) -> bool:
        """Whether anything was moved."""
        return self.refusal is None


@dataclass(frozen=True, slots=True)
class Moved:
    """A graph after code movement, and what was done to each of its streams."""

    graph: Graph
    moves: tuple[Move, ...]

    @property
    def is_changed(self) -> bool:
        """Whether anything was moved."""
        return any(move.is_moved for move in self.moves)

    @property
    def num_characters(self) -> int:
        """By how many characters the constant prefixes of all streams grew."""
        return sum(len(it.prefix_after) - len(it.prefix_before) for it in self.moves)

    def explain(self, count: Callable[[str], int] | None = None) -> str:
        """What moved, what did not and why, and by how many tokens the shared prefix grew; in
        characters without a `count` of tokens."""
        lines = [f"code movement: {sum(it.is_moved for it in self.moves)} of {len(self.moves)}"]
        for move in self.moves:
            lines += _explained(move, count)
        return "\n".join(lines)


def move(
    graph: Graph,
    reorderer: Reorderer,
    agree: Callable[[Graph], Refusal | None] = lambda graph: None,
) -> Moved:
    """The graph with as long a constant prefix as the reorderer finds and the checks accept.

    agree: the last check, of a whole graph: why it is refused, or None. Raises what the reorderer
    raises, and InvalidCall for a reorderer that is none.
    """
    if not callable(getattr(reorderer, "propose", None)):
        raise InvalidCall(
            "move", reorderer, "a reorderer, such as Rules() or ModelReorderer(backend)"
        )
    found = tuple(find(graph))
    moves = [_proposed(it, reorderer.propose(it.stretch)) for it in found]
    accepted = [(it, made[1]) for it, made in zip(found, moves, strict=True) if made[0].is_moved]
    if not accepted:
        return Moved(graph, tuple(made for made, _ in moves))
    changed = rewritten(graph, accepted)
    refusal = difference(graph, changed) or agree(changed)
    if refusal is None:
        return Moved(changed, tuple(made for made, _ in moves))
    refused = (_refused(made, refusal) if made.is_moved else made for made, _ in moves)
    return Moved(graph, tuple(refused))


def _proposed(found: Found, order: Sequence[Part]) -> tuple[Move, Sequence[Part]]:
    """What is to become of a stretch, and the order that was proposed."""
    stretch = found.stretch
    order, checks = tuple(order), Checks(stretch)
    refusal = checks.refusal(order)
    if refusal is None and len(stretch.prefix(order)) <= len(stretch.prefix()):
        refusal = why_not(checks) or Refusal("no gain", "the constant prefix would not grow")
    kept = stretch.parts if refusal is not None else order
    move = Move(
        found.stream,
        shown(stretch.pieces()).strip(),
        shown(stretch.pieces(kept)).strip(),
        found.before + stretch.prefix(),
        found.before + stretch.prefix(kept),
        refusal,
    )
    return move, kept


def _refused(move: Move, refusal: Refusal) -> Move:
    return replace(move, after=move.before, prefix_after=move.prefix_before, refusal=refusal)


def _explained(move: Move, count: Callable[[str], int] | None) -> Iterator[str]:
    if move.refusal is not None:
        yield f"stream {move.stream}: as it was ({move.refusal})"
        return
    unit = "characters" if count is None else "tokens"
    sizes = [(count or len)(text) for text in (move.prefix_before, move.prefix_after)]
    grown = f"+{sizes[1] - sizes[0]} {unit}"
    yield f"stream {move.stream}: constant prefix {sizes[0]} -> {sizes[1]} {unit} ({grown})"
    yield from (f"  | {line}" for line in move.after.splitlines())
