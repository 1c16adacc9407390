"""The errors of the protocol as LangChain's users catch them.

Each is both: the error of the protocol that it was, with its fields, and LangChain's for the same.
"""

from __future__ import annotations

from langchain_core import exceptions

from ...core.api.protocol import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    DeadlineExceeded,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Overloaded,
    UnsupportedCall,
)
from ..common.retries import is_passing


class ChatTooLarge(CallTooLarge, exceptions.ContextOverflowError):
    """A prompt that the model's context or the runtime's cache cannot hold."""


class ChatUnsupported(UnsupportedCall, exceptions.ModelInvalidRequestError):
    """A value that this model or runtime does not take."""


class ChatInvalid(InvalidCall, exceptions.ModelInvalidRequestError):
    """A value that is not allowed."""


class ModelInvalid(InvalidModel, exceptions.ModelNotFoundError):
    """A checkpoint that cannot be run."""


class ChatTimedOut(DeadlineExceeded, exceptions.ModelTimeoutError):
    """No answer within `timeout`."""


class ChatOverloaded(Overloaded, exceptions.ModelRateLimitError):
    """The runtime's waiting queue is full."""


class ChatFailed(CallFailed, exceptions.ModelAPIError):
    """The runtime failed while it ran the call."""


class ChatClosed(BackendClosed, exceptions.ModelConnectionError):
    """The backend was closed, or cannot be reached."""


_PAIRS: tuple[type[ForkrootError], ...] = (
    *(ChatTooLarge, ChatUnsupported, ChatInvalid, ModelInvalid),
    *(ChatTimedOut, ChatOverloaded, ChatFailed, ChatClosed),
)


def as_langchain(error: ForkrootError) -> ForkrootError:
    """The same error in both trees, caused by the one given; itself where LangChain has no like."""
    if isinstance(error, exceptions.LangChainException):
        return error
    for kind in _PAIRS:
        if isinstance(error, kind.__bases__[0]):
            both = kind(*error.args)
            both.__cause__ = error
            return both
    return error


def is_retryable(error: ForkrootError) -> bool:
    """Whether the same call may succeed a moment later."""
    return isinstance(error, CallFailed) or is_passing(error)
