"""Questions about a drawn scene, and their answers."""

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from ..world.data import table_of
from ..world.document import LETTERS
from .drawing import COLOURS, SHAPES, UNNAMED, Scene, Thing
from .scene import MOST, WORDS, held_out_colour, held_out_shape, is_held_out

WORDINGS: dict[str, list[str]] = table_of(__file__)
# How many questions of each kind about sides a lesson picks from.
SIDES = {"across": 2, "down": 5, "half": 1, "end": 2, "end_colour": 1}
CLEARLY = 0.12  # how far apart two things are where a question asks for a side


class Asked(NamedTuple):
    """A question, its answer, and all answers that a question of its kind may have. held_out:
    answers that no training picture has: the right one but for a colour or a shape that would make
    a held-out pair."""

    kind: str
    question: str
    answer: str
    options: tuple[str, ...]
    held_out: tuple[str, ...] = ()


def _asked(
    rng: random.Random, kind: str, options: tuple[str, ...], answer: str, *names: str
) -> Asked:
    return Asked(kind, rng.choice(WORDINGS[kind]).format(*names), answer, options)


def plural(shape: str) -> str:
    return f"{shape}es" if shape.endswith("s") else f"{shape}s"


def shapes_of(scene: Scene) -> list[Thing]:
    return [thing for thing in scene.things if not thing.is_text]


def named(scene: Scene) -> Iterator[tuple[Thing, str]]:
    """Each shape by the names that are its alone: "star", "red star"."""
    shapes = shapes_of(scene)
    for thing in shapes:
        alike = [other for other in shapes if other.what == thing.what]
        if len(alike) == 1:
            yield thing, thing.what
        if sum(other.colour == thing.colour for other in alike) == 1:
            yield thing, f"{thing.colour} {thing.what}"


def colours(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    for thing, name in named(scene):
        if name == thing.what:
            yield _of_colour(_asked(rng, "colour", tuple(COLOURS), thing.colour, name), thing)
    for thing in scene.things:
        if thing.is_text:
            name = "digit" if thing.what.isdigit() else "word"
            yield _of_colour(_asked(rng, "colour", tuple(COLOURS), thing.colour, name), thing)


def _of_colour(asked: Asked, thing: Thing) -> Asked:
    return asked._replace(held_out=(held_out_colour(thing.what),))


def _of_shape(asked: Asked, thing: Thing) -> Asked:
    shape = held_out_shape(thing.colour)
    return asked._replace(held_out=(shape,) if shape else ())


def forms(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    used = [thing.colour for thing in scene.things]
    for thing in shapes_of(scene):
        if used.count(thing.colour) == 1:
            asked = _asked(rng, "shape", tuple(SHAPES), thing.what, thing.colour)
            yield _of_shape(asked, thing)


def sides(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    """How two shapes stand to each other, which is outermost, and where a lone one is."""
    for (a, name), (b, other) in permutations(named(scene), 2):
        if a is not b and abs(a.x - b.x) > CLEARLY:
            answer = "left" if a.x < b.x else "right"
            yield _asked(rng, "across", ("left", "right"), answer, name, other)
        if a is not b and abs(a.y - b.y) > CLEARLY:
            answer = "above" if a.y < b.y else "below"
            yield _asked(rng, "down", ("above", "below"), answer, name, other)
    if len(scene.things) == 2 and not any(thing.is_text for thing in scene.things):
        yield from _ends(rng, *scene.things)
    for thing, name in named(scene):
        if abs(thing.x - 0.5) > CLEARLY:
            answer = "left" if thing.x < 0.5 else "right"
            yield _asked(rng, "half", ("left", "right"), answer, name)


def _ends(rng: random.Random, a: Thing, b: Thing) -> Iterator[Asked]:
    for low, high, gap in (("left", "right", b.x - a.x), ("top", "bottom", b.y - a.y)):
        if abs(gap) > CLEARLY:
            first, last = (a, b) if gap > 0 else (b, a)
            for end, thing in ((low, first), (high, last)):
                yield _of_shape(_asked(rng, "end", tuple(SHAPES), thing.what, end), thing)
                asked = _asked(rng, "end_colour", tuple(COLOURS), thing.colour, end)
                yield asked if thing.what in UNNAMED else _of_colour(asked, thing)


def counts(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    """How many shapes there are: all, of a kind, of a colour."""
    shapes = shapes_of(scene)
    numbers = tuple(map(str, range(MOST + 1)))
    yield _asked(rng, "count", numbers, str(len(shapes)), "shapes")
    what, colour = rng.choice(tuple(SHAPES)), rng.choice(tuple(COLOURS))
    for kind in {what, *(thing.what for thing in shapes)}:
        number = sum(thing.what == kind for thing in shapes)
        yield _asked(rng, "count", numbers, str(number), plural(kind))
    for kind in {colour, *(thing.colour for thing in shapes)}:
        number = sum(thing.colour == kind for thing in shapes)
        yield _asked(rng, "count", numbers, str(number), f"{kind} shapes")


def existence(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    pairs = {(thing.colour, thing.what) for thing in shapes_of(scene)}
    asked = {(rng.choice(tuple(COLOURS)), rng.choice(tuple(SHAPES))), *pairs}
    if pairs:
        colour, what = rng.choice(sorted(pairs))
        asked |= {(colour, rng.choice(tuple(SHAPES))), (rng.choice(tuple(COLOURS)), what)}
    for pair in sorted(pair for pair in asked if pair in pairs or not is_held_out(*pair[::-1])):
        yield _asked(rng, "exists", ("yes", "no"), "yes" if pair in pairs else "no", " ".join(pair))


def readings(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    """What is printed."""
    for thing in scene.things:
        if thing.is_text and thing.what.isdigit():
            yield _asked(rng, "digit", tuple("0123456789"), thing.what)
        elif thing.is_text:
            yield _asked(rng, "word", tuple(WORDS), thing.what.lower())


def description(scene: Scene) -> str:
    """All that is in a scene, from left to right."""
    things = sorted(scene.things, key=lambda thing: thing.x)
    texts = {
        thing: "digit" if thing.what.isdigit() else "word" for thing in things if thing.is_text
    }
    return ", ".join(
        f"{thing.colour} {texts[thing]} {thing.what.lower()}"
        if thing in texts
        else f"{thing.colour} {thing.what}"
        for thing in things
    )


def descriptions(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    asked = _asked(rng, "describe", (), description(scene))
    yield asked._replace(held_out=tuple(map(description, almost(scene))))


def almost(scene: Scene) -> Iterator[Scene]:
    """The scene with one thing changed in colour or shape to a pair that is held out."""
    for i, thing in enumerate(scene.things):
        others = [replace(thing, colour=held_out_colour(thing.what))]
        if not thing.is_text and (shape := held_out_shape(thing.colour)):
            others.append(replace(thing, what=shape))
        for other in others:
            yield replace(scene, things=(*scene.things[:i], other, *scene.things[i + 1 :]))


def record(scene: Scene) -> dict[str, str | int]:
    """What a JSON record of a scene may have."""
    fields: dict[str, str | int] = {"count": len(shapes_of(scene))}
    for thing in scene.things:
        if thing.is_text:
            key = "digit" if thing.what.isdigit() else "word"
            fields[key] = int(thing.what) if thing.what.isdigit() else thing.what.lower()
        elif len(scene.things) == 1:
            fields |= {"shape": thing.what, "colour": thing.colour}
    return fields


def records(rng: random.Random, scene: Scene) -> Iterator[Asked]:
    """Some fields of the scene as JSON."""
    fields = record(scene)
    keys = rng.sample(sorted(fields), rng.randint(1, len(fields)))
    answer, *others = (
        json.dumps({key: found[key] for key in keys})
        for found in (fields, *map(record, almost(scene)))
    )
    held_out = tuple(other for other in others if other != answer)
    yield Asked("json", f"Fields: {', '.join(keys)}\nJSON:", answer, (), held_out)


FAMILIES: dict[str, Callable[[random.Random, Scene], Iterator[Asked]]] = {
    "colour": colours, "shape": forms, "side": sides, "count": counts, "exists": existence,
    "read": readings, "describe": descriptions, "json": records,
}  # fmt: skip


def as_choice(rng: random.Random, asked: Asked) -> Asked:
    """The question with up to four options; the answer is the letter of the right one."""
    wrong = [option for option in asked.options if option != asked.answer]
    options = [asked.answer, *rng.sample(wrong, min(3, len(wrong)))]
    rng.shuffle(options)
    lines = "".join(f"\n{letter}. {it}" for letter, it in zip(LETTERS, options, strict=False))
    answer = LETTERS[options.index(asked.answer)]
    return Asked("choice", asked.question + lines, answer, ())


def some_of(rng: random.Random, every: list[Asked], most: int) -> list[Asked]:
    return rng.sample(every, min(most, len(every)))


def lesson(rng: random.Random, scene: Scene, most: int) -> list[Asked]:
    """Up to `most` different questions about a scene, of many families; a third are about sides
    where there are so many. What is hard to learn, all shapes' count, what is printed and colours,
    is always asked. Of shapes without a name only colours are."""
    if any(thing.what in UNNAMED for thing in scene.things):
        return [asked for asked in _ends(rng, *scene.things) if asked.kind == "end_colour"]
    found = {name: list(family(rng, scene)) for name, family in FAMILIES.items()}
    by_kind = defaultdict[str, list[Asked]](list)
    for asked in found.pop("side"):
        by_kind[asked.kind].append(asked)
    about_sides = [it for kind, some in by_kind.items() for it in some_of(rng, some, SIDES[kind])]
    always = [next(counts(rng, scene)), *found.pop("read"), *some_of(rng, found.pop("colour"), 4)]
    always = always[:most]
    every = [it for some in found.values() for it in some_of(rng, some, 2)]
    others = [asked for asked in every if asked.question != always[0].question]
    chosen = [*always, *some_of(rng, about_sides, min(most // 3, most - len(always)))]
    chosen += some_of(rng, others, most - len(chosen))
    rng.shuffle(chosen)
    return [
        as_choice(rng, asked) if asked.options and rng.random() < 0.12 else asked
        for asked in chosen
    ]
