"""Scenes of a few shapes, a digit or a word, drawn at random from a seed.

Pairs of what a thing is and its colour are split: each shape, digit and word has one colour that is
kept out of training, and every held-out scene has such a pair.
"""

import random

from ..world.data import table_of
from .drawing import COLOURS, SHAPES, UNNAMED, Scene, Thing, width

WORDS: list[str] = table_of(__file__)["words"]
WHATS = (*SHAPES, *"0123456789", *(word.upper() for word in WORDS))
MOST = 5  # shapes


def is_held_out(what: str, colour: str) -> bool:
    """Whether a coloured thing is kept out of training: none without a name is."""
    return (
        what not in UNNAMED
        and (3 * WHATS.index(what) + tuple(COLOURS).index(colour)) % len(COLOURS) == 0
    )


def held_out_colour(what: str) -> str:
    """The colour in which training never has this."""
    return next(colour for colour in COLOURS if is_held_out(what, colour))


def held_out_shape(colour: str) -> str:
    """The shape that training never has in this colour, or nothing."""
    return next((shape for shape in SHAPES if is_held_out(shape, colour)), "")


def scene_of(rng: random.Random, kind: str, held_out: bool) -> Scene:
    """A scene of a kind: "shapes" (one to five), "many" (four or five), "two" (shapes, as questions
    about sides like them), "unnamed" (two shapes without a name), "digit" or "word" (each with up
    to two shapes).

    held_out: have a pair in it that training never shows; otherwise have none.
    """
    while True:
        named = _named(rng, kind)
        if any(is_held_out(*pair) for pair in named) == held_out:
            break
    while (things := _placed(rng, named)) is None:
        pass
    base, tint = rng.randint(95, 185), 12
    red, green, blue = (base + rng.randint(-tint, tint) for _ in range(3))
    return Scene(things, (red, green, blue), rng.getrandbits(32), rng.uniform(0, 4))


def _named(rng: random.Random, kind: str) -> list[tuple[str, str]]:
    """What is in a scene, each with its colour; text comes first."""
    colours, shapes = tuple(COLOURS), tuple(SHAPES)
    texts = {"digit": lambda: str(rng.randint(0, 9)), "word": lambda: rng.choice(WORDS).upper()}
    if kind in texts:
        whats = [texts[kind](), *rng.choices(shapes, k=rng.choice((0, 0, 1, 2)))]
    elif kind == "unnamed":
        whats = rng.sample(tuple(UNNAMED), 2)
    else:
        num = 2 if kind == "two" else rng.randint(4 if kind == "many" else 1, MOST)
        pool = rng.sample(shapes, rng.randint(1, len(shapes)) if num > 2 else len(shapes))
        whats = rng.choices(pool, k=num) if num > 2 else rng.sample(shapes, num)
    pool = rng.sample(colours, rng.randint(1, len(colours)))
    return [(what, rng.choice(pool)) for what in whats]


def _placed(rng: random.Random, named: list[tuple[str, str]]) -> tuple[Thing, ...] | None:
    """The things at places where none touches another, if chance finds such places."""
    things = list[Thing]()
    for what, colour in named:
        most = 0.15 if len(named) > 2 else 0.2
        radius = rng.uniform(0.1, most)
        if Thing(what, colour, 0, 0, radius).is_text:
            radius = rng.uniform(0.17, 0.3) if len(what) == 1 else 7 * 0.47 / (6 * len(what) - 1)
            radius *= 1 if len(what) == 1 else rng.uniform(0.85, 1)
        half = width(Thing(what, colour, 0, 0, radius))
        for _ in range(20):
            x = rng.uniform(half + 0.02, 0.98 - half)
            thing = Thing(what, colour, x, rng.uniform(radius + 0.02, 0.98 - radius), radius)
            if all(_apart(thing, other) for other in things):
                things.append(thing)
                break
        else:
            return None
    return tuple(things)


def _apart(a: Thing, b: Thing) -> bool:
    gap = 0.03
    across, down = abs(a.x - b.x), abs(a.y - b.y)
    return across > width(a) + width(b) + gap or down > a.radius + b.radius + gap
