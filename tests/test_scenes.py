"""Drawn scenes: seeded, split cleanly, and right in what is asked of them."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from forkroot.models.training.scenes.drawing import (
    COLOURS,
    SHAPES,
    UNNAMED,
    Scene,
    Thing,
    covered,
    draw,
)
from forkroot.models.training.scenes.pictures import save_pictures
from forkroot.models.training.scenes.questions import FAMILIES, Asked, description, lesson
from forkroot.models.training.scenes.scene import WORDS, is_held_out, scene_of
from forkroot.models.training.vision.rows import (
    IMAGE_ID,
    NUM_PATCHES,
    SEEN,
    encoded,
    row_of,
    seen,
    unasked,
)

ROOT = Path(__file__).parents[1]

KINDS = ("shapes", "two", "digit", "word")


def some(held_out: bool, each: int = 25) -> list[Scene]:
    rng = random.Random(3)
    return [scene_of(rng, kind, held_out) for kind in KINDS for _ in range(each)]


def asked_of(scene: Scene, family: str) -> list[Asked]:
    return list(FAMILIES[family](random.Random(5), scene))


def pieces(mask: np.ndarray) -> int:
    """How many connected pieces a mask has."""
    left, count = {(int(y), int(x)) for y, x in np.argwhere(mask)}, 0
    while left:
        count, pending = count + 1, [left.pop()]
        while pending:
            y, x = pending.pop()
            near = {(y + b, x + a) for b in (-1, 0, 1) for a in (-1, 0, 1)} & left
            left -= near
            pending += near
    return count


def test_a_seed_draws_the_same_pictures_and_questions_again() -> None:
    for first, second in zip(some(False, 3), some(False, 3), strict=True):
        assert first == second and (draw(first, 64) == draw(second, 64)).all()
        assert lesson(random.Random(1), first, 6) == lesson(random.Random(1), second, 6)


def test_training_scenes_have_no_held_out_pair_and_exams_always_have_one() -> None:
    for held_out in (False, True):
        for scene in some(held_out):
            pairs = [is_held_out(thing.what, thing.colour) for thing in scene.things]
            assert any(pairs) == held_out


def test_everything_is_held_out_in_one_colour_and_trained_in_the_others() -> None:
    for what in (*SHAPES, *"0123456789", *(word.upper() for word in WORDS)):
        assert sum(is_held_out(what, colour) for colour in COLOURS) == 1


def test_things_do_not_touch_and_lie_inside_the_picture() -> None:
    for scene in some(False):
        masks = [covered(thing, 64) > 0.3 for thing in scene.things]
        assert not any((a & b).any() for a, b in combinations(masks, 2))
        border = [mask[[0, -1]].any() or mask[:, [0, -1]].any() for mask in masks]
        assert not any(border) and all(mask.sum() > 20 for mask in masks)


def test_a_shape_is_one_piece_of_its_colour() -> None:
    for scene in some(False, 6)[:12]:
        picture = draw(scene, 96).astype(int)
        for thing in scene.things:
            mask = covered(thing, 96) > 0.9
            assert pieces(covered(thing, 96) > 0.5) == 1
            mean = picture[mask].mean(0)
            distances = {name: np.abs(mean - rgb).sum() for name, rgb in COLOURS.items()}
            assert min(distances, key=distances.__getitem__) == thing.colour


def test_a_picture_of_another_size_shows_the_same() -> None:
    for scene in some(False, 3):
        large = draw(scene, 256).reshape(64, 4, 64, 4, 3).mean((1, 3))
        assert np.abs(large - draw(scene, 64)).mean() < 6


def test_answers_are_what_the_pixels_show() -> None:
    """Counts by connected pieces, sides by centres of mass, independent of the scene's numbers."""
    counted = compared = 0
    for scene in some(False):
        shapes = [thing for thing in scene.things if not thing.is_text]
        both = np.zeros((96, 96), bool)
        for thing in shapes:
            both |= covered(thing, 96) > 0.5
        for asked in asked_of(scene, "count"):
            if asked.question.split("?")[0].split(".")[0].split()[-1] == "shapes" and (
                not any(colour in asked.question for colour in COLOURS)
            ):
                assert int(asked.answer) == pieces(both)
                counted += 1
        centres = {
            f"{prefix}{thing.what}": np.argwhere(covered(thing, 96) > 0.5).mean(0)
            for thing in shapes
            for prefix in ("", f"{thing.colour} ")
        }
        for asked in asked_of(scene, "side"):
            if asked.kind in ("across", "down"):
                words = asked.question.replace(",", "").rstrip("?")
                first, second = sorted(
                    (name for name in centres if f"the {name}" in words), key=len
                )[-2:]
                if words.index(f"the {first}") > words.index(f"the {second}"):
                    first, second = second, first
                if f"of the {second}" not in words and f"below the {second}" not in words:
                    continue
                axis = 1 if asked.kind == "across" else 0
                before = centres[first][axis] < centres[second][axis]
                low, high = ("left", "right") if axis else ("above", "below")
                assert asked.answer == (low if before else high)
                compared += 1
    assert counted >= 50 and compared >= 100


def test_a_description_names_all_from_left_to_right() -> None:
    for scene in some(True):
        parts = description(scene).split(", ")
        assert len(parts) == len(scene.things)
        for part, thing in zip(parts, sorted(scene.things, key=lambda it: it.x), strict=True):
            assert part.split()[0] == thing.colour and part.split()[-1] == thing.what.lower()


@pytest.mark.parametrize("held_out", [False, True])
def test_every_answer_is_one_of_its_options(held_out: bool) -> None:
    for scene in some(held_out):
        for asked in lesson(random.Random(2), scene, 8):
            assert asked.answer and (not asked.options or asked.answer in asked.options)
            if asked.kind == "choice":
                assert f"\n{asked.answer}. " in asked.question


def test_a_row_shows_each_question_to_itself_alone() -> None:
    """The answers' targets follow their own question, whatever stands before it in the row."""
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / "tiny" / "tokenizer.json"))
    rng = random.Random(4)
    for _ in range(20):
        scene = scene_of(rng, "shapes", held_out=False)
        row = row_of(rng, lesson(rng, scene, 7))
        tokens, positions, blocks, picked, targets, weights, _ = encoded(tokenizer, row)
        assert (tokens == IMAGE_ID).sum() == NUM_PATCHES and (blocks[tokens == IMAGE_ID] == 0).all()
        starts = [position for position, block in zip(positions, blocks, strict=True) if block == 0]
        assert starts == list(range(len(starts)))
        for number in set(blocks) - {0, 99}:
            own = blocks == number
            assert positions[own].tolist() == list(range(len(starts), len(starts) + own.sum()))
            said = tokenizer.decode(tokens[own].tolist(), skip_special_tokens=False)
            assert said in ["".join(text for text, _ in block) for block in row.blocks]
        for at, target, weight in zip(picked, targets, weights, strict=True):
            block = blocks[at]
            after = tokens[(positions == positions[at] + 1) & ((blocks == block) | (block == 0))]
            assert weight == 0 or target in after


def test_the_patches_say_what_is_drawn_there() -> None:
    scene = Scene(
        (Thing("ring", "blue", 0.25, 0.25, 0.2), Thing("7", "pink", 0.75, 0.7, 0.2)), (), 1
    )
    colours, shapes, places = (it.reshape(8, 8, -1).squeeze() for it in seen(scene))
    assert colours[6, 1] == shapes[6, 1] == 0  # nothing there
    assert colours[2, 0] == 1 + list(COLOURS).index("blue") and SEEN[shapes[2, 0]] == "ring"
    assert {SEEN[i] for i in shapes[:, 4:].ravel()} == {"", "7"}
    assert places[2, 0].tolist() == [-0.5, -0.5] and places[6, 1].tolist() == [0, 0]


def test_a_lesson_names_the_answer_that_would_make_a_held_out_pair() -> None:
    asked = [it for scene in some(False) for it in lesson(random.Random(6), scene, 12)]
    kinds = {it.kind for it in asked if it.held_out}
    assert kinds == {"colour", "shape", "end", "end_colour", "describe", "json"}
    assert all(it.answer not in it.held_out for it in asked)
    for it in asked:
        if it.kind == "colour" and it.question.split()[-1].strip("?") in SHAPES:
            assert is_held_out(it.question.split()[-1].strip("?"), it.held_out[0])


def test_a_third_of_a_lesson_is_about_sides() -> None:
    rng = random.Random(7)
    scenes = [scene_of(rng, "two", held_out=False) for _ in range(60)]
    kinds = [it.kind for scene in scenes for it in lesson(rng, scene, 12)]
    share = sum(kind in ("across", "down", "half", "end", "end_colour") for kind in kinds)
    assert 0.25 < share / len(kinds) < 0.45


def test_of_shapes_without_a_name_colours_are_asked_in_every_colour() -> None:
    rng = random.Random(8)
    scenes = [scene_of(rng, "unnamed", held_out=False) for _ in range(200)]
    assert {thing.what for scene in scenes for thing in scene.things} == set(UNNAMED)
    assert {it.kind for scene in scenes for it in lesson(rng, scene, 12)} == {"end_colour"}
    pairs = {(thing.what, thing.colour) for scene in scenes for thing in scene.things}
    assert len(pairs) == len(UNNAMED) * len(COLOURS)
    assert not any(is_held_out(*pair) for pair in pairs)
    drawn = [covered(Thing(what, "red", 0.5, 0.5, 0.2), 64) for what in UNNAMED]
    assert all(0.03 < share.mean() < 0.16 and share.max() == 1 for share in drawn)


@pytest.mark.parametrize(
    ("answer", "held_out", "expected"),
    [
        ([5, 6], [[7]], [7, 0]),
        ([5, 6], [[5, 8]], [0, 8]),
        ([5, 6], [[7, 6], [5, 8]], [7, 8]),
        ([5, 6], [[5, 6, 9]], [0, 0]),
        ([5, 6], [], [0, 0]),
    ],
)
def test_the_first_other_token_of_a_held_out_answer_is_no_choice(
    answer: list[int], held_out: list[list[int]], expected: list[int]
) -> None:
    assert list(unasked([([1, 2], 0.0), (answer, 1.0), ([3], 0.2)], held_out)) == expected


def test_the_pictures_of_the_examples_are_those_of_the_script(tmp_path: Path) -> None:
    save_pictures(tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    folder = ROOT / "examples" / "pictures"
    assert written == {path.name: path.read_bytes() for path in folder.iterdir()}
    assert sum(map(len, written.values())) <= 50_000
