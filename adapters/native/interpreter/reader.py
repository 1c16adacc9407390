"""What is read of a state: the only place where a program waits, and where errors are raised."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from typing import Any

from ....core.api.protocol import ForkrootError, InvalidCall, ProgramError, Reply
from ..language.constraints import error_of
from .interpreter import Feed, Interpreter
from .variables import UnsetVariable


class Reader:
    """One state, as it is read. Every method waits for what was submitted, and never longer.

    is_outside: reads a program that goes on in another thread: then also wait for what the program
      may yet submit, until it ends.
    """

    def __init__(self, interpreter: Interpreter, is_outside: bool = False) -> None:
        self._interpreter = interpreter
        self._stream = interpreter.stream
        self._variables = interpreter.variables
        self._is_outside = is_outside

    def get_var(self, name: str) -> Any:
        """As `state[name]`: waits for the variable. Raises UnsetVariable, which is a KeyError, or
        the error that kept it from being set."""
        return self._fetch(name)[0]

    __getitem__ = get_var

    def __contains__(self, name: str) -> bool:
        """Whether a variable is set, once its primitives have ended."""
        self._stream.wait(lambda: self._is_settled(name))
        return name in self._variables.values and not self._variables.is_expected(name)

    async def aget_var(self, name: str) -> Any:
        """As `get_var`, for asyncio."""
        await self._stream.wait_async(lambda: self._is_settled(name))
        return self._found(name)[0]

    def get_meta_info(self, name: str | None = None) -> Any:
        """Tokens used, reason of the end, log-probabilities: see `meta.py`. Waits as `get_var`.
        Without a name: what the calls of the whole run used, those of forks too, once all that was
        submitted has ended: their number, tokens, and requests and cost of APIs."""
        if name is None:
            self.sync()
            return dict(self._interpreter.context.totals.counters)
        return self._fetch(name)[1]

    @property
    def ret_value(self) -> Any:
        """What the program returned, once it has."""
        self._stream.wait(self._is_over)
        return self._interpreter.ret_value

    @property
    def num_retries(self) -> int:
        """How often `run_batch` ran the item again after an error that passes by itself."""
        return self._interpreter.num_retries

    def sync(self) -> None:
        """Wait for all that was submitted. Raises the error of the state."""
        self._stream.wait(self._is_over)
        self._raise_error()

    def error(self) -> BaseException | None:
        """Wait for all that was submitted; the error that ended the state, or None."""
        self._stream.wait(self._is_over)
        self._stream.is_error_seen = True
        return self._stream.error

    def text(self) -> str:
        """All text so far, without marks of a chat template. Waits for what was submitted."""
        self.sync()
        return self._interpreter.transcript.text()

    def variables(self) -> dict[str, Any]:
        """All variables by name. Waits for what was submitted."""
        self.sync()
        with self._stream.lock:
            return dict(self._variables.values)

    def messages(self) -> list[dict[str, Any]]:
        """The chat so far, as dictionaries of role and content. Waits for what was submitted."""
        self.sync()
        return self._interpreter.transcript.messages()

    def text_iter(self, name: str | None = None) -> Iterator[str]:
        """The text, or a variable's (first) answer, piece by piece while it comes in. Raises as
        `sync` or `get_var` would."""
        for position in count():
            self._stream.wait(self._is_ready(name, position))
            feed = self._feed(name, position)
            if feed is None:
                yield from self._remainder(name)
                return
            yield from _texts(feed)
            if name is not None:
                return

    async def text_async_iter(self, name: str | None = None) -> AsyncIterator[str]:
        """As `text_iter`, for asyncio."""
        for position in count():
            await self._stream.wait_async(self._is_ready(name, position))
            feed = self._feed(name, position)
            if feed is None:
                for text in self._remainder(name):
                    yield text
                return
            async for text in _texts_async(feed):
                yield text
            if name is not None:
                return

    async def _reply_async(self, name: str) -> Reply | None:
        """The reply that delivers a variable's latest answer, once it is requested; None for one
        that no reply delivers. Raises as `get_var` would."""
        await self._stream.wait_async(self._is_ready(name, 0))
        feed = self._feed(name, 0)
        if feed is None:
            self._found(name)
        return feed.reply if feed is not None else None

    def _fetch(self, name: str) -> tuple[Any, Any]:
        """Value and meta information of a variable."""
        self._stream.wait(lambda: self._is_settled(name))
        return self._found(name)

    def _is_ready(self, name: str | None, position: int) -> Callable[[], bool]:
        """Whether feed `position` (of a variable: its latest) is there, or will never be."""
        if name is None:
            return lambda: self._feed(None, position) is not None or self._is_over()
        return lambda: self._feed(name, position) is not None or self._is_settled(name)

    def _feed(self, name: str | None, position: int) -> Feed | None:
        feeds = self._interpreter.feeds
        if name is not None:
            feeds = [feed for feed in feeds if feed.name == name]
            position = max(self._variables.num_expected[name], 1) - 1
        return feeds[position] if position < len(feeds) else None

    def _remainder(self, name: str | None) -> Iterator[str]:
        """The result when there is no feed: an error, or a value without one."""
        if name is None:
            self._raise_error()
            return
        value, _ = self._found(name)
        if not isinstance(value, str):
            raise ProgramError(f"variable {name!r} is a list and has no text to iterate over")
        yield value

    def _is_settled(self, name: str) -> bool:
        if self._stream.error is not None:
            return True
        if self._variables.is_expected(name):
            return False
        return name in self._variables.values or self._is_over() or not self._is_outside

    def _is_over(self) -> bool:
        if self._stream.error is not None:
            return True
        return self._stream.is_closed if self._is_outside else self._stream.is_idle

    def _found(self, name: str) -> tuple[Any, Any]:
        variables = self._variables
        with self._stream.lock:
            if name in variables.values and not variables.is_expected(name):
                return variables.values[name], variables.meta[name]
            known, coming = tuple(variables.values), variables.expected()
        self._raise_error()
        raise UnsetVariable(name, known, coming)

    def _raise_error(self) -> None:
        """Raise the error of the state, if it has one."""
        error = self._stream.error
        if error is None:
            return
        self._stream.is_error_seen = True
        if isinstance(error, ForkrootError):
            raise error
        raise ProgramError(f"{type(error).__name__}: {error}") from error


def _texts(feed: Feed) -> Iterator[str]:
    if feed.reply is None:
        if feed.text:
            yield feed.text
        return
    is_whole = True
    try:
        for chunk in feed.reply:
            if chunk.index == 0:
                is_whole = False
                yield chunk.text
        if is_whole:
            yield feed.reply.result().text
    except InvalidCall as error:
        raise error_of(feed.reply) or error from None


async def _texts_async(feed: Feed) -> AsyncIterator[str]:
    if feed.reply is None:
        if feed.text:
            yield feed.text
        return
    is_whole = True
    try:
        async for chunk in feed.reply:
            if chunk.index == 0:
                is_whole = False
                yield chunk.text
        if is_whole:
            yield (await feed.reply).text
    except InvalidCall as error:
        raise error_of(feed.reply) or error from None
