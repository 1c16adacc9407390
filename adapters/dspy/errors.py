"""Our typed errors as DSPy's engines raise them; DSPy turns these into its public ones.

DSPy's LM retries what may pass by itself: a full queue, a failed or lost runtime, a time-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dspy import lm15
from dspy.clients.errors import error_boundary

from ...core.api.protocol import (
    BackendClosed,
    Call,
    CallFailed,
    CallTooLarge,
    DeadlineExceeded,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Overloaded,
    UnsupportedCall,
)

PROVIDER = "forkroot"

# Specific classes before their parents.
_CLASSES: tuple[tuple[type[Exception], type[lm15.LM15Error]], ...] = (
    (CallTooLarge, lm15.ContextLengthError),
    (InvalidCall, lm15.InvalidRequestError),
    (InvalidModel, lm15.ConfigurationError),
    (DeadlineExceeded, lm15.TimeoutError),
    (Overloaded, lm15.RateLimitError),
    (CallFailed, lm15.ServerError),
    (BackendClosed, lm15.TransportError),
    (ForkrootError, lm15.ProviderError),
)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raise our errors from within as DSPy's."""
    try:
        yield
    except ForkrootError as error:
        raise as_dspy_error(error) from error


@contextmanager
def raise_as_dspy(model: str) -> Iterator[None]:
    """As `translate_errors`, raised as the errors that users of DSPy catch. model: its name."""
    with error_boundary(model, provider=PROVIDER), translate_errors():
        yield


def as_dspy_error(error: ForkrootError, call: Call | None = None) -> lm15.LM15Error:
    """The error of `dspy.lm15` with the same meaning."""
    if isinstance(error, UnsupportedCall):
        return lm15.UnsupportedFeatureError(str(error), provider=PROVIDER, feature=error.field)
    if _is_crowded_out(error, call):
        return lm15.ContextLengthError(str(error), provider=PROVIDER)
    for ours, theirs in _CLASSES:
        if isinstance(error, ours):
            return theirs(str(error), provider=PROVIDER)
    return lm15.LM15Error(str(error), provider=PROVIDER)


def _is_crowded_out(error: ForkrootError, call: Call | None) -> bool:
    """Whether the prompt, not `max_tokens`, left too little room for the shortest answer."""
    if call is None or not isinstance(error, InvalidCall) or error.field != "max_tokens":
        return False
    return error.value != call.sampling.max_tokens
