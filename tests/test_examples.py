"""The examples of the frameworks run on the embedded model, answer rightly, and share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module

import pytest

from forkroot.examples.retrieval import Passage, Ranking, load_passages

EXAMPLES = {
    "rag_langchain": "langchain_core",
    "agent_langchain": "langgraph",
    "judge_dspy": "dspy",
    "extract_guidance": "guidance",
}
SAVED = re.compile(r"cache on +([\d,]+) +([\d,]+) +([\d,]+) +(\d+)% +[\d.]+")
BARE = re.compile(r"cache off +([\d,]+) +([\d,]+) +([\d,]+) +(\d+)% +[\d.]+")


def printed(name: str, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What an example prints, run once on its first inputs."""
    pytest.importorskip(EXAMPLES[name])
    module = import_module(f"forkroot.examples.{name}")
    assert module.main(["--repeat", "1", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return str(captured.out)


def shares(out: str) -> tuple[int, int]:
    """Per cent of the prompt tokens that were cached, with the cache and without it; all else of
    both runs is the same."""
    on, off = SAVED.search(out), BARE.search(out)
    assert on is not None
    assert off is not None
    assert on.group(1, 2) == off.group(1, 2)
    assert "All answers are the same." in out
    return int(on[4]), int(off[4])


def test_passages_are_found_and_read(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("rag_langchain", capsys, "--limit", "8")
    assert re.search(r"Where does Bozdob live\? +bozdob +Vuvposburg", out)
    assert "8 of 8 are right." in out
    with_cache, without = shares(out)
    assert with_cache > 60
    assert without == 0


def test_the_agent_calls_its_tools_in_every_turn(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("agent_langchain", capsys, "--limit", "4")
    assert "Look up Busnuk. → lookup(Busnuk) = Padjolmere → The result is Padjolmere." in out
    assert "Square 31. → square(31) = 961 → The result is 961." in out
    calls = re.findall(r"→ (lookup|square)\((\w+)\) = (\w+) →", out)
    assert len(calls) == 8
    assert all(int(to) == int(of) ** 2 for name, of, to in calls if name == "square")
    with_cache, without = shares(out)
    assert with_cache > 70
    assert without == 0


def test_essays_are_judged_as_the_rubric_asks(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("judge_dspy", capsys, "--limit", "6")
    assert re.search(r"night trains in Genhibton +good +good +good +A", out)
    assert re.search(r"clean rivers in Jorhuvburg +– +– +– +unrelated", out)
    assert "6 of 6 are what the rubric asks for." in out
    assert re.search(r"dspy-\w+ +\d+ calls", out)
    with_cache, without = shares(out)
    assert with_cache > 80
    assert without == 0


def test_records_are_extracted_in_threads(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed("extract_guidance", capsys, "--limit", "8")
    assert re.search(r"Fivsav +45 +nurse +Ruthimton +Ember", out)
    assert "8 of 8 say the same when read a second time." in out
    with_cache, without = shares(out)
    assert with_cache > 60
    assert without == 0


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_backend_that_is_none_is_refused_in_a_line(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(EXAMPLES[name])
    assert import_module(f"forkroot.examples.{name}").main(["--backend", "no/such"]) == 2
    assert "no/such" in capsys.readouterr().err


@pytest.mark.parametrize("passage", load_passages(), ids=lambda passage: passage.name)
def test_each_passage_is_the_best_for_a_question_about_its_person(passage: Passage) -> None:
    ranking = Ranking(load_passages())
    assert ranking.best(f"How old is {passage.name.capitalize()}?") == [passage]


def test_rare_words_and_short_passages_rank_first() -> None:
    texts = ("a cat", "a cat and a dog and a bird and a fish", "a dog")
    ranking = Ranking([Passage(text, text) for text in texts])
    assert names(ranking.best("cat", 3))[:2] == [texts[0], texts[1]]
    assert names(ranking.best("a bird")) == [texts[1]]


def names(passages: Sequence[Passage]) -> list[str]:
    return [passage.name for passage in passages]


def test_the_lines_of_an_answer_are_parsed_into_the_types_of_their_fields() -> None:
    dspy = pytest.importorskip("dspy")
    from forkroot.examples.judge_dspy import MERGE, RELATION, Lines, pattern

    lines = Lines()
    assert lines.parse(RELATION, "Related: yes") == {"related": True}
    answer = "Clarity: good, a.\nEvidence: poor, b.\nStyle: poor, c.\nSummary: It is so.\nGrade: C"
    assert re.fullmatch(pattern(MERGE), answer)
    assert not re.fullmatch(pattern(MERGE, {"clarity": "poor."}), answer)
    assert lines.parse(MERGE, answer)["grade"] == "C"
    for wrong in ("Related: perhaps", "Grade: A"):
        with pytest.raises(dspy.utils.exceptions.AdapterParseError):
            lines.parse(RELATION, wrong)


def test_records_are_filled_in_by_fewer_calls_of_an_api_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from forkroot.examples.record_api import main

    main([])
    out = capsys.readouterr().out
    assert "Anna, 31, pilot, Lyon, Frost" in out
    calls = [int(num) for num in re.findall(r"(?:apart|together) +│ +(\d+)", out)]
    assert calls == [15, 3]
