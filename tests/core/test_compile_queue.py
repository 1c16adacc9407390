"""Constraints wait for compilers by tenant, and only while somebody waits for them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

from forkroot.core.api.protocol import Constraint, Regex
from forkroot.core.common.fair_executor import FairExecutor
from forkroot.core.fsm.cache import GuideCache
from forkroot.core.fsm.tokens.regular import RegularGuide, regular_guide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])


class Compiler:
    """Compiles patterns in other threads, once they may go; remembers for whom it did."""

    def __init__(self, num_threads: int = 1, most_of_one: int | None = None) -> None:
        self.order: list[tuple[str, str]] = []
        self.may_go, self.has_begun = threading.Event(), threading.Semaphore(0)
        self.executor = FairExecutor(num_threads, "test-compile", most_of_one)
        self.cache = GuideCache(self.compile, compile_here=self.never, later=self.executor)

    def never(self, constraint: Constraint, tenant: str) -> None:
        return None

    def compile(self, constraint: Constraint, tenant: str) -> RegularGuide:
        assert isinstance(constraint, Regex)
        self.order.append((tenant, constraint.pattern))
        self.has_begun.release()
        assert self.may_go.wait(60)
        return regular_guide(constraint, BYTES)


def test_a_tenant_waits_for_one_compilation_of_another_at_most() -> None:
    compiler = Compiler()
    greedy = [compiler.cache.request(Regex(f"a{i}"), "greedy") for i in range(60)]
    assert compiler.has_begun.acquire(timeout=60)
    modest = compiler.cache.request(Regex("b"), "modest")
    compiler.may_go.set()
    assert modest.result().cursor().forced() == b"b"
    assert greedy[-1].result() is not None
    assert compiler.order.index(("modest", "b")) == 1
    compiler.executor.close()


def test_one_tenant_never_has_all_compilers() -> None:
    compiler = Compiler(num_threads=3, most_of_one=2)
    for index in range(10):
        compiler.cache.request(Regex(f"a{index}"), "greedy")
    for _ in range(2):
        assert compiler.has_begun.acquire(timeout=60)
    compiler.cache.request(Regex("b"), "modest")
    assert compiler.has_begun.acquire(timeout=60)  # while the others are still at work
    assert Counter(tenant for tenant, _ in compiler.order) == {"greedy": 2, "modest": 1}
    compiler.may_go.set()
    compiler.executor.close()


def test_what_nobody_waits_for_is_not_compiled_and_what_another_waits_for_is() -> None:
    compiler = Compiler()
    first = compiler.cache.request(Regex("first"), "one")
    assert compiler.has_begun.acquire(timeout=60)
    gone = [compiler.cache.request(Regex("gone"), "one") for _ in range(2)]
    wanted = [compiler.cache.request(Regex("wanted"), "one") for _ in range(2)]
    for request in (*gone, wanted[0]):
        request.leave()
    assert compiler.executor.num_waiting == 1
    compiler.may_go.set()
    assert wanted[1].result().cursor().forced() == b"wanted"
    assert first.is_done
    assert compiler.order == [("one", "first"), ("one", "wanted")]
    compiler.executor.close()


def test_a_running_compilation_that_nobody_waits_for_is_stopped() -> None:
    stopped: list[int] = []
    begun, may_end = threading.Event(), threading.Event()
    executor = FairExecutor(1, "test-stop", stop=lambda it: (stopped.append(it), may_end.set()))

    def run() -> None:
        begun.set()
        assert may_end.wait(60)

    task = executor.submit("one", 1.0, run)
    assert begun.wait(60)
    task.cancel()
    assert may_end.wait(60) and len(stopped) == 1
    executor.close()


def test_no_tenant_gets_a_guide_that_was_compiled_for_another() -> None:
    made: list[str] = []

    def compile(constraint: Constraint, tenant: str) -> RegularGuide:
        made.append(tenant)
        return regular_guide(Regex("a"), BYTES)

    cache = GuideCache(compile, max_guides=3)
    first = cache.get(Regex("a"), "one")
    assert cache.get(Regex("a"), "two") is not first
    assert cache.get(Regex("a"), "one") is first
    assert (made, cache.num_hits) == (["one", "two"], 1)
    get: Callable[[str], object] = lambda text: cache.get(Regex(text), "greedy")  # noqa: E731
    for text in "bcdef":
        get(text)
    assert cache.get(Regex("a"), "one") is first  # the greedy one's own guides were forgotten
