"""The engine reports what programs use: the sums of what their calls report, and their guesses."""

from __future__ import annotations

from typing import Any

import pytest

from forkroot.core.api.codec import pack, unpack
from forkroot.core.api.program_report import Guesses, KindUsage, ProgramReport
from forkroot.core.api.protocol import ForkHint, Usage
from forkroot.core.common.counters import Counters

ROOT = "the root that all branches share. "


def hint(program: str, kind: str = "writer", root: str = "", **fields: Any) -> ForkHint:
    return ForkHint(root, program=program, kind=kind, **fields)


def agent(world: Any, call: Any, name: str, num_calls: int = 3) -> list[Usage]:
    """The usage of a program whose calls go on with one another's text."""
    text, used = ROOT, []
    for left in reversed(range(num_calls)):
        known = hint(name, "agent", calls_left=left, next_use=min(left, 1), tokens_left=2 * left)
        (done,) = world.run([call(text, hint=known, max_tokens=2)])
        used.append(done.usage)
        text += f"{done.text} and then, "
        world.now += 1.0
    return used


@pytest.mark.parametrize("setting", [{}, {"overlap": True}, {"hints": False}])
def test_the_report_adds_up_what_calls_used(bench: Any, call: Any, setting: Any) -> None:
    world = bench(**setting)
    used = [it for name in "ab" for it in agent(world, call, name)]
    (found,) = world.engine.program_report().kinds
    total = sum(used, Usage())
    assert (found.kind, found.programs, found.calls) == ("agent", 2, 6)
    assert found.prompt_tokens == total.prompt_tokens
    assert found.cached_tokens == total.cached_tokens > 0
    assert found.completion_tokens == total.completion_tokens
    assert found.next_use == found.calls_left == found.tokens_left == Guesses(6, 6)


def test_branches_of_a_root_and_the_root_that_is_sent_ahead(bench: Any, call: Any) -> None:
    world = bench()
    known = hint("p", root="root", branches=3, next_use=0, calls_left=0)
    world.run([call(ROOT, hint=hint("p", root="root", branches=3), max_tokens=0)])
    done = world.run([call(f"{ROOT}{number} is it", hint=known) for number in range(3)])
    (found,) = world.engine.program_report().kinds
    assert (found.ahead_calls, found.ahead_tokens) == (1, len(ROOT))
    assert (found.programs, found.calls) == (1, 3)
    assert found.root_tokens == 3 * len(ROOT) == sum(it.usage.root_tokens for it in done)
    assert found.next_use == Guesses(3, 3)
    assert found.calls_left == Guesses(3, 3)


def test_refused_cancelled_and_late_calls_end_in_the_report(bench: Any, call: Any) -> None:
    world = bench(max_waiting=2)
    replies = [world.submit(call("abc", hint=hint("p"), deadline=1.0)) for _ in range(3)]
    world.cancel(replies[0])
    world.now += 2.0
    world.drain()
    (found,) = world.engine.program_report().kinds
    assert (found.calls, found.failed_calls) == (1, 2)


def test_tenants_are_reported_apart(bench: Any, call: Any) -> None:
    world = bench()
    world.run([call("one", hint=hint("p"), tenant="a"), call("two", hint=hint("p"), tenant="b")])
    world.run([call("three", hint=hint("p", "reader"), namespace="c")])
    found = world.engine.program_report().kinds
    assert {(it.tenant, it.kind) for it in found} == {
        ("a", "writer"),
        ("b", "writer"),
        ("c", "reader"),
    }
    assert [it.tenant for it in world.engine.program_report("a").kinds] == ["a"]
    assert world.engine.program_report("nobody") == ProgramReport()


def test_names_that_cannot_be_printed_or_are_long_are_shortened(bench: Any, call: Any) -> None:
    world = bench()
    world.run([call("one", hint=hint("p", "a\nb\ud800" + 200 * "x"))])
    (found,) = world.engine.program_report().kinds
    assert found.kind == "a?b?" + 124 * "x"


def test_counters_that_are_set_anew_begin_a_new_report(bench: Any, call: Any) -> None:
    world = bench()
    reply = world.submit(call("one", hint=hint("p")))
    world.engine.counters = Counters()
    world.drain()
    assert reply.result().usage.prompt_tokens == 3
    assert world.engine.program_report() == ProgramReport()


def test_seconds_saved_grow_with_what_steps_take(bench: Any, call: Any) -> None:
    world = bench()
    runner = world.runner
    run = runner.run

    def slow(batch: Any) -> Any:
        world.now += 0.001 * len(batch.ids)
        return run(batch)

    runner.run = slow
    for number in range(6):
        world.run([call(f"{number} " * 30, max_tokens=1)])
    agent(world, call, "a")
    (found,) = world.engine.program_report().kinds
    assert found.saved_seconds == pytest.approx(0.001 * found.cached_tokens, rel=0.2)
    assert found.saved_root_seconds == 0.0


def test_a_report_crosses_processes() -> None:
    report = ProgramReport((KindUsage("a", "t", 1, saved_seconds=0.5, next_use=Guesses(2, 1)),), 3)
    assert unpack(pack(report)) == report
