"""What names a model: what is known of a name before anything is started.

It knows of folders, the hub, plugins and servers only what their names say.
"""

from __future__ import annotations

import functools
import logging
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.api.config import EngineConfig
from ..core.api.files import CONFIG_BYTES, read_object
from ..core.api.keywords import ENGINE_SETTINGS, OF_CONNECT, KeywordOwner, suggestion_for
from ..core.api.protocol import ForkrootError
from ..core.model.hub.embedded import ALL_EMBEDDED
from ..core.model.hub.folders import (
    EMBEDDED,
    cached_folder,
    is_dummy,
    is_hub_model,
    model_folder,
    pinned,
    unknown_model,
)

_log = logging.getLogger(__name__)
OTHERS = (
    *("the URL of a server", "'openai:MODEL' or 'anthropic:MODEL' (an API)"),
    "a name that a plugin knows",
)
_URLS = ("base_url", "api_base", "openai_api_base", "endpoint_url")
_ENGINE = KeywordOwner(
    ENGINE_SETTINGS,
    "{name} is of the engine: settings={{'{name}': ...}},"
    " or a backend from connect(..., {name}=...)",
)
_EMBEDDED_NOTE = (
    "forkroot: {0!r}, the embedded model, has 3.7 million parameters: it knows a few facts, copies"
    " fields out of short texts, and little else; for real work pass a checkpoint folder or a hub"
    " model in place of {0!r}, such as Qwen/Qwen2.5-0.5B-Instruct"
)


def unnamed() -> str:
    """The embedded model's name, for a caller that named no model; logs a warning."""
    introduce(logging.WARNING)
    return EMBEDDED


@functools.cache
def introduce(level: int) -> None:
    """Log, once in a process at each level, what the embedded model can do and how to use a real
    one. Without a logging setup, Python writes warnings to stderr and drops lower levels.
    """
    note = _EMBEDDED_NOTE.format(EMBEDDED)
    if sys.stderr is not None and sys.stderr.isatty():  # words stay whole at the end of its lines
        width = shutil.get_terminal_size().columns
        note = textwrap.fill(note, width, break_long_words=False, break_on_hyphens=False)
    _log.log(level, "%s", note)


def introduce_embedded(model: str | Path) -> None:
    """Introduce the embedded model if `model` names it: as a warning on a terminal only."""
    if str(model) in ALL_EMBEDDED and not Path(model).is_dir():
        introduce(logging.WARNING if sys.stderr.isatty() else logging.INFO)


def is_known(model: str | Path) -> bool:
    """Whether the model is known without a plugin."""
    if not isinstance(model, str | Path) or not str(model).strip():
        return True  # not a name: `connect` raises the error
    return str(model) in ALL_EMBEDDED or is_dummy(model) or Path(model).is_dir()


def check_name(model: str | Path) -> None:
    """Raise InvalidModel for what cannot be the name of any model."""
    from .registry import registry

    is_possible = is_known(model) or is_url(model) or is_hub_model(model)
    if not is_possible and not registry().may_load(model):
        raise unknown_model(model, OTHERS)


def check_settings(model: str | Path, settings: Mapping[str, Any]) -> None:
    """Raise InvalidCall for a setting that an engine of ours refuses, before anything is started.
    Settings of servers and of models that a plugin may load are not checked."""
    from .registry import registry

    if is_known(model) or not (is_url(model) or registry().may_load(model)):
        engine = {name: settings[name] for name in settings if name not in OF_CONNECT}
        EngineConfig.from_settings(registry().resolved(engine))


def located(model: str | Path, revision: str | None = None) -> str | Path:
    """A hub model as its folder, downloaded if it is not in the cache; anything else, and what a
    plugin may know, as it is. Raises as `connect`."""
    model = pinned(model, revision)
    return model_folder(model) if is_fetched(model) else model


def is_fetched(model: str | Path) -> bool:
    """Whether this is the name of a hub model, and of nothing that a plugin may know."""
    from .registry import registry

    if is_known(model) or is_url(model):
        return False
    return is_hub_model(model) and not registry().may_load(str(model))


def hub_folder(model: object, revision: str | None = None) -> Path | None:
    """The cached folder of a hub model, without asking the hub; None for anything else."""
    if not isinstance(model, str) or not is_hub_model(model):
        return None
    with suppress(ForkrootError):
        return cached_folder(pinned(model, revision))
    return None


def trained_len(model: str | Path) -> int | None:
    """The most tokens of a sequence that a checkpoint's config allows. Nothing is loaded."""
    if is_dummy(model) or is_url(model):
        return None
    with suppress(
        ForkrootError, OSError, ValueError, AttributeError
    ):  # its first use raises the error
        config = read_object(cached_folder(model) / "config.json", CONFIG_BYTES)
        found = config.get("max_position_embeddings")
        return found if isinstance(found, int) else None
    return None


def is_url(model: str | Path) -> bool:
    """Whether this is the address of a server."""
    return str(model).lower().startswith(("http://", "https://"))


def takes_key(model: str | Path, is_explicit: bool) -> bool:
    """Whether an adapter's key is for this model: a server's URL, or, where a user gave the key
    for it, a name that a plugin may know."""
    from .registry import registry

    return is_url(model) or (is_explicit and not is_known(model) and registry().may_load(model))


def suggestion(name: str, known: Iterable[str], *owners: KeywordOwner) -> str:
    """The end of an error message for a name that is not in `known`: "; did you mean ...?", or
    where the name is accepted; "" without a suggestion. owners: other places that accept names."""
    if name in _URLS:
        return "; pass the URL of a server as the model"
    return suggestion_for(name, known, *owners, _ENGINE)
