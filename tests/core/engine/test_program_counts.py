"""What programs use is counted by tenant and kind, and guesses of hints are judged."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.program_report import Guesses, KindUsage
from forkroot.core.api.protocol import Call, ForkHint, Sampling, Text, Usage
from forkroot.core.common.intervals import Chains
from forkroot.core.engine.accounting import programs
from forkroot.core.engine.accounting.guesses import (
    MOST_CALLS,
    NEAR_CALLS,
    NEAR_TOKENS,
    ProgramRun,
)
from forkroot.core.engine.accounting.programs import MOST_KINDS, SETTLED, ProgramCounts

USED = Usage(10, 4, 2, 3)


class World:
    """Counts whose calls are begun and ended by hand, a second each."""

    def __init__(self) -> None:
        self.counts = ProgramCounts()
        self.now = 0.0
        self._keys = count()

    def begin(self, text: str, tenant: str = "", max_tokens: int = 8, **hint: object) -> int:
        key, self.now = next(self._keys), self.now + 1.0
        known = ForkHint("", **{"program": "p", "kind": "agent", **hint})
        call = Call((Text(text),), Sampling(max_tokens), hint=known, namespace=tenant)
        self.counts.begin(key, call, np.frombuffer(text.encode(), np.uint8), self.now)
        return key

    def end(self, key: int, usage: Usage = USED, root_len: int = 0) -> None:
        self.now += 1.0
        self.counts.end(key, usage, root_len, self.now)

    def call(self, text: str, usage: Usage = USED, **hint: object) -> None:
        self.end(self.begin(text, **hint), usage)

    def report(self, tenant: str | None = None) -> dict[tuple[str | None, str], KindUsage]:
        found = self.counts.report(lambda tokens, pairs: tokens / 2, self.now, tenant)
        return {(it.tenant, it.kind): it for it in found.kinds}

    def agent(self) -> KindUsage:
        return self.report()["", "agent"]


@pytest.fixture
def world() -> World:
    return World()


LONG = "a text of some forty characters or more. "


def test_tokens_calls_and_programs_are_counted_by_kind(world: World) -> None:
    world.call("one", program="p")
    world.call("two", program="p")
    world.call("three", program="q")
    world.call("four", program="r", kind="writer")
    found = world.agent()
    assert (found.programs, found.calls, found.failed_calls) == (2, 3, 0)
    assert (found.prompt_tokens, found.cached_tokens, found.root_tokens) == (30, 12, 9)
    assert (found.completion_tokens, found.saved_seconds, found.saved_root_seconds) == (6, 6.0, 4.5)
    assert world.report()["", "writer"].calls == 1


def test_calls_without_a_hint_are_not_counted(world: World) -> None:
    world.counts.begin(0, Call((Text("one"),)), np.zeros(3, np.int32), 0.0)
    world.counts.end(0, Usage(3), 0, 1.0)
    assert world.report() == {}


def test_a_prefix_that_is_sent_ahead_is_no_call_of_a_program(world: World) -> None:
    world.call("root", Usage(10, 4), max_tokens=0, next_use=1)
    found = world.agent()
    assert (found.ahead_calls, found.ahead_tokens) == (1, 6)
    assert (found.calls, found.programs, found.prompt_tokens) == (0, 0, 0)
    assert found.guesses == Guesses()


def test_calls_that_fail_are_counted_and_say_nothing(world: World) -> None:
    world.counts.fail(world.begin("one", calls_left=0, next_use=0), world.now + 1)
    found = world.agent()
    assert (found.calls, found.failed_calls, found.prompt_tokens) == (0, 1, 0)
    assert found.guesses == Guesses()


def test_a_chain_that_goes_as_expected_is_right(world: World) -> None:
    for number in range(4):
        left = 3 - number
        use = 1 if left else 0
        world.call(LONG * (number + 1), calls_left=left, next_use=use, tokens_left=2 * left)
    found = world.agent()
    assert found.open_programs == 0
    assert found.next_use == Guesses(4, 4)
    assert found.calls_left == Guesses(4, 4)
    assert found.tokens_left == Guesses(4, 4)


@pytest.mark.parametrize(
    ("guess", "texts", "expected"),
    [
        (1, [LONG * 2], "right"),
        (2, ["other", LONG * 2], "right"),
        (1, ["other", LONG * 2], "late"),
        (2, [LONG * 2], "early"),
        (0, [LONG * 2], "early"),
        (0, ["other"], "right"),
        (1, ["other"], "never"),
    ],
)
def test_the_next_use_of_a_text_is_compared_with_the_guess(
    world: World, guess: int, texts: list[str], expected: str
) -> None:
    world.call(LONG, next_use=guess)
    for text in texts:
        world.call(text)
    world.now += SETTLED + 1
    assert world.agent().next_use == Guesses(made=1, **{expected: 1})


def test_what_siblings_share_is_no_use_of_what_is_behind_their_root(world: World) -> None:
    root = LONG * 9
    for end in ("the first branch", "another branch"):
        key = world.begin(root + end, next_use=0)
        world.end(key, root_len=len(root))
    world.now += SETTLED + 1
    assert world.agent().next_use == Guesses(2, 2)


@pytest.mark.parametrize(
    ("guess", "outcome"), [(0, "late"), (1, "right"), (3, "right"), (4, "early")]
)
def test_calls_left_may_be_wrong_by_one(world: World, guess: int, outcome: str) -> None:
    world.call("one", calls_left=guess)
    world.call("two")
    world.call("three")
    world.now += SETTLED + 1
    assert world.agent().calls_left == Guesses(made=1, **{outcome: 1})


def test_branches_side_by_side_are_one_step(world: World) -> None:
    world.call("root", calls_left=1, tokens_left=400)
    keys = [world.begin(f"branch {number}") for number in range(4)]
    for key in keys:
        world.end(key, Usage(10, 4, 100))
    world.now += SETTLED + 1
    assert world.agent().calls_left == Guesses(1, 1)
    assert world.agent().tokens_left == Guesses(1, 1)


@pytest.mark.parametrize(("guess", "outcome"), [(10, "late"), (400, "right"), (2000, "early")])
def test_tokens_left_may_be_wrong_by_a_factor_of_two(
    world: World, guess: int, outcome: str
) -> None:
    world.call("one", tokens_left=guess)
    world.call("two", Usage(10, 4, 300))
    world.now += SETTLED + 1
    assert world.agent().tokens_left == Guesses(made=1, **{outcome: 1})


def test_guesses_of_a_program_that_may_go_on_are_not_judged(world: World) -> None:
    world.call("one", calls_left=1, next_use=1)
    found = world.agent()
    assert (found.open_programs, found.guesses) == (1, Guesses(made=2))
    world.now += SETTLED + 1
    assert (world.agent().open_programs, world.agent().guesses.judged) == (0, 2)


def test_a_program_that_goes_on_after_its_last_call_is_judged_anew(world: World) -> None:
    world.call("one", calls_left=0)
    assert world.agent().calls_left == Guesses(1, right=1)
    for _ in range(3):
        world.call("more")
    assert world.agent().calls_left == Guesses(1)
    world.now += SETTLED + 1
    found = world.agent()
    assert found.calls_left == Guesses(1, late=1)
    assert (found.programs, found.open_programs) == (1, 0)


def test_the_guesses_of_a_very_long_run_are_not_judged(world: World) -> None:
    for _ in range(MOST_CALLS + 5):
        world.call("again", calls_left=1)
    world.now += SETTLED + 1
    found = world.agent()
    assert found.calls_left == Guesses(made=MOST_CALLS + 5)
    assert (found.calls, found.programs, found.open_programs) == (MOST_CALLS + 5, 1, 0)


def test_too_many_kinds_are_counted_together(world: World) -> None:
    kept = world.begin("one", kind="oldest", calls_left=0)
    for number in range(MOST_KINDS + 10):
        world.call("one", kind=f"kind {number}", program=f"{number}", calls_left=0)
    world.end(kept)
    found = world.report()
    assert len(found) == MOST_KINDS + 1
    assert found["", ""].calls == 11
    assert sum(it.calls for it in found.values()) == MOST_KINDS + 11
    assert sum(it.calls_left.right for it in found.values()) == MOST_KINDS + 11


def test_a_flood_of_runs_harms_the_figures_of_its_own_tenant_only(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_WATCHED", 40)
    monkeypatch.setattr(programs, "MOST_TENANTS", 2)
    world.call("one", tenant="honest", calls_left=1)
    for number in range(100):
        world.call("one", tenant="flood", program=f"{number}", calls_left=1)
    world.now += SETTLED + 1
    found = world.report()
    assert found["honest", "agent"].calls_left == Guesses(1, right=1)
    flooded = found["flood", "agent"]
    assert flooded.calls_left.made == flooded.calls == flooded.programs == 100
    assert flooded.calls_left.judged < 30
    assert flooded.open_programs == 0


def test_tenants_used_longest_ago_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MOST_TENANTS", 3)
    for name in "abcd":
        world.call("one", tenant=name)
    assert {tenant for tenant, _ in world.report()} == {"b", "c", "d"}


def test_a_report_of_one_tenant_has_nothing_of_another(world: World) -> None:
    world.call("one", tenant="a")
    world.call("one", tenant="b", kind="secret")
    assert set(world.report("a")) == {("a", "agent")}


def test_a_report_is_limited_to_the_kinds_that_saved_most(world: World) -> None:
    for number in range(5):
        world.call("one", Usage(10, number), kind=f"{number}")
    found = world.counts.report(lambda tokens, pairs: 0.0, world.now, most=2)
    assert [it.kind for it in found.kinds] == ["4", "3"]
    assert found.num_left_out == 3


TIMES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(0, 200)), min_size=1, max_size=9
)


@given(calls=TIMES, guess=st.integers(0, 9), tokens=st.integers(0, 900))
def test_what_followed_is_what_looking_at_all_calls_finds(
    calls: list[tuple[int, int, int]], guess: int, tokens: int
) -> None:
    run = ProgramRun()
    events = [(begin, True, number) for number, (begin, _, _) in enumerate(calls)]
    events += [(begin + size + 0.5, False, number) for number, (begin, size, _) in enumerate(calls)]
    watched, hint = {}, ForkHint("", calls_left=guess, tokens_left=tokens)
    for now, is_begin, number in sorted(events):
        if is_begin:
            watched[number] = run.begin(np.zeros(1, np.int32), now)
        else:
            run.end(watched[number], hint, np.zeros(1, np.int32), 0, calls[number][2], now)
    times = [(begin, begin + size + 0.5) for begin, size, _ in calls]
    expected = Counter[tuple[str, str]]()
    for number, (begin, end) in enumerate(times):
        fewest, most = Chains(times).after(end)
        near = fewest - NEAR_CALLS <= guess <= most + NEAR_CALLS
        expected["calls_left", "right" if near else "early" if most < guess else "late"] += 1
        others = [it for it in range(len(calls)) if it != number and times[it][1] > begin]
        num = sum(calls[it][2] for it in others)
        near = abs(num - tokens) <= NEAR_TOKENS + min(num, tokens)
        expected["tokens_left", "right" if near else "early" if num < tokens else "late"] += 1
    assert run.judge() == expected


CALLS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "end", "fail", "wait"]),
        st.sampled_from(["", "a", "b"]),  # tenants
        st.sampled_from(["x", "y", "z", ""]),  # kinds
        st.integers(0, 2),  # programs
        st.integers(0, 3),  # a guess
        st.integers(0, 50),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(events=CALLS, most_kinds=st.integers(1, 3), most_watched=st.integers(2, 12))
def test_counts_add_up_whatever_happens(
    events: list[tuple[str, str, str, int, int, int]], most_kinds: int, most_watched: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "MOST_KINDS", most_kinds)
        patch.setattr(programs, "MOST_WATCHED", most_watched)
        patch.setattr(programs, "MOST_TENANTS", 3)
        world, pending, ended, failed, made = World(), [], [], 0, 0
        for kind_of_event, tenant, kind, program, number, tokens in events:
            if kind_of_event == "begin":
                hint = {"program": f"{program}", "kind": kind, "calls_left": number}
                pending.append(world.begin(LONG * (number + 1), tenant, next_use=number, **hint))
            elif kind_of_event == "wait":
                world.now += SETTLED * number
            elif pending:
                key = pending.pop(tokens % len(pending))
                if kind_of_event == "end":
                    ended.append(Usage(2 * tokens, tokens, number, tokens // 2))
                    world.end(key, ended[-1])
                    made += 2
                else:
                    world.counts.fail(key, world.now)
                    failed += 1
            found = world.report()
            total = sum(found.values(), KindUsage())
            assert total.calls == len(ended)
            assert total.failed_calls == failed
            assert total.prompt_tokens == sum(it.prompt_tokens for it in ended)
            assert total.cached_tokens == sum(it.cached_tokens for it in ended)
            assert total.root_tokens == sum(it.root_tokens for it in ended)
            assert total.completion_tokens == sum(it.completion_tokens for it in ended)
            assert total.guesses.made == made
            for it in found.values():
                assert 0 <= it.open_programs <= it.programs
                for guesses in (it.next_use, it.calls_left, it.tokens_left):
                    assert min(guesses.right, guesses.early, guesses.late, guesses.never) >= 0
                    assert guesses.judged <= guesses.made
