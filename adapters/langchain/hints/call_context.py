"""The context of a model call in a LangChain program: its hint, and the batch that it is part
of."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from ....core.api.protocol import Call, ForkHint, InvalidCall, Reply
from ....core.common.harmless import hint_errors
from .batcher import CallBatcher
from .forks import Site, watch

_log = logging.getLogger(__name__)
KEY = "forkroot"  # in a config's metadata
_OPTIONS = ("root", "prefix_end", "branches", "namespace", "priority")


@dataclass(frozen=True, slots=True)
class CallContext:
    """batcher: submits this call, its `member`, together with others; None: the call is alone.
    options: those that the config's metadata gives under "forkroot". site: of the call in the
    course of its program; None: it is no part of one."""

    batcher: CallBatcher | None = None
    member: Hashable = None
    options: Mapping[str, Any] | None = None
    site: Site | None = None

    @classmethod
    def of_run(cls, run_manager: Any) -> CallContext:
        """The context of a run manager's run; without one, of a call that is alone."""
        if run_manager is None:
            return cls()
        return cls.of(run_manager.run_id, run_manager.parent_run_id, run_manager.metadata)

    @classmethod
    def of_config(
        cls, config: RunnableConfig | None, metadata: Mapping[str, Any] | None
    ) -> CallContext:
        """The context of a call with this config, before it has a run manager. metadata: of the
        model."""
        config = ensure_config(config)
        callbacks = config.get("callbacks")
        parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
        return cls.of(uuid4(), parent, {**(metadata or {}), **(config.get("metadata") or {})})

    @classmethod
    def of(cls, run: UUID, parent: UUID | None, metadata: Mapping[str, Any] | None) -> CallContext:
        """The context of a run, found by its parent runs."""
        branch, site = watch().branch_of(run, parent), watch().site_of(parent)
        options = (metadata or {}).get(KEY)
        batcher, member = (None, None) if branch is None else branch
        return cls(batcher, member, options, site)

    def with_hint(self, call: Call) -> Call:
        """As `with_options`, and as `with_rest`. Raises InvalidCall."""
        return self.with_rest(self.with_options(call))

    def with_rest(self, call: Call) -> Call:
        """The call with what is expected to follow it in its program."""
        if self.site is not None:
            with hint_errors.suppress(_log, "saying what follows a call"):
                return self.site.course.hinted(call, self.site.label)
        return call

    def follow(self, reply: Reply) -> Reply:
        """Note when the call ends."""
        return reply if self.site is None else self.site.course.follow(reply)

    def with_options(self, call: Call) -> Call:
        """The call with the hint and options of the config. Raises InvalidCall."""
        options = self.options
        if options is None:
            return call
        if not isinstance(options, Mapping):
            raise InvalidCall(f"metadata.{KEY}", options, f"a dict of {', '.join(_OPTIONS)}")
        unknown = next((name for name in options if name not in _OPTIONS), None)
        if unknown is not None:
            raise InvalidCall(f"metadata.{KEY}.{unknown}", options[unknown], ", ".join(_OPTIONS))
        given = {name: options[name] for name in ("namespace", "priority") if name in options}
        hint = None
        if options.get("root") is not None:
            hint = ForkHint(options["root"], options.get("branches"), options.get("prefix_end"))
        return replace(call, hint=hint, **given)


_BATCH: ContextVar[CallBatcher | None] = ContextVar("forkroot_batch", default=None)
_CONTEXT: ContextVar[CallContext | None] = ContextVar("forkroot_call_context", default=None)


@contextmanager
def batch_of(num_calls: int, patience: float) -> Iterator[None]:
    """Calls made within, also in threads and tasks, form one batch of `num_calls`."""
    token = _BATCH.set(CallBatcher(num_calls, patience))
    try:
        yield
    finally:
        _BATCH.reset(token)


@contextmanager
def use_context(context: CallContext) -> Iterator[None]:
    """Model calls within have this context. In a batch, this is one of its members, which leaves at
    the end if it has not called. Models called by callbacks are not part of the batch."""
    batcher = _BATCH.get()
    if batcher is not None:
        context = replace(context, batcher=batcher, member=object())
    batch_token, context_token = _BATCH.set(None), _CONTEXT.set(context)
    try:
        yield
    finally:
        _CONTEXT.reset(context_token)
        _BATCH.reset(batch_token)
        if batcher is not None:
            batcher.leave(context.member)


def context_of(run_manager: Any) -> CallContext:
    """The context of the call that is being made."""
    return _CONTEXT.get() or CallContext.of_run(run_manager)
