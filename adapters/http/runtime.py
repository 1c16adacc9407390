"""An older name of `adapters.http.server.runtime`."""

from .server.runtime import Elsewhere, Limits, Runtime, Texts

__all__ = ["Elsewhere", "Limits", "Runtime", "Texts"]
