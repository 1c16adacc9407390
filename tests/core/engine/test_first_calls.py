"""When the first call of each program came."""

from __future__ import annotations

from forkroot.core.engine.accounting.first_calls import MOST_PROGRAMS, FirstCalls


def test_the_first_call_of_a_program_is_remembered():
    calls = FirstCalls()
    assert calls.first("a", ("", "essay"), 3) == 3
    assert calls.first("a", ("", "essay"), 7) == 3
    assert calls.first("a", ("other", "essay"), 7) == 7
    assert calls.first("b", ("", "essay"), 9) == 9
    assert len(calls) == 3


def test_a_tenant_with_many_programs_makes_no_other_forgotten():
    calls = FirstCalls()
    calls.first("modest", ("", "essay"), 1)
    for number in range(2 * MOST_PROGRAMS):
        calls.first("greedy", ("", str(number)), number)
    assert len(calls) == MOST_PROGRAMS
    assert calls.first("modest", ("", "essay"), 5) == 1
    newest = 2 * MOST_PROGRAMS - 1
    assert calls.first("greedy", ("", str(newest)), newest + 1) == newest
    assert calls.first("greedy", ("", "0"), newest + 2) == newest + 2


def test_many_tenants_of_one_program_each_are_bounded():
    calls = FirstCalls()
    for number in range(MOST_PROGRAMS + 10):
        calls.first(str(number), ("", "essay"), number)
    assert len(calls) == MOST_PROGRAMS
