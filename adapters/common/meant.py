"""What a user of a framework meant by a name that nobody knows: as `core.api.keywords` finds it,
and where the settings of the engine and the URL of a server go.
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


def hint(name: str, known: Iterable[str], *places: KeywordOwner) -> str:
    """What the refusal of a name that is none of `known` ends with: "; did you mean ...?", or where
    else it goes; "" where nothing is like it. places: where else that may be."""
    if name in _URLS:
        return "; the URL of a server is given in the place of the model"
    return suggestion_for(name, known, *places, _ENGINE)
