"""An older name of `adapters.http.server.runtime`."""

from .server.runtime import Elsewhere, Limits, ProgramLimits, Runtime, Texts

__all__ = ["Elsewhere", "Limits", "ProgramLimits", "Runtime", "Texts"]
