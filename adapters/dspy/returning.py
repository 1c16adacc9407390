"""Programs that come back to what they asked: an agent's next step, another attempt.

Between two such calls a tool runs or a judge judges, and others ask meanwhile. A run is one call of
an outermost module; what its calls come back to stays pinned until it ends.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass

from ...core.protocol import Call, Chat, ForkHint, Message, Reply, Text
from ..prefix import LEAST, PINNED_FOR, Prefixes
from ..seen import common_len


@dataclass(frozen=True, slots=True)
class _Kept:
    """A prompt that is pinned, where there is room, and surely until a second of the clock. text:
    behind its root."""

    prefixes: Prefixes
    text: str
    until: float


class Run:
    """One run of a program. call_id: DSPy's name of it."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self._last: dict[tuple[str, str], str] = {}
        self._kept: dict[tuple[str, str], _Kept] = {}

    def comes_back(self, call: Call) -> bool:
        """Whether the run's call before this one, of the same root, went on behind the root as this
        one does."""
        key, text = _key(call), _rest(call)
        before = self._last.get(key, "")
        self._last[key] = text
        return common_len(before, text) >= LEAST

    def keep(self, reply: Reply, prefixes: Prefixes) -> None:
        """Pin a call's prompt until the run ends, or a later one of the same root is kept."""
        key, text, now = _key(reply.call), _rest(reply.call), time.monotonic()
        kept = self._kept.get(key)
        if kept is not None and kept.text == text and now < kept.until:
            return
        is_kept = prefixes.keep(reply, self._name(key[1]))
        self._kept[key] = _Kept(prefixes, text, now + PINNED_FOR if is_kept else now)

    def end(self) -> None:
        """Unpin all that is kept."""
        for (namespace, root), kept in self._kept.items():
            kept.prefixes.release(ForkHint(self._name(root)), namespace)
        self._kept.clear()

    def _name(self, root: str) -> str:
        return f"{root}-{self.call_id}"


_run: ContextVar[Run | None] = ContextVar("forkroot_dspy_run", default=None)


def current_run() -> Run | None:
    """The run that goes on here."""
    return _run.get()


def run_begins(call_id: str, *, is_outermost: bool) -> None:
    """A module is called; inside a run that goes on here it is part of that."""
    if is_outermost or _run.get() is None:
        _run.set(Run(call_id))


def run_ends(call_id: str) -> None:
    """A module has ended; if the run began with it, that has, too."""
    run = _run.get()
    if run is not None and run.call_id == call_id:
        _run.set(None)
        run.end()


def _key(call: Call) -> tuple[str, str]:
    assert call.hint is not None
    return call.namespace, call.hint.root


def _rest(call: Call) -> str:
    """The texts behind the root."""
    if not isinstance(call.prompt, Chat) or call.hint is None:
        return ""
    messages: tuple[Message, ...] = call.prompt.messages[call.hint.prefix_end or 0 :]
    return "".join(
        part.text for message in messages for part in message.content if isinstance(part, Text)
    )
