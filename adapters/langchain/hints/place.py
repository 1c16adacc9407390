"""Where in a program a model call stands: its run, its config's hint, and who calls beside it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from ....core.api.protocol import Call, ForkHint, InvalidCall
from .forks import watch
from .gathering import Gathering

KEY = "forkroot"  # in a config's metadata
_NAMES = ("root", "prefix_end", "branches", "namespace", "priority")


@dataclass(frozen=True, slots=True)
class Place:
    """gathering: of the calls that this one is submitted with, as `member`; None: alone.
    told: what the config's metadata says of the call."""

    gathering: Gathering | None = None
    member: Hashable = None
    told: Mapping[str, Any] | None = None

    @classmethod
    def of_run(cls, run_manager: Any) -> Place:
        """The place that a run manager knows."""
        return cls.of(run_manager.run_id, run_manager.parent_run_id, run_manager.metadata)

    @classmethod
    def of_config(cls, config: RunnableConfig | None, metadata: Mapping[str, Any] | None) -> Place:
        """The place of a call with this config, where there is no run manager yet. metadata: the
        model's own."""
        config = ensure_config(config)
        above = config.get("callbacks")
        parent = above.parent_run_id if isinstance(above, BaseCallbackManager) else None
        return cls.of(uuid4(), parent, {**(metadata or {}), **(config.get("metadata") or {})})

    @classmethod
    def of(cls, run: UUID, parent: UUID | None, metadata: Mapping[str, Any] | None) -> Place:
        """The place of a run, by the runs above it."""
        branch = watch().branch_of(run, parent)
        told = (metadata or {}).get(KEY)
        return cls(told=told) if branch is None else cls(*branch, told)

    def hinted(self, call: Call) -> Call:
        """The call with what the config says of it. Raises InvalidCall."""
        told = self.told
        if told is None:
            return call
        if not isinstance(told, Mapping):
            raise InvalidCall(f"metadata.{KEY}", told, f"a dict of {', '.join(_NAMES)}")
        unknown = next((name for name in told if name not in _NAMES), None)
        if unknown is not None:
            raise InvalidCall(f"metadata.{KEY}.{unknown}", told[unknown], ", ".join(_NAMES))
        given = {name: told[name] for name in ("namespace", "priority") if name in told}
        hint = None
        if told.get("root") is not None:
            hint = ForkHint(told["root"], told.get("branches"), told.get("prefix_end"))
        return replace(call, hint=hint, **given)


_BATCH: ContextVar[Gathering | None] = ContextVar("forkroot_batch", default=None)
_HERE: ContextVar[Place | None] = ContextVar("forkroot_place", default=None)


@contextmanager
def batch_of(num_calls: int, patience: float) -> Iterator[None]:
    """What is called within, in threads and tasks too, is one batch of so many calls."""
    token = _BATCH.set(Gathering(num_calls, patience))
    try:
        yield
    finally:
        _BATCH.reset(token)


@contextmanager
def standing_at(place: Place) -> Iterator[None]:
    """What is called within stands there; in a batch it is one call of it, which arrives, or leaves
    at the end. A model that is called meanwhile, by a callback, is not of the batch."""
    gathering = _BATCH.get()
    if gathering is not None:
        place = replace(place, gathering=gathering, member=object())
    batch, here = _BATCH.set(None), _HERE.set(place)
    try:
        yield
    finally:
        _HERE.reset(here)
        _BATCH.reset(batch)
        if gathering is not None:
            gathering.leave(place.member)


def place_of(run_manager: Any) -> Place:
    """Where the call stands that is being made."""
    here = _HERE.get()
    if here is not None:
        return here
    return Place() if run_manager is None else Place.of_run(run_manager)
