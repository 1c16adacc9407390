"""The operations of a plan, with the hints and priorities that are exact for a run's settings."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .lowering import Advice, Lowered, lowered
from .passes.lengths import DEFAULT_TOKENS, calling_branches, lengths_of
from .passes.outlooks import Outlooks, outlooks_of
from .passes.timeline import Timing
from .plan import Plan

_MOST_KEPT = 8


class Variants:
    """Makes the operations of a plan and keeps the latest ones. Thread-safe."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._kept: OrderedDict[Timing | None, Lowered] = OrderedDict()
        self._lock = threading.Lock()

    def plain(self) -> Lowered:
        """For runs that speculate: texts are not merged, and which calls are made is not known."""
        return self._of(None)

    def program(self, sampling: Mapping[str, Any], most: Mapping[int, int]) -> Lowered:
        """For runs with these fields of `Sampling`. most: of forks, how many branches run
        together."""
        limit = sampling.get("max_tokens", DEFAULT_TOKENS)
        default = DEFAULT_TOKENS if limit is None else int(limit)
        return self._of(Timing(default, self._plan.is_ahead, tuple(sorted(most.items()))))

    def _of(self, timing: Timing | None) -> Lowered:
        with self._lock:
            if timing not in self._kept:
                self._kept[timing] = self._made(timing)
            self._kept.move_to_end(timing)
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
            return self._kept[timing]

    def _made(self, timing: Timing | None) -> Lowered:
        graph = self._plan.live if timing is None else self._plan.graph
        passes, known = self._plan.passes, timing or Timing()
        has_hints = "hints" in passes
        advice = Advice(
            lengths_of(graph, known.default, known.is_ahead).urgencies()
            if "priority" in passes
            else {},
            outlooks_of(graph, known) if has_hints and timing is not None else Outlooks(),
            calling_branches(graph) if has_hints else {},
            dict(known.most),
        )
        return lowered(graph, advice)
