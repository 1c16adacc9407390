"""The plugin that knows the names of API models; what it loads is imported at first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api.protocol import Backend, InvalidCall
from ..hookspecs import hookimpl

PREFIXES = ("openai:", "anthropic:")
_ALLOWED = (
    "False, for an API: its model runs elsewhere. To serve a model, name one that forkroot runs;"
    " clients of the API call it themselves"
)


class Plugin:
    """As `adapters.hookspecs` has it. model_prefixes: of all the names that it knows."""

    model_prefixes = PREFIXES

    @hookimpl
    def load_model(self, ref: str, config: Mapping[str, Any]) -> Backend | None:
        """A backend for "openai:MODEL" or "anthropic:MODEL"; nothing is sent yet. Raises
        InvalidCall and InvalidModel."""
        if not ref.startswith(PREFIXES):
            return None
        settings = dict(config)
        if settings.pop("process", False):
            raise InvalidCall("process", True, _ALLOWED)
        from .backend import ApiBackend

        return ApiBackend(ref, settings)


api = Plugin()
