"""Orders of a prompt that are accepted, and those that are refused, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest

from forkroot.adapters.native.movement.checks import Checks
from forkroot.adapters.native.movement.parts import Part, Stretch, shown
from forkroot.adapters.native.movement.rules import Rules, why_not

Prompt = Callable[..., Stretch]


def moved(stretch: Stretch) -> str:
    return shown(stretch.pieces(Rules().propose(stretch)))


def test_the_instruction_of_the_papers_example_moves_ahead_of_the_question(prompt: Prompt) -> None:
    text = "Here is a question {question}. Please act as a math expert and solve the question."
    expected = "Please act as a math expert and solve the question. Here is a question {question}."
    assert moved(prompt(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Text: {t}\n\nBe brief.\nAnswer:", "Be brief.\n\nText: {t}\n\nAnswer:"),
        (
            "{t}\n\nRules:\n- Be brief.\n- Use French.\n",
            "Rules:\n- Be brief.\n- Use French.\n\n{t}\n",
        ),
        (
            "# Text\n{t}\n\n# Task\nBe brief.\n\n# Answer",
            "# Task\nBe brief.\n\n# Text\n{t}\n\n# Answer",
        ),
        ("{t}\n\nGive three names.\n\nName them in French.", None),
        ("{t}\n\nUse French. Then stop.", "Use French. Then stop.\n\n{t}"),
        (
            "<t>\n{t}\n</t>\nUse the words of the text.",
            "Use the words of the text.\n<t>\n{t}\n</t>",
        ),
    ],
)
def test_labels_lists_headings_and_rows_move_as_a_whole(
    prompt: Prompt, text: str, expected: str | None
) -> None:
    assert moved(prompt(text)) == (expected or text)


@pytest.mark.parametrize(
    ("text", "check", "phrase"),
    [
        ("Text: {t}\n\nSummarise it.", "reference", '"it"'),
        ("Text: {t}\n\nUse the text above.", "reference", '"above"'),
        ("Text: {t}\n\nAnswer:", "cue", "before the answer"),
        ("Text: {t}\n\nThe answer is", "cue", "before the answer"),
        ("{n} cows graze. The farmer sells two of the cows.", "subject", "told before"),
        ("Bob has {n} cows. Name the cows of Bob.", "subject", "'Bob'"),
        ("You are {n}, a {j}. Stay in character.", "scene", "depends on"),
        ("Dear {n},\n\nPlease find a time.", "scene", "depends on"),
        ("Start with {n}. Add three.", "subject", "a step"),
        ("Text: {t}\n\nPlace: Paris.", "subject", "of the case at hand"),
        ("Text: {t}\n\nParis is a town.", "subject", "not recognised"),
        ("Text: {t}\n\nSchreibe den Text in drei Sätzen.", "subject", "English"),
        ("Text: {t}\n\nПиши кратко и ясно всегда.", "subject", "English"),
        ("Text: {t}\n\nContinue the story.", "subject", "not recognised"),
        ("Answer the {q}", "no gain", "no constant part"),
    ],
)
def test_what_must_stay_stays_and_the_reason_is_told(
    prompt: Prompt, text: str, check: str, phrase: str
) -> None:
    stretch = prompt(text)
    assert moved(stretch) == text
    refusal = why_not(Checks(stretch))
    assert refusal is not None
    assert refusal.check == check
    assert phrase in refusal.reason


def test_only_the_parts_themselves_may_be_proposed_each_once(prompt: Prompt) -> None:
    stretch = prompt("Text: {t}\n\nBe brief. Use French.\n")
    text, brief, french = stretch.parts
    checks = Checks(stretch)
    reasons = {
        (brief, french, text): None,
        (brief, text): "was dropped",
        (brief, french, french, text): "comes twice",
        (replace(brief, pieces=("Be long.",)), french, text): "was altered",
        (brief, french, text, Part(9, ("Be nice.",))): "is no part of the prompt",
        (brief, french, replace(text, pieces=("Text: ",))): "was altered",
    }
    for order, reason in reasons.items():
        refusal = checks.refusal(order)
        assert (refusal is None) == (reason is None)
        assert refusal is None or (refusal.check == "same parts" and str(reason) in refusal.reason)
    assert str(checks.refusal(["Be brief."])) == "same parts: 'Be brief.' is no part of the prompt"  # type: ignore[list-item]


def test_constants_move_to_the_front_only_and_keep_their_order(prompt: Prompt) -> None:
    stretch = prompt(
        "Be polite.\n\nText: {t}\n\nTitle of the text: {u}\n\nBe brief.\n\nUse French.\n"
    )
    accepted = [
        "".join(str(part.place) for part in order)
        for order in permutations(stretch.parts)
        if Checks(stretch).refusal(order) is None
    ]
    assert accepted == ["01234", "01324", "01342", "03124", "03142", "03412"]


def test_an_answer_does_not_go_on_with_an_argument(prompt: Prompt) -> None:
    text = "Text: {t}\nUse French. Be brief."
    assert moved(prompt(text)) == "Use French. Be brief.\nText: {t}"
    assert moved(prompt(text, True)) == "Use French.\nText: {t}\nBe brief."
    assert moved(prompt(text + "\n", True)) == "Use French. Be brief.\nText: {t}\n"


def test_a_part_that_goes_on_with_the_text_in_front_stays_first(prompt: Prompt) -> None:
    stretch = prompt("{t}\n\nBe brief.\n")
    assert moved(stretch) == "Be brief.\n\n{t}\n"
    assert moved(replace(stretch, is_continued=True)) == "{t}\n\nBe brief.\n"


def test_a_last_part_that_is_referred_to_stays_last(prompt: Prompt) -> None:
    stretch = replace(prompt("Text: {t}\n\nUse French.\n\nName the city.\n"), is_referred=True)
    assert moved(stretch) == "Use French.\n\nText: {t}\n\nName the city.\n"


def test_demonstrations_stay_together(prompt: Prompt) -> None:
    text = "Q: one\nA: 1\n\nQ: {q}\nUse digits.\nA:"
    assert moved(prompt(text)) == text
