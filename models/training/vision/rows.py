"""Rows of token ids for training: one picture, and questions about it that do not see each other.

A batch is a function of a seed and a step.
"""

import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from ..scenes.drawing import COLOURS, SHAPES, UNNAMED, Scene, covered, draw, width
from ..scenes.questions import Asked, lesson
from ..scenes.scene import scene_of
from ..tokenizer import IMAGE, SPECIAL
from ..world.document import BOS, END_TURN, EOS, SYSTEM, TURN

SIZE, PATCH = 64, 8
SIDE = SIZE // PATCH
NUM_PATCHES = SIDE * SIDE
IMAGE_ID = SPECIAL.index(IMAGE)
ROW_LEN, NUM_TARGETS, NUM_ASKED = 272, 64, 12
KINDS = {"shapes": 2.5, "many": 4.0, "two": 3.0, "unnamed": 2.0, "digit": 1.5, "word": 2.0}
# What a patch may show: nothing, a shape, or a letter or digit.
SEEN = ("", *SHAPES, *"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_Longs = npt.NDArray[np.int64]


class Row(NamedTuple):
    """A prompt, and what may follow it: texts with their weights as targets. held_out: for each of
    these, answers in the place of its first text with a weight that training never has."""

    prompt: str
    blocks: list[list[tuple[str, float]]]
    held_out: list[list[str]]


class Batch(NamedTuple):
    """pictures [rows, SIZE, SIZE, 3]; tokens, positions and blocks [rows, ROW_LEN]: block 0 is seen
    by all, another one by itself; picked, targets, weights [rows, NUM_TARGETS]: the index of each
    token whose next is a target; unasked [rows, NUM_TARGETS]: a token that training never has there
    because it would be that of a held-out answer, zero for none; colours and shapes
    [rows, NUM_PATCHES]: what each patch shows; places [rows, NUM_PATCHES, 2]: its middle.
    """

    pictures: npt.NDArray[np.uint8]
    tokens: _Longs
    positions: _Longs
    blocks: _Longs
    picked: _Longs
    targets: _Longs
    weights: npt.NDArray[np.float32]
    unasked: _Longs
    colours: _Longs
    shapes: _Longs
    places: npt.NDArray[np.float32]


def make_batch(tokenizer: Tokenizer, seed: int, step: int, rows: int) -> Batch:
    """The batch of a step."""
    rng = random.Random(f"{seed}/{step}")
    parts = []
    for _ in range(rows):
        kind = rng.choices(tuple(KINDS), tuple(KINDS.values()))[0]
        scene = scene_of(rng, kind, held_out=False)
        row = row_of(rng, lesson(rng, scene, NUM_ASKED))
        parts.append((draw(scene, SIZE), *encoded(tokenizer, row), *seen(scene)))
    return Batch(*(np.stack(part) for part in zip(*parts, strict=True)))


def row_of(rng: random.Random, asked: list[Asked]) -> Row:
    """Questions in one of the formats that the text model knows."""
    if rng.random() < 0.5:
        prompt = f"{BOS}{IMAGE}" + rng.choice(("\n", "\n", "", " "))
        ask, reply = rng.choice(
            (("Question: ", "Answer:"), ("Question: ", "Answer:"), ("Q: ", "A:"))
        )
        never = [[f" {text}" for text in it.held_out] for it in asked]
        return Row(prompt, [plain(it, ask, reply) for it in asked], never)
    system = f"{TURN}system\n{SYSTEM}{END_TURN}\n" if rng.random() < 0.25 else ""
    begun, after = f"{BOS}{system}{TURN}user\n", f"{END_TURN}\n{TURN}assistant\n"
    prompt = f"{begun}{IMAGE}" + rng.choice(("", "", "\n"))
    blocks = [[(it.question + after, 0.0), *answer(it.answer, END_TURN)] for it in asked]
    return Row(prompt, blocks, [list(it.held_out) for it in asked])


def plain(it: Asked, ask: str, reply: str) -> list[tuple[str, float]]:
    if it.kind == "json":
        return [(it.question, 0.0), *answer(f" {it.answer}", EOS)]
    return [(f"{ask}{it.question}\n{reply}", 0.0), *answer(f" {it.answer}", EOS)]


def answer(text: str, end: str) -> list[tuple[str, float]]:
    return [(text, 0.6 if len(text) > 12 else 1.0), (end, 0.2)]


def encoded(
    tokenizer: Tokenizer, row: Row
) -> tuple[_Longs, _Longs, _Longs, _Longs, _Longs, npt.NDArray[np.float32], _Longs]:
    """tokens, positions, blocks, picked, targets, weights and unasked of a row, as in `Batch`;
    blocks for which there is no room are left out.
    """
    before, after = (_ids(tokenizer, text) for text in row.prompt.split(IMAGE))
    tokens = [*before, *[IMAGE_ID] * NUM_PATCHES, *after]
    start = len(tokens)
    positions, blocks = list(range(start)), [0] * start
    targets = list[tuple[int, int, float, int]]()
    for number, (block, held_out) in enumerate(zip(row.blocks, row.held_out, strict=True), 1):
        pieces = [(_ids(tokenizer, text), weight) for text, weight in block]
        length = sum(len(ids) for ids, _ in pieces)
        asked = sum(len(ids) for ids, weight in pieces if weight)
        if len(tokens) + length > ROW_LEN or len(targets) + asked > NUM_TARGETS:
            continue
        position, never = start, unasked(pieces, [_ids(tokenizer, text) for text in held_out])
        for ids, weight in pieces:
            for i in ids:
                if weight:  # the first token of a block follows the prompt's last
                    at = start - 1 if position == start else len(tokens) - 1
                    targets.append((at, i, weight, next(never, 0)))
                tokens.append(i)
                positions.append(position)
                blocks.append(number)
                position += 1
    rest = ROW_LEN - len(tokens)
    tokens, positions, blocks = tokens + [0] * rest, positions + [0] * rest, blocks + [99] * rest
    targets += [(0, 0, 0.0, 0)] * (NUM_TARGETS - len(targets))
    picked, wanted, weights, avoided = zip(*targets, strict=True)
    longs = (np.array(it, np.int64) for it in (tokens, positions, blocks, picked, wanted))
    return (*longs, np.array(weights, np.float32), np.array(avoided, np.int64))  # type: ignore[return-value]


def unasked(pieces: list[tuple[list[int], float]], held_out: list[list[int]]) -> Iterator[int]:
    """For each token of the right answer: that of a held-out answer which first differs there, or
    zero."""
    right = next((ids for ids, weight in pieces if weight), [])
    found = [0] * len(right)
    for other in held_out:
        pairs = enumerate(zip(right, other, strict=False))
        for i, never in ((i, b) for i, (a, b) in pairs if a != b):
            found[i] = never
            break
    return iter(found)


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def seen(scene: Scene, least: float = 0.1) -> tuple[_Longs, _Longs, npt.NDArray[np.float32]]:
    """The colour and the shape or letter of each patch [NUM_PATCHES], zero for none: those of the
    thing that covers the most of it, whose middle is x, y [NUM_PATCHES, 2], -1 to 1.
    """
    colours, shapes = (np.zeros((SIDE, SIDE), np.int64) for _ in range(2))
    places = np.zeros((SIDE, SIDE, 2), np.float32)
    most = np.full((SIDE, SIDE), least)
    for thing in scene.things:
        share = covered(thing, SIZE).reshape(SIDE, PATCH, SIDE, PATCH).mean((1, 3))
        larger = share > most
        most = np.maximum(most, share)
        colours[larger] = 1 + tuple(COLOURS).index(thing.colour)
        places[larger] = 2 * thing.x - 1, 2 * thing.y - 1
        if thing.is_text:
            middles = (np.arange(SIDE) + 0.5) / SIDE
            place = (middles - thing.x + width(thing)) / (2 * width(thing)) * len(thing.what)
            letters = place.astype(int).clip(0, len(thing.what) - 1)
            what = np.array([SEEN.index(thing.what[i]) for i in letters])
            shapes[larger] = np.broadcast_to(what, (SIDE, SIDE))[larger]
        else:
            shapes[larger] = 0 if thing.what in UNNAMED else SEEN.index(thing.what)
    return colours.ravel(), shapes.ravel(), places.reshape(-1, 2)
