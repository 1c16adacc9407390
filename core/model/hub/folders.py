"""Where a model's files are, by the name that a user gives it. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

from ...api.protocol import InvalidCall, InvalidModel
from ...common.suggestions import did_you_mean
from .client import Hub
from .client import model_of_page as model_of_page
from .embedded import ALL_EMBEDDED, embedded_folder
from .embedded import EMBEDDED as EMBEDDED
from .errors import NotOnHub
from .fetch import fetch, fetch_texts
from .names import hub_name, repository_of

DUMMY = "dummy:"
_KNOWN = (
    *("a checkpoint folder", "a hub model ('org/name')"),
    *("'tiny' (the embedded model)", "'tiny-vision' (it sees)", "'dummy:SHAPE'"),
)
_ADDRESS = re.compile(r"(?:(https?):?/*)?((?:[\w.-]+|\[[0-9a-f:]+\]):\d+(?:/.*)?)", re.IGNORECASE)


def is_dummy(model: str | Path) -> bool:
    """Whether a model is made instead of read."""
    return str(model).startswith(DUMMY)


def model_folder(model: str | Path) -> Path:
    """The folder of a checkpoint: a path; "tiny" for the one in the box, whose tokenizer is that
    of dummies, too, or "tiny-vision", which also sees pictures; or the name of a hub model,
    "org/name" or "org/name@revision", which is downloaded if it is not in the cache. A folder of
    that name comes first. Raises InvalidModel."""
    if not isinstance(model, str | Path) or not str(model).strip():
        raise InvalidModel(f"model={model!r} is not a name; expected {_listed(_KNOWN)}")
    folder = Path(model)
    if is_dummy(model):
        return embedded_folder(EMBEDDED)
    if folder.is_dir():
        return folder
    if str(model) in ALL_EMBEDDED:
        return embedded_folder(str(model))
    name = None if folder.is_file() else hub_name(model)
    if name is None:
        raise unknown_model(model)
    with hub_errors(model):
        return fetch(name, import_module("..checkpoint.load", __package__).describe)


def texts_folder(model: str | Path) -> Path:
    """A folder with the tokenizer and chat template of a model: as `model_folder`, but no weights
    of a hub model are downloaded. Raises InvalidModel."""
    name = hub_name(model) if is_hub_model(model) else None
    if name is None:
        return model_folder(model)
    with hub_errors(model):
        return fetch_texts(name)


@contextmanager
def hub_errors(model: str | Path) -> Iterator[None]:
    """Errors of the hub name the model, and the folder here with the closest name."""
    try:
        yield
    except NotOnHub as error:
        suggestion = did_you_mean(repr(str(model)), map(repr, _checkpoints_beside(Path(model))))
        message = f"model={str(model)!r} is not a folder here, and {error}{suggestion}"
        raise InvalidModel(message) from error


def cached_folder(model: str | Path) -> Path:
    """As `model_folder`, without asking the hub. Raises InvalidModel for a model that is not in
    its cache."""
    name = hub_name(model) if is_hub_model(model) else None
    found = None if name is None else Hub().cached(name)
    if name is not None and found is None:
        raise InvalidModel(f"{name} is not in the cache")
    return found or model_folder(model)


def is_hub_model(model: str | Path) -> bool:
    """Whether this is the name of a hub model, and nothing here has the same name."""
    return not Path(model).exists() and hub_name(model) is not None


def pinned(model: str | Path, revision: str | None) -> str | Path:
    """The name of a hub model with its revision, as "org/name@revision". Raises InvalidCall for a
    revision of anything else, or a second one."""
    if revision is None:
        return model
    if not isinstance(revision, str) or not is_hub_model(model) or "@" in str(model):
        raise InvalidCall(
            "revision", revision, "a branch, tag or commit, for a hub model 'org/name'"
        )
    if hub_name(named := f"{model}@{revision}") is None:
        raise InvalidCall("revision", revision, "the name of a branch, a tag, or a commit")
    return named


def model_name(folder: str | Path) -> str:
    """What a model is called: "org/name" for a snapshot of the hub, else the folder's name."""
    path = Path(folder)
    return repository_of(path) or path.name


def unknown_model(model: str | Path, others: Sequence[str] = ()) -> InvalidModel:
    """The error for an unknown name, with the closest known one, for the caller to raise. others:
    what else is allowed, if anything is."""
    name = str(model)
    address = _ADDRESS.fullmatch(name) if others else None
    suggestion = f"; did you mean '{address[1] or 'http'}://{address[2]}'?" if address else ""
    known = *ALL_EMBEDDED, *_checkpoints_beside(Path(name))
    suggestion = suggestion or did_you_mean(repr(name.strip()), map(repr, known))
    message = "is a file, not a folder" if Path(name).is_file() else "is not a folder here"
    return InvalidModel(
        f"model={name!r} {message}; expected {_listed((*_KNOWN, *others))}{suggestion}"
    )


def _listed(names: Sequence[str]) -> str:
    return f"one of: {', '.join(names)}"


def _checkpoints_beside(path: Path) -> Iterator[str]:
    """The folders of checkpoints where this one would be, each as it would be written."""
    with suppress(OSError, ValueError):  # a name that no file can have
        for config in path.parent.glob("*/config.json"):
            yield str(path.with_name(config.parent.name))
