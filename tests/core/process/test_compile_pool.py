"""Constraints compiled in a child process: the same automata, the same refusals, and its death."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from forkroot.core.api.owner import Owner
from forkroot.core.api.protocol import (
    SPACED,
    BackendClosed,
    Choices,
    Constraint,
    Grammar,
    InvalidCall,
    JsonSchema,
    Overloaded,
    Regex,
)
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.grammar.explore import Known
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.grammar.rules import schema_grammar
from forkroot.core.fsm.json_schema.schema import schema_pattern
from forkroot.core.fsm.plan import Unrepeated, plan_of
from forkroot.core.fsm.regex.errors import NotRegular
from forkroot.core.fsm.regex.regex import compile_regex, from_choices
from forkroot.core.fsm.tokens.finish import ShortestFinish
from forkroot.core.fsm.tokens.regular import Compiled, automaton
from forkroot.core.fsm.tokens.vocabulary import Vocabulary
from forkroot.core.process import compile_pool
from forkroot.core.process.compile_pool import CompilePool
from forkroot.core.process.ipc import Child
from forkroot.core.process.liveness import descendants

TOKENS = [*(bytes([byte]) for byte in range(256)), b"", b"ab", "☃☃".encode()]
VOCABULARY = Vocabulary(TOKENS, [256])
PATTERNS = ["a", r"\d{3}é+", r"(a|b)*a(a|b){4}", "[^x]*☃", "(?i)straße"]


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilePool]:
    made = CompilePool(TOKENS, [256])
    yield made
    made.close()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_automata_are_those_of_this_process(pool: CompilePool, pattern: str) -> None:
    (in_pool, num_tokens), here = pool.compiled(Regex(pattern), "regex"), compile_regex(pattern)
    assert num_tokens is not None
    assert np.array_equal(num_tokens, ShortestFinish(here, VOCABULARY).num_tokens)
    assert np.array_equal(in_pool.table, here.table)
    assert np.array_equal(in_pool.accepting, here.accepting)
    assert in_pool.start == here.start
    assert np.array_equal(in_pool.partition.starts, here.partition.starts)
    assert np.array_equal(in_pool.partition.kinds, here.partition.kinds)


def test_lists_of_texts_and_schemas(pool: CompilePool) -> None:
    options = ("one", "two", "☃")
    in_pool, here = pool.compiled(Choices(options), "choices").dfa, from_choices(options)
    assert np.array_equal(in_pool.table, here.table)
    schema = {"type": "array", "items": {"enum": [1, "é"]}, "maxItems": 3}
    planned, expected = pool.plan(JsonSchema(schema)), compile_regex(schema_pattern(schema))
    assert isinstance(planned, Compiled) and np.array_equal(planned.dfa.table, expected.table)
    spaced = pool.plan(JsonSchema({"type": "array", "items": {"const": 1}}, SPACED))
    assert isinstance(spaced, Compiled) and spaced.dfa.matches("[1, 1]")


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"type": "array", "items": {"$ref": "#"}}),
        JsonSchema({"type": "array", "items": {"$ref": "#"}}, SPACED),
        Grammar('start: "(" start ")" | /[a-z]+/'),
        Grammar('root ::= "[" root "]" | "end"', "gbnf"),
    ],
)
def test_what_is_known_of_a_grammar_is_what_this_process_finds(
    pool: CompilePool, constraint: JsonSchema | Grammar
) -> None:
    known = pool.plan(constraint)
    assert isinstance(known, Known) and known.end is not None
    assert known == plan_of(constraint, lambda: Library(VOCABULARY))


def test_refusals_are_those_of_this_process(pool: CompilePool) -> None:
    with pytest.raises(InvalidCall) as caught:
        pool.compiled(Regex("(a)?(?(1)b|c)"), "json_schema")
    with pytest.raises(InvalidCall) as expected:
        compile_regex("(a)?(?(1)b|c)", field="json_schema")
    assert str(caught.value) == str(expected.value)
    endless = {"anyOf": [{"$ref": "#"}, {"type": "integer"}]}
    with pytest.raises(NotRegular) as unsupported:
        pool.plan(JsonSchema(endless))
    with pytest.raises(NotRegular) as here:
        schema_grammar(endless)
    assert str(unsupported.value) == str(here.value)


def test_nothing_runs_before_it_is_needed_and_another_takes_the_place_of_a_dead_one() -> None:
    pool = CompilePool(TOKENS, [256])
    assert not pool.is_running
    before = set(descendants(os.getpid()))
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    (child,) = set(descendants(os.getpid())) - before
    assert pool.is_running
    os.kill(child, signal.SIGSTOP)
    threading.Timer(0.2, os.kill, (child, signal.SIGKILL)).start()
    assert pool.compiled(Regex("b"), "regex").dfa.matches("b")
    pool.close()
    with pytest.raises(BackendClosed):
        pool.compiled(Regex("d"), "regex")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_child_that_cannot_compile_now_is_no_verdict_about_a_constraint(
    how: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each child is killed or stopped at once; the second call of the same constraint compiles.
    Where one gets no processor time, the next has more priority."""
    started: list[Child] = []
    found: list[str] = []

    def spawn(module: str, niceness: str) -> Child:
        found.append(niceness)
        started.append(compile_pool_spawn(module, niceness))
        started[-1].process.send_signal(how)
        return started[-1]

    compile_pool_spawn = compile_pool.spawn
    pool = CompilePool(TOKENS, [256])
    constraints = Constraints(TOKENS, [256], lambda text: list(text.encode()), pool)
    constraint = Choices(("b" * 60_000, "c"))  # too large for this process
    with monkeypatch.context() as faulty:
        faulty.setattr(compile_pool, "spawn", spawn)
        faulty.setattr(compile_pool, "SECONDS_SILENT", 0.1)
        faulty.setattr(compile_pool, "CHECK_INTERVAL", 0.05)
        with pytest.raises(Overloaded, match="the process that compiles constraints"):
            constraints.guide(constraint)
    assert [child.process.poll() for child in started] == [-signal.SIGKILL] * 3
    if how == signal.SIGSTOP:
        assert found == ["10", "0", "0"]
    assert constraints.guide(constraint).cursor(b"c").is_accepting
    pool.close()


def test_what_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_pool, "SECONDS", 0.01)
    pool = CompilePool(TOKENS, [256])
    with pytest.raises(InvalidCall, match="compiles in"):
        pool.compiled(Regex("(a|b)*a(a|b){10}"), "regex")
    monkeypatch.setattr(compile_pool, "SECONDS", 10.0)
    assert pool.compiled(Regex("c"), "regex").dfa.matches("c")
    pool.close()


def test_a_slow_compilation_is_logged_once_and_its_time_is_that_of_the_processor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that is stopped takes no processor time: the limit on the whole time ends it, and
    says nothing about the constraint."""
    others = set(descendants(os.getpid()))
    pool = CompilePool(TOKENS, [256])
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    (child,) = set(descendants(os.getpid())) - others
    os.kill(child, signal.SIGSTOP)
    monkeypatch.setattr(compile_pool, "SECONDS", 0.05)
    monkeypatch.setattr(compile_pool, "SECONDS_BEFORE_LOG", 0.1)
    monkeypatch.setattr(compile_pool, "SECONDS_IN_ALL", 0.6)
    monkeypatch.setattr(compile_pool, "SECONDS_SILENT", 60.0)
    with caplog.at_level("INFO", "forkroot.constraints"):
        started = time.monotonic()
        with pytest.raises(Overloaded, match="processor time"):
            pool.plan(JsonSchema({"type": "array", "items": {"type": "null"}}))
    assert time.monotonic() - started >= 0.6
    assert caplog.messages == ["compiling a JSON schema (2 objects)"]
    pool.close()


@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_child_that_others_starve_is_raised_or_replaced_by_one_with_more_priority(
    is_allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    others, own = set(descendants(os.getpid())), os.getpriority(os.PRIO_PROCESS, 0)
    pool = CompilePool(TOKENS, [256])
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    (first,) = set(descendants(os.getpid())) - others
    os.kill(first, signal.SIGSTOP)
    set_priority, raised = os.setpriority, list[int]()

    def limited(which: int, pid: int, niceness: int) -> None:
        """As the kernel for root, or for others."""
        if not is_allowed:
            raise PermissionError
        raised.append(pid)
        with suppress(PermissionError):
            set_priority(which, pid, niceness)
        os.kill(pid, signal.SIGCONT)

    monkeypatch.setattr(os, "setpriority", limited)
    monkeypatch.setattr(compile_pool, "SECONDS_STARVED", 0.1)
    monkeypatch.setattr(compile_pool, "CHECK_INTERVAL", 0.05)
    monkeypatch.setattr(compile_pool, "SECONDS_SILENT", 60.0)
    assert pool.compiled(Regex("b"), "regex").dfa.matches("b")
    (last,) = set(descendants(os.getpid())) - others
    assert (last == first) == is_allowed
    assert raised == [first] * is_allowed
    if not is_allowed:
        assert os.getpriority(os.PRIO_PROCESS, last) == own
    pool.close()


def compile_in_thread(pool: CompilePool, pattern: str) -> tuple[threading.Thread, list[Any]]:
    """A thread that compiles a pattern, and a list that gets the result."""
    got: list[Any] = []

    def compile_one() -> None:
        try:
            got.append(pool.compiled(Regex(pattern), "regex").dfa)
        except BackendClosed as error:
            got.append(error)

    thread = threading.Thread(target=compile_one)
    thread.start()
    return thread, got


def hold(
    pool: CompilePool, others: set[int], pattern: str
) -> tuple[int, threading.Thread, list[Any]]:
    """Stop the one child that is not among `others`, and send it a pattern: its process id, the
    thread that waits, and the list that gets the result."""
    (child,) = set(descendants(os.getpid())) - others
    os.kill(child, signal.SIGSTOP)
    thread, got = compile_in_thread(pool, pattern)
    wait_until(lambda: pool.is_busy)
    return child, thread, got


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until it holds; fail where it does not for a long time."""
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_where_one_child_is_held_up_another_serves_and_goes_when_it_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_pool, "SECONDS_TO_WAIT", 0.1)
    monkeypatch.setattr(compile_pool, "SECONDS_IDLE", 0.1)
    monkeypatch.setattr(compile_pool, "SECONDS_SILENT", 60.0)
    others = set(descendants(os.getpid()))
    pool = CompilePool(TOKENS, [256])
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    first, waiting, got = hold(pool, others, "b")
    assert pool.compiled(Regex("c"), "regex").dfa.matches("c")
    assert not got
    wait_until(lambda: set(descendants(os.getpid())) == others | {first})
    assert pool.compiled(Regex("d"), "regex").dfa.matches("d")
    os.kill(first, signal.SIGCONT)
    waiting.join(60)
    assert got[0].matches("b")
    wait_until(lambda: len(set(descendants(os.getpid())) - others) == 1)
    assert pool.compiled(Regex("e"), "regex").dfa.matches("e")
    pool.close()
    assert set(descendants(os.getpid())) == others


def test_there_are_never_more_children_than_two_and_closing_ends_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compile_pool, "SECONDS_TO_WAIT", 0.0)
    monkeypatch.setattr(compile_pool, "SECONDS_SILENT", 60.0)
    others = set(descendants(os.getpid()))
    pool = CompilePool(TOKENS, [256])
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    first, *held = hold(pool, others, "b")
    assert pool.compiled(Regex("c"), "regex").dfa.matches("c")
    second, *held_too = hold(pool, others | {first}, "d")
    waiting, got = compile_in_thread(pool, "e")
    waiting.join(0.3)
    assert waiting.is_alive()
    assert set(descendants(os.getpid())) == others | {first, second}
    pool.close()
    for thread, answers in (held, held_too, (waiting, got)):
        thread.join(60)
        assert isinstance(answers[0], BackendClosed)
    assert set(descendants(os.getpid())) == others


def test_a_fork_does_not_stop_it(pool: CompilePool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool.compiled(Regex("a"), "regex").dfa.matches("a")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(Owner, "is_here", False)
        pool.close()
    assert pool.compiled(Regex("b"), "regex").dfa.matches("b")


class InProcess:
    """A pool in this process; records its requests."""

    is_running, is_busy = False, False

    def __init__(self) -> None:
        self.requests: list[Constraint] = []

    def compiled(
        self, constraint: Regex | Choices, field: str | None = None, tenant: str = ""
    ) -> Compiled:
        self.requests.append(constraint)
        return Compiled(automaton(constraint, field))

    def plan(
        self, constraint: JsonSchema | Grammar, tenant: str = ""
    ) -> Compiled | Known | Unrepeated:
        self.requests.append(constraint)
        return plan_of(constraint, lambda: Library(VOCABULARY))


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (Regex("a" * 16_000), b"a" * 16_000),
        (Choices(("b" * 30_000, "b" * 30_001)), b"b" * 30_000),
        (JsonSchema({"const": "c" * 12_000}), b'"' + b"c" * 12_000 + b'"'),
        (Grammar(f'start: "{"d" * 12_000}"'), b"d" * 12_000),
    ],
    ids=["a pattern", "texts", "a schema", "a grammar"],
)
def test_what_takes_long_to_read_is_not_read_here(constraint: Constraint, text: bytes) -> None:
    pool = InProcess()
    made = Constraints(TOKENS, [256], lambda written: list(written.encode()), pool)
    assert made.guide(constraint).cursor(text).is_accepting
    assert pool.requests == [constraint]


def test_workers_leave_the_processor_to_the_engine_where_both_want_it(pool: CompilePool) -> None:
    pool.compiled(Regex("a+"), "regex")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    found = [os.getpriority(os.PRIO_PROCESS, pid) for pid in descendants(os.getpid())]
    assert min(19, own + 10) in found
