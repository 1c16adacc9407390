"""A state here of a program that runs elsewhere: made of what the run reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ....core.api.protocol import Call, CallFailed, Chunk, Completion, ForkrootError, Output
from ....core.api.reply import Mailbox
from ..interpreter.context import Context
from ..interpreter.interpreter import Feed, Interpreter
from ..interpreter.saved import Saved
from ..interpreter.variables import UnsetVariable
from ..language.plain import decoded
from ..language.settings import Settings

_WRONG = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Mirror:
    """A `ProgramReceiver` whose `interpreter` reads as that of a run here.

    on_end: called once the run has ended.
    """

    def __init__(self, settings: Settings, on_end: Callable[[], object] = lambda: None) -> None:
        worker = ThreadPoolExecutor(1, "forkroot-run")  # nothing runs in it: no step is submitted
        self.interpreter = Interpreter(Context(settings, worker))
        self._stream = self.interpreter.stream
        self._variables = self.interpreter.variables
        self._reply: Mailbox | None = None
        self._pieces: list[str] = []
        self._on_end = on_end

    def take(self, event: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.take`; events of a kind that is not known are ignored."""
        try:
            with self._stream.lock:
                self._take(event)
        except _WRONG as error:
            self._fail(_unreadable(error))
        self._stream.notify()

    def end(self, state: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.end`."""
        try:
            saved = Saved.from_json(state)
        except _WRONG as error:
            self._fail(_unreadable(error))
            return
        with self._stream.lock:
            saved.restore(self.interpreter)
        self._on_end()

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.fail`."""
        try:
            if report.get("state") is not None:
                saved = Saved.from_json(report["state"])
                with self._stream.lock:
                    saved.restore(self.interpreter, is_over=False)
                    for name in self._variables.values.keys() - saved.values.keys():
                        self._variables.expect(name)  # it was to be set again
            if report.get("unset") is not None:
                name, known, coming = report["unset"]
                error = UnsetVariable(name, known, coming)
            for note in tuple(report.get("notes", ())):
                error.add_note(str(note))
        except _WRONG as unreadable:
            error = _unreadable(unreadable)
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._reply is not None:
            self._reply.fail(error)
        self._stream.fail(error)
        self._stream.close()
        self._on_end()

    def _take(self, event: Mapping[str, Any]) -> None:
        match event:
            case {"begin": name}:
                self._pieces, self._reply = [], Mailbox(Call(()))
                self._add(Feed("", name, self._reply))
            case {"piece": str() as text} if self._reply is not None:
                self._pieces.append(text)
                self._reply.put(Chunk(text))
            case {"end": _} if self._reply is not None:
                self._reply.finish(Completion((Output("".join(self._pieces)),)))
                self._reply = None
            case {"text": str() as text}:
                self._add(Feed(text, event.get("name")))
            case {"set": str() as name, "value": value, "meta": meta}:
                self._variables.settle(name, decoded(value), decoded(meta))

    def _add(self, feed: Feed) -> None:
        self.interpreter.feeds.append(feed)
        if feed.name is not None:
            self._variables.expect(feed.name)


def _unreadable(error: Exception) -> CallFailed:
    failure = CallFailed(f"what the server reports of a program cannot be read: {error!r:.200}")
    failure.__cause__ = error
    return failure
