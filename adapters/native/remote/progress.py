"""What a run reports while it goes on: the texts of its main state, and its variables as they are
set.

An event is plain JSON, and one of

    {"text": "The capital is "}, {"text": "yes", "name": "choice"}    text that is settled
    {"begin": "answer"}, {"piece": "Par"}, ..., {"end": "answer"}     an answer, piece by piece
    {"set": "answer", "value": "Paris", "meta": {...}}                a variable
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

from ....core.api.protocol import ForkrootError
from ....core.api.reply import batches
from ..interpreter.interpreter import Feed, Interpreter
from ..language.plain import encoded

Event: TypeAlias = dict[str, Any]


class Progress:
    """Follows the main state of a run. Mutable."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter
        self._stream = interpreter.stream
        self._num_read = 0
        self._seen: dict[str, Any] = {}  # the meta information of each variable, as last reported

    async def events(self) -> AsyncIterator[list[Event]]:
        """What happens, in one list what has happened by one time, until the state has ended. An
        error of the state only ends it."""
        while True:
            await self._stream.wait_async(self._has_news)
            feeds = self._interpreter.feeds[self._num_read :]
            is_over = self._is_over()
            self._num_read += len(feeds)
            for feed in feeds:
                async for events in _of_feed(feed):
                    yield events
            if changed := self._changed():
                yield changed
            if is_over:
                return

    def _has_news(self) -> bool:
        return (
            len(self._interpreter.feeds) > self._num_read
            or next(self._unseen(), None) is not None
            or self._is_over()
        )

    def _is_over(self) -> bool:
        return self._stream.error is not None or self._stream.is_closed

    def _unseen(self) -> Any:
        variables = self._interpreter.variables
        for name, meta in variables.meta.items():
            is_settled = not variables.is_expected(name)
            if is_settled and self._seen.get(name, self) is not meta:
                yield name

    def _changed(self) -> list[Event]:
        variables = self._interpreter.variables
        found = []
        with self._stream.lock:
            for name in list(self._unseen()):
                value, meta = variables.values[name], variables.meta[name]
                self._seen[name] = meta
                found.append((name, value, meta))
        return [
            {"set": name, "value": encoded(value, name), "meta": encoded(meta, name)}
            for name, value, meta in found
        ]


async def _of_feed(feed: Feed) -> AsyncIterator[list[Event]]:
    name = {} if feed.name is None else {"name": feed.name}
    if feed.reply is None:
        if feed.text or name:
            yield [{"text": feed.text, **name}]
        return
    yield [{"begin": feed.name}]
    is_whole = True
    try:
        async for chunks in batches(feed.reply):
            if text := "".join(chunk.text for chunk in chunks if chunk.index == 0):
                is_whole = False
                yield [{"piece": text}]
        if is_whole:
            yield [{"piece": (await feed.reply).text}]
    except ForkrootError:
        return  # the state ends in it
    yield [{"end": feed.name}]
