"""Suggestions for unknown keyword arguments of adapters.

Those of `core.api.keywords`, and where to give engine settings and the URL of a server.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...core.api.keywords import ENGINE_SETTINGS, KeywordOwner, suggestion_for

_URLS = ("base_url", "api_base", "openai_api_base", "endpoint_url")
_ENGINE = KeywordOwner(
    ENGINE_SETTINGS,
    "{name} is of the engine: settings={{'{name}': ...}},"
    " or a backend from connect(..., {name}=...)",
)


def suggestion(name: str, known: Iterable[str], *owners: KeywordOwner) -> str:
    """The end of an error message for a name that is not in `known`: "; did you mean ...?", or
    where the name is accepted; "" without a suggestion. owners: other places that accept names."""
    if name in _URLS:
        return "; pass the URL of a server as the model"
    return suggestion_for(name, known, *owners, _ENGINE)
