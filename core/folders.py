"""Where a model's files are, by the name that a user gives it. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .nearest import did_you_mean
from .protocol import InvalidModel

EMBEDDED = "tiny"
DUMMY = "dummy:"
_KNOWN = ("a checkpoint folder (nothing is downloaded)", "'tiny'", "'dummy:' and a shape")
_ADDRESS = re.compile(r"(?:(https?):?/*)?((?:[\w.-]+|\[[0-9a-f:]+\]):\d+(?:/.*)?)", re.IGNORECASE)


def is_dummy(model: str | Path) -> bool:
    """Whether a model is made instead of read."""
    return str(model).startswith(DUMMY)


def model_folder(model: str | Path) -> Path:
    """The folder of a checkpoint: a path, or "tiny" for the one in the box, whose tokenizer is that
    of dummies, too. Raises InvalidModel for a folder that is not there."""
    if not isinstance(model, str | Path) or not str(model).strip():
        raise InvalidModel(f"model={model!r} is no name; expected {_listed(_KNOWN)}")
    folder = Path(model)
    if is_dummy(model) or (str(model) == EMBEDDED and not folder.is_dir()):
        return Path(__file__).parent.parent / "models" / EMBEDDED
    if not folder.is_dir():
        raise no_model(model)
    return folder


def no_model(model: str | Path, others: Sequence[str] = ()) -> InvalidModel:
    """The error for a name that is none, for the caller to raise; it asks for what was probably
    meant. others: what else is allowed, if anything is."""
    name = str(model)
    address = _ADDRESS.fullmatch(name) if others else None
    meant = f"; did you mean '{address[1] or 'http'}://{address[2]}'?" if address else ""
    known = EMBEDDED, *_checkpoints_beside(Path(name))
    meant = meant or did_you_mean(repr(name.strip()), map(repr, known))
    told = "is a file, not a folder" if Path(name).is_file() else "is not a folder here"
    return InvalidModel(f"model={name!r} {told}; expected {_listed((*_KNOWN, *others))}{meant}")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])}, or {names[-1]}"


def _checkpoints_beside(path: Path) -> Iterator[str]:
    """The folders of checkpoints where this one would be, each as it would be written."""
    with suppress(OSError, ValueError):  # a name that no file can have
        for config in path.parent.glob("*/config.json"):
            yield str(path.with_name(config.parent.name))
