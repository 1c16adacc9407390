"""A whole program on its way to a replica, and its report on its way back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...core.api.protocol import ForkrootError, ProgramError, UnsupportedCall
from ..programs import ProgramHost, ProgramReceiver, ProgramRequest
from .flight import Dispatcher, Flight
from .policies import Request
from .replica import Replica


class ProgramFlight(Flight):
    """A run of a program, and who takes what it reports. It goes to another replica only where
    nothing has been reported yet."""

    def __init__(
        self,
        router: Dispatcher,
        program: ProgramRequest,
        receiver: ProgramReceiver,
        request: Request,
    ) -> None:
        super().__init__(router, request, None)
        self._program = program
        self._receiver = receiver
        self._report: Mapping[str, Any] = {}
        self._is_done = False
        self._cancel_there: Callable[[], object] = lambda: None

    @property
    def is_done(self) -> bool:
        """As `Flight.is_done`."""
        return self._is_done

    def _send_to(self, replica: Replica) -> None:
        leg, self._report = _Leg(self, replica), {}
        host = replica.backend
        if not isinstance(host, ProgramHost):
            kind = type(host).__name__
            leg.fail(UnsupportedCall("program", kind, "replicas that run programs"), {})
            return
        cancel = host.run_program(self._program, leg)
        with self._lock:
            self._cancel_there = cancel
        if self._is_cancelled:  # before the replica had it
            cancel()

    def _stop(self) -> None:
        self._cancel_there()

    def _end_early(self) -> None:
        self.fail(ProgramError("the run was ended"))

    def _deliver(self, error: BaseException) -> None:
        if not self._ends():
            return
        if not isinstance(error, ForkrootError):
            error = ProgramError(f"the run failed: {error!r:.200}")
        self._receiver.fail(error, self._report)

    def _ends(self) -> bool:
        """Whether this is its end; it has only one."""
        with self._lock:
            is_first, self._is_done = not self._is_done, True
        return is_first

    # --- what a replica reports ------------------------------------------------------------------

    def take(self, event: Mapping[str, Any]) -> None:
        """Something has happened there."""
        self.has_streamed = True
        if not self._is_done:
            self._receiver.take(event)

    def end(self, replica: Replica, state: Mapping[str, Any]) -> None:
        """It has ended well there."""
        self._router.land(self, replica, None)
        if self._ends():
            self._receiver.end(state)
        self._router.end(self)

    def failed(self, replica: Replica, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """It has ended there in an error."""
        if self._is_cancelled:  # which says nothing of the replica
            self._router.land(self, replica, None)
            self._end_early()
            return
        self._report = report
        self._failed(replica, error)


class _Leg:
    """A `ProgramReceiver` for one replica that was sent the program; only its first end counts."""

    def __init__(self, flight: ProgramFlight, replica: Replica) -> None:
        self._flight = flight
        self._replica = replica
        self._is_over = False

    def take(self, event: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.take`."""
        self._flight.take(event)

    def end(self, state: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.end`."""
        if not self._is_over:
            self._is_over = True
            self._flight.end(self._replica, state)

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.fail`."""
        if not self._is_over:
            self._is_over = True
            self._flight.failed(self._replica, error, report)
