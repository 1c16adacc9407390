"""Forks of LangChain programs, seen before their branches call a model.

A handler that LangChain gives to every run sees a `RunnableParallel` begin, and which runs are its
branches; of LangGraph it sees the tasks that run in one step. A model call finds the fork that it
is a branch of by the ids of the runs above it, and so the outermost run, whose program it is in.
"""

from __future__ import annotations

import asyncio
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

from ...hints.courses import Course, Courses
from .batcher import CallBatcher
from .steps import Steps

PATIENCE = 0.03  # seconds: a branch may do something else before it calls, or instead
MOST_RUNS = 1 << 16  # that are remembered
_TASK = "langgraph_checkpoint_ns"  # in its metadata, and in that of all runs inside of it
_PARALLEL = re.compile(r"RunnableParallel<(.+)>")


class Site(NamedTuple):
    """Where a program calls: the course of its run, and a label that is the same in each run."""

    course: Course
    label: str


class Branch(NamedTuple):
    """A branch of a fork: the fork's batcher, and the branch's run."""

    batcher: CallBatcher
    member: UUID


def _here() -> tuple[int, int | None]:
    """The thread and the task in which this is called: runs of the same ones do not overlap."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in a thread without a loop
        task = None
    return threading.get_ident(), None if task is None else id(task)


class _Run(NamedTuple):
    """batcher: of the branches of this run. parent_batcher: the one that this run is a member of.
    task: of a graph, that it is or is inside of. started_in: the thread, and the task of asyncio.
    course: of an outermost run.
    """

    parent: UUID | None
    name: str
    started_in: tuple[int, int | None]
    task: Any = None
    batcher: CallBatcher | None = None
    parent_batcher: CallBatcher | None = None
    course: Course | None = None


class ForkWatch(BaseCallbackHandler):
    """Knows the runs that have started and not ended. Safe for threads."""

    run_inline = True
    ignore_retriever = True
    ignore_custom_event = True
    ignore_chat_model = True  # its start; its end is an LLM's

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[UUID, _Run] = OrderedDict()
        self._steps = Steps()
        self.courses = Courses()

    def site_of(self, parent: UUID | None) -> Site | None:
        """The place of a call whose run has this parent; None where no program runs."""
        with self._lock:
            labels: list[str] = []
            while parent is not None and (above := self._runs.get(parent)) is not None:
                labels.append(above.name)
                if above.course is not None:
                    return Site(above.course, "/".join(labels))
                parent = above.parent
        return None

    def branch_of(self, run: UUID, parent: UUID | None) -> Branch | None:
        """The branch of the nearest fork that a run with this parent is in; None for none."""
        with self._lock:
            while parent is not None and (above := self._runs.get(parent)) is not None:
                if above.batcher is not None:
                    return Branch(above.batcher, run)
                if above.parent_batcher is not None:
                    return Branch(above.parent_batcher, parent)
                run, parent = parent, above.parent
        return None

    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note the run, and whether it forks."""
        name, metadata = str(kwargs.get("name")), kwargs.get("metadata") or {}
        found = _PARALLEL.fullmatch(name)
        num_branches = found[1].count(",") + 1 if found else 0
        batcher = CallBatcher(num_branches, PATIENCE) if num_branches > 1 else None
        parent = kwargs.get("parent_run_id")
        course = self.courses.begin(name) if parent is None else None
        run = _Run(parent, name, _here(), metadata.get(_TASK), batcher, course=course)
        with self._lock:
            self._runs[run_id] = run._replace(parent_batcher=self._step(run_id, run, metadata))
            if len(self._runs) > MOST_RUNS:  # a stream that is not read to its end never ends
                self._runs.popitem(last=False)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Forget the run; a branch that ends calls no more."""
        with self._lock:
            ended = self._runs.pop(run_id, None)
            self._steps.leave(run_id)
        if ended is not None and ended.parent_batcher is not None:
            ended.parent_batcher.leave(run_id)
        if ended is not None and ended.course is not None:
            ended.course.end()
        self.on_llm_end(outputs, run_id=run_id, **kwargs)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """As the end."""
        self.on_chain_end(None, run_id=run_id, **kwargs)

    def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A branch that is a model itself has called, or was answered by a cache."""
        parent = kwargs.get("parent_run_id")
        above = self._runs.get(parent) if parent is not None else None
        if above is not None and above.batcher is not None:
            above.batcher.leave(run_id)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """As the end."""
        self.on_llm_end(kwargs.pop("response", None), run_id=run_id, **kwargs)

    def _step(self, run_id: UUID, run: _Run, metadata: Mapping[str, Any]) -> CallBatcher | None:
        """The batcher of the step that this run is a task of; None if it is not a task, or the only
        one, which runs in the graph's own thread. Under lock."""
        if run.parent is None or (graph := self._runs.get(run.parent)) is None:
            return None
        if run.task in (None, graph.task) or run.started_in == graph.started_in:
            return None
        is_in_loop = run.started_in[1] is not None
        return self._steps.enter(run.parent, run_id, metadata, graph.name, is_in_loop)


@cache
def watch() -> ForkWatch:
    """The one handler of this process, which every run of LangChain has from now on."""
    handler = ForkWatch()
    given: ContextVar[BaseCallbackHandler | None] = ContextVar("forkroot_forks", default=handler)
    register_configure_hook(given, inheritable=True)
    return handler
