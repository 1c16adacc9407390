"""Prefixes that a client plants and pins before it forks (paper, section 3).

`POST /v1/prefixes` computes a prompt and keeps it in the cache under a root's name, which later
requests may bear as their hint; `DELETE` gives it back. A pin is a hint: the runtime releases it by
itself when its branches are counted down, when it needs the room, or when nobody has used it for
the runtime's `root_timeout`, unless a time to keep it was given (`ttl`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import uuid
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from ....core.api.protocol import (
    Call,
    Completion,
    ForkHint,
    ForkrootError,
    InvalidCall,
    Prompt,
    Sampling,
    Text,
    Tokens,
)
from ..openai.messages import chat_of
from ..openai.toolformat import format_of
from ..requests.reading import check_model
from ..server.concurrent_calls import gather_completions, submit_in_thread
from ..server.errors import Fault, Refused
from ..server.keys import within
from ..server.runtime import Runtime
from ..wire.hints import hint_of
from ..wire.wire import Body, ChatMessage, Tool
from .calls import owner_of

MOST_KNOWN = 4096
LONGEST = 86400.0
KEEP = 3.0  # seconds after which a prefix that is kept is planted again, for nothing if it is there
PLANT = Sampling(max_tokens=0)


class PrefixBody(Body):
    """A prompt (text or token ids) or messages, and what the client knows of its forks.

    root: the name that hints will bear; null: the id of the prefix. branches: after so many calls
    it is released. ttl: seconds after which it is released at the latest; without branches it is
    kept until then, used or not.
    """

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    prompt: str | list[int] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[Tool] | None = None
    root: str | None = None
    branches: int | None = Field(None, ge=1)
    ttl: float | None = Field(None, gt=0, le=LONGEST)
    cache_salt: str | None = None


class PrefixReply(BaseModel):
    """A planted prefix."""

    id: str
    object: str = "prefix"
    root: str
    prompt_tokens: int
    cached_tokens: int


class ReleasedReply(BaseModel):
    """A prefix that is no longer pinned."""

    id: str
    object: str = "prefix"
    deleted: bool = True


@dataclass(frozen=True, slots=True)
class Pinned:
    """A prefix that was planted. owner: the namespace of who planted it; first: its first token."""

    owner: str
    salt: str
    root: str
    first: int


@dataclass(frozen=True, slots=True)
class TimedPrefix:
    """A prefix that is kept for a time. planting: the call that plants it."""

    name: str
    owner: str
    planting: Call
    ttl: float

    def as_owner(self, call: Call) -> Call:
        """A call in the owner's namespace, for use outside a request."""
        space = self.owner
        return replace(call, namespace=within(space, call.namespace))


class Known:
    """The prefixes that can be released by their ids; of too many the oldest are forgotten, and
    left to the runtime's time-out."""

    def __init__(self) -> None:
        self._pinned: dict[str, Pinned] = {}

    def add(self, name: str, pinned: Pinned) -> None:
        """A prefix that was planted; one that bore the same root's name is replaced by it."""
        same = (pinned.owner, pinned.salt, pinned.root)
        for key, had in list(self._pinned.items()):
            if (had.owner, had.salt, had.root) == same:
                del self._pinned[key]
        self._pinned[name] = pinned
        if len(self._pinned) > MOST_KNOWN:
            del self._pinned[next(iter(self._pinned))]

    def has(self, name: str) -> bool:
        """Whether this prefix is known."""
        return name in self._pinned

    def take(self, name: str, owner: str) -> Pinned | None:
        """Forget a prefix of this owner; None where there is none."""
        found = self._pinned.get(name)
        if found is None or found.owner != owner:
            return None
        return self._pinned.pop(name)


def routes(runtime: Runtime) -> APIRouter:
    """The routes of prefixes, and those of calls, which may bear their hints."""
    router = APIRouter(tags=["prefixes"])
    known = Known()
    timers: set[asyncio.Task[None]] = set()

    @router.post("/v1/prefixes")
    async def plant(body: PrefixBody, request: Request) -> PrefixReply:
        check_model(runtime, body.model)
        name = f"prefix-{uuid.uuid4().hex}"
        hint = hint_of({"root": name if body.root is None else body.root})
        assert hint is not None
        call, first = await asyncio.to_thread(_planting, runtime, body, hint.root)
        found = await _done(runtime, call)
        owner = owner_of(request)
        known.add(name, Pinned(owner, call.namespace, hint.root, first))
        if body.ttl is not None:
            timed = TimedPrefix(name, owner, call, body.ttl)
            waiting = _keep(runtime, known, timed)  # beyond this request, thus not in its context
            task = asyncio.create_task(waiting, context=contextvars.Context())
            timers.add(task)
            task.add_done_callback(timers.discard)
        usage = found.usage
        return PrefixReply(
            id=name,
            root=hint.root,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
        )

    @router.delete("/v1/prefixes/{name}")
    async def release(name: str, request: Request) -> ReleasedReply:
        pinned = known.take(name, owner_of(request))
        if pinned is None:
            message = f"no prefix has the id {name!r:.100}"
            raise Refused(message, Fault(404, "invalid_request_error", "prefix_not_found", "id"))
        await _done(runtime, _releasing(pinned))
        return ReleasedReply(id=name)

    return router


def _planting(runtime: Runtime, body: PrefixBody, root: str) -> tuple[Call, int]:
    """The call that plants a prefix, and the prefix's first token."""
    ids = runtime.texts.encode_prompt(_prompt(runtime, body))
    if not ids:
        raise InvalidCall("prompt", body.prompt, "at least one token")
    hint = ForkHint(root, body.branches)
    call = Call((Tokens(tuple(ids)),), PLANT, hint=hint, namespace=body.cache_salt or "")
    return call, ids[0]


def _releasing(pinned: Pinned) -> Call:
    """A planting call for no branches: a new pin under the same name ends the old one, and one for
    no branches is not a pin. It computes nothing, as its one token is in the cache."""
    hint = ForkHint(pinned.root, branches=0)
    return Call((Tokens((pinned.first,)),), PLANT, hint=hint, namespace=pinned.salt)


def _prompt(runtime: Runtime, body: PrefixBody) -> Prompt:
    if (body.prompt is None) is (body.messages is None):
        raise InvalidCall("prompt", None, "either prompt or messages")
    if body.messages is not None:
        form = format_of(runtime.texts)
        return chat_of(body.messages, body.tools or [], form)
    if isinstance(body.prompt, str):
        return (Text(body.prompt),) if body.prompt else ()
    return (Tokens(tuple(body.prompt or ())),)


async def _done(runtime: Runtime, call: Call) -> Completion:
    return (
        await gather_completions(await submit_in_thread(lambda: [runtime.backend.submit(call)]))
    )[0]


async def _keep(runtime: Runtime, known: Known, timed: TimedPrefix) -> None:
    """Keep a prefix for its time, then release it; nothing once it is released otherwise."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + timed.ttl
    while (left := ends_at - loop.time()) > 0:
        await asyncio.sleep(min(left, KEEP))
        if not known.has(timed.name):
            return
        if left > KEEP and timed.planting.hint is not None and timed.planting.hint.branches is None:
            await _try(runtime, timed.as_owner(timed.planting))
    pinned = known.take(timed.name, timed.owner)
    if pinned is not None:
        await _try(runtime, timed.as_owner(_releasing(pinned)))


async def _try(runtime: Runtime, call: Call) -> None:
    with contextlib.suppress(ForkrootError):  # its result is not needed: it is only a hint
        await _done(runtime, call)
