"""The paper's evaluation: rows that survive a kill, the report, programs, listings."""

from __future__ import annotations

import ast
import inspect
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from forkroot.adapters.native.program import Program
from forkroot.adapters.testing import ScriptedBackend
from forkroot.benchmarks.cache.virtual import VirtualRuntime
from forkroot.benchmarks.paper.__main__ import main
from forkroot.benchmarks.paper.caches import clipped, whole_prompts
from forkroot.benchmarks.paper.engines import Engine, Engines
from forkroot.benchmarks.paper.figure import Chart, Figure, Settings, Step
from forkroot.benchmarks.paper.figures.registry import FIGURES
from forkroot.benchmarks.paper.listings import counting
from forkroot.benchmarks.paper.programs import native, sources
from forkroot.benchmarks.paper.programs.catalog import WORKLOADS, workload
from forkroot.benchmarks.paper.programs.workload import Workload, is_equal
from forkroot.benchmarks.paper.report.content import losses, tables
from forkroot.benchmarks.paper.report.markdown import markdown
from forkroot.benchmarks.paper.report.numbers import cell, shown
from forkroot.benchmarks.paper.report.page import html
from forkroot.benchmarks.paper.report.svg import Entry, draw
from forkroot.benchmarks.paper.rows import Row, RowFile, missing
from forkroot.benchmarks.paper.run import run
from forkroot.benchmarks.paper.serial import Serial
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.errors import InvalidCall
from forkroot.core.api.protocol import Call, Sampling, Text, Tokens
from forkroot.core.radix.cache import RadixCache

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = Settings(mode="smallest")
HEAD = {"mode": "smallest", "seed": 0}


def figure(name: str, steps: list[Step], *charts: Chart) -> Figure:
    return Figure(
        name, f"Title of {name}", "in the paper", "what is measured", lambda _: steps, charts
    )


def quiet() -> Console:
    return Console(file=StringIO())


# --- rows and runs ---------------------------------------------------------------------------


def test_rows_are_read_back_and_a_line_that_was_cut_off_is_forgotten(tmp_path: Path) -> None:
    kept = RowFile(tmp_path, HEAD, "a machine")
    kept.add("a/1", [Row("a", "rate", "x", "ours", 1.5, "×", 1.0, 2.0)], 0.5, 1.0)
    with kept.path.open("a") as file:
        file.write('{"step": "a/2", "rows": [{"fig')
    again = RowFile(tmp_path, HEAD, "a machine")
    assert again.rows == kept.rows
    assert list(again.steps) == ["a/1"]
    again.add("a/2", [], 0.1)
    assert list(RowFile(tmp_path, HEAD, "a machine").steps) == ["a/1", "a/2"]


@pytest.mark.parametrize(
    ("settings", "machine", "field"),
    [({**HEAD, "seed": 1}, "a machine", "seed"), (HEAD, "another machine", "machine")],
)
def test_rows_of_other_settings_or_another_machine_are_refused(
    tmp_path: Path, settings: dict[str, Any], machine: str, field: str
) -> None:
    RowFile(tmp_path, HEAD, "a machine")
    with pytest.raises(InvalidCall, match=field):
        RowFile(tmp_path, settings, machine)


def test_a_run_continues_where_it_was_and_runs_failed_steps_again(tmp_path: Path) -> None:
    ran, fails = list[str](), [True]

    def step(name: str, is_failing: bool = False) -> Step:
        def measure(_: object) -> list[Row]:
            ran.append(name)
            if is_failing and fails:
                raise ValueError("no luck")
            return [Row("f", "rate", name, "ours", 1.0)]

        return Step(name, measure)

    figures = [figure("f", [step("one"), step("two", True), step("three")], Chart("rate"))]
    kept = RowFile(tmp_path, HEAD, "m")
    assert run(figures, SETTINGS, kept, quiet()) == {"f/two": "ValueError: no luck"}
    fails.clear()
    kept = RowFile(tmp_path, HEAD, "m")
    assert run(figures, SETTINGS, kept, quiet()) == {}
    assert ran == ["one", "two", "three", "two"]
    assert [row.x for row in kept.rows] == ["one", "three", "two"]


# --- the report ------------------------------------------------------------------------------

CHARTS = (
    Chart("rate", unit="programs/s"),
    Chart("times", unit="×", is_ratio=True),
    Chart("growth", "lines", "µs", "lower", "tokens"),
)
ROWS = [
    Row("f", "rate", "a <b>", "ours", 1234.5, "programs/s", 1000.0, 1500.25, paper="6.4×"),
    Row("f", "rate", "a <b>", "vllm", 0.0004321, "programs/s"),
    missing("f", "rate", "c", "vllm", "it has no regex"),
    Row("f", "times", "a <b>", "vllm", 0.8, "×", bar=1.5),
    Row("f", "times", "c", "vllm", 1.2, "×", bar=1.5),
    Row("f", "times", "d", "vllm", 3.0, "×", bar=1.5),
    Row("f", "growth", 1000.0, "cache", 10.0, "µs"),
    Row("f", "growth", 10_000_000.0, "cache", 12.0, "µs", bar=11.0),
]
ABOUT = {"machine": "of a test"}


class Cells(HTMLParser):
    """The text of every element that names a row."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, int, str]] = []
        self._row: tuple[str, int] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        index = dict(attrs).get("data-row")
        self._row = None if index is None else (tag, int(index))

    def handle_data(self, data: str) -> None:
        if self._row is not None:
            self.found.append((*self._row, data))
            self._row = None


def test_every_number_of_the_page_is_that_of_its_row() -> None:
    reader = Cells()
    reader.feed(html([figure("f", [], *CHARTS)], ROWS, ABOUT, {}))
    in_tables = [(index, text) for tag, index, text in reader.found if tag == "td"]
    assert {index for index, _ in in_tables} == set(range(len(ROWS)))
    assert all(text == cell(ROWS[index]) for index, text in in_tables)
    in_charts = [(index, text) for tag, index, text in reader.found if tag == "text"]
    measured = {index for index, row in enumerate(ROWS) if row.value is not None}
    assert {index for index, _ in in_charts} == measured
    assert all(text == shown(ROWS[index].value or 0.0) for index, text in in_charts)


def test_the_markdown_page_has_the_same_cells() -> None:
    text = markdown([figure("f", [], *CHARTS)], ROWS, ABOUT, {})
    for row in ROWS:
        assert f"| {cell(row)} |" in text
    assert "not measured: c: vllm: it has no regex" in text


def test_what_is_slower_stands_before_what_misses_its_bar() -> None:
    found = losses([figure("f", [], *CHARTS)], ROWS)
    assert [(loss.kind, loss.entry.row.x) for loss in found] == [
        ("slower", "a <b>"),
        ("bar", "c"),
        ("bar", 10_000_000.0),
    ]
    text = markdown([figure("f", [], *CHARTS)], ROWS, ABOUT, {})
    assert text.index("Where we lose") < text.index("Title of f")


@pytest.mark.parametrize("chart", CHARTS)
def test_charts_are_well_formed_and_inside_their_picture(chart: Chart) -> None:
    rows = [row for row in ROWS if row.measure == chart.measure]
    entries = [Entry(index, row) for index, row in enumerate(rows)]
    picture = ElementTree.fromstring(draw(chart, entries))
    width, height = (float(picture.attrib[name]) for name in ("width", "height"))
    assert width <= 1200
    for item in picture.iter():
        x = [float(item.attrib[it]) for it in ("x", "x1", "x2", "cx") if it in item.attrib]
        y = [float(item.attrib[it]) for it in ("y", "y1", "y2", "cy") if it in item.attrib]
        assert all(0 <= it <= width for it in x)
        assert all(0 <= it <= height for it in y)


def test_a_chart_without_values_is_nothing() -> None:
    assert draw(CHARTS[0], [Entry(0, missing("f", "rate", "c", "vllm", "absent"))]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1,234"), (12.345, "12.3"), (0.98765, "0.988"), (100.0, "100")],
)
def test_values_have_three_digits(value: float, text: str) -> None:
    assert shown(value) == text


def test_all_figures_have_names_charts_and_steps_of_their_own() -> None:
    names = [it.name for it in FIGURES]
    assert len(set(names)) == len(names)
    for mode in ("smallest", "quick", "full"):
        for it in FIGURES:
            steps = [step.name for step in it.steps(Settings(mode=mode, peers={"vllm": ""}))]
            assert steps and len(set(steps)) == len(steps)
            measures = [chart.measure for chart in it.charts]
            assert len(set(measures)) == len(measures)


def test_the_smallest_run_measures_writes_a_report_and_does_nothing_the_second_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--smallest", "--only", "hit rate,lines of code", "--out", str(tmp_path)]
    assert main(command) == 0
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    rows = [Row(**row) for line in lines[1:] for row in line["rows"]]
    found = {
        it.name: tables(it, rows) for it in FIGURES if it.name in ("hit rate", "lines of code")
    }
    assert all(it for it in found.values())
    reader = Cells()
    reader.feed((tmp_path / "report.html").read_text("utf-8"))
    assert all(text == cell(rows[i]) for tag, i, text in reader.found if tag == "td")
    assert {i for tag, i, _ in reader.found if tag == "td"} == set(range(len(rows)))
    before = (tmp_path / "rows.jsonl").read_text()
    assert main(command) == 0
    assert (tmp_path / "rows.jsonl").read_text() == before
    assert list(tmp_path.glob("*.svg"))
    capsys.readouterr()


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [("--only", "figure 99", "only"), ("--peers", "tgi", "peers"), ("--data", "/absent", "data")],
)
def test_an_option_that_is_not_known_is_named(
    option: str, value: str, field: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([option, value, "--out", str(tmp_path)]) == 2
    assert f"{field}=" in capsys.readouterr().err


# --- programs --------------------------------------------------------------------------------


def town(answers: tuple[str, ...]) -> Workload:
    items = [{"template": f"{number}:", "length": 4} for number in range(len(answers))]
    return Workload(
        "town", "Town", native.town_event, items, lambda state: str(state["answer"]), "a test",
        answers, is_equal,
    )  # fmt: skip


@pytest.mark.parametrize("is_serial", [False, True])
def test_a_workload_runs_its_program_and_scores_the_answers(is_serial: bool) -> None:
    backend = ScriptedBackend({"0:": "right", "1:": "wrong"})
    engine = Engine("scripted", backend, frozenset(), is_serial=is_serial)
    outcome = town(("right", "right")).run(engine)
    assert outcome.answers == ["right", "wrong"]
    assert outcome.scores == [1.0, 0.0]
    assert outcome.accuracy == 0.5
    assert outcome.usage["calls"] == 2


def test_a_serial_backend_runs_one_call_at_a_time_in_their_order() -> None:
    backend = ScriptedBackend("answer", is_held=True)
    serial = Serial(backend)
    replies = [serial.submit(Call((Text(f"{number}"),))) for number in range(3)]
    for number in range(3):
        backend.wait_for(number + 1)
        assert len(backend.calls) == number + 1
        backend.release(number)
        assert replies[number].result().text == "answer"


def test_the_react_program_keeps_what_it_writes_aside() -> None:
    backend = ScriptedBackend(lambda call: " written")
    steps = [{"written": " t1\nAction 1: a", "observed": "\nObservation 1: o"}]
    steps += [{"written": " t2\nAction 2: b", "observed": ""}]
    state = native.react.run("S\n", "Question: q", steps, 8, backend=backend)
    assert state.ret_value == [" written", " written"]
    assert state.text() == (
        "S\nQuestion: q\nThought 1: t1\nAction 1: a\nObservation 1: o\nThought 2: t2\nAction 2: b"
    )


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_items_of_every_size_that_fit_the_model(name: str) -> None:
    for mode in ("smallest", "full"):
        found = workload(name, Settings(mode=mode))
        assert found.items and found.width > 0 and found.source
        assert not found.truths or len(found.truths) == len(found.items)
        assert (found.score is None) == (not found.truths)
        if isinstance(found.program, Program):
            parameters = inspect.signature(found.program.body).parameters
            assert all(set(parameters) == {"s", *item} for item in found.items)


def test_published_data_sets_are_read(tmp_path: Path) -> None:
    for kind in ("dev", "test"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / f"law_{kind}.csv").write_text('"What, is it?",a,b,c,d,B\n')
    (tmp_path / "test.jsonl").write_text('{"question": "1+1?", "answer": "It is 2.\\n#### 2"}\n')
    (tmp_path / "agent_calls.jsonl").write_text('{"poignancy_event": {"event": "rain"}}\n')
    source, found = sources.mmlu(tmp_path)
    assert "MMLU" in source
    assert found == {"law": ([("What, is it?", list("abcd"), "B")],) * 2}
    assert sources.gsm8k(tmp_path)[1] == [("1+1?", "It is 2. The answer is 2")]
    assert list(sources.agent_calls(tmp_path)) == [("poignancy_event", {"event": "rain"})]


def test_a_peer_that_is_not_there_is_not_measured_and_the_reason_is_kept(tmp_path: Path) -> None:
    peers = {"sglang": "", "transformers": ""}
    with Engines(Settings(peers=peers, peers_folder=tmp_path)) as engines:
        for name, reason in (("sglang", "--peers sglang=URL"), ("transformers", "No such file")):
            for _ in range(2):
                found = engines.peer(name)
                assert isinstance(found, str) and reason in found


# --- caches made worse -----------------------------------------------------------------------


def cached(cache: RadixCache, ids: list[int]) -> int:
    """Run a sequence through the cache; how many of its tokens were found."""
    tokens = np.array(ids, np.int32)
    lease = cache.acquire("", tokens, len(tokens) - 1)
    found = lease.length
    slots = cache.allocate(len(tokens) - found)
    assert slots is not None
    cache.commit(lease, tokens, np.concatenate([lease.slots, slots]))
    cache.release(lease)
    cache.check(0)
    return found


def test_a_clipped_cache_finds_a_part_of_each_prefix() -> None:
    cache = RadixCache(100)
    assert cached(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9]) == 0
    with clipped(0.5):
        assert cached(cache, [1, 2, 3, 4, 5, 6, 7, 8, 20]) == 4
    assert cached(cache, [1, 2, 3, 4, 5, 6, 7, 8, 21]) == 8
    with clipped(0.0):
        assert cached(cache, [1, 2, 3, 4, 5, 6, 7, 8, 22]) == 0


def test_calls_of_a_clipped_cache_do_not_wait_for_a_prefix_for_ever() -> None:
    for worse in (clipped(0.0), clipped(0.5), whole_prompts()):
        runtime = VirtualRuntime(EngineConfig(max_running=4, chunk_tokens=64), 4096)
        with worse:
            for last in range(12):
                prompt = Tokens((*range(300, 400), 500 + last))
                runtime.submit(Call((prompt,), Sampling(max_tokens=2, temperature=0.0)))
            for _ in range(200):
                if not runtime.has_work:
                    break
                runtime.tick()
        assert not runtime.has_work
        runtime.finish()


def test_a_table_of_whole_prompts_finds_no_common_beginnings() -> None:
    cache = RadixCache(100)
    with whole_prompts():
        assert cached(cache, [1, 2, 3, 4]) == 0
        assert cached(cache, [1, 2, 3, 9, 9]) == 0  # a tree would find three
        assert cached(cache, [1, 2, 3, 4, 5, 6]) == 4  # goes on after a whole one
        assert cached(cache, [1, 2, 3, 4, 5, 6, 7]) == 6
    assert cached(cache, [1, 2, 3, 8]) == 3


# --- listings --------------------------------------------------------------------------------


def test_our_listing_is_the_programs_as_they_run() -> None:
    texts = ["benchmarks/paper/programs/native.py", "examples/essay_judge.py"]
    plain = [counting.plain((ROOT / it).read_text("utf-8"), lambda _: True) for it in texts]
    listed = counting.text_of("forkroot")
    assert ast.dump(ast.parse("\n".join(plain))) == ast.dump(ast.parse(listed))


@pytest.mark.parametrize("system", counting.SYSTEMS)
def test_listings_are_python_and_miss_only_what_a_system_cannot_say(system: str) -> None:
    known = counting.definitions(counting.text_of(system))
    missed = set(counting.definitions(counting.text_of("openai"))) - set(known)
    assert missed == set(counting.WHY_NOT.get(system, ()))
    assert not [line for line in counting.text_of(system).splitlines() if re.search(r"\s$", line)]


def test_lines_count_with_the_helpers_that_a_program_uses() -> None:
    assert counting.lines("forkroot", "few_shot") == 4
    assert counting.lines("dspy", "few_shot") == 7  # with its signature
    assert counting.lines("dspy", "character") is None
