"""Forks of LangChain programs, seen before their branches call a model.

A handler that LangChain gives to every run sees a `RunnableParallel` begin, and which runs are its
branches; of LangGraph it sees the tasks that were sent to run in one step (`Send`). A model call
finds the fork that it is a branch of by the ids of the runs above it.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from .gathering import Gathering, OpenGathering

PATIENCE = 0.03  # seconds: a branch may do something else before it calls, or instead
QUIET = 0.003  # seconds after which no more tasks of a step are expected to begin
MOST_RUNS = 1 << 16  # that are remembered
_SENT = "__pregel_push"  # how LangGraph begins the path of a task that a `Send` made
_PARALLEL = re.compile(r"RunnableParallel<(.+)>")


class Branch(NamedTuple):
    """A branch of a fork: the meeting of its calls, and the branch's run."""

    gathering: Gathering
    member: UUID


class _Run(NamedTuple):
    """gathering: of the branches of this run. among: the one in which it is itself a branch."""

    parent: UUID | None
    gathering: Gathering | None = None
    among: Gathering | None = None


class _Step(NamedTuple):
    """A step of a graph: its number, the tasks sent to it by their names, and their meeting."""

    number: Any
    tasks: set[str]
    gathering: OpenGathering


class ForkWatch(BaseCallbackHandler):
    """Knows the runs that have begun and not ended. Safe for threads."""

    run_inline = True
    ignore_retriever = True
    ignore_custom_event = True
    ignore_chat_model = True  # its start; its end is an LLM's

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[UUID, _Run] = OrderedDict()
        self._steps: OrderedDict[UUID, _Step] = OrderedDict()

    def branch_of(self, run: UUID, parent: UUID | None) -> Branch | None:
        """The branch of the nearest fork that a run with this parent is in; None for none."""
        with self._lock:
            while parent is not None and (above := self._runs.get(parent)) is not None:
                if above.gathering is not None:
                    return Branch(above.gathering, run)
                if above.among is not None:
                    return Branch(above.among, parent)
                run, parent = parent, above.parent
        return None

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Note the run, and whether it forks."""
        found = _PARALLEL.fullmatch(str(kwargs.get("name")))
        num_branches = found[1].count(",") + 1 if found else 0
        gathering = Gathering(num_branches, PATIENCE) if num_branches > 1 else None
        with self._lock:
            among = self._sent(parent_run_id, kwargs.get("metadata") or {})
            self._runs[run_id] = _Run(parent_run_id, gathering, among)
            for known in (self._runs, self._steps):
                if len(known) > MOST_RUNS:  # a stream that nobody read to its end never ends
                    known.popitem(last=False)

    def on_chain_end(
        self, outputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Forget the run; a branch that ends calls no more."""
        with self._lock:
            ended = self._runs.pop(run_id, None)
            self._steps.pop(run_id, None)
        if ended is not None and ended.among is not None:
            ended.among.leave(run_id)
        self._left(run_id, parent_run_id)

    def on_chain_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """As the end."""
        self.on_chain_end(None, run_id=run_id, parent_run_id=parent_run_id)

    def on_llm_end(
        self, response: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """A branch that is a model itself has called, or was answered by a cache."""
        self._left(run_id, parent_run_id)

    def on_llm_error(
        self,
        error: BaseException,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """As the end."""
        self._left(run_id, parent_run_id)

    def _sent(self, graph: UUID | None, metadata: Mapping[str, Any]) -> Gathering | None:
        """The meeting that a task joins which LangGraph was sent for this step; what runs inside of
        a task has the same metadata, and another parent."""
        path, name = metadata.get("langgraph_path"), metadata.get("langgraph_checkpoint_ns")
        if graph is None or not isinstance(name, str) or not path or path[0] != _SENT:
            return None
        if any(name in step.tasks for step in self._steps.values()):
            return None
        number, step = metadata.get("langgraph_step"), self._steps.get(graph)
        if step is None or step.number != number:
            step = self._steps[graph] = _Step(number, set(), OpenGathering(PATIENCE, QUIET))
        step.tasks.add(name)
        step.gathering.join()
        return step.gathering

    def _left(self, run: UUID, parent: UUID | None) -> None:
        above = self._runs.get(parent) if parent is not None else None
        if above is not None and above.gathering is not None:
            above.gathering.leave(run)


@cache
def watch() -> ForkWatch:
    """The one handler of this process, which every run of LangChain has from now on."""
    handler = ForkWatch()
    given: ContextVar[BaseCallbackHandler | None] = ContextVar("forkroot_forks", default=handler)
    register_configure_hook(given, inheritable=True)
    return handler
