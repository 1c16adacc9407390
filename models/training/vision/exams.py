"""Questions about held-out scenes: a coloured thing that no training scene has is in each picture,
and, where the question is about one thing, it is that thing.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

from ..scenes.drawing import COLOURS, Scene
from ..scenes.questions import FAMILIES, Asked, as_choice, named
from ..scenes.scene import is_held_out, scene_of


class Exam(NamedTuple):
    """A scene and a question about it."""

    scene: Scene
    asked: Asked


class Subject(NamedTuple):
    """What to ask: of scenes of `kind`, questions of a family that `keep` keeps; the share that
    should be right."""

    title: str
    kind: str
    family: str
    bar: float | None = None
    keep: Callable[[Exam], bool] = lambda exam: True
    as_choice: bool = False


def about_held_out(exam: Exam) -> bool:
    """Whether the question or its answer names the shape whose colour is held out."""
    text = f"{exam.asked.question} {exam.asked.answer}"
    names = [name for thing, name in named(exam.scene) if is_held_out(thing.what, thing.colour)]
    return any(name in text for name in names) or printed_held_out(exam)


def answers_held_out(exam: Exam) -> bool:
    """Whether the answer is the shape, or the colour, of a thing that is held out."""
    asked = exam.asked
    return any(
        is_held_out(thing.what, thing.colour)
        and {thing.what, thing.colour} <= {asked.answer, *asked.question.strip("?").split()}
        for thing in exam.scene.things
    )


def printed_held_out(exam: Exam) -> bool:
    return any(
        thing.is_text and is_held_out(thing.what, thing.colour) for thing in exam.scene.things
    )


def counts_all(exam: Exam) -> bool:
    """Whether all shapes are counted, of whatever colour."""
    words = exam.asked.question.strip("?.").split()
    return "shapes" in words and not set(words) & set(COLOURS)


def names_digit(exam: Exam) -> bool:
    return "digit" in exam.asked.question and printed_held_out(exam)


def is_alone(exam: Exam) -> bool:
    return len(exam.scene.things) == 1


SUBJECTS = (
    Subject("Colour of a shape", "shapes", "colour", 0.99, about_held_out),
    Subject("Shape of a colour", "shapes", "shape", 0.95, answers_held_out),
    Subject("Side: left, right, above, below", "two", "side", 0.97, about_held_out),
    Subject("Side, among up to five", "shapes", "side", None, about_held_out),
    Subject("Count to five", "shapes", "count", 0.90, counts_all),
    Subject("Count of a shape or a colour", "shapes", "count", None),
    Subject("Digit", "digit", "read", 0.95, printed_held_out),
    Subject("Colour of a digit", "digit", "colour", None, names_digit),
    Subject("Printed word", "word", "read", None, printed_held_out),
    Subject("Is there one: yes or no", "shapes", "exists"),
    Subject("Multiple choice: a colour", "two", "colour", None, about_held_out, True),
    Subject("JSON record of one shape", "shapes", "json", None, is_alone),
    Subject("All of two shapes, from left to right", "two", "describe"),
)


def exams_of(subject: Subject, count: int, seed: int) -> list[Exam]:
    """`count` exams, one a scene."""
    rng, exams = random.Random(f"{seed}/{subject.title}"), list[Exam]()
    while len(exams) < count:
        scene = scene_of(rng, subject.kind, held_out=True)
        every = [Exam(scene, asked) for asked in FAMILIES[subject.family](rng, scene)]
        kept = [exam for exam in every if subject.keep(exam)]
        if kept:
            exam = rng.choice(kept)
            exams.append(
                exam._replace(asked=as_choice(rng, exam.asked)) if subject.as_choice else exam
            )
    return exams
