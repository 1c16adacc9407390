"""Reads checkpoints: safetensors only, every name and shape checked before a tensor is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from tqdm import tqdm

from ..api.files import check_regular
from ..api.protocol import InvalidModel
from .config import Shape
from .hub.files import INDEX, SINGLE, some, weight_names

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_NUMBERS = ("F32", "BF16", "F16", "F64")


class Checkpoint:
    """The weights of a folder, open for reading; a context manager.

    shapes: what it must hold. ignored: name endings that it may hold and nobody needs. named: the
    name in `shapes` of a stored tensor; None: it is not looked at.
    Raises InvalidModel, before any tensor is read, if files are missing or damaged, if names or
    shapes differ from these, a name is in two files, or numbers are not of a floating type.
    """

    def __init__(
        self,
        folder: str | Path,
        shapes: Mapping[str, Shape],
        dtype: torch.dtype,
        device: torch.device,
        ignored: tuple[str, ...] = (),
        named: Callable[[str], str | None] = str,
    ) -> None:
        self._dtype = dtype
        self._device = device
        self._named = named
        self._files = ExitStack()
        self._files_by_tensor: dict[str, tuple[Path, Any, str]] = {}  # open, and the stored name
        try:
            for path in weight_files(folder):
                self._open(path)
            self._check(Path(folder), shapes, ignored)
        except BaseException:
            self._files.close()
            raise
        self._progress = self._files.enter_context(
            tqdm(total=len(shapes), desc="loading", unit="tensor", leave=False, disable=None)
        )

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def take(self, name: str) -> Tensor:
        """Read one tensor, in the requested dtype, on the requested device."""
        return self._read(name, lambda file, stored: file.get_tensor(stored))

    def take_part(self, name: str, dim: int, part: slice) -> Tensor:
        """Read only some of its rows (dim 0) or columns (dim 1)."""
        where = part if dim == 0 else (slice(None), part)
        return self._read(name, lambda file, stored: file.get_slice(stored)[where])

    def _read(self, name: str, read: Callable[[Any, str], Tensor]) -> Tensor:
        try:
            tensor = read(*self._files_by_tensor[name][1:])
        except SafetensorError as error:
            raise InvalidModel(f"{name} cannot be read: {error}; copy the file again") from error
        self._progress.update()
        return tensor.to(self._device, self._dtype)

    def _open(self, path: Path) -> None:
        file = self._files.enter_context(opened(path))
        for stored in file.keys():  # noqa: SIM118 (no dictionary)
            name = self._named(stored)
            if name is None:
                continue
            if name in self._files_by_tensor:
                other = self._files_by_tensor[name][0].name
                raise InvalidModel(f"{path} holds {stored}, which {other} holds, too")
            self._files_by_tensor[name] = path, file, stored

    def _check(self, folder: Path, shapes: Mapping[str, Shape], ignored: tuple[str, ...]) -> None:
        found = {name for name in self._files_by_tensor if not name.endswith(ignored)}
        if missing := shapes.keys() - found:
            raise InvalidModel(f"{folder} lacks the tensors {some(missing)}")
        if extra := found - shapes.keys():
            raise InvalidModel(
                f"{folder} holds tensors that the model has no use for: {some(extra)}"
            )
        for name, shape in shapes.items():
            path, file, stored_name = self._files_by_tensor[name]
            stored = file.get_slice(stored_name)
            actual, kind = tuple(stored.get_shape()), str(stored.get_dtype())
            if kind not in _NUMBERS:
                raise InvalidModel(
                    f"{path}: {name} is stored as {kind}; expected "
                    f"{', '.join(_NUMBERS)}. Take the checkpoint that is not quantized"
                )
            if actual != shape:
                raise InvalidModel(
                    f"{folder}: {name} has shape {actual}; config.json wants {shape}"
                )


def opened(path: Path) -> Any:
    """A safetensors file, a context manager. Raises InvalidModel if it is missing or damaged."""
    try:
        check_regular(path)
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise InvalidModel(f"{path} is missing; the index names it") from None
    except InvalidModel:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        advice = "it is damaged or cut short: copy or download it again"
        raise InvalidModel(f"{path} cannot be opened ({error}); {advice}") from error


def weight_files(folder: str | Path) -> list[Path]:
    """The files of a checkpoint's weights; they are not looked at. Raises InvalidModel."""
    folder = Path(folder)
    if (folder / INDEX).exists():
        return [folder / name for name in weight_names(folder)]
    if (folder / SINGLE).exists():
        return [folder / SINGLE]
    if pickles := sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern)):
        raise InvalidModel(
            f"{folder} holds only pickled weights ({some(pickles)}), which can run code when they "
            f"are read; expected safetensors. Convert them with save_pretrained of transformers"
        )
    others = sorted(path.name for path in folder.glob("*.safetensors"))
    hint = f"; it has {some(others)}: call one {SINGLE}, or write an index" if others else ""
    raise InvalidModel(f"{folder} holds neither {SINGLE} nor {INDEX}{hint}")
