"""Which loops a model needs on a CPU, how long each takes to compile, and who is told of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from .features import has

Event: TypeAlias = Literal["begun", "done", "kept"]
Listener: TypeAlias = Callable[[str, Event], None]  # of a loop's name

# Seconds on one core of a recent server; what several loops have in common counts for the first.
_DRAWS = {"draws.likeliest": 0.4, "draws.draw": 3.2, "masks._hide": 0.2, "masks._find": 0.4}
_LAYERS = {
    "norms.normalize": 0.9,
    "slots.write": 0.3,
    "strangers.plan": 0.2,
    "singles.attend": 1.0,
    "tiles.attend": 8.5,
    "blocks.layers": 11.0,
    "blocks.end": 0.3,
}
_PANELS = {"panels.multiply": 3.0}
_ENTRIES = {"entries.halved": 1.5}
_TILES = {
    "thirds.multiply": 6.5,
    "entries.in_thirds": 2.0,
    "chains.feed_forward": 5.5,
    "digit_tiles.attend": 5.5,
}
_listeners: list[Listener] = []


def expected(dtype: str) -> dict[str, float]:
    """About how many seconds each loop takes to compile that a model of such numbers needs."""
    has_tiles = has("amxtile", "amxbf16")
    if dtype != "float32":
        products = {} if has_tiles else _PANELS
        return {"norms.normalize": 0.9} | products | _DRAWS
    return _LAYERS | (_TILES if has_tiles else _PANELS | _ENTRIES) | _DRAWS


def listen(listener: Listener) -> None:
    """Have it called for each loop from now on, in the thread that compiles it: before ("begun")
    and after ("done"), or once where there is code of an earlier process ("kept")."""
    _listeners.append(listener)


@contextmanager
def told(function: Callable[..., None], is_kept: bool) -> Iterator[None]:
    """Tell the listeners that a loop is compiled meanwhile, or read from where it is kept."""
    name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
    begun: Event = "kept" if is_kept else "begun"
    for listener in _listeners:
        listener(name, begun)
    try:
        yield
    finally:
        for listener in () if is_kept else _listeners:
            listener(name, "done")
