"""Guides by constraint: each is compiled once, however many calls need it at the same time.

Knows nothing of how a guide is compiled. Refusals are kept as guides are: a constraint that is not
allowed costs its compilation once. Other errors are not: the next call compiles it again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

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


class GuideCache:
    """The guides used last, within `max_guides` and `max_bytes`. Safe for threads.

    compile: makes a guide; raises the typed error of a constraint that is not allowed.
    num_compiled, num_hits: totals; waiting for another's compilation counts as a hit.
    seconds: of each compilation, those that failed too.
    """

    def __init__(
        self,
        compile: Callable[[Constraint], Guide],
        max_guides: int = 256,
        max_bytes: int = 512_000_000,
    ) -> None:
        self._compile = compile
        self._max_guides = max_guides
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._known: OrderedDict[Key, Future[Guide]] = OrderedDict()
        self.num_compiled = 0
        self.num_hits = 0
        self.seconds = Histogram()

    def get(self, constraint: Constraint) -> Guide:
        """The guide of a constraint, compiled in this thread unless another compiles it.

        Raises the error of a constraint that is not allowed.
        """
        key = cache_key(constraint)
        with self._lock:
            future = self._known.get(key)
            is_mine = future is None
            if future is None:
                future = self._known[key] = Future()
                self.num_compiled += 1
            else:
                self._known.move_to_end(key)
                self.num_hits += 1
        if is_mine:
            self._fill(key, constraint, future)
        if isinstance(error := future.exception(), ForkrootError):
            raise _again(error)
        return future.result()

    def __len__(self) -> int:
        return len(self._known)

    def _fill(self, key: Key, constraint: Constraint, future: Future[Guide]) -> None:
        try:
            future.set_result(self._timed(constraint))
        except InvalidCall as error:  # a verdict about the constraint; other errors pass
            future.set_exception(error)
        except BaseException as error:
            with self._lock:
                self._known.pop(key, None)
            future.set_exception(error)
        with self._lock:
            self._shrink()

    def _timed(self, constraint: Constraint) -> Guide:
        start = time.monotonic()
        try:
            return self._compile(constraint)
        finally:
            self.seconds.note(time.monotonic() - start)

    def _shrink(self) -> None:
        """Forget guides that were used longest ago, never those still being compiled."""
        sizes = {key: _num_bytes(future) for key, future in self._known.items() if future.done()}
        total, count = sum(sizes.values()), len(self._known)
        for key, size in sizes.items():
            if count <= max(1, self._max_guides) and (total <= self._max_bytes or count == 1):
                break
            del self._known[key]
            total, count = total - size, count - 1


def cache_key(constraint: Constraint) -> Key:
    """The key of a constraint in the cache. Raises InvalidCall for a schema that is not JSON."""
    match constraint:
        case Regex(pattern):
            return "regex", pattern
        case Choices(options):
            return "choices", *options
        case Grammar(source, syntax):
            return "grammar", syntax, source
        case JsonSchema(schema, separators, strict):
            return "json_schema", *separators, schema_text(schema), *(["strict"] * strict)
    raise InvalidCall("constraint", constraint, "a Regex, JsonSchema, Choices or Grammar")


def _again(error: ForkrootError) -> ForkrootError:
    """The same error with a traceback of its own."""
    fresh = type(error).__new__(type(error), *error.args)
    fresh.__dict__.update(vars(error))
    return fresh


def _num_bytes(future: Future[Guide]) -> int:
    return 0 if future.exception() is not None else future.result().num_bytes
