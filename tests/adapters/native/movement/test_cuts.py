"""Where a prompt may be cut into parts."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from forkroot.adapters.native.movement.cuts import cut, open_spans
from forkroot.adapters.native.movement.parts import PLACEHOLDER, Placeholder, Stretch, shown

Prompt = Callable[..., Stretch]


def texts(stretch: Stretch) -> list[str]:
    return [str(part) for part in stretch.parts]


def test_a_text_is_cut_behind_sentences_and_lines(prompt: Prompt) -> None:
    found = prompt("  Read {text}. Name the city! Is it large?\nAnswer in one word.\n\n")
    sentences = ["Read {text}.", "Name the city!", "Is it large?", "Answer in one word."]
    assert texts(found) == sentences
    assert (found.head, found.tail) == ("  ", "\n\n")
    assert [part.gap for part in found.parts] == ["", " ", " ", "\n"]


@pytest.mark.parametrize(
    "text",
    [
        "Use e.g. Paris as a city of St. Denis.",
        "Ask Dr. Brown or J. S. Bach.",
        "1. Take two.",
        "Write 3.5 and not 3. 5 is odd...",
        'Say "No. Never. Not now." and leave.',
        "Fill in (First. Second. Third.) here.",
        "```python\nRun this.\n\nThen that.\n```",
        '"""\nOne. Two.\n\nThree.\n"""',
        "---\nOne. Two.\n---",
        "<text>\nOne. Two.\n</text>",
        '{"a": 1,\n "b": "One. Two."}',
        "It goes on... Like this.",
    ],
)
def test_nothing_is_cut_inside_of_what_is_open_or_behind_an_abbreviation(text: str) -> None:
    assert [part.text for part in cut([text]).parts] == [text]


@pytest.mark.parametrize("opened", ['Say "yes.', "See (a.", "```\ncode.", '"""\ntext.', "---\na."])
def test_what_is_never_closed_is_open_until_the_end(opened: str) -> None:
    parts = cut([f"Begin here.\n{opened}\nOne more. And one."]).parts
    assert parts[-1].text.endswith("One more. And one.")
    assert len(parts) <= 2


def test_a_text_with_the_mark_of_a_hole_is_one_part() -> None:
    found = cut([f"One. Two {PLACEHOLDER}. Three. ", Placeholder("x", 1), ". Four."])
    assert len(found.parts) == 1
    assert found.prefix() == f"One. Two {PLACEHOLDER}. Three. "


def test_the_parts_in_their_order_are_the_text_itself(prompt: Prompt) -> None:
    source = random.Random(7)
    bits = ["A b. ", "Label:\n", "{x}", "\n\n", "- c\n", " ", '"d. E" ', "(f", ")", "1. ", "G h? "]
    for _ in range(300):
        text = "".join(source.choices(bits, k=source.randrange(12)))
        assert shown(prompt(text).pieces()) == text
        assert all(low < high for low, high in open_spans(text))


def test_moved_parts_get_the_wider_of_the_gaps_around_them(prompt: Prompt) -> None:
    found = prompt("Text: {text}\n\nBe brief. Use French.\nAnswer:")
    text, brief, french, answer = found.parts
    moved = shown(found.pieces([brief, french, text, answer]))
    assert moved == "Be brief. Use French.\n\nText: {text}\n\nAnswer:"
    assert found.prefix([brief, french, text, answer]) == "Be brief. Use French.\n\nText: "
