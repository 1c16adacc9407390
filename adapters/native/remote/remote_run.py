"""One run of a program on a server; it is used as a `Run` here is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ....core.api.protocol import Backend, ForkrootError, ProgramError, Prompt
from ...programs import ProgramHost, ProgramRequest
from ..interpreter.reader import Reader
from ..interpreter.saved import Saved
from ..language.settings import Settings
from .mirror import Mirror
from .requests import RunRequest

S = TypeVar("S", bound=Reader)


class RemoteRun(Generic[S]):
    """One run of a graph on the backend of `settings`, a `ProgramHost`.

    digest, graph, opening: as in `ProgramRequest`. passes: as in `RunRequest`. state_type: of its
    state, a `ProgramState`. Raises InvalidCall for arguments that are not plain data.
    """

    def __init__(
        self,
        digest: str,
        graph: bytes,
        settings: Settings,
        arguments: Mapping[str, Any],
        passes: Sequence[str] | None,
        state_type: type[S],
        opening: Prompt = (),
    ) -> None:
        body = RunRequest.of(arguments, settings, passes).as_json()
        encoded = json.dumps(body, allow_nan=False).encode()
        self._request = ProgramRequest(digest, graph, settings.namespace, encoded, opening)
        self._host = settings.find()
        self._mirror = Mirror(settings)
        self._state_type = state_type
        self._cancel: Callable[[], object] = lambda: None
        self._abort_error: BaseException | None = None

    @property
    def state(self) -> S:
        """As `Run.state`."""
        return self._state_type(self._mirror.interpreter, is_outside=True)

    def start(self) -> S:
        """As `Run.start`, without a thread."""
        if self._abort_error is None:
            assert isinstance(self._host, ProgramHost)
            self._cancel = self._host.run_program(self._request, self._mirror)
        if self._abort_error is not None:  # meanwhile
            self._cancel()
        return self.state

    def execute(self) -> S:
        """As `Run.execute`: this thread waits until the run has ended."""
        state = self.start()
        try:
            self._mirror.interpreter.stream.wait(self._is_over)
        except BaseException:
            self.abort(ProgramError("the run was interrupted"))
            raise
        return state

    def result(self) -> S:
        """As `Run.result`."""
        state = self.execute()
        self.raise_error()
        return state

    def raise_error(self) -> None:
        """As `Run.raise_error`."""
        self.state.sync()

    def failure(self) -> BaseException | None:
        """As `Run.failure`."""
        return self._mirror.interpreter.stream.error

    def saved(self, num_retries: int) -> Saved:
        """As `Run.saved`."""
        self._mirror.interpreter.num_retries = num_retries
        return Saved.of(self._mirror.interpreter)

    def abort(self, error: BaseException) -> None:
        """As `Run.abort`; the run on the server is ended, too."""
        self._abort_error = error
        self._mirror.interpreter.stream.fail(error)
        self._mirror.interpreter.stream.close()
        self._cancel()

    def _is_over(self) -> bool:
        stream = self._mirror.interpreter.stream
        return stream.is_closed or stream.error is not None


def hindrance(settings: Settings) -> str | None:
    """Why a run cannot go to a server as a whole; None: it can."""
    backend: Backend = settings.find()
    if settings.backends:
        return "backends= has others, which the server does not know"
    if settings.speculate:
        return "speculate= is for calls that are sent one by one"
    if not isinstance(backend, ProgramHost):
        return f"the backend ({type(backend).__name__}) is no server that runs programs"
    with suppress(ForkrootError):  # the run itself raises it
        if not backend.takes_programs():
            return (
                "the backend runs no whole programs: it routes to engines, or its forkroot is older"
            )
    return None
