"""The errors of the protocol. Each ends one call (or one load) and harms no other.

ForkrootError
├── InvalidCall (ValueError)      a field has a value that is not allowed
│   ├── UnsupportedCall           allowed in general, but not by this model or runtime
│   └── CallTooLarge              cannot fit this runtime even when it is empty
├── InvalidModel (ValueError)     a checkpoint cannot be run
├── ProgramError (RuntimeError)   a program of the native language went wrong
├── DeadlineExceeded (TimeoutError)
├── Overloaded (RuntimeError)     the waiting queue is full, or no constraint can be compiled now
├── CallFailed (RuntimeError)     the runtime failed while it ran this call
├── NotPicklable (TypeError)      belongs to its process, and was to be sent to another
└── BackendClosed (RuntimeError)  closed, or died, before the call ended or was made
    └── EngineDied            it was not closed: what runs the calls is gone
"""

from __future__ import annotations


class Shown(str):
    """A value that stayed elsewhere: the text that shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ForkrootError(Exception):
    """Base of every error that forkroot raises on purpose."""


class InvalidCall(ForkrootError, ValueError):
    """A field of a call has a value that is not allowed."""

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(field, value, allowed)
        self.field = field
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        try:
            shown = repr(self.value)
        except RecursionError:
            shown = f"a {type(self.value).__name__} of great depth"
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        return f"invalid {self.field}={shown}: expected {self.allowed}"


class UnsupportedCall(InvalidCall):
    """A value that is allowed in general, but not by this model or runtime."""


class CallTooLarge(InvalidCall):
    """A call that could not run even if it had the whole runtime for itself."""


class InvalidModel(ForkrootError, ValueError):
    """A checkpoint that cannot be run; names the file or key, and what is allowed."""


class ProgramError(ForkrootError, RuntimeError):
    """A program of the native language went wrong; `__cause__` is the original error."""


class DeadlineExceeded(ForkrootError, TimeoutError):
    """The call did not end within its deadline."""


class Overloaded(ForkrootError, RuntimeError):
    """The waiting queue is full, or no process can compile the call's constraint now; try again
    later."""


class CallFailed(ForkrootError, RuntimeError):
    """The runtime failed while it ran this call; `__cause__` is the original error."""


class NotPicklable(ForkrootError, TypeError):
    """It belongs to the process in which it was made, and cannot be sent to another one."""


class BackendClosed(ForkrootError, RuntimeError):
    """The backend was closed, or died, before the call ended, or before it was made."""

    @classmethod
    def meanwhile(cls) -> BackendClosed:
        """Of a call that was open when somebody closed the backend."""
        return cls("the backend was closed before the call ended")

    @classmethod
    def before(cls) -> BackendClosed:
        """Of a call, or a question, that came when the backend had been closed."""
        return cls("the backend was already closed when it was called; expected an open backend")


class EngineDied(BackendClosed):
    """What ran the calls is gone, and was not closed. is_replaced: another is started."""

    def __init__(self, message: str, is_replaced: bool = False) -> None:
        super().__init__(message)
        self.is_replaced = is_replaced


_EXPORTED = (
    *(ForkrootError, InvalidCall, UnsupportedCall, CallTooLarge, InvalidModel, ProgramError),
    *(DeadlineExceeded, Overloaded, CallFailed, NotPicklable, BackendClosed, EngineDied),
)
for _error in _EXPORTED:
    _error.__module__ = "forkroot"  # tracebacks name them as they are imported
