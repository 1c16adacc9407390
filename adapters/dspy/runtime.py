"""The base of both engines: a runtime that gets requests as calls with hint and constraint."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from dspy import lm15

from ...core.api.protocol import (
    Backend,
    Call,
    Chat,
    ForkHint,
    Image,
    InvalidCall,
    Regex,
    Reply,
    Segment,
    Text,
    UnsupportedCall,
)
from ...core.common.harmless import hint_errors
from ..common.tools import ToolFormat
from ..connection import Connection, shared
from .hints.returning import current_run
from .hints.running import Running, current
from .options import Options, found
from .patterns.agents import tools_of
from .patterns.formats import Formats
from .request import chat_of, constraint_of, sampling_of
from .response import Reading

MOST_ROOTS = 256
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RequestContext:
    """A request on its way. is_derived: its constraint follows from the signature, so that the
    request can do without where the runtime refuses it."""

    call: Call
    reply: Reply
    reading: Reading
    running: Running | None
    is_derived: bool


class Runtime:
    """Where the requests of an LM go.

    where, settings: as in `adapters.connection.shared`; the others as in `LM`. Without hints, `n`
    answers are not forked either. Raises as `shared`.
    """

    def __init__(
        self,
        where: Backend | str | Path = "tiny",
        *,
        hints: bool = True,
        constrain: bool = True,
        timeout: float | None = None,
        settings: Mapping[str, Any] | None = None,
        api_key: str | None = None,
    ) -> None:
        _check(timeout, settings)
        self.where = where
        self.hints, self.constrain, self.timeout = hints, constrain, timeout
        self.settings = dict(settings or {})
        if api_key is not None:
            self.settings["api_key"] = api_key
        self._held = shared(where, **self.settings)  # as long as this runtime is there
        self._formats = Formats()
        self._lock = threading.Lock()
        self._planted: OrderedDict[str, ForkHint] = OrderedDict()
        self._refused: set[str] = set()
        self._returned: OrderedDict[str, None] = OrderedDict()
        self._tool_format: ToolFormat | None = None

    def connection(self) -> Connection:
        """The running backend, started again if it was closed and has a name."""
        if isinstance(self.where, str | Path):
            return shared(self.where, **self.settings)
        return self._held

    def name(self) -> str:
        """What DSPy knows the model by, in its cache too: the same for the same model only."""
        if not isinstance(self.where, str | Path):
            return f"forkroot/{self.connection().backend.info().model}"
        where = str(self.where)
        if where.startswith(("http://", "https://")):
            return f"forkroot/{self.connection().backend.info().model}@{where}"
        if base_url := self.settings.get("base_url"):
            return f"forkroot/{where}@{base_url}"
        folder = Path(where)
        return f"forkroot/{str(folder.resolve()).lstrip('/') if folder.is_dir() else where}"

    def state(self) -> dict[str, Any]:
        """What makes another one like it, without secrets. Raises TypeError for a backend that has
        no name."""
        if not isinstance(self.where, str | Path):
            raise TypeError(
                "an LM over a backend object cannot be saved; make it from a name, folder or URL"
            )
        settings = {key: value for key, value in self.settings.items() if key != "api_key"}
        return {
            "where": str(self.where),
            "hints": self.hints,
            "constrain": self.constrain,
            "timeout": self.timeout,
            "settings": settings,
        }

    def ask(self, request: lm15.Request, *, stream: bool = False) -> RequestContext:
        """Send a request, or take the next answer of its fork. Raises InvalidCall or a subclass."""
        running = current()
        options = found(request.config.extensions)
        pattern = self._pattern(running, options)
        call = self._call(request, options, pattern, stream)
        is_derived = bool(pattern) and call.constraint == Regex(pattern or "")
        taken = running.take(call) if running is not None and self.hints else None
        if taken is None:
            sent = call
            if running is not None and running.n > 1 and self.hints:
                sent = replace(call, sampling=replace(call.sampling, n=running.num_left()))
            reply, index = self._submit_with_rest(sent, running), 0
            if running is not None:
                running.fork(call, reply)
        else:
            reply, index = taken
        tools = call.prompt.tools if isinstance(call.prompt, Chat) else ()
        reading = Reading(
            request.model,
            frozenset(tool["function"]["name"] for tool in tools),
            index,
            call.sampling.logprobs is not None,
        )
        return RequestContext(call, reply, reading, running, is_derived)

    def recover(self, context: RequestContext, error: BaseException) -> bool:
        """Whether the request can be repeated without its constraint, because that was refused
        and only the signature requires it."""
        if context.running is not None:
            context.running.forget()
        is_its = isinstance(error, InvalidCall) and error.field == "regex"
        if not (context.is_derived and is_its):
            return False
        assert isinstance(context.call.constraint, Regex)
        self._refused.add(context.call.constraint.pattern)
        _log.warning("answers are not constrained to their signature: %s", error)
        return True

    def plant(self, chat: Chat, branches: int | None, namespace: str = "") -> None:
        """Send what so many calls will begin with ahead of them."""
        if not self.hints:
            return
        hint = self.connection().prefixes.plant(chat, branches, namespace)
        with self._lock:
            self._planted[_digest(chat.messages, namespace)] = hint
            if len(self._planted) > MOST_ROOTS:
                self._planted.popitem(last=False)

    def note_answer(self, context: RequestContext) -> None:
        """A call has ended: where programs have come back to prompts of its root within one run,
        its prompt stays pinned until this run ends."""
        run, hint = current_run(), context.call.hint
        if run is None or hint is None or context.reading.index:
            return
        if run.comes_back(context.call):
            with self._lock:
                self._returned[hint.root] = None
                if len(self._returned) > MOST_ROOTS:
                    self._returned.popitem(last=False)
        if hint.root in self._returned:
            run.keep(context.reply, self.connection().prefixes)

    def _pattern(self, running: Running | None, options: Options) -> str | None:
        if running is None or running.formatted is None:
            return None
        if not (self.constrain and options.constrain):
            return None
        formatted = running.formatted
        ways = ((tools_of(formatted.agent), formatted.tools), ((), ()))  # the first may be refused
        for tools, given in dict.fromkeys(ways):
            found = self._formats.pattern(
                formatted.adapter, formatted.signature, tools, given, formatted.is_demanded
            )
            if found not in self._refused:
                return found
        return None

    def _call(
        self, request: lm15.Request, options: Options, pattern: str | None, stream: bool
    ) -> Call:
        form = self._format() if request.tools else ToolFormat()
        chat = chat_of(request, form)
        return Call(
            chat,
            sampling_of(request, options),
            constraint_of(request, options, pattern, form),
            hint=self._hint(chat, request, options.namespace),
            stream=stream,
            namespace=options.namespace,
            priority=options.priority,
            deadline=self.timeout if options.deadline is None else options.deadline,
        )

    def submit(self, call: Call) -> Reply:
        """Send a call; with a hint, if hints are wanted."""
        connection = self.connection()
        if not self.hints:
            return connection.backend.submit(call)
        return connection.prefixes.submit(call)

    def _submit_with_rest(self, call: Call, running: Running | None) -> Reply:
        """Send a call with what is expected to follow it: in the run of a program what followed
        before, else nothing, as a predictor alone calls once."""
        formatted, run = None if running is None else running.formatted, current_run()
        if not self.hints or formatted is None:
            return self.submit(call)
        signature = formatted.signature
        if run is None:
            hint = call.hint or ForkHint("")
            rest: Any = {"calls_left": 0, "tokens_left": 0, "next_use": 0}
            rest |= {"program": uuid4().hex, "kind": f"dspy.Predict({signature.__name__})"}
            return self.submit(replace(call, hint=replace(hint, **rest)))
        label = signature.instructions, *signature.input_fields, *signature.output_fields
        with hint_errors.suppress(_log, "saying what follows a call"):
            call = run.course.hinted(call, label)
        return run.course.follow(self.submit(call))

    def _hint(self, chat: Chat, request: lm15.Request, namespace: str) -> ForkHint | None:
        """All but the last message is shared with other calls: in DSPy it is the task and its
        demonstrations, or a history. A request may set itself what is shared."""
        if not self.hints:
            return None
        end = _shared_end(chat, request)
        if end == 0:
            return None
        digest = _digest(chat.messages[:end], namespace + json.dumps(chat.tools))
        planted = self._planted.get(_digest(chat.messages[:end], namespace))
        if planted is not None and not chat.tools:
            return ForkHint(planted.root, planted.branches, end)
        return ForkHint(f"dspy-{digest}", None, end)

    def _format(self) -> ToolFormat:
        """How this model writes tool calls; the model is queried once."""
        if self._tool_format is None:
            try:
                reply = self.connection().backend.submit(ToolFormat.question())
                self._tool_format = ToolFormat.of_answer(reply.result())
            except UnsupportedCall:  # it scores no options
                self._tool_format = ToolFormat()
        return self._tool_format


def _check(timeout: float | None, settings: Mapping[str, Any] | None) -> None:
    """Raise InvalidCall for settings whose errors a call would report by another name."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if timeout is not None and not (is_number and timeout > 0):
        raise InvalidCall("timeout", timeout, "a number of seconds > 0, or None")
    if settings is not None and not isinstance(settings, Mapping):
        raise InvalidCall("settings", settings, "a mapping of names to values, as of EngineConfig")


def _shared_end(chat: Chat, request: lm15.Request) -> int:
    """How many leading messages are shared."""
    last = len(chat.messages) - 1
    cache = request.config.cache
    if cache is None:
        return last
    if cache.resource is not None:
        raise UnsupportedCall("cache.resource", cache.resource, "None (nothing is stored by name)")
    has_system = request.system is not None
    if cache.mode == "off":
        return 0
    if cache.prefix == "stable":
        return int(has_system)
    if cache.prefix == "history":
        return last + 1
    if cache.prefix_until_index is not None:
        return min(int(cache.prefix_until_index) + 1 + has_system, last + 1)
    return last


def _digest(messages: Any, extra: str = "") -> str:
    """A name for these messages."""
    found = hashlib.sha1(extra.encode(), usedforsecurity=False)
    for message in messages:
        texts = [_named(segment) for segment in message.content]
        found.update(json.dumps([message.role, *texts]).encode())
    return found.hexdigest()[:16]


def _named(segment: Segment) -> str:
    """A text, or a name for what a picture holds."""
    if isinstance(segment, Text):
        return segment.text
    data = segment.data if isinstance(segment, Image) else repr(segment).encode()
    return f"\0{hashlib.blake2b(data, digest_size=16).hexdigest()}"
