"""The sandbox in which chat templates run: code from a checkpoint, bounded in time and memory.

It knows nothing of chats. The sandbox of jinja2 keeps a template from Python's own objects; this
one also counts what it does, and measures texts and lists before they are made.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import local
from time import thread_time
from typing import Any

from jinja2 import Environment, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.nodes import EvalContext
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_SECONDS = 5.0  # of processor time
MOST_CHARS = 64 << 20  # of a text, and of all that is written
MOST_ITEMS = 1 << 20  # of a list
MOST_NUMBER = 100_000  # that is passed to a function, as in jinja2's `range`
MOST_BITS = 8192  # of an integer
_STEPS_BETWEEN = 16  # two looks at the clock
_WIDTH = re.compile(r"[0-9]{6}|%[^%a-z]*\*|\{[^}]*\{")
_LOOP, _JOINED = "forkroot_loop", "forkroot_joined"


class Budget(local):
    """What the template in this thread has used."""

    ends_at = float("inf")
    steps = chars = 0

    def step(self, chars: int = 0) -> None:
        """Count one, and so many characters that are written. Raises SecurityError once it is too
        much."""
        self.steps, self.chars = self.steps + 1, self.chars + chars
        _check(self.chars, MOST_CHARS, "characters")
        if self.steps % _STEPS_BETWEEN == 0 and thread_time() > self.ends_at:
            raise SecurityError(f"a template takes more than {MOST_SECONDS:g} s")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Its templates run inside `running`; they raise SecurityError for what would take too much
    time or memory."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def __init__(self) -> None:
        self._budget = Budget()
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], finalize=self._written
        )
        del self.globals["lipsum"]
        self.filters = {name: self.measured(name, it) for name, it in self.filters.items()}
        self.filters |= {_LOOP: self._counted, _JOINED: self._joined}

    @contextmanager
    def running(self) -> Iterator[None]:
        """A template runs in this thread from now on."""
        budget = self._budget
        budget.ends_at, budget.chars = thread_time() + MOST_SECONDS, 0
        try:
            yield
        finally:
            budget.ends_at = float("inf")

    def measured(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter whose results are measured before they are made."""

        @functools.wraps(function)
        def run(*args: Any, **names: Any) -> Any:
            given = [it for it in args if not isinstance(it, Context | EvalContext | Environment)]
            given += names.values()
            self._budget.step()
            check_call(name, given[0], given[1:])
            return function(*args, **names)

        return run

    def call(__self, __context: Context, __obj: Any, *args: Any, **names: Any) -> Any:
        """As in jinja2, counted and measured."""
        __self._budget.step()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str | bytes | int):
            check_call(getattr(__obj, "__name__", ""), owner, [*args, *names.values()])
        return super().call(__context, __obj, *args, **names)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """As in jinja2, measured: what `call` is given then does not say which text it formats."""
        wrapped: Callable[..., str] | None = super().wrap_str_format(value)
        if wrapped is not None:
            check_call(value.__name__, value.__self__, [])
        return wrapped

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """As in jinja2, measured."""
        self._budget.step()
        check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        parsed: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        return parsed

    def _counted(self, items: Iterable[Any], chars: int) -> Iterator[Any]:
        for item in items:
            self._budget.step(chars)
            yield item

    def _joined(self, parts: list[Any]) -> str:
        texts = [str(part) for part in parts]
        _check(sum(map(len, texts)), MOST_CHARS, "characters")
        return "".join(texts)

    def _written(self, value: Any) -> Any:
        text = str(value)
        self._budget.step(len(text))
        return text


class _Counting(NodeTransformer):
    """Puts counters into the loops and joins of a parsed template."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        chars = sum(len(it.data) for it in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _LOOP, nodes.Const(chars, lineno=node.lineno))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(node: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)


def check_call(name: str, owner: Any, given: list[Any]) -> None:
    """Raise SecurityError for a method or filter of `owner` whose result would be too large."""
    for number in given:
        if isinstance(number, int):
            _check(abs(number), MOST_NUMBER, f"in an argument of {name}")
    length = len(owner) if isinstance(owner, str | bytes) else 0
    texts = [it for it in given if isinstance(it, str | bytes)]
    if name == "replace" and len(texts) == 2:
        old, new = texts
        count = str(owner).count(str(old)) if old else length + 1
        _check(length + count * len(new), MOST_CHARS, "characters")
    elif name == "join":
        parts = list(owner if texts or not given else given[0]) if name == "join" else []
        if isinstance(owner, str) and given and not texts:
            texts = [owner]
        size = sum(len(str(it)) for it in parts) + len(parts) * sum(map(len, texts))
        _check(size, MOST_CHARS, "characters")
    elif name in ("indent", "wordwrap", "tojson"):
        width = max([0, *(it for it in given if isinstance(it, int)), *map(len, texts)])
        lines = length if name == "wordwrap" else str(owner).count("\n") + 1
        _check(length + lines * width, MOST_CHARS, "characters")
    elif name in ("format", "format_map") and _WIDTH.search(str(owner)):
        raise SecurityError("a template formats with a width that is too large")


def check_operation(operator: str, left: Any, right: Any) -> None:
    """Raise SecurityError for an operation whose result would be too large."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length(), right.bit_length()
        size = bits[0] * abs(right) if operator == "**" else sum(bits)
        _check(size, MOST_BITS, "bits")
    elif operator == "%" and isinstance(left, str | bytes) and _WIDTH.search(str(left)):
        raise SecurityError("a template formats with a width that is too large")
    elif operator in ("*", "+"):
        sized = [it for it in (left, right) if isinstance(it, str | bytes | list | tuple)]
        counts = [it for it in (left, right) if isinstance(it, int)]
        size = sum(map(len, sized)) * (max(0, *counts, 0) if sized and counts else 1)
        is_text = all(isinstance(it, str | bytes) for it in sized)
        _check(size, MOST_CHARS if is_text else MOST_ITEMS, "characters" if is_text else "items")


def _check(size: int, most: int, what: str) -> None:
    if size > most:
        raise SecurityError(f"a template may not make {size} {what}; at most {most} are allowed")
