"""Reads a file of API keys: who may use a server, with which share, and how much in a minute.

    {"KEY": {"weight": 2, "requests_per_minute": 60, "tokens_per_minute": 9000}, "KEY": {},
     "KEY": {"admin": true}}

Keys in a file are not seen in the list of processes. No error repeats one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.api.files import SETTINGS_BYTES, read_object
from ...core.api.protocol import InvalidCall, InvalidModel
from .server.rate_limits import Rates
from .server.settings import Settings

_NAME = "keys_file"
_FIELDS = "weight, requests_per_minute, tokens_per_minute, or admin"


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The keys of a file, as `Settings` has them."""

    keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    weights: dict[str, float] = field(default_factory=dict)
    rates_by_key: dict[str, Rates] = field(default_factory=dict)

    def added_to(self, settings: Settings) -> Settings:
        """The settings with these keys beside their own."""
        return replace(
            settings,
            keys=(*settings.keys, *self.keys),
            admin_keys=(*settings.admin_keys, *self.admin_keys),
            weights={**settings.weights, **self.weights},
            rates_by_key={**settings.rates_by_key, **self.rates_by_key},
        )


def read_keys(path: Path, rates: Rates) -> KeyFile:
    """The keys of a file. rates: of keys for which it has none. Raises InvalidCall for a file that
    cannot be read, and for a field or value that is not allowed."""
    try:
        entries = read_object(path, SETTINGS_BYTES)
    except (InvalidModel, OSError) as error:
        raise InvalidCall(_NAME, str(path), f"a file of JSON ({error})") from None
    found = KeyFile((), tuple(key for key, entry in entries.items() if _is_admin(entry)))
    clients = {key: entry for key, entry in entries.items() if key not in found.admin_keys}
    return replace(
        found,
        keys=tuple(clients),
        weights={key: entry["weight"] for key, entry in clients.items() if "weight" in entry},
        rates_by_key={key: _rates(entry, rates) for key, entry in clients.items()},
    )


def _is_admin(entry: Any) -> bool:
    """Whether this is the entry of an admin. Raises InvalidCall for what is no entry."""
    if not isinstance(entry, dict):
        raise InvalidCall(_NAME, entry, f"an object for each key, with {_FIELDS}")
    allowed = {"weight", "requests_per_minute", "tokens_per_minute", "admin"}
    for name in entry.keys() - allowed:
        raise InvalidCall(_NAME, name, _FIELDS)
    is_admin = entry.get("admin", False)
    if not isinstance(is_admin, bool):
        raise InvalidCall("admin", is_admin, "true or false")
    if is_admin and len(entry) > 1:
        raise InvalidCall(_NAME, sorted(entry), "admin alone: an admin's key has no limits")
    return is_admin


def _rates(entry: dict[str, Any], rates: Rates) -> Rates:
    found = {"requests": rates.requests, "tokens": rates.tokens}
    for name in found:
        number = entry.get(f"{name}_per_minute", found[name])
        if number is not None and (type(number) is not int or number < 1):
            raise InvalidCall(f"{name}_per_minute", number, "an integer >= 1, or null for any")
        found[name] = number
    return Rates(**found)
