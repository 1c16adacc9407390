"""The hostile campaign: how it runs scenarios and judges them, and the shortest of them, run."""

from __future__ import annotations

import io
import mmap
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from forkroot.benchmarks.campaign import bombs, kills, malformed, soak, timings
from forkroot.benchmarks.campaign.__main__ import table
from forkroot.benchmarks.campaign.faults.backends import Programs, struck
from forkroot.benchmarks.campaign.faults.fault import Fault
from forkroot.benchmarks.campaign.legal import PATHS, legal
from forkroot.benchmarks.campaign.memory import Sample, growth, own_bytes
from forkroot.benchmarks.campaign.runner import Bars, Plan, Scenario, Verdict, run
from forkroot.benchmarks.campaign.scenarios import BY_NAME, ENTRIES
from forkroot.benchmarks.common.processes import command_of, family
from forkroot.benchmarks.server.server_client import Answer

ROOT = Path(__file__).parents[1]
SHORT = Plan(seconds=0.0, slack=2.0)
SCENARIOS = """
import subprocess, sys, time
from forkroot.benchmarks.campaign.runner import Bars, Skipped, Verdict

def other(seconds):
    program = f"import time; time.sleep({seconds})"
    return subprocess.Popen([sys.executable, "-c", program], start_new_session=True)

def good(plan):
    bars = Bars()
    bars.equal("seed", plan.seed, 7)
    return bars.verdict("good")

def raising(plan):
    raise ValueError("what went wrong")

def skipping(plan):
    raise Skipped("needs a-package")

def hanging(plan):
    other(600)
    time.sleep(600)

def leaving(plan):
    return Verdict("leaving", True, {"pid": other(600).pid})
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Scenario]:
    """A scenario of `SCENARIOS` by its name."""
    (tmp_path / "campaign_scenarios.py").write_text(SCENARIOS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "campaign_scenarios", raising=False)
    found = import_module("campaign_scenarios")

    def scenario(name: str) -> Scenario:
        chosen: Scenario = getattr(found, name)
        return chosen

    return scenario


def test_a_scenario_gets_its_plan_and_gives_its_verdict(
    scenario: Callable[[str], Scenario],
) -> None:
    verdict = run("any name", scenario("good"), Plan(7, 0.0))
    assert (verdict.name, verdict.passed, verdict.figures) == ("any name", True, {"seed": 7})
    verdict = run("any name", scenario("good"), Plan(8, 0.0))
    assert (verdict.passed, verdict.reason) == (False, "seed is 8, expected 7")


def test_a_scenario_that_raises_has_failed_with_the_end_of_its_output(
    scenario: Callable[[str], Scenario],
) -> None:
    verdict = run("raising", scenario("raising"), SHORT)
    assert verdict.passed is False
    assert verdict.reason.endswith("ValueError: what went wrong")


def test_a_scenario_that_needs_something_is_skipped_with_the_reason(
    scenario: Callable[[str], Scenario],
) -> None:
    verdict = run("skipping", scenario("skipping"), SHORT)
    assert (verdict.passed, verdict.word, verdict.reason) == (None, "skipped", "needs a-package")


def test_a_scenario_that_hangs_is_ended_with_all_it_has_started(
    scenario: Callable[[str], Scenario],
) -> None:
    verdict = run("hanging", scenario("hanging"), SHORT)
    assert (verdict.passed, verdict.reason) == (False, "not over after 2 s")


def test_a_process_that_a_scenario_leaves_is_a_fault_and_is_killed(
    scenario: Callable[[str], Scenario],
) -> None:
    verdict = run("leaving", scenario("leaving"), Plan(seconds=5.0, slack=0.5))
    assert verdict.passed is False
    assert "processes left: [" in verdict.reason and "time.sleep(600)" in verdict.reason
    assert not (Path("/proc") / str(verdict.figures["pid"]) / "exe").exists()


def test_a_campaign_that_is_told_to_end_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    program = (
        "import runpy, sys\n"
        "sys.argv[1:] = ['--only', 'aborts', '--seconds', '60']\n"
        "runpy.run_module('forkroot.benchmarks.campaign', run_name='__main__')"
    )
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as campaign:
        end = time.monotonic() + 60
        while len(started := family(campaign.pid)[1:]) < 1 and time.monotonic() < end:
            time.sleep(0.02)
        campaign.terminate()
        assert campaign.wait(60) == 128 + signal.SIGTERM
    assert started
    end = time.monotonic() + 10  # the last one may be dying
    while (left := [pid for pid in started if command_of(pid)]) and time.monotonic() < end:
        time.sleep(0.02)
    assert not left
    assert not list(folder.iterdir())


def test_bars_report_each_figure_that_misses_its_bar() -> None:
    bars = Bars()
    bars.at_most("a", 2.0, 2.0)
    bars.at_least("b", 1, 1)
    assert bars.verdict("x").passed is True
    bars.at_most("never", None, 10.0)
    bars.at_most("late", 10.5, 10.0)
    bars.at_least("few", 0, 1)
    assert bars.verdict("x").reason == (
        "never is None, expected at most 10; late is 10.5, expected at most 10;"
        " few is 0, expected at least 1"
    )
    assert bars.figures == {"a": 2.0, "b": 1, "never": None, "late": 10.5, "few": 0}


def test_the_table_shows_every_verdict() -> None:
    verdicts = [Verdict("one", True, {"calls": 3}, "", 1.5), Verdict("two", None, {}, "needs x")]
    out = io.StringIO()
    Console(file=out, width=120).print(table([*verdicts, Verdict("three", False, {}, "late")]))
    text = out.getvalue()
    for word in ("one", "passed", "calls: 3", "1.5", "two", "skipped", "needs x", "FAILED", "late"):
        assert word in text


def test_the_campaigns_keep_to_their_time() -> None:
    seconds_to_start = 4 * len(ENTRIES)
    assert sum(entry.quick for entry in ENTRIES) + seconds_to_start <= 180
    assert sum(entry.full for entry in ENTRIES) + seconds_to_start <= 3600
    assert len(BY_NAME) == len(ENTRIES)


def test_the_page_on_security_names_every_scenario_and_tests_that_exist() -> None:
    page = (ROOT / "docs/security.md").read_text("utf-8")
    assert [entry.name for entry in ENTRIES if f"\n| `{entry.name}` |" not in page] == []
    promises = page.partition("## What is promised")[2].partition("## What is not promised")[0]
    rows = [row for row in promises.splitlines() if row.startswith("| ") and "tested by" not in row]
    for row in rows:
        names = re.findall(r"`([^`]+)`", row.rsplit(" | ", 1)[1])
        assert names, row
        assert [it for it in names if it not in BY_NAME and not (ROOT / it).is_file()] == []
    assert len(rows) >= 20


def test_the_kill_matrix_has_every_cell_and_two_hundred_faults() -> None:
    faults = kills.faults_of(Plan(is_full=True))
    assert len(faults) >= 200
    assert {str(it) for it in faults} == {str(it) for it in kills.MATRIX}
    assert set(kills.faults_of(Plan())) == set(kills.MATRIX)
    assert {(it.where, it.process) for it in kills.MATRIX} == {
        *(("server", it) for it in ("server", "engine", "rank", "compiler", "spare")),
        *(("child", it) for it in ("engine", "compiler", "spare")),
        *(("program", it) for it in ("thread", "rank", "compiler")),
    }
    assert kills.faults_of(Plan(3)) != kills.faults_of(Plan(4))
    parts = [kills.faults_of(Plan(is_full=True, faults=it)) for it in ((0, 99), (99, 300))]
    assert [*parts[0], *parts[1]] == faults


def test_each_fault_of_a_cell_that_ends_late_is_counted() -> None:
    fault = kills.MATRIX[0]
    times = (1.0, 1.0), (16.0, 10.5), (1.0, 1.0), (None, 2.0)
    verdict = kills.judged([kills.Outcome(fault, 9, 9, *it, "") for it in times], [], 4)
    assert verdict.figures["ended_late"] == [str(fault)] * 2
    assert verdict.figures["back_late"] == [str(fault)]
    assert verdict.figures["back_s"] == {str(fault): [1.0, 10.5, 1.0, 2.0]}
    assert (verdict.figures["last_ended_s"], verdict.figures["last_back_s"]) == (16.0, 10.5)


@pytest.mark.parametrize(
    ("body", "is_whole", "once", "once_of_a_dead_server"),
    [
        (b'data: {"choices": []}\n\ndata: [DONE]\n\n', True, True, True),
        (b'data: {"error": {"code": "engine_dead"}}\n\n', True, True, True),
        (b'{"error": {}}', True, True, True),
        (b'data: {"error": {}}\n\ndata: [DONE]\n\n', True, False, False),
        (b"data: [DONE]\n\ndata: [DONE]\n\n", True, False, False),
        (b'data: {"choices": []}\n\n', True, False, False),
        (b"", True, False, False),
        (b'data: {"choices": []}\n\n', False, False, True),
        (b"", False, False, True),
    ],
)
def test_a_call_ends_once(
    body: bytes, is_whole: bool, once: bool, once_of_a_dead_server: bool
) -> None:
    answer = Answer(200, body, 0.0, None, 1.0, is_whole)
    assert kills.ends_once(answer, is_cut_allowed=False) is once
    assert kills.ends_once(answer, is_cut_allowed=True) is once_of_a_dead_server


@pytest.mark.timeout(180)
def test_a_program_whose_engine_thread_dies_connects_again_and_gets_equal_answers() -> None:
    fault = Fault("thread", "RAISE", "decode", "program")
    with closing(Programs()) as programs:
        outcome = struck(programs, fault, 8, random.Random(1))
        assert (outcome.problem, outcome.calls) == ("", 8)
        assert outcome.open > 0 and outcome.ended is not None and outcome.back is not None
    assert programs.problems == []


def test_the_area_under_the_curve_tells_apart_what_differs() -> None:
    assert timings.auc([1.0, 2.0], [3.0, 4.0]) == 0.0
    assert timings.auc([3.0, 4.0], [1.0, 2.0]) == 1.0
    assert timings.auc([1.0, 2.0], [1.0, 2.0]) == 0.5
    chance = random.Random(0)
    ones, others = ([chance.random() for _ in range(1000)] for _ in range(2))
    assert 0.45 < timings.auc(ones, others) < 0.55


def test_bodies_and_constraints_are_drawn_from_their_seed() -> None:
    for path in PATHS:
        first, again = (legal(path, random.Random(5)) for _ in range(2))
        assert malformed.changed(first, random.Random(1)) == malformed.changed(
            again, random.Random(1)
        )
        assert malformed.changed(first, random.Random(1)) != first == again
    for seed in range(40):
        first_call, call = (soak.constrained(seed, random.Random(seed)) for _ in range(2))
        assert first_call.body == call.body
        assert not call.is_valid('"nothing of the kind"')


def test_every_bomb_is_small_for_what_it_does() -> None:
    assert all(1_000 < size < 16 << 20 for size in bombs.sizes().values())


@pytest.mark.parametrize("name", ["malformed", "model"])
def test_a_short_scenario_holds(name: str) -> None:
    verdict = run(name, BY_NAME[name].run, Plan(1, 1.5))
    assert verdict.passed, verdict.reason


def _samples(mb_per_hour: float, seed: int) -> list[Sample]:
    """Ten minutes of a server whose engine grows after five, whose compile workers come and go, and
    whose memory is noisy."""
    chance = random.Random(seed)
    found = []
    for second in range(0, 600, 2):
        grown = 10 * min(second, 300) / 300 + mb_per_hour * max(0, second - 300) / 3600
        workers = [40 + chance.random() for _ in range(1 + (second // 50) % 2)]
        engine = 400 + grown + chance.gauss(0, 0.5)
        found.append(Sample(second, {"core.child": [engine], "compile_worker": workers}))
    return found


@pytest.mark.parametrize("mb_per_hour", [0.0, 60.0])
def test_the_slope_of_memory_is_found_beside_noise_and_workers_that_come_and_go(
    mb_per_hour: float,
) -> None:
    found = growth(_samples(mb_per_hour, 1))
    assert found.mb_per_hour["all"] == pytest.approx(mb_per_hour, abs=8)
    assert found.mb_per_hour["core.child"] == pytest.approx(mb_per_hour, abs=8)
    assert found.most == {"core.child": 1, "compile_worker": 2}
    low, high = found.bounds
    assert low <= found.mb_per_hour["all"] <= high
    assert high - low < 40
    assert len(found.series["all"]) == 30


def test_memory_of_a_process_counts_what_it_holds() -> None:
    num_bytes = 50_000_000
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, num_bytes, flags) as held:  # pages of its own, whatever malloc keeps
        held.write(b"x" * num_bytes)
        during = own_bytes(os.getpid())
    after = own_bytes(os.getpid())
    assert during is not None and after is not None
    assert num_bytes * 0.9 < during - after < num_bytes * 1.1
    assert own_bytes(2**22 + 1) is None
