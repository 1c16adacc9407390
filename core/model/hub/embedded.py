"""The models in the box. The one that sees has the weights of the text model, which are kept once,
and small changes to them: its LLaVA checkpoint is put together in the user's cache. Knows no model
but these."""

from __future__ import annotations

import os
import shutil
import tempfile
from hashlib import blake2b
from pathlib import Path

from ...api.protocol import InvalidModel

EMBEDDED = "tiny"
EMBEDDED_VISION = "tiny-vision"
ALL_EMBEDDED = EMBEDDED, EMBEDDED_VISION
_MODELS = Path(__file__).parents[3] / "models"
_TEXT, _VISION = _MODELS / "tiny", _MODELS / "tiny_vision"
_OF_TEXT = ("tokenizer.json", "tokenizer_config.json")
_WEIGHTS, _EYES = "model.safetensors", "vision.safetensors"


def embedded_folder(name: str) -> Path:
    """The checkpoint folder of "tiny" or "tiny-vision"; the latter is written into the cache if it
    is not there. Raises InvalidModel where it cannot be written."""
    if name == EMBEDDED:
        return _TEXT
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "forkroot"
    files = [_TEXT / _WEIGHTS, *(_TEXT / it for it in _OF_TEXT), *sorted(_VISION.glob("*.*"))]
    digest = blake2b(b"".join(map(_digest, files)), digest_size=8).hexdigest()
    folder = root / digest / EMBEDDED_VISION
    if not folder.is_dir():
        try:
            _put_together(folder)
        except OSError as error:
            message = f"model={name!r} cannot be written to {root} ({error}): set XDG_CACHE_HOME"
            raise InvalidModel(message) from error
    return folder


def _digest(file: Path) -> bytes:
    return blake2b(file.name.encode() + b"\0" + file.read_bytes(), digest_size=32).digest()


def _put_together(folder: Path) -> None:
    """Write the folder, whole or not at all; another process may do the same."""
    from .joining import joined

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as room:
        made = Path(room) / folder.name
        shutil.copytree(_VISION, made, ignore=shutil.ignore_patterns(_EYES, "*.md"))
        for file in _OF_TEXT:
            shutil.copyfile(_TEXT / file, made / file)
        (made / _WEIGHTS).write_bytes(joined(_TEXT / _WEIGHTS, _VISION / _EYES))
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
