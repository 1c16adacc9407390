"""Prefixes that a client plants and pins before it forks (paper, section 3).

`POST /v1/prefixes` computes a prompt and keeps it in the cache under a root's name, which later
requests may bear as their hint; `DELETE` gives it back. A pin is a hint: the runtime releases it by
itself when its branches are counted down, when it needs the room, when the cache is flushed, or
when nobody has used it for the runtime's `root_timeout`, unless a time to keep it was given (`ttl`:
then it is planted again).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import uuid
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
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
from ..openai.toolchoice import format_of
from ..requests.bodies import BodyRoute
from ..requests.reading import check_model
from ..requests.work import Work, complete
from ..server.errors import Fault, Refused
from ..server.keys import within
from ..server.runtime import Runtime
from ..wire.hints import hint_of
from ..wire.wire import Body, ChatMessage, Items, Tool
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
    prompt: str | Items[int] | None = None
    messages: Items[ChatMessage] | None = None
    tools: Items[Tool] | None = None
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
class Prefix:
    """A prefix that was planted. owner: who planted it. space: the owner's namespace. hint: with
    its root's name. ids: its tokens."""

    owner: str
    space: str
    salt: str
    hint: ForkHint
    ids: tuple[int, ...]

    def planting(self) -> Call:
        """The call that plants it."""
        return Call((Tokens(self.ids),), PLANT, hint=self.hint, namespace=self.salt)

    def releasing(self) -> Call:
        """A planting call for no branches: a new pin under the same name ends the old one, and one
        for no branches is not a pin. It computes nothing, as its one token is in the cache."""
        hint = ForkHint(self.hint.root, branches=0)
        return Call((Tokens(self.ids[:1]),), PLANT, hint=hint, namespace=self.salt)


def _add(known: dict[str, Prefix], name: str, prefix: Prefix) -> None:
    """Add a prefix that was planted; one that bore the same root's name is replaced by it, and of
    too many the oldest is forgotten, and left to the runtime's time-out."""
    same = (prefix.owner, prefix.salt, prefix.hint.root)
    for key, had in list(known.items()):
        if (had.owner, had.salt, had.hint.root) == same:
            del known[key]
    known[name] = prefix
    if len(known) > MOST_KNOWN:
        del known[next(iter(known))]


def routes(runtime: Runtime) -> APIRouter:
    """The routes of prefixes, and those of calls, which may bear their hints."""
    router = APIRouter(tags=["prefixes"], route_class=BodyRoute.of(runtime))
    known: dict[str, Prefix] = {}  # those that can be released by their ids
    timers: set[asyncio.Task[None]] = set()

    @router.post("/v1/prefixes", response_model=PrefixReply)
    async def plant(body: PrefixBody, request: Request) -> Response:
        """Compute a prefix that calls will share, and pin it in the cache for a while."""
        check_model(runtime, body.model)
        name = f"prefix-{uuid.uuid4().hex}"
        hint = hint_of({"root": name if body.root is None else body.root})
        assert hint is not None
        ids = await asyncio.to_thread(_ids, runtime, body)
        hint = replace(hint, branches=body.branches)
        space = request.state.request_context.client.namespace
        prefix = Prefix(owner_of(request), space, body.cache_salt or "", hint, ids)
        usage = (await _done(runtime, prefix.planting())).usage
        _add(known, name, prefix)
        if body.ttl is not None:  # beyond this request, thus not in its context
            waiting = _keep(runtime, known, name, body.ttl)
            task = asyncio.create_task(waiting, context=contextvars.Context())
            timers.add(task)
            task.add_done_callback(timers.discard)
        reply = PrefixReply(
            id=name,
            root=hint.root,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
        )
        return JSONResponse(reply.model_dump())

    @router.delete("/v1/prefixes/{name}")
    async def release(name: str, request: Request) -> ReleasedReply:
        """Pin a prefix no longer."""
        prefix = known.get(name)
        if prefix is None or prefix.owner != owner_of(request):
            message = f"no prefix has the id {name!r:.100}"
            raise Refused(message, Fault(404, "invalid_request_error", "prefix_not_found", "id"))
        del known[name]
        await _done(runtime, prefix.releasing())
        return ReleasedReply(id=name)

    return router


def _ids(runtime: Runtime, body: PrefixBody) -> tuple[int, ...]:
    """The tokens of a prefix."""
    ids = runtime.texts.encode_prompt(_prompt(runtime, body))
    if not ids:
        raise InvalidCall("prompt", body.prompt, "at least one token")
    return tuple(ids)


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
    (completion,) = await complete(runtime, Work((call,), {}))
    return completion


async def _keep(runtime: Runtime, known: dict[str, Prefix], name: str, ttl: float) -> None:
    """Keep a prefix for its time, then release it; nothing once it is released otherwise."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + ttl
    while (left := ends_at - loop.time()) > 0:
        await asyncio.sleep(min(left, KEEP))
        prefix = known.get(name)
        if prefix is None:
            return
        if left > KEEP and prefix.hint.branches is None:
            await _try(runtime, prefix, prefix.planting())
    prefix = known.pop(name, None)
    if prefix is not None:
        await _try(runtime, prefix, prefix.releasing())


async def _try(runtime: Runtime, prefix: Prefix, call: Call) -> None:
    """A call of the prefix's owner, outside a request."""
    with contextlib.suppress(ForkrootError):  # its result is not needed: it is only a hint
        space = within(prefix.space, call.namespace)
        await _done(runtime, replace(call, namespace=space, tenant=prefix.owner))
