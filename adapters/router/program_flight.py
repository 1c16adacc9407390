"""A whole program on its way to a replica, and its report on its way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api.protocol import ForkrootError, ProgramError, UnsupportedCall
from ..programs import ProgramHost, ProgramReceiver, ProgramRequest
from .flight import Dispatcher, Flight, Leg
from .policies import Request


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

    @property
    def is_done(self) -> bool:
        """As `Flight.is_done`."""
        return self._is_done

    def _send_to(self, leg: Leg) -> None:
        receiver, self._report = _Receiver(self, leg), {}
        host = leg.replica.backend
        if not isinstance(host, ProgramHost):
            kind = type(host).__name__
            receiver.fail(UnsupportedCall("program", kind, "replicas that run programs"), {})
            return
        leg.cancel = host.run_program(self._program, receiver)
        if self._is_cancelled or leg.is_over:  # before the replica had it
            leg.cancel()

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

    def take(self, leg: Leg, event: Mapping[str, Any]) -> None:
        """Something has happened there."""
        if self._delivers(leg) and not self._is_done:
            self._receiver.take(event)

    def end(self, leg: Leg, state: Mapping[str, Any]) -> None:
        """It has ended well there."""
        if not self._ends_leg(leg):
            return
        self._router.land(self, leg.replica, None)
        if self._ends():
            self._receiver.end(state)
        self._router.end(self)

    def failed(self, leg: Leg, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """It has ended there in an error."""
        if not self._ends_leg(leg):
            return
        if self._is_cancelled:  # which says nothing of the replica
            self._router.land(self, leg.replica, None)
            self._end_early()
            return
        self._report = report
        self._failed(leg.replica, error)


class _Receiver:
    """A `ProgramReceiver` for one leg."""

    def __init__(self, flight: ProgramFlight, leg: Leg) -> None:
        self._flight = flight
        self._leg = leg

    def take(self, event: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.take`."""
        self._flight.take(self._leg, event)

    def end(self, state: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.end`."""
        self._flight.end(self._leg, state)

    def fail(self, error: ForkrootError, report: Mapping[str, Any]) -> None:
        """As `ProgramReceiver.fail`."""
        self._flight.failed(self._leg, error, report)
