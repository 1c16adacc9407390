"""One run of the essay judge on a console: whose words are whose, by colour or by marks."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from .demo import Answer, Essay, Verdict
from .essay_judge import DIMENSIONS, QUESTION, RUBRIC

PROGRAM, MODEL, FORCED = "cyan", "bold green", "magenta"
MARKS = {MODEL: ("«", "»"), FORCED: ("‹", "›")}


def show_verdict(console: Console, essay: Essay, verdict: Verdict) -> None:
    """Print one run of the program. Its own words, the model's, and those that its schema forced
    differ by colour or, on a console without colours, by marks."""
    has_marks = not console.color_system
    legend = Text.assemble(
        ("One essay: ", "bold"),
        ("what the program wrote", PROGRAM),
        ", ",
        _painted("what the model wrote", MODEL, has_marks),
        " and ",
        _painted("what a schema forced", FORCED, has_marks),
    )
    console.print(legend, soft_wrap=True)
    console.print(Text(f"  {RUBRIC[:40]}… ({len(RUBRIC):,} characters, always the same)", "dim"))
    for line in _colored_prompt(essay, verdict, has_marks).split("\n"):
        console.print(Padding(_fork_line(line), (0, 0, 0, 2), expand=False))


def _colored_prompt(essay: Essay, verdict: Verdict, has_marks: bool) -> Text:
    """The whole prompt behind the rubric, as the program and the model wrote it."""
    opening = QUESTION.format(topic=essay.topic, essay=essay.text)
    colored = Text(opening, PROGRAM)
    end = len(RUBRIC) + len(opening)
    for answer in verdict.answers:
        start = verdict.text.index(answer.text, end)
        colored += Text(verdict.text[end:start], PROGRAM)
        for words, style in _parts(answer):
            colored += _painted(words, style, has_marks)
        end = start + len(answer.text)
    colored += Text(verdict.text[end:].rstrip(), PROGRAM)
    return colored


def _parts(answer: Answer) -> Iterator[tuple[str, str]]:
    """An answer in pieces: the model's words and forced text, by their styles."""
    position = 0
    for start, end in (*answer.forced, (len(answer.text), len(answer.text))):
        yield answer.text[position:start], MODEL
        yield answer.text[start:end], FORCED
        position = end


def _painted(words: str, style: str, has_marks: bool) -> Text:
    """Words in their style, between its marks if there are no colours; blanks at the start stay
    outside."""
    shown = words.lstrip(" ")
    blank = words[: len(words) - len(shown)]
    before, after = MARKS[style] if has_marks and shown else ("", "")
    return Text.assemble(blank, before, (shown, style), after)


def _fork_line(line: Text) -> Text:
    """A branch's line drawn as one of a fork."""
    for position, dimension in enumerate(DIMENSIONS, 1):
        if line.plain.startswith(f"{dimension}:"):
            guide = "└─ " if position == len(DIMENSIONS) else "├─ "
            return Text.assemble((guide, "dim"), line)
    return line
