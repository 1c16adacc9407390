"""The models in the box. The one that sees has the weights of the text model, which are kept once,
and small changes to them: its LLaVA checkpoint is put together in the user's cache. Knows no model
but these."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...api.protocol import InvalidModel

EMBEDDED = "tiny"
EMBEDDED_VISION = "tiny-vision"
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
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as room:
        made = Path(room) / folder.name
        shutil.copytree(_VISION, made, ignore=shutil.ignore_patterns(_EYES, "*.md"))
        for file in _OF_TEXT:
            shutil.copyfile(_TEXT / file, made / file)
        (made / _WEIGHTS).write_bytes(_joined(_TEXT / _WEIGHTS, _VISION / _EYES))
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise


def _joined(text: Path, eyes: Path) -> bytes:
    """The safetensors of both files, with the text model's tensors under LLaVA's names. A pair of
    thin matrices of the eyes' file, NAME.a and NAME.b, is added to NAME as their product."""
    tensors = {f"language_model.{name}": it for name, it in _read(text).items()}
    seen = _read(eyes)
    for name, (shape, data) in seen.items():
        if name.endswith(".b"):
            full = name.removesuffix(".b")
            change = _floats(shape, data) @ _floats(*seen[f"{full}.a"])
            tensors[full] = (change.shape, _bfloat16(_floats(*tensors[full]) + change))
        elif not name.endswith(".a"):
            tensors[name] = (shape, data)
    return _written(tensors)


_Tensor: TypeAlias = tuple[Sequence[int], bytes]


def _read(file: Path) -> dict[str, _Tensor]:
    """The shape and the data of each tensor, all in bfloat16."""
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    header: dict[str, Any] = json.loads(whole[8:start])
    header.pop("__metadata__", None)
    places = {name: [start + at for at in it["data_offsets"]] for name, it in header.items()}
    return {name: (header[name]["shape"], whole[a:b]) for name, (a, b) in places.items()}


def _written(tensors: Mapping[str, _Tensor]) -> bytes:
    header, end = dict[str, Any](__metadata__={"format": "pt"}), 0
    for name, (shape, data) in tensors.items():
        place = [end, end := end + len(data)]
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": place}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    parts = (data for _, data in tensors.values())
    return len(text).to_bytes(8, "little") + text + b"".join(parts)


def _floats(shape: Sequence[int], data: bytes) -> npt.NDArray[np.float32]:
    bits = np.frombuffer(data, "<u2").astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def _bfloat16(values: npt.NDArray[np.float32]) -> bytes:
    """The nearest ones, ties to even."""
    bits = values.view(np.uint32)
    rounded: bytes = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return rounded
