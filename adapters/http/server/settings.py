"""Settings of the server: who may use it, and what it reports of its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ....core.api.calls import WEIGHTS
from ....core.api.files import SETTINGS_BYTES, TEMPLATE_BYTES, read_object, read_text
from ....core.api.protocol import InvalidCall, Shown
from .fetch import check_hosts
from .rate_limits import Rates

ANY = "*"
_ORIGIN = re.compile(r"null|[a-z][a-z0-9+.-]*://[^/\s]+")
_ORIGINS = "scheme, name and port, as https://a.site or http://localhost:3000, or *"
_KEYS = "a text of visible ASCII characters, at least one, without blanks at its ends"
_WEIGHTS = f"a number from {WEIGHTS[0]:g} to {WEIGHTS[1]:g}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server except its limits.

    keys: of the clients; none: everybody may call. Each key has a part of the cache to itself,
      unless shares_cache is set.
    admin_keys: for what concerns all clients, such as metrics and flushing the cache. Without one
      these routes are closed where there are client keys, and open where there are none.
    weights: by key, its share of the engine relative to the others'; 1 where none is given.
    media_hosts: whose pictures and clips are fetched where a request has an http(s) URL: names as
      a.site, a.site:8080 or, with all below it, .a.site; "*": any. None: nothing is fetched.
    rates: what each key may use in a minute; without keys, all clients together.
    rates_by_key: of keys that have other rates.
    tokenizer_info: what `/tokenizer_info` gives, as tokenizer_config.json has it.
    allowed_hosts: names in `Host` that are answered without keys, besides addresses, localhost and
      this machine's own name; "*": all.
    cors_origins: whose pages browsers may show the answers to, as "https://a.site"; "*": all.

    Raises InvalidCall for a key that no header could bear, or that every request without one would,
    for weights that are not allowed or of keys that are not known, for what is no origin, and for
    what is no host.
    """

    keys: tuple[str, ...] = ()
    admin_keys: tuple[str, ...] = ()
    shares_cache: bool = False
    tokenizer_info: Mapping[str, Any] = field(default_factory=dict)
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    rates_by_key: Mapping[str, Rates] = field(default_factory=dict)
    media_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, keys in (("api_key", self.keys), ("admin_key", self.admin_keys)):
            for key in keys:
                if not (key.isascii() and key.isprintable() and key and key == key.strip()):
                    raise InvalidCall(name, Shown("...") if key else key, _KEYS)
        check_hosts(self.media_hosts)
        for origin in self.cors_origins:
            if origin != ANY and not _ORIGIN.fullmatch(origin):
                raise InvalidCall("cors_origin", origin, _ORIGINS)
        if not self.rates_by_key.keys() <= {*self.keys}:
            raise InvalidCall("rates_by_key", Shown("..."), "rates of keys that are known")
        for key, weight in self.weights.items():
            if key not in self.keys:
                raise InvalidCall("key_weight", Shown("..."), "a weight of a key that is known")
            if type(weight) not in (int, float) or not WEIGHTS[0] <= weight <= WEIGHTS[1]:
                raise InvalidCall("key_weight", weight, _WEIGHTS)


def key_weights(given: Sequence[str]) -> dict[str, float]:
    """The weights that are given as KEY=N. Raises InvalidCall."""
    found: dict[str, float] = {}
    for text in given:
        key, _, number = text.rpartition("=")
        try:
            found[key] = float(number)
        except ValueError:
            raise InvalidCall("key_weight", number, _WEIGHTS) from None
    return found


def tokenizer_info(folder: Path) -> dict[str, Any]:
    """A checkpoint's tokenizer_config.json and chat template; empty without these files. Raises
    InvalidModel."""
    found: dict[str, Any] = {}
    path, template = folder / "tokenizer_config.json", folder / "chat_template.jinja"
    if path.is_file():
        found.update(read_object(path, SETTINGS_BYTES))
    if template.is_file():
        found["chat_template"] = read_text(template, TEMPLATE_BYTES)
    return found
