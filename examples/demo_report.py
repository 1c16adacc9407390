"""What the demo prints: one run of the essay judge, with whose words are whose by colour or marks,
and tables of what the judge found and what it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from .demo import Answer, Essay, Judged, Verdict
from .essay_judge import DIMENSIONS, GRADES, QUESTION, RUBRIC
from .savings import plain_table

PROGRAM, MODEL, FORCED = "cyan", "bold green", "magenta"
MARKS = {MODEL: ("«", "»"), FORCED: ("‹", "›")}
RIGHT, WRONG = "green", "bold red"
_WORDS = {None: "–", True: "good", False: "poor"}
HINTS_NOTE = (
    "(hints change little here: branches are asked for at once, and what waiting calls share is"
    " computed once either way; they pay where calls of one root come one after another, or where"
    " others would push the root out of a full pool: docs/performance.md)"
)


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


def grades_table(essays: Sequence[Essay], verdicts: Sequence[Verdict]) -> Table:
    """What the model found (✗: not what the rubric asks for); – for an essay that is about
    something else than its topic."""
    table = _table("Topic")
    for name in (*DIMENSIONS, "Grade", "By the rubric"):
        table.add_column(name)
    for essay, verdict in zip(essays, verdicts, strict=True):
        earned = essay.deserves()
        grade = None if earned is None else GRADES[earned.count(False)]
        found = verdict.marks or (None,) * len(DIMENSIONS)
        wanted = earned or (None,) * len(DIMENSIONS)
        marks = [_colored(_WORDS[f], f == w) for f, w in zip(found, wanted, strict=True)]
        shown = _colored(verdict.grade or "–", verdict.grade == grade)
        table.add_row(essay.topic, *marks, shown, grade or "–")
    return table


def figures_table(batches: Sequence[Judged]) -> Table:
    """What each batch took; the last one's time is what the others are measured by."""
    table = _table("")
    for name in ("calls", "prompt\ntokens", "of these\ncached", "hit rate", "tokens\ncomputed"):
        table.add_column(name, justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("speed", justify="right", style="bold")
    slowest = batches[-1].figures.seconds
    for batch in batches:
        it = batch.figures
        counts = (it.calls, it.prompt_tokens, it.cached_tokens)
        table.add_row(
            batch.name,
            *(f"{number:,}" for number in counts),
            f"{it.cached_tokens / it.prompt_tokens:.1%}",
            f"{it.computed_tokens:,}",
            f"{it.seconds:.2f}",
            f"{slowest / it.seconds:.1f}×",
        )
    return table


def passes_table(pairs: Sequence[tuple[Judged, Judged]]) -> Table:
    """What the same work took with jumps and without: each is a pair in this order."""
    table = _table("")
    names = ("forward\npasses", "fewer", "tokens\nforced", "decoded\none by one", "seconds")
    for name in names:
        table.add_column(name, justify="right", style="bold" if name == "fewer" else "")
    for jumping, plain in pairs:
        for name, judged in ((jumping.name, jumping), ("  without jumps", plain)):
            it = judged.figures
            table.add_row(
                name,
                f"{it.passes:,}",
                f"{plain.figures.passes / it.passes:.1f}×",
                f"{it.forced_tokens:,}",
                f"{it.written_tokens - it.forced_tokens:,}",
                f"{it.seconds:.3f}",
            )
    return table


def _table(first: str) -> Table:
    table = plain_table()
    table.add_column(first, no_wrap=True)
    return table


def _colored(text: str, is_right: bool) -> Text:
    return Text(text, RIGHT) if is_right else Text(f"{text} ✗", WRONG)
