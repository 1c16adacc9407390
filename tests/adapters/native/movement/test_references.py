"""What a sentence refers to outside of itself."""

from __future__ import annotations

import pytest

from forkroot.adapters.native.movement.references import Direction, is_referring, references

BACK = """
Summarise the text above.
Translate it.
List its main points.
Explain the error in that function.
Say whether that is true.
Explain this.
Grade these by the rubric.
Use those words only.
Correct them.
Name her employer.
Answer such questions only.
Use the latter.
Return the remaining items.
Name two others.
Show the result.
Write what you have just read.
Answer as before.
Do so in verse.
Try again.
Repeat what was said earlier.
Answer in the same language.
Now write.
What is wrong here?
Explain why.
Why?
Both are wrong.
Name another.
Keep to the aforementioned rules.
Name the last message.
For each criterion, quote its weakest line.
""".strip().splitlines()
LOCAL = """
Summarise the text in one sentence.
Say that you do not know.
Choose the answer that fits best.
Return every word with its meaning.
List each person and their role.
It is important to keep all names.
Make it clear that the offer ends.
Copy names exactly as they are spelled.
Reply with "It is above this." and nothing else.
Name the errors, and correct them.
In this task, numbers are words.
Choose those who live in towns.
Use words such as house.
Show the result of each step.
Answer in the same language as the text.
There is one answer.
Temperatures above 20 degrees count as warm.
""".strip().splitlines()


@pytest.mark.parametrize("text", BACK)
def test_a_sentence_that_refers_back_is_found(text: str) -> None:
    assert Direction.BACK in {found.direction for found in references(text)}
    assert is_referring(text)


@pytest.mark.parametrize("text", LOCAL)
def test_a_sentence_that_refers_to_itself_alone_is_free(text: str) -> None:
    assert references(text) == []


@pytest.mark.parametrize(
    ("text", "phrase"),
    [("Then name the city.", "then"), ("But be brief.", "but"), ("Also, use French.", "also")],
)
def test_a_sentence_that_goes_on_from_the_one_before_is_joined_to_it(
    text: str, phrase: str
) -> None:
    assert [(it.phrase, it.direction) for it in references(text)] == [(phrase, Direction.JOINED)]


@pytest.mark.parametrize(
    "text", ["Read the text below.", "Use the following rules.", "Choose one of these classes:"]
)
def test_a_sentence_that_refers_to_what_follows_is_found(text: str) -> None:
    assert {it.direction for it in references(text)} == {Direction.AHEAD}
    assert not is_referring(text)
