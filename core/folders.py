"""Where a model's files are, by the name that a user gives it. Knows no model."""

from __future__ import annotations

from pathlib import Path

from .protocol import InvalidModel

EMBEDDED = "tiny"
DUMMY = "dummy:"
_ALLOWED = "a checkpoint folder, 'tiny', or 'dummy:' and a shape"


def is_dummy(model: str | Path) -> bool:
    """Whether a model is made instead of read."""
    return str(model).startswith(DUMMY)


def model_folder(model: str | Path) -> Path:
    """The folder of a checkpoint: a path, or "tiny" for the one in the box, whose tokenizer is that
    of dummies, too. Raises InvalidModel for a folder that is not there."""
    if not isinstance(model, str | Path) or not str(model).strip():
        raise InvalidModel(f"model={model!r} is no name; allowed: {_ALLOWED}")
    folder = Path(model)
    if is_dummy(model) or (str(model) == EMBEDDED and not folder.is_dir()):
        return Path(__file__).parent.parent / "models" / EMBEDDED
    if not folder.is_dir():
        raise InvalidModel(f"model={str(model)!r} is not a folder; allowed: {_ALLOWED}")
    return folder
