"""The error of a program that cannot be traced, and where in the program that is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType, TracebackType

from ....core.api.protocol import ProgramError

_ROOT = __name__.partition(".adapters.")[0]
_OWN = tuple(f"{_ROOT}.{name}." for name in ("adapters.native", "adapters.sglang", "core"))
_PRIMITIVES = tuple(f"{_ROOT}.adapters.{name}.primitives" for name in ("native", "sglang"))


class NotTraceable(ProgramError):
    """A program does what a graph cannot say.

    operation: what it does. file, line: where. instead: what to write.
    """

    __module__ = "forkroot"  # as in `core.api.errors`

    def __init__(self, operation: str, instead: str, location: Location) -> None:
        self.operation, self.instead = operation, instead
        self.file, self.line = location.file, location.line
        super().__init__(f"{location.file}:{location.line}: {operation}; {instead}")


@dataclass(frozen=True, slots=True)
class Location:
    """A line of a program. primitive: the word of the language that it calls there, if any."""

    file: str
    line: int
    primitive: str | None = None


def caller_location() -> Location:
    """The line of the user's program that runs now in this thread."""
    frame: FrameType | None = sys._getframe(1)
    primitive, last = None, None
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not _is_own(module):
            last = frame
            break
        if module in _PRIMITIVES and not frame.f_code.co_name.startswith(("_", "<")):
            primitive = frame.f_code.co_name
        frame = frame.f_back
    if last is None:
        return Location("<unknown>", 0, primitive)
    return Location(last.f_code.co_filename, last.f_lineno, primitive)


def error_location(error: BaseException) -> Location:
    """The innermost line of the user's program in an error's traceback."""
    found, trace = Location("<unknown>", 0), error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if not _is_own(module):
            found = _location(trace)
        trace = trace.tb_next
    return found


def _location(trace: TracebackType) -> Location:
    return Location(trace.tb_frame.f_code.co_filename, trace.tb_lineno)


def _is_own(module: str) -> bool:
    """Whether this is no module of the user's."""
    is_standard = module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"
    return f"{module}.".startswith(_OWN) or is_standard
