"""What the headers of safetensors files say: types of numbers, and how many there are of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...api.files import HEADER_BYTES, check_regular
from ...api.protocol import InvalidModel
from .files import some

_MOST_NUMBERS = 1 << 50  # of a tensor, and of each of its sizes
_NUMBERS = ("F32", "BF16", "F16", "F64")


@dataclass(frozen=True, slots=True)
class Tensors:
    """by_dtype: numbers stored in each type, as safetensors names it. of_experts: numbers of
    experts, of which each token uses only some."""

    by_dtype: Mapping[str, int]
    of_experts: int

    @property
    def count(self) -> int:
        """All numbers."""
        return sum(self.by_dtype.values())

    def check(self, model: str) -> None:
        """Raise InvalidModel for weights that are quantized."""
        if others := self.by_dtype.keys() - set(_NUMBERS):
            message = f"{model} stores weights as {some(others)}; expected {', '.join(_NUMBERS)}"
            raise InvalidModel(f"{message}. Take the model that is not quantized")


def counted(tensors: Iterable[tuple[str, str, int]]) -> Tensors:
    """The sums over tensors: name, type, and how many numbers."""
    by_dtype: Counter[str] = Counter()
    of_experts = 0
    for name, dtype, count in tensors:
        by_dtype[dtype] += count
        of_experts += count * (".experts." in name)
    return Tensors(by_dtype, of_experts)


def joined(parts: Iterable[Tensors]) -> Tensors:
    """The sums over several files."""
    parts = list(parts)
    by_dtype = sum((Counter(part.by_dtype) for part in parts), Counter[str]())
    return Tensors(by_dtype, sum(part.of_experts for part in parts))


def read_header(path: Path) -> Tensors:
    """Of a file here. Raises InvalidModel for one that is missing or no safetensors file."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            if size > HEADER_BYTES:
                raise ValueError(f"a header of {size} bytes")
            header = json.loads(file.read(size))
        header.pop("__metadata__", None)
        return counted((name, str(it["dtype"]), _count(it["shape"])) for name, it in header.items())
    except InvalidModel:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidModel(f"{path} cannot be read as safetensors: {error}") from error


def _count(shape: list[int]) -> int:
    """Numbers of a tensor. Raises ValueError."""
    total = 1
    for size in shape:
        total *= size
        if type(size) is not int or not 0 <= size <= _MOST_NUMBERS or total > _MOST_NUMBERS:
            raise ValueError(f"a shape of {len(shape)} sizes that no tensor has")
    return total
