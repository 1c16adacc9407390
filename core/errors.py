"""An older name of `core.api.errors`."""

from .api.errors import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    DeadlineExceeded,
    EngineDied,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    NotPicklable,
    Overloaded,
    ProgramError,
    Shown,
    UnsupportedCall,
)

__all__ = [
    "BackendClosed",
    "CallFailed",
    "CallTooLarge",
    "DeadlineExceeded",
    "EngineDied",
    "ForkrootError",
    "InvalidCall",
    "InvalidModel",
    "NotPicklable",
    "Overloaded",
    "ProgramError",
    "Shown",
    "UnsupportedCall",
]
