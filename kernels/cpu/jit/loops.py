"""The loops that can be compiled ahead of their first use, how long each takes to compile, and who
is told of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, TypeAlias

Event: TypeAlias = Literal["begun", "done", "kept"]
Listener: TypeAlias = Callable[[str, Event], None]  # of a loop's name
_listeners: list[Listener] = []


class Loop(NamedTuple):
    """A loop and its cost.

    name: "module.function"; the same for each of its signatures. family: loops of one have
    functions in common, which a process compiles once. seconds: of one core of a recent server,
    alone in a process. after: the same in a process that has compiled another loop of the family.
    signature: where it is defined, and its key where it is one of several; "" for an entry
    (`addresses.entry`). is_reordered: as in `jit.compiled`.
    """

    name: str
    family: str
    seconds: float
    after: float
    signature: str = ""
    is_reordered: bool = False


LOOPS = (
    Loop("blocks.layers", "blocks", 10.7, 6.2),
    Loop("blocks.layers_halved", "blocks", 10.7, 6.2),
    Loop("blocks.end", "blocks", 1.2, 0.3),
    Loop("singles.attend", "blocks", 5.4, 0.8, "singles.SIGNATURES.float32"),
    Loop("singles.attend", "blocks", 5.4, 0.8, "singles.SIGNATURES.bfloat16"),
    Loop("norms.normalize", "blocks", 0.8, 0.2, "norms.SIGNATURE"),
    Loop("slots.write", "blocks", 0.5, 0.3, "slots.SIGNATURES.float32"),
    Loop("slots.write", "blocks", 0.5, 0.3, "slots.SIGNATURES.bfloat16"),
    Loop("turns.turn", "blocks", 0.5, 0.2, "turns.SIGNATURE"),
    Loop("gates.silu_mul", "blocks", 0.6, 0.2, "gates.SIGNATURE"),
    Loop("strangers.plan", "plans", 0.3, 0.2, "strangers.SIGNATURE"),
    Loop("tiles.attend", "tiles", 9.8, 7.2, "tiles.SIGNATURES.float32"),
    Loop("tiles.attend", "tiles", 9.8, 7.2, "tiles.SIGNATURES.bfloat16"),
    Loop("digit_tiles.attend", "tiles", 7.1, 4.9, "tiles.SIGNATURES.float32"),
    Loop("bfloat_tiles.attend", "tiles", 7.1, 4.9, "tiles.SIGNATURES.bfloat16"),
    Loop("panels.multiply", "panels", 3.5, 3.0, "panels.SIGNATURE"),
    Loop("entries.paneled", "panels", 4.7, 2.6),
    Loop("panels.multiply", "panels", 3.5, 3.0, "panels.HALVED_SIGNATURE"),
    Loop("entries.halved", "panels", 4.7, 2.6),
    Loop("thirds.multiply", "thirds", 7.2, 4.6, "thirds.SIGNATURE"),
    Loop("entries.in_thirds", "thirds", 8.5, 2.6),
    Loop("chains.feed_forward", "thirds", 9.6, 6.7),
    Loop("draws.likeliest", "draws", 0.5, 0.2, "draws.LIKELIEST"),
    Loop("draws.draw", "draws", 4.9, 4.8, "draws.DRAW"),
    Loop("masks._hide", "masks", 0.3, 0.2, "masks._HIDE", is_reordered=True),
    Loop("masks._find", "masks", 0.6, 0.4, "masks._FIND", is_reordered=True),
)


def listen(listener: Listener) -> None:
    """Have it called for each loop from now on, in the thread that waits for it: before it is
    compiled ("begun") and after ("done"), or once where it is in the cache ("kept")."""
    _listeners.append(listener)


def tell(name: str, event: Event) -> None:
    """Tell the listeners of a loop."""
    for listener in _listeners:
        listener(name, event)


@contextmanager
def told(function: Callable[..., None], is_kept: bool) -> Iterator[None]:
    """Tell the listeners that a loop is compiled meanwhile, or read from where it is kept."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    tell(name, "kept" if is_kept else "begun")
    try:
        yield
    finally:
        if not is_kept:
            tell(name, "done")
