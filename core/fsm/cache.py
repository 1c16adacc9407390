"""Guides by tenant and constraint: each is compiled once, however many calls need it at the same
time, and its compilation is cancelled when none does any more.

A tenant gets no guide that was compiled for another: how long a first use takes does not tell
whether another tenant has used the same constraint. Knows nothing of how a guide is compiled.
Refusals are kept as guides are: a constraint that is not allowed costs its compilation once. Other
errors are not: the next call compiles it again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from itertools import islice
from typing import Protocol, TypeAlias

from ..api.protocol import (
    Choices,
    Constraint,
    ForkrootError,
    Grammar,
    InvalidCall,
    JsonSchema,
    Regex,
)
from ..common.counters import Histogram
from .guide import Guide
from .json_schema.jsontext import schema_text

Key: TypeAlias = tuple[str, ...]

MOST_BYTES = 512 << 20
MEASURED = 4  # guides whose memory is measured again with each new one, in turn: masks are added


class Task(Protocol):
    """What waits for its turn, or runs."""

    def cancel(self) -> None:
        """Take it out, or let it end early."""


class Later(Protocol):
    """Runs tasks in other threads, tenants in turn."""

    def submit(self, tenant: str, weight: float, action: Callable[[], object]) -> Task:
        """Let a task wait for its turn."""


class GuideRequest:
    """A guide that one caller waits for; it ends once, and `leave` says that the caller is gone."""

    def __init__(self, cache: GuideCache, compilation: Compilation) -> None:
        self._cache = cache
        self._compilation = compilation

    @property
    def is_done(self) -> bool:
        """Whether `result` does not wait."""
        return self._compilation.future.done()

    def when_done(self, action: Callable[[], object]) -> None:
        """Call this once the guide is there, or is not allowed: in the compiler's thread, or
        now."""
        actions = [action]  # the future stays in the cache, and an action refers to its call
        self._compilation.future.add_done_callback(lambda _: actions.pop()())

    def result(self) -> Guide:
        """The guide. Raises the error of a constraint that is not allowed."""
        future = self._compilation.future
        if isinstance(error := future.exception(), ForkrootError):
            raise _again(error)
        return future.result()

    def leave(self) -> None:
        """The caller waits no more. The last one's leaving cancels the compilation."""
        self._cache.leave(self._compilation)


class Compilation:
    """A guide in the cache, or on its way. num_waiting: callers that want it."""

    def __init__(self, key: Key, constraint: Constraint) -> None:
        self.key = key
        self.constraint = constraint
        self.future: Future[Guide] = Future()
        self.num_waiting = 0
        self.task: Task | None = None

    @property
    def num_bytes(self) -> int:
        """Memory of the guide."""
        return 0 if self.future.exception() is not None else self.future.result().num_bytes


class GuideCache:
    """The guides used last, within `max_guides` and `max_bytes`. Safe for threads.

    compile: makes a guide for a tenant; raises the typed error of a constraint that is not allowed.
    compile_here: likewise in the caller's thread, but gives None where that takes too long; `later`
      then runs `compile`. None: callers compile and wait.
    num_compiled, num_hits: totals; waiting for another's compilation counts as a hit.
    seconds: of each compilation, those that failed too.
    """

    def __init__(
        self,
        compile: Callable[[Constraint, str], Guide],
        max_guides: int = 256,
        max_bytes: int = MOST_BYTES,
        compile_here: Callable[[Constraint, str], Guide | None] | None = None,
        later: Later | None = None,
    ) -> None:
        self._compile = compile
        self._compile_here = compile_here
        self._later = later
        self._max_guides = max_guides
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        self._known: OrderedDict[Key, Compilation] = OrderedDict()
        self._sizes: dict[Key, int] = {}  # of what is compiled; measured last at the end
        self._num_bytes = 0
        self.num_compiled = 0
        self.num_hits = 0
        self.seconds = Histogram()

    def get(self, constraint: Constraint, tenant: str = "") -> Guide:
        """The guide of a constraint; waits for it. Raises the error of a constraint that is not
        allowed."""
        return self.request(constraint, tenant).result()

    def request(
        self, constraint: Constraint, tenant: str = "", weight: float = 1.0
    ) -> GuideRequest:
        """The guide of a constraint, or that it is being compiled for this tenant."""
        key = tenant, *cache_key(constraint)
        with self._lock:
            found = self._known.get(key)
            is_mine = found is None
            if found is None:
                found = self._known[key] = Compilation(key, constraint)
                self.num_compiled += 1
            else:
                self._known.move_to_end(key)
                self.num_hits += 1
            found.num_waiting += 1
        if is_mine:
            self._start(found, tenant, weight)
        return GuideRequest(self, found)

    def leave(self, compilation: Compilation) -> None:
        """A caller waits no more for this."""
        with self._lock:
            compilation.num_waiting -= 1
            if compilation.num_waiting > 0 or compilation.future.done():
                return
            self._forget(compilation)
            task, compilation.task = compilation.task, None
        if task is not None:
            task.cancel()

    def __len__(self) -> int:
        return len(self._known)

    def _start(self, compilation: Compilation, tenant: str, weight: float) -> None:
        """Compile here, or let it wait for its turn where that takes too long."""
        constraint = compilation.constraint
        if self._compile_here is None or self._later is None:
            self._fill(compilation, lambda: self._compile(constraint, tenant))
            return
        here = self._compile_here
        if self._fill(compilation, lambda: here(constraint, tenant)):
            return

        def run() -> None:
            if self._known.get(compilation.key) is compilation:  # somebody still waits
                self._fill(compilation, lambda: self._compile(constraint, tenant))
            with self._lock:
                compilation.task = None  # which refers to it

        with self._lock:
            compilation.task = self._later.submit(tenant, weight, run)

    def _fill(self, compilation: Compilation, compile: Callable[[], Guide | None]) -> bool:
        """Whether the compilation has ended, in a guide or in an error. Errors that are not of the
        constraint are given to those who wait, and not kept."""
        started = time.monotonic()
        guide: Guide | None = None
        error: BaseException | None = None
        try:
            guide = compile()
        except BaseException as raised:
            error = raised
        if guide is None and error is None:
            return False
        self.seconds.note(time.monotonic() - started)
        with self._lock:
            if error is not None and not isinstance(error, InvalidCall):
                self._forget(compilation)
        if error is not None:
            compilation.future.set_exception(error)
        elif guide is not None:
            compilation.future.set_result(guide)
        with self._lock:
            if self._known.get(compilation.key) is compilation:
                self._measure(compilation.key)
            for key in [*islice(self._sizes, MEASURED)]:
                self._measure(key)
            self._shrink()
        return True

    def _forget(self, compilation: Compilation) -> None:
        if self._known.get(compilation.key) is compilation:
            del self._known[compilation.key]
            self._num_bytes -= self._sizes.pop(compilation.key, 0)

    def _measure(self, key: Key) -> None:
        self._num_bytes -= self._sizes.pop(key, 0)
        self._sizes[key] = size = self._known[key].num_bytes
        self._num_bytes += size

    def _shrink(self) -> None:
        """Forget guides that were used longest ago, never those still being compiled: of the tenant
        whose guides take most memory, or are most."""
        while self._sizes and not (
            len(self._known) <= max(1, self._max_guides)
            and (self._num_bytes <= self._max_bytes or len(self._known) == 1)
        ):
            by_size = self._num_bytes > self._max_bytes
            held: dict[str, int] = {}
            for (tenant, *_), size in self._sizes.items():
                held[tenant] = held.get(tenant, 0) + (size if by_size else 1)
            largest = max(held, key=held.__getitem__)
            key = next(key for key in self._known if key in self._sizes and key[0] == largest)
            self._forget(self._known[key])


def cache_key(constraint: Constraint) -> Key:
    """The key of a constraint in the cache. Raises InvalidCall for a schema that is not JSON."""
    match constraint:
        case Regex(pattern=pattern):
            return "regex", pattern
        case Choices(options=options):
            return "choices", *options
        case Grammar(source=source, syntax=syntax):
            return "grammar", syntax, source
        case JsonSchema(schema=schema, separators=separators, strict=strict):
            return "json_schema", *separators, schema_text(schema), *(["strict"] * strict)
    raise InvalidCall("constraint", constraint, "a Regex, JsonSchema, Choices or Grammar")


def _again(error: ForkrootError) -> ForkrootError:
    """The same error with a traceback of its own."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update(vars(error))
    return fresh
