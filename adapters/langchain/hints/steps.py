"""The steps of LangGraph's graphs: which tasks run in one, and which of these call a model.

A step's tasks begin one after another and run together, whether an edge leads to each or a `Send`
made it. How many there will be is unknown, and which of them call a model: a node is expected to,
until it has not called beside others the last two times. A wrong guess costs time only.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from uuid import UUID

from ....core.api.protocol import Call, Reply
from .batcher import CallBatcher, Submit

PATIENCE = 0.03  # seconds: a task may do something else before it calls, or instead
QUIET = 0.003  # seconds after which no more tasks of a step are expected to begin
MOST_GRAPHS = 1 << 16  # whose step is remembered
MOST_NODES = 1 << 12  # whose misses are
MOST_MISSES = 2  # on a busy machine a task may be late once

Node = tuple[str, str]  # the names of a graph and of one of its nodes


class StepBatcher(CallBatcher):
    """The batcher of one step's tasks, which join as they begin. It submits once all of them have
    arrived or left and nobody has joined for `quiet` seconds. A task that joins later, or that is
    not expected to call, neither waits for others nor is waited for.

    quiet: a single task waits for so long, too, as other threads may not have started yet. number:
    of the step in its graph.
    """

    def __init__(self, patience: float, quiet: float, number: Hashable = None) -> None:
        super().__init__(0, patience)
        self.number = number
        self._quiet = quiet
        self._has_started = False
        self._changed = time.monotonic()
        self._nodes: dict[Hashable, Node] = {}
        self._unexpected: set[Hashable] = set()
        self._called: dict[Hashable, float] = {}

    def enter(self, task: Hashable, node: Node, is_expected: bool) -> None:
        """A task of this node has started."""
        self._nodes[task] = node
        if not is_expected:
            self._unexpected.add(task)
            return
        with self._lock:
            self._expected += 1
            self._changed = time.monotonic()

    def leave(self, member: Hashable) -> None:
        """As the base class, for expected members."""
        if member not in self._unexpected:
            super().leave(member)

    def submit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """As the base class, for expected members."""
        if self._is_expected(member):
            return super().submit(member, call, submit_all)
        return CallBatcher(1, 0.0).submit(member, call, submit_all)

    async def asubmit(self, member: Hashable, call: Call, submit_all: Submit) -> Reply:
        """As `submit`, for a task."""
        if self._is_expected(member):
            return await super().asubmit(member, call, submit_all)
        return await CallBatcher(1, 0.0).asubmit(member, call, submit_all)

    def _is_expected(self, member: Hashable) -> bool:
        """Whether this member, whose call is noted, was expected to call."""
        self._called.setdefault(member, time.monotonic())
        return member not in self._unexpected

    def _arrive(
        self, member: Hashable, call: Call, submit_all: Submit
    ) -> tuple[Future[Reply], bool]:
        with self._lock:
            if self._expected == 1:
                self._changed = time.monotonic()
        return super()._arrive(member, call, submit_all)

    def _pauses(self) -> Iterator[float]:
        end = time.monotonic() + self._patience
        while not self._is_complete() and (left := end - time.monotonic()) > 0:
            yield self._quiet or left

    def _is_complete(self) -> bool:
        is_quiet = time.monotonic() - self._changed >= self._quiet
        return self._has_started or (is_quiet and super()._is_complete())

    def _start(self) -> None:
        self._has_started = True
        super()._start()

    def called(self) -> dict[Node, bool]:
        """Of each node whether it called a model while another task of the step did."""
        times, nodes = dict(self._called), dict(self._nodes)
        first = min(times.values(), default=0.0)
        concurrent = {task for task, when in times.items() if when - first <= self._patience}
        callers = {nodes[task] for task in concurrent if task in nodes and len(concurrent) > 1}
        return {node: node in callers for node in nodes.values()}


class Steps:
    """The running steps, and how often each node has missed its batch lately. Not thread-safe."""

    def __init__(self) -> None:
        self._steps: OrderedDict[UUID, StepBatcher] = OrderedDict()
        self._misses: OrderedDict[Node, int] = OrderedDict()

    def enter(
        self, graph: UUID, task: UUID, metadata: Mapping[str, Any], title: str, is_in_loop: bool
    ) -> StepBatcher:
        """The batcher that a beginning task joins. graph: the run of its graph, named `title`.
        is_in_loop: it runs in asyncio, where all tasks of a step begin at once."""
        number, step = metadata.get("langgraph_step"), self._steps.get(graph)
        if step is None or step.number != number:
            self.leave(graph)
            quiet = 0.0 if is_in_loop else QUIET
            step = self._steps[graph] = StepBatcher(PATIENCE, quiet, number)
            if len(self._steps) > MOST_GRAPHS:  # a stream that is not read to its end never ends
                self._steps.popitem(last=False)
        node = title, str(metadata.get("langgraph_node"))
        step.enter(task, node, self._misses.get(node, 0) < MOST_MISSES)
        return step

    def leave(self, graph: UUID) -> None:
        """The step of this graph has ended: what its tasks did is remembered."""
        step = self._steps.pop(graph, None)
        for node, has_called in step.called().items() if step is not None else ():
            self._misses[node] = 0 if has_called else self._misses.get(node, 0) + 1
            self._misses.move_to_end(node)
            if len(self._misses) > MOST_NODES:
                self._misses.popitem(last=False)
