"""What hints saved: of each root in all, and of each call, the latest last."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import NamedTuple

from ...core.api.protocol import ForkHint, Reply, Usage

MOST_ROOTS = 1024
MOST_TRACED = 1000


@dataclass(frozen=True, slots=True)
class Saving:
    """What one root saved: of the prompt tokens of so many calls, the cached ones were not computed
    again, and `root_tokens` of these are the root's own: what its hint saved."""

    root: str
    calls: int
    prompt_tokens: int
    cached_tokens: int
    root_tokens: int = 0


class Traced(NamedTuple):
    """One call that has ended well. at: the second since the epoch at which it had. is_ahead:
    whether it was a root alone, sent ahead of calls. kind: of program that called; "": not known.
    """

    at: float
    namespace: str
    root: str
    is_ahead: bool
    usage: Usage
    kind: str = ""


class Savings:
    """Counts what calls with hints used. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._roots: OrderedDict[tuple[str, str], Saving] = OrderedDict()
        self._trace: deque[Traced] = deque(maxlen=MOST_TRACED)

    @property
    def savings(self) -> tuple[Saving, ...]:
        """What each root saved, the most recently used last."""
        with self._counting:
            return tuple(self._roots.values())

    @property
    def trace(self) -> tuple[Traced, ...]:
        """What the latest calls with a hint used, and what was sent ahead."""
        with self._counting:
            return tuple(self._trace)

    def follow(self, reply: Reply, is_ahead: bool = False) -> Reply:
        """Count a call once it has ended. is_ahead: as of `Traced`; it saves nothing itself."""
        hint = reply.call.hint
        if hint is not None and hint.root:
            reply.when_done(lambda reply: self._count(reply, hint, is_ahead))
        return reply

    def report(self) -> str:
        """The savings of roots as a few lines of text."""
        found = self.savings
        total = Saving(
            f"{len(found)} roots",
            sum(it.calls for it in found),
            sum(it.prompt_tokens for it in found),
            sum(it.cached_tokens for it in found),
            sum(it.root_tokens for it in found),
        )
        return "\n".join(map(_line, (*found, total)))

    def _count(self, reply: Reply, hint: ForkHint, is_ahead: bool) -> None:
        """In the runtime's thread."""
        if reply.error() is not None:
            return
        root, kind = hint.root, hint.kind or ""
        usage, namespace = reply.result(0).usage, reply.call.namespace
        with self._counting:
            self._trace.append(Traced(time.time(), namespace, root, is_ahead, usage, kind))
            if is_ahead:
                return
            before = self._roots.pop((namespace, root), Saving(root, 0, 0, 0))
            self._roots[namespace, root] = Saving(
                root,
                before.calls + 1,
                before.prompt_tokens + usage.prompt_tokens,
                before.cached_tokens + usage.cached_tokens,
                before.root_tokens + usage.root_tokens,
            )
            if len(self._roots) > MOST_ROOTS:
                self._roots.popitem(last=False)


def _line(saving: Saving) -> str:
    share = saving.cached_tokens / saving.prompt_tokens if saving.prompt_tokens else 0.0
    return (
        f"{saving.root[:12]:12}  {saving.calls:6,} calls  "
        f"{saving.cached_tokens:9,} of {saving.prompt_tokens:9,} prompt tokens cached "
        f"({share:.0%}), {saving.root_tokens:9,} of the root"
    )
