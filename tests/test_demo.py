"""The parts of the demo, without a model: what it shows, and whose words are whose."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from rich.console import Console

from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import BackendInfo, Call, Completion, JsonSchema, Output, Text
from forkroot.examples.demo import (
    REPEATS_OF_MANY,
    Answer,
    Essay,
    Figures,
    Judged,
    Verdict,
    is_computed_here,
    judge,
    judge_all,
)
from forkroot.examples.demo_report import grades_table, passes_table, show_verdict
from forkroot.examples.essay_judge import GRADES, QUESTION, RUBRIC, VERDICT

ESSAY = Essay("night trains in Oakham", "First, night trains help 12 nurses of Oakham.")
OPENING = RUBRIC + QUESTION.format(topic=ESSAY.topic, essay=ESSAY.text)
WRITTEN = '{"grade":"A","summary":"The essay is clear, supported and calm."}'
VERDICTS = (
    Verdict(
        f"{OPENING} yes\nClarity: good.\nVerdict as JSON:{WRITTEN}",
        (Answer(" yes"), Answer(" good."), Answer(WRITTEN, ((0, 10), (11, 37)))),
        (True, True, True),
        "A",
    ),
    Verdict(f"{OPENING} no\nSummary: The essay strays.\n", (Answer(" no"),), None, None),
)


def shown(verdict: Verdict, **settings: object) -> str:
    out = io.StringIO()
    show_verdict(Console(file=out, width=200, **settings), ESSAY, verdict)  # type: ignore[arg-type]
    return out.getvalue()


def test_marks_show_whose_words_are_whose() -> None:
    out = shown(VERDICTS[0])
    assert "what the program wrote, «what the model wrote» and ‹what a schema forced›" in out
    assert "\n  Related: «yes»" in out
    assert "\n  ├─ Clarity: «good.»" in out
    marked = '‹{"grade":"›«A»‹","summary":"The essay is ›«clear, supported and calm."}»'
    assert f"\n  Verdict as JSON:{marked}" in out


def test_colours_take_the_place_of_marks() -> None:
    out = shown(VERDICTS[0], force_terminal=True, color_system="standard")
    assert not set("«»‹›") & set(out)
    assert '\x1b[35m{"grade":"\x1b[0m\x1b[1;32mA\x1b[0m\x1b[35m","summary"' in out


def test_an_essay_about_something_else_has_no_verdict_to_show() -> None:
    out = shown(VERDICTS[1])
    assert "Related: «no»\n  Summary: The essay strays." in out
    assert "JSON" not in out


def test_a_grade_that_the_rubric_does_not_ask_for_is_marked() -> None:
    console = Console(file=io.StringIO(), width=120)
    wrong = Verdict("", (), (True, False, True), "B")
    console.print(grades_table([ESSAY, ESSAY, ESSAY], [*VERDICTS, wrong]))
    file = console.file
    assert isinstance(file, io.StringIO)
    rows = [line.split() for line in file.getvalue().splitlines()[2:5]]
    assert rows[0][4:] == ["good", "good", "good", "A", "A"]
    assert rows[1][4:] == ["–", "✗", "–", "✗", "–", "✗", "–", "✗", "A"]
    assert rows[2][4:] == ["good", "poor", "✗", "good", "B", "✗", "A"]


def test_the_ratio_of_passes_is_of_those_without_jumps() -> None:
    console = Console(file=io.StringIO(), width=120)
    pair = tuple(
        Judged("one essay", (), Figures(1, 9, 0, 9, 16, forced, passes, 0.25))
        for passes, forced in ((5, 11), (16, 0))
    )
    console.print(passes_table([(pair[0], pair[1])]))
    file = console.file
    assert isinstance(file, io.StringIO)
    rows = [" ".join(line.split()) for line in file.getvalue().splitlines()[-2:]]
    assert rows == ["one essay 5 3.2× 11 5 0.250", "without jumps 16 1.0× 0 16 0.250"]


class Counted(ScriptedBackend):
    """A backend with a cache that is cleared and counters that are reset, both in vain."""

    config = EngineConfig()

    def __init__(self, *last: str) -> None:
        super().__init__(self.answer)
        self.written = [WRITTEN, *last]
        self.num_cleared = 0

    def answer(self, call: Call) -> Completion | str:
        if isinstance(call.constraint, JsonSchema):
            written = self.written.pop() if len(self.written) > 1 else WRITTEN
            return Completion((Output(written, segments=(Text(written),)),))
        return " yes" if " yes" in call.options else " A" if call.options else " good, it is."

    def info(self) -> BackendInfo:
        names = ("calls", "prompt_tokens", "cached_tokens", "computed_tokens", "completion_tokens")
        counters = dict.fromkeys((*names, "forced_tokens", "steps"), 1)
        return replace(super().info(), counters=counters)

    def reset_counters(self) -> None:
        pass

    def clear_cache(self) -> int:
        self.num_cleared += 1
        return 0


@pytest.mark.parametrize("odd", [False, True])
def test_a_batch_is_judged_a_few_times_and_no_other_answer_stays_hidden(odd: bool) -> None:
    other = WRITTEN.replace('"A"', '"B"')
    engine = Counted(*([WRITTEN, other][:1] if not odd else [WRITTEN, other, WRITTEN, WRITTEN]))
    judged = judge_all(engine, [ESSAY, ESSAY], "two", Console(file=io.StringIO()))
    assert engine.num_cleared == REPEATS_OF_MANY == 3
    grades = [verdict.grade for verdict in judged.verdicts]
    assert sorted(map(str, grades)) == (["A", "B"] if odd else ["A", "A"])


@pytest.mark.parametrize(
    ("settings", "is_here"), [({}, True), ({"ranks": 2}, False), ({"device": "cuda"}, False)]
)
def test_processor_time_is_reported_only_where_this_process_computes(
    settings: dict[str, Any], is_here: bool
) -> None:
    engine = Counted()
    engine.config = EngineConfig(**settings)
    assert is_computed_here(engine) is is_here


@pytest.mark.parametrize("grade", GRADES)
def test_the_grade_is_that_of_the_verdicts_json(grade: str) -> None:
    written = WRITTEN.replace('"A"', f'"{grade}"')

    def script(call: Call) -> Completion | str:
        if isinstance(call.constraint, JsonSchema):
            assert call.constraint.schema == VERDICT
            return Completion((Output(written, segments=(Text(written),), forced=((0, 10),)),))
        return " yes" if " yes" in call.options else " A" if call.options else " good, it is."

    verdict = judge(ScriptedBackend(script), ESSAY)
    assert verdict.grade == grade
    assert verdict.answers[-1] == Answer(written, ((0, 10),))
    assert verdict.text.endswith(f"\nGrade: A\nVerdict as JSON:{written}")


def test_the_schema_of_the_verdict_takes_what_the_rubric_says_and_no_more() -> None:
    validator = Draft202012Validator(VERDICT)
    verdict = json.loads(WRITTEN)
    assert validator.is_valid(verdict)
    assert validator.is_valid({**verdict, "summary": "The essay is muddled, unsupported and loud."})
    for wrong in ({"grade": "E"}, {"summary": "It is clear."}, {"more": 1}):
        assert not validator.is_valid({**verdict, **wrong})
