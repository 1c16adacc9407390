"""Runs programs by a clock that counts tokens: each call takes as long as it may write tokens, and
nothing depends on how threads are scheduled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from forkroot import ProgramState
from forkroot.adapters.native.interpreter import slots, stream
from forkroot.adapters.native.language.settings import Settings
from forkroot.adapters.native.run import Run
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import BackendInfo, Call, ForkHint, Reply

from .programs import answer


@dataclass
class Timed:
    """A call, and when it began and ended. text: of its prompt and its answer."""

    call: Call
    start: float
    end: float
    text: str

    @property
    def prompt(self) -> str:
        return prompt_text(self.call.prompt)

    @property
    def hint(self) -> ForkHint:
        assert self.call.hint is not None
        return self.call.hint

    @property
    def num_tokens(self) -> int:
        return 0 if self.call.options else self.call.sampling.max_tokens or 0


class Here:
    """Runs what is posted to it at once."""

    def submit(self, action: Callable[[], object]) -> None:
        action()


class Clock(ScriptedBackend):
    """A backend whose calls end in the order of a clock. slots: tokens that it has room for."""

    def __init__(self, slots: int = 1 << 20) -> None:
        super().__init__(answer, is_held=True)
        self.timed: list[Timed] = []
        self._slots = slots
        self._now = 0.0

    def info(self) -> BackendInfo:
        found = super().info()
        return BackendInfo(
            found.model, found.context_len, 256, found.features, load={"slots": self._slots}
        )

    def submit(self, call: Call) -> Reply:
        if call.sampling.max_tokens or call.options:
            found = answer(call)
            text = prompt_text(call.prompt) + (found if isinstance(found, str) else found[0])
            duration = 1 if call.options else call.sampling.max_tokens or 0
            self.timed.append(Timed(call, self._now, self._now + duration, text))
        return super().submit(call)

    @property
    def roots(self) -> list[Call]:
        """The calls that only send a prefix ahead."""
        return [call for call in self.calls if call.sampling.max_tokens == 0 and not call.options]

    def advance(self) -> bool:
        """End the calls that end next; whether there were any."""
        open_replies = {id(reply.call): at for at, reply in enumerate(self.replies)}
        waiting = [it for it in self.timed if not self.replies[open_replies[id(it.call)]].done()]
        if not waiting:
            return False
        self._now = min(it.end for it in waiting)
        for it in waiting:
            if it.end == self._now:
                self.release(open_replies[id(it.call)])
        return True


def run_by_clock(
    program: Any,
    arguments: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    backend: Clock,
    hint: ForkHint | None = None,
    **sampling: Any,
) -> ProgramState:
    """The ended state of a run, whose calls end one moment after the other: each once the program
    waits."""
    is_waiting = threading.Event()

    class Watched(threading.Event):
        def set(self) -> None:
            is_waiting.clear()
            super().set()

        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                is_waiting.set()
            return super().wait(timeout)

    for module in (slots, stream):
        known = {name: getattr(threading, name) for name in ("Lock", "RLock", "Timer")}
        monkeypatch.setattr(module, "threading", SimpleNamespace(Event=Watched, **known))
    settings = Settings(backend=backend, sampling=sampling)
    run = Run(program.body, settings, (), arguments, ProgramState, Here(), hint)  # type: ignore[arg-type]
    ended = []

    def execute() -> None:
        ended.append(run.execute())
        is_waiting.set()

    threading.Thread(target=execute, daemon=True).start()
    while True:
        assert is_waiting.wait(30)
        if ended:
            run.raise_error()
            return ended[0]
        assert backend.advance(), "the program waits for nothing"
