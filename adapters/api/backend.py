"""The backend of an API model: one thread with one event loop carries all calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ...core.api.dialects import log_ignored
from ...core.api.hidden import with_hidden_key
from ...core.api.owner import Closing, Owner, not_picklable
from ...core.api.protocol import (
    BackendClosed,
    BackendInfo,
    Call,
    CallFailed,
    ForkrootError,
    JsonSchema,
    Reply,
    Usage,
    check_call,
)
from ...core.api.reply import Mailbox
from ...core.common.exits import close_at_exit
from ..common.call_loop import CallLoop
from .anthropic import AnthropicWire
from .exchange import Exchange, Link
from .openai import OpenAIWire
from .request import Wire
from .settings import ApiSettings
from .transport import Transport

_FEATURES = frozenset(("images", "constraints"))


class ApiBackend(Closing):
    """As `Backend`, over "openai:MODEL" or "anthropic:MODEL". settings: as in
    `settings.ApiSettings`. Nothing is sent before the first call. Raises InvalidCall, InvalidModel.

    Pickled, it is another one with the same settings; a key that was given as api_key= is not
    pickled: set it in the environment, or NotPicklable is raised.
    """

    def __init__(self, ref: str, settings: Mapping[str, Any]) -> None:
        settings = with_hidden_key(settings)
        self._given = ref, settings
        self.settings = ApiSettings.of(ref, settings)
        is_openai = self.settings.provider.name == "openai"
        self._wire: Wire = (OpenAIWire if is_openai else AnthropicWire)(self.settings)
        self._owner = Owner()
        self._usage = Usage()
        self._logged = set[str]()
        self._link = Link(
            self.settings,
            self._wire,
            Transport(self.settings),
            asyncio.Semaphore(self.settings.max_concurrency),
            self._count,
        )
        self._calls = CallLoop("forkroot-api", self._link.transport.close)
        close_at_exit(self)

    def __repr__(self) -> str:
        if "settings" not in vars(self):  # they were refused, and a traceback prints its locals
            return f"<{type(self).__name__}>"
        return f"<API backend {self._given[0]} at {self.settings.base_url}>"

    def submit(self, call: Call) -> Mailbox:
        """As `Backend.submit`; what the API cannot do is refused here, and never sent."""
        mailbox = Mailbox(call, self.cancel)
        try:
            self._owner.check()
            check_call(call)
            if isinstance(call.constraint, JsonSchema):
                log_ignored(call.constraint.schema, "json_schema", self._logged)
            if call.sampling.max_tokens != 0:
                self._wire.request(call, 0)
        except ForkrootError as error:
            mailbox.fail(error)
            return mailbox
        except Exception as error:  # such as a tool without a name
            reason = f"{type(error).__name__}: {self.settings.redacted(str(error)):.200}"
            mailbox.fail(CallFailed(f"the call cannot be sent to an API: {reason}"))
            return mailbox
        self._calls.submit(mailbox, lambda: Exchange(self._link, mailbox))
        return mailbox

    def cancel(self, reply: Reply) -> None:
        """As `Backend.cancel`."""
        self._calls.cancel(reply)

    def info(self) -> BackendInfo:
        """The model's name, what calls may have, and the usage so far; the API is not contacted.
        `context_len` is 0 where it was not given."""
        if self._calls.is_closed:
            raise BackendClosed.before()
        usage, num_open = self._usage, self._calls.num_open
        counters = {
            "requests": usage.requests,
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
            "cost": usage.cost,
        }
        settings = self.settings
        load = {"running": num_open, "max_concurrency": settings.max_concurrency}
        return BackendInfo(
            settings.model, settings.context_len, 0, _FEATURES, counters=counters, load=load
        )

    def close(self) -> None:
        """Stop; every open call ends in BackendClosed. Nothing in a fork of this process."""
        self._calls.close()

    def __reduce__(self) -> tuple[Any, ...]:
        ref, settings = self._given
        if settings.get("api_key") is not None:
            raise not_picklable(self, "a backend whose key is in the environment of both processes")
        return type(self), (ref, settings)

    def _count(self, usage: Usage) -> None:
        self._usage += usage
