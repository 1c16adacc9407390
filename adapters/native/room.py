"""How much of a compiled program fits a backend's KV memory: programs and branches at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any
from weakref import WeakKeyDictionary

from ...core.api.protocol import Backend, Call, ForkrootError, Prompt, Sampling, Text
from .compiler.explain import Explanation, explained
from .compiler.graph.graph import Graph
from .compiler.graph.nodes import Argument, ConstantText
from .compiler.passes.memory import Memory, Peak, estimated
from .compiler.passes.prefixes import constant_prefix, text_of
from .compiler.plan import Plan, prompt_of


class Room:
    """The KV memory that runs of a graph need, and what backends have. Thread-safe."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._prefix = estimated(text_of(constant_prefix(graph)))
        self._least = Memory(graph).peak(self._prefix)
        self._uses = Counter(node.name for node in graph.nodes if isinstance(node, Argument))
        self._capacities = WeakKeyDictionary[Backend, int | None]()
        self._lock = threading.Lock()

    def explained(self, plan: Plan, backend: Backend | None) -> Explanation:
        """What the passes are worth. backend: counts tokens and says what room it has."""
        prefix = constant_prefix(self._graph)
        if backend is None:
            return explained(plan, self._least, self._prefix, None)
        tokens = _counted(backend, prompt_of(prefix)) if prefix else 0
        texts = "".join(it.text for it in self._graph.nodes if isinstance(it, ConstantText))
        counted = _counted(backend, (Text(texts),)) if texts else None
        if tokens is None or (texts and counted is None):
            return explained(plan, self._least, self._prefix, None)
        share = (counted or 0) / max(1, len(texts))
        memory = Memory(self._graph, count=lambda text: ceil(len(text) * share))
        return explained(plan, memory.peak(tokens), tokens, self._capacity(backend))

    def most(self, backend: Backend, arguments: Mapping[str, Any]) -> Mapping[int, int]:
        """For each fork whose branches do not fit, how many may run together."""
        capacity = self._capacity(backend)
        if capacity is None or self._bound([arguments]) <= capacity:
            return {}
        return self._peak([arguments], capacity).most

    def num_programs(self, backend: Backend, items: Sequence[Mapping[str, Any]]) -> int | None:
        """How many runs fit at once; None: nobody knows."""
        capacity = self._capacity(backend)
        if capacity is None or not items:
            return None
        return self._peak(items, capacity).num_programs(capacity)

    def _bound(self, items: Iterable[Mapping[str, Any]]) -> int:
        """At least the tokens of a run."""
        own = (
            sum(num * _tokens(item.get(name)) for name, num in self._uses.items()) for item in items
        )
        return self._least.shared + self._least.own + max(own, default=0)

    def _peak(self, items: Iterable[Mapping[str, Any]], capacity: int) -> Peak:
        tokens = {name: max(_tokens(item.get(name)) for item in items) for name in self._uses}
        return Memory(self._graph, tokens).peak(self._prefix, capacity)

    def _capacity(self, backend: Backend) -> int | None:
        """The slots of a backend, which is asked once."""
        with self._lock:
            if backend not in self._capacities:
                self._capacities[backend] = _slots(backend)
            return self._capacities[backend]


def _slots(backend: Backend) -> int | None:
    try:
        found = backend.info().load.get("slots")
    except ForkrootError:
        return None
    return None if found is None else int(found)


def _counted(backend: Backend, prompt: Prompt) -> int | None:
    """The tokens of a prompt, by a call that generates nothing; None: the backend has none."""
    if "hints" not in backend.info().features:
        return None
    return backend.submit(Call(prompt, Sampling(max_tokens=0))).result().usage.prompt_tokens


def _tokens(value: Any) -> int:
    return estimated(value) if isinstance(value, str) else 0
