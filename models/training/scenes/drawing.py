"""Pictures of things, drawn with smooth edges at any size. Numpy only."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..world.data import table_of

_DATA = table_of(__file__)
COLOURS: dict[str, list[int]] = _DATA["colours"]
GLYPHS: dict[str, list[int]] = _DATA["glyphs"]
_Floats = npt.NDArray[Any]
_Distance = Callable[[_Floats, _Floats], _Floats]


@dataclass(frozen=True, slots=True)
class Thing:
    """A coloured shape, or printed text.

    what: of FORMS, or the text, in capitals and digits. x, y: its middle as shares of the
    picture's width and height, y downwards. radius: half its height, as a share of the picture's.
    """

    what: str
    colour: str
    x: float
    y: float
    radius: float

    @property
    def is_text(self) -> bool:
        return self.what not in FORMS


@dataclass(frozen=True, slots=True)
class Scene:
    """Things before a plain background (RGB). noise: the standard deviation of the pixels' values,
    from the seed, which also shades the colours."""

    things: tuple[Thing, ...]
    background: tuple[int, int, int]
    seed: int
    noise: float = 0


def _triangle(u: _Floats, v: _Floats) -> _Floats:
    distance: _Floats = np.maximum(v - 0.8, (1.8 * np.abs(u) - v - 1) / 2.06)
    return distance


def _cross(u: _Floats, v: _Floats) -> _Floats:
    u, v = np.abs(u), np.abs(v)
    distance: _Floats = np.minimum(np.maximum(u - 1, v - 0.33), np.maximum(u - 0.33, v - 1))
    return distance


def _star(u: _Floats, v: _Floats) -> _Floats:
    """Five points, one up: the distance to the line from the nearest point to the notch beside."""
    fifth = 2 * np.pi / 5
    angle = np.abs((np.arctan2(u, -v) + fifth / 2) % fifth - fifth / 2)
    length = np.hypot(u, v)
    notch = 0.42 * np.array([np.cos(fifth / 2), np.sin(fifth / 2)])
    along, across = notch - [1, 0]
    norm = np.hypot(along, across)
    distance: _Floats = across * (length * np.cos(angle) - 1) - along * length * np.sin(angle)
    return distance / float(norm)


# The signed distance to each shape's edge, negative inside, for a shape of radius 1.
SHAPES: dict[str, _Distance] = {
    "circle": lambda u, v: np.hypot(u, v) - 1,
    "square": lambda u, v: np.maximum(np.abs(u), np.abs(v)) - 0.88,
    "triangle": _triangle,
    "cross": _cross,
    "ring": lambda u, v: np.abs(np.hypot(u, v) - 0.76) - 0.24,
    "star": _star,
}


def _hollow(distance: _Distance, width: float) -> _Distance:
    """The edge of a shape, of some width, from its border inwards."""
    return lambda u, v: np.abs(distance(u, v) + width / 2) - width / 2


def _kite(u: _Floats, v: _Floats) -> _Floats:
    return (np.abs(u) + np.abs(v) - 1) * float(np.sqrt(0.5))


def _saltire(u: _Floats, v: _Floats) -> _Floats:
    half = float(np.sqrt(0.5))
    return _cross((u + v) * half, (u - v) * half)


# Shapes that have no name in questions: their colours are learned, in all colours.
UNNAMED: dict[str, _Distance] = {
    "frame": _hollow(SHAPES["square"], 0.42),
    "tent": _hollow(_triangle, 0.36),
    "kite": _hollow(_kite, 0.38),
    "saltire": _saltire,
    "bars": lambda u, v: np.maximum(np.abs(np.abs(u) - 0.55) - 0.25, np.abs(v) - 0.9),
    "steps": lambda u, v: np.minimum(
        np.maximum(np.abs(u + 0.45) - 0.3, np.abs(v) - 0.9),
        np.maximum(np.abs(u) - 0.75, np.abs(v - 0.6) - 0.3),
    ),
}
FORMS = SHAPES | UNNAMED


def width(thing: Thing) -> float:
    """Half the width of a thing, in the unit of its radius."""
    return thing.radius * ((6 * len(thing.what) - 1) / 7 if thing.is_text else 1)


def covered(thing: Thing, size: int) -> _Floats:
    """[size, size]: how much of each pixel the thing covers, from 0 to 1."""
    at = (np.arange(size, dtype=np.float32) + 0.5) / size
    if thing.is_text:
        return _printed(thing, size)
    u, v = (at - thing.x)[None] / thing.radius, (at - thing.y)[:, None] / thing.radius
    inside = 0.5 - FORMS[thing.what](*np.broadcast_arrays(u, v)) * thing.radius * size
    return np.clip(inside, 0, 1).astype(np.float32)


def _printed(thing: Thing, size: int, parts: int = 4) -> _Floats:
    """As `covered`, for text: the mean over parts² points of each pixel."""
    rows = np.zeros((7, 6 * len(thing.what) - 1), bool)
    for i, letter in enumerate(thing.what):
        bits = np.array(GLYPHS[letter])[:, None] >> np.arange(4, -1, -1) & 1
        rows[:, 6 * i : 6 * i + 5] = bits
    at = (np.arange(size * parts) + 0.5) / (size * parts)
    cell = 2 * thing.radius / 7
    row = np.floor((at - thing.y + thing.radius) / cell).astype(int)
    column = np.floor((at - thing.x + width(thing)) / cell).astype(int)
    inside = ((row >= 0) & (row < 7))[:, None] & ((column >= 0) & (column < rows.shape[1]))
    points = rows[row.clip(0, 6)][:, column.clip(0, rows.shape[1] - 1)] & inside
    share: _Floats = points.reshape(size, parts, size, parts).mean((1, 3), dtype=np.float32)
    return share


def draw(scene: Scene, size: int) -> npt.NDArray[np.uint8]:
    """The picture [size, size, 3] of a scene; later things cover earlier ones."""
    rng = np.random.default_rng(scene.seed)
    picture = np.empty((size, size, 3), np.float32)
    picture[:] = scene.background
    for thing in scene.things:
        share = covered(thing, size)[..., None]
        shade = np.array(COLOURS[thing.colour]) + rng.integers(-14, 15, 3)
        picture += share * (shade - picture)
    picture += rng.normal(0, scene.noise, picture.shape)
    return picture.round().clip(0, 255).astype(np.uint8)
