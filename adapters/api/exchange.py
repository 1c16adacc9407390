"""One call on its way to an API: its requests, their retries, and one ending.

It lives in the event loop of its backend.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count

from ...core.api.protocol import (
    BackendClosed,
    Call,
    CallFailed,
    Chunk,
    Completion,
    DeadlineExceeded,
    ForkrootError,
    Output,
    Usage,
)
from ...core.api.reply import Mailbox
from .draft import Draft
from .failures import LONGEST_RETRY_AFTER, Failure, too_long, unreadable
from .messages import turns_of
from .request import Request, Tokens, Wire
from .settings import ApiSettings
from .structured import Broken
from .transport import Transport

_log = logging.getLogger("forkroot.api")
_MOST_ADAPTATIONS = 3
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError)
_CHARACTERS = 4  # of a token, about, where tokens are not reported


@dataclass(frozen=True, slots=True)
class Link:
    """What all calls of a backend share. slots: for requests at a time. count: takes the usage of
    each request."""

    settings: ApiSettings
    wire: Wire
    transport: Transport
    slots: asyncio.Semaphore
    count: Callable[[Usage], object]


class Exchange:
    """A call and its answer. task: ends with the call."""

    def __init__(self, link: Link, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._link = link
        self._drafts: dict[int, Draft] = {}
        self._usage = Usage()
        self._is_cancelled = False
        self._has_given = False
        self._random = random.Random()
        self.task = asyncio.create_task(self._run())
        self.task.add_done_callback(lambda _: self._end())

    def cancel(self) -> None:
        """End the call with what has come."""
        self._is_cancelled = True
        self.task.cancel()

    async def _run(self) -> None:
        mailbox, deadline = self.mailbox, self.mailbox.call.deadline
        end = None if deadline is None else self._left() + asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(end):
                outputs = await self._outputs(mailbox.call)
            mailbox.finish(Completion(tuple(outputs), self._usage))
        except TimeoutError:
            message = f"the call did not end within deadline={deadline} s"
            mailbox.fail(DeadlineExceeded(message))
        except ForkrootError as error:
            mailbox.fail(error)
        except Exception as error:  # a fault of ours
            text = self._link.settings.redacted(str(error))
            mailbox.fail(CallFailed(f"the call failed: {type(error).__name__}: {text:.200}"))

    def _end(self) -> None:
        """The task is over: if it was cancelled, maybe before it ran, this is the call's end."""
        if self._is_cancelled:
            outputs = [draft.output() for _, draft in sorted(self._drafts.items())]
            num_left = self.mailbox.call.sampling.n - len(outputs)
            outputs += [Output("", finish_reason="abort")] * num_left
            self.mailbox.finish(Completion(tuple(outputs), self._usage))
        else:
            self.mailbox.fail(BackendClosed.meanwhile())

    def _left(self) -> float:
        """Seconds until the deadline; infinite without one."""
        deadline = self.mailbox.call.deadline
        if deadline is None:
            return float("inf")
        return self.mailbox.submitted + deadline - time.monotonic()

    async def _outputs(self, call: Call) -> list[Output]:
        """The answers of all requests that the call takes."""
        if call.sampling.max_tokens == 0:  # it would cache the prompt, which an API does itself
            return [Output("", finish_reason="length")] * call.sampling.n
        num = call.sampling.n
        if num == 1 or not self._link.wire.is_single:
            return await self._valid(call, 0)
        single = replace(call, sampling=replace(call.sampling, n=1))
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._valid(single, index)) for index in range(num)]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [output for task in tasks for output in task.result()]

    async def _valid(self, call: Call, base: int) -> list[Output]:
        """The answers of one request; of another one, where they break the constraint and nothing
        of them was read. base: the index of the first."""
        try:
            return await self._answers(call, base)
        except Broken as error:
            if self._has_given:
                raise self._broken(call, error) from None
            text = self._link.settings.redacted(str(error))
            _log.warning("an answer broke its constraint (%s): requested once more", text)
        try:
            return await self._answers(call, base)
        except Broken as error:
            raise self._broken(call, error) from None

    async def _answers(self, call: Call, base: int) -> list[Output]:
        request, drafts = await self._retried(call, base)
        return [self._checked(request, draft) for draft in drafts]

    def _checked(self, request: Request, draft: Draft) -> Output:
        """The output of an answer that has ended. Raises Broken, and CallFailed for a refusal."""
        if draft.refusal is not None:
            text = self._link.settings.redacted(draft.refusal)
            raise CallFailed(f"the model refused the call: {text:.300}")
        if request.form is None or draft.reason == "length":
            return draft.output()
        return draft.output(request.form.text(draft.text))

    async def _retried(self, call: Call, base: int) -> tuple[Request, list[Draft]]:
        """The answers to a request, repeated after errors that pass. Raises the last error."""
        link, num_adaptations = self._link, 0
        for num_retries in count():
            while True:
                request = link.wire.request(call, base)
                try:
                    return request, await self._once(request, call, base)
                except Failure as failure:
                    found = failure
                    found.__context__ = None  # of the HTTP library, whose requests have the key
                if num_adaptations == _MOST_ADAPTATIONS or not link.wire.adapts(request, found):
                    break
                num_adaptations += 1
            pause = found.pause(num_retries, self._random)
            is_last = num_retries >= link.settings.max_retries or self._has_given
            if not found.is_passing or is_last or pause > min(LONGEST_RETRY_AFTER, self._left()):
                raise found.error
            text = "%s: retry %d of %d in %.1f s"
            _log.info(text, found.error, num_retries + 1, link.settings.max_retries, pause)
            await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _once(self, request: Request, call: Call, base: int) -> list[Draft]:
        """Send one request and take its answers. Raises Failure."""
        link, tokens = self._link, Tokens(0, 0, 0)
        drafts = {index: Draft(request) for index in range(call.sampling.n)}
        self._drafts |= {base + index: draft for index, draft in drafts.items()}
        async with link.slots:
            values = link.transport.values(request)
            try:
                async with asyncio.timeout(link.settings.longest):
                    async for value in values:
                        tokens = self._take(value, request, drafts, tokens, base)
                        if all(draft.is_cut for draft in drafts.values()):
                            break
            except TimeoutError:
                raise too_long(link.settings) from None
            finally:
                await values.aclose()
                self._count(tokens, drafts)
        if not all(draft.is_over for draft in drafts.values()):
            failure = unreadable(link.settings, "it ended before the end of the answer")
            failure.is_passing = True
            raise failure
        return list(drafts.values())

    def _take(
        self,
        value: dict[str, object],
        request: Request,
        drafts: dict[int, Draft],
        tokens: Tokens,
        base: int,
    ) -> Tokens:
        """Take one value of an answer; the tokens counted so far. Raises Failure."""
        try:
            for event in self._link.wire.events(value, request):
                if isinstance(event, Tokens):
                    pairs = zip(tokens, event, strict=True)
                    tokens = Tokens(*(old if new is None else new for old, new in pairs))
                    continue
                text = drafts[event.index].take(event)
                is_shown = request.form is None or not request.form.is_wrapped
                if text and self.mailbox.call.stream and is_shown:
                    self._has_given = True
                    self.mailbox.put(Chunk(text, base + event.index))
        except _UNREADABLE as error:
            shown = self._link.settings.redacted(str(value))[:80]
            reason = f"{shown!r} is not of its wire ({type(error).__name__})"
            raise unreadable(self._link.settings, reason) from None
        return tokens

    def _count(self, tokens: Tokens, drafts: dict[int, Draft]) -> None:
        """Add a request to the usage. Tokens that were not reported, as of an answer that was left
        early, are estimated by its pieces and characters, and those of its prompt."""
        num_pieces = sum(draft.num_pieces for draft in drafts.values())
        num_prompt, num_written = tokens.prompt, tokens.completion
        if num_written is None or num_written < num_pieces:
            num_characters = sum(len(draft.text) for draft in drafts.values())
            num_written = max(num_pieces, num_characters // _CHARACTERS)
        if num_prompt is None and num_pieces:
            turns = turns_of(self.mailbox.call.prompt)
            num_prompt = sum(len(turn.text) for turn in turns) // _CHARACTERS
        usage = Usage(num_prompt or 0, tokens.cached or 0, num_written, requests=1)
        prices = self._link.settings.prices
        if prices is not None:
            usage = replace(usage, cost=prices.cost(usage))
        self._usage += usage
        self._link.count(usage)

    def _broken(self, call: Call, error: Broken) -> CallFailed:
        kind, text = type(call.constraint).__name__, self._link.settings.redacted(str(error))
        return CallFailed(f"the API's answer does not keep the call's {kind}: {text:.300}")
