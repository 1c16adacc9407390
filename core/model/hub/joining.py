"""One safetensors file of a text model's and of what was trained beside it. Numpy, no torch; all
tensors are in bfloat16."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Tensor: TypeAlias = tuple[Sequence[int], bytes]


def joined(text: Path, eyes: Path) -> bytes:
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
