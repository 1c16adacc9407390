"""What the calls of compiled programs tell of the calls that follow, against what follows."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from forkroot import connect, function, gen, select
from forkroot.adapters.native.compiled import CompiledProgram
from forkroot.adapters.native.compiler.passes import outlooks
from forkroot.adapters.native.compiler.passes.names import PASSES
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Call, ForkHint, Reply, Sampling

from .clock import Clock, Timed, run_by_clock
from .programs import CASES, Case, answer, scored

pytestmark = pytest.mark.timeout(120)
BATCH = ForkHint("batch", 5)


@function
def lengths(s: Any, topic: str) -> None:
    """Branches of different lengths, which read each other, and one that is given up early."""
    s += topic + gen("plan", 9)
    long, short, idle = s.fork(3)
    short += "short" + gen("a", 4)
    long += "long" + gen("b", 30) + gen("c", 11)
    short += long["b"] + gen("d", 6)
    idle += "idle" + gen("e", 2)
    s += long["c"] + short["a"] + gen("end", 5) + select("ok", [" yes", " no"]) + gen("last", 3)


@function
def continued(s: Any, topic: str) -> None:
    """The state goes on with the text of its first branch."""
    s += topic
    group = s.fork(3)
    group += lambda index: f" part {index}"
    group += gen("part", 5)
    group.join("concate_and_append")
    s += gen("end", 4)
    later = s.fork(2)
    s += "!"
    later += gen("more", 3)
    later.join("concate_and_append")
    s += gen("last", 2)


@function
def deep(s: Any, topic: str) -> None:
    """Roots within roots: a branch that only forks, and a fork of one."""
    s += topic
    for number, branch in enumerate(s.fork(2)):
        branch += f"outer {number}"
        for inner in branch.fork(2 + number):
            inner += "in" + gen("x", 7) + gen("y", 2)
        only = branch.fork(1)[0]
        only += "only" + gen("z", 3)
    s += gen("end", 1)


NEITHER = {"backends", "speculate"}  # a call for several gens, caches of several backends
TIMED = [it for it in CASES if not NEITHER & set(it.settings) and it.program is not scored]
TIMED += [Case(program, {"topic": "tea"}) for program in (lengths, continued, deep)]
SETS = [None, tuple(it for it in PASSES if it != "ahead"), ("hints",)]


def compiled(case: Case, passes: Any = None) -> CompiledProgram:
    graph = case.program.compile(**case.fixed).graph
    return CompiledProgram(graph, passes, state_type=case.program._state_type)


def num_calls_behind(calls: list[Timed], time: float) -> int:
    """The calls of the longest row of those that begin from a time on."""

    @cache
    def longest(time: float) -> tuple[float, int]:
        found = (0.0, 0)
        for it in calls:
            if it.start >= time:
                behind = longest(it.end)
                found = max(found, (behind[0] + it.end - it.start, behind[1] + 1))
        return found

    return longest(time)[1]


def num_tokens_beside(calls: list[Timed], one: Timed) -> int:
    """What all other calls generate that have not ended when one begins."""
    return sum(it.num_tokens for it in calls if it is not one and it.end > one.start)


def steps(calls: list[Timed], time: float, text: str) -> int:
    """After how many calls, one after the other, a text is used again; 0: never."""
    users = [it.start for it in calls if it.start >= time and it.prompt.startswith(text)]
    num = int(bool(users))
    for it in sorted(calls, key=lambda it: it.end):
        if users and time <= it.start and it.end <= min(users):
            num, time = num + 1, it.end
    return num


def wrong(clock: Clock, program: CompiledProgram) -> list[str]:
    """What the hints of a run say that is not so."""
    is_straight = all(block.switch is None for block in program.plan.graph.blocks)
    found = []
    texts = Counter(it.text for it in clock.timed)
    for it in clock.timed:
        if texts[it.text] > 1:  # the same answer to the same prompt: who uses which is not known
            continue
        num_calls = num_calls_behind(clock.timed, it.end)
        num_tokens = num_tokens_beside(clock.timed, it)
        use = steps(clock.timed, it.end, it.text)
        told = it.hint.calls_left, it.hint.tokens_left, it.hint.next_use
        if is_straight and told != (num_calls, num_tokens, use):
            found.append(f"{it.prompt[-20:]!r}: {told}, not {(num_calls, num_tokens, use)}")
        if it.hint.next_use not in (None, use) or (told[1] or 0) < num_tokens:
            found.append(f"{it.prompt[-20:]!r}: {told}, not {(num_calls, num_tokens, use)}")
    for root in clock.roots:
        text, hint = prompt_text(root.prompt), root.hint
        assert hint is not None
        naming = [it for it in clock.timed if it.hint.root == hint.root]
        if hint.branches != len(naming) and (is_straight or hint.branches > len(naming)):  # type: ignore[operator]
            found.append(f"root {text[-20:]!r}: {hint.branches} calls, not {len(naming)}")
        if not all(it.prompt.startswith(text) for it in naming):
            found.append(f"root {text[-20:]!r}: a call does not begin with it")
    return found


@pytest.mark.parametrize("case", TIMED, ids=lambda case: case.name)
def test_no_hint_of_a_compiled_program_is_wrong(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"max_tokens": case.settings.get("max_tokens", 12)}
    for passes in SETS:
        program = compiled(case, passes)
        for hint in (None, BATCH):
            clock = Clock()
            run_by_clock(program, case.arguments, monkeypatch, clock, hint, **settings)
            assert wrong(clock, program) == []
            assert len({it.hint.program for it in clock.timed}) == bool(clock.timed)
            named = [it for it in clock.timed if it.hint.root == "batch"]
            assert len(named) == (hint is not None and bool(clock.timed))


def test_branches_that_wait_for_room_are_counted_when_they_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @function
    def wide(s: Any, topic: str) -> None:
        s += topic
        group = s.fork(5)
        group += lambda index: f"branch {index}"
        group += gen("a", 100)
        s += "".join(f"{branch['a']}" for branch in group) + gen("end", 10)

    program, told = wide.compile(), []
    for slots in (400, 5_000):
        clock = Clock(slots)
        run_by_clock(program, {"topic": "tea"}, monkeypatch, clock)
        assert wrong(clock, program) == []
        hints = [it.hint for it in clock.timed]
        told.append([(it.calls_left, it.tokens_left) for it in hints])
    assert told == [
        [(5, 410), (4, 310), (3, 210), (2, 110), (1, 10), (0, 0)],
        [(1, 410), (1, 410), (1, 410), (1, 410), (1, 410), (0, 0)],
    ]


def test_programs_of_very_many_ways_do_not_say_what_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outlooks, "MOST_WORK", 10)
    backend = ScriptedBackend(answer)
    lengths.compile().run(topic="tea", backend=backend)
    hints = [call.hint for call in backend.calls if call.hint]
    assert {hint.calls_left for hint in hints} == {None}
    assert {hint.next_use for hint in hints} == {None}


class Watched:
    """A backend, and the replies that it gave, by the end of their prompts."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend
        self.replies: dict[str, Reply] = {}
        self.roots: dict[str, Call] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def submit(self, call: Call) -> Reply:
        text = prompt_text(call.prompt)
        if call.sampling.max_tokens == 0:
            self.roots[text[:5]] = call
        reply: Reply = self._backend.submit(call)
        self.replies[text[-5:]] = reply
        return reply

    def cached(self, call: Call) -> int:
        """Tokens of a prompt that are cached."""
        asked = Call(call.prompt, Sampling(max_tokens=1))
        return int(self._backend.submit(asked).result().usage.cached_tokens)


def words(seed: int, num: int) -> str:
    known = ["sea", "sun", "hill", "bird", "stone", "lamp", "river", "cloud", "salt", "wind"]
    return " ".join(random.Random(seed).choices(known, k=num))


@function
def crowded(s: Any) -> None:
    """The root of `late` is older than that of `early`, and used again at the end."""
    early, late = s.fork(1)[0], s.fork(1)[0]
    late += "Late: " + words(0, 60)
    notes = late.fork(2)
    notes += lambda index: f"\nNote {index}:" + gen("note", 4, ignore_eos=True)
    early += "Early: " + notes[0]["note"] + notes[1]["note"] + words(1, 60)
    others = early.fork(2)
    others += lambda index: f"\nNote {index}:" + gen("note", 4, ignore_eos=True)
    s += "Between: " + others[0]["note"] + others[1]["note"] + words(2, 210) + "\nNote:"
    s += gen("between", 4, ignore_eos=True)
    late += s["between"] + "\nEnd:" + gen("end", 4, ignore_eos=True)
    s += late["end"]


def test_in_a_small_pool_a_root_that_is_used_again_stays_and_one_that_is_not_goes() -> None:
    compiled = crowded.compile()
    found, texts = {}, set()
    with connect("tiny", num_slots=620) as engine:
        for hints in (True, False):
            backend = Watched(engine)
            state = compiled.run(backend=backend, temperature=0, hints=hints)
            end = backend.replies["\nEnd:"].result().usage
            found[hints] = end.cached_tokens
            texts.add(state.text())
            if hints:
                late, early = backend.roots["Late:"], backend.roots["Early"]
                num_early, num_late = backend.cached(early), backend.cached(late)
            engine.clear_cache()
    assert len(texts) == 1
    assert found[True] > 120 > 60 > found[False]  # of its root, which was not computed again
    assert num_late > 120
    assert num_early < 60
