"""Products with a fixed matrix, laid out as this machine multiplies it best.

On a CPU in float32 by loops of our own (`panels`, `thirds`), which give a row the same numbers in
any company. They take a bfloat16 matrix with rows in float32 (`row_dtype`). Where these cannot be
compiled, libraries are tried once for every shape: which is the quicker one for a few rows differs
by a factor of two or three between processors. Half precision is multiplied in float32 where the
processor has no instructions for it: torch's own product takes 30 times as long there.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..attention.paged import helpers
from ..attention.pages import roomy
from ..jit.jit import can_compile, compiled
from .half_precision import HALVES, Converted, Packed, can_pack, is_multiplied

_TRIAL_ROWS = (1, 8, 32, 128)
_TRIAL_COLUMNS = 4096  # of a matrix, at most
_TRIALS = 5
_FORGOTTEN = 1 << 22  # numbers that drive a matrix out of near caches, as a step's other ones do
_PAUSE = 0.0001  # in which torch's threads fall asleep, as they do between the products of a step
_PATIENCE = 0.05  # seconds after which a slow product is not tried again
_MARGIN = 1.1  # by which a layout must win over those that are tried before it
_FEW = 8  # rows for which a matrix is read as long as for one
_SPREAD = 1 << 22  # products of numbers from which a second thread is worth its wake-up
_WHOLE = 1 << 22  # numbers of a matrix below which it is read whole: that takes less than to choose
_SPAN_COST = 4  # panels that are multiplied in the time that it takes to begin with a span


class Product(Protocol):
    """x [rows, in] times a matrix [in, out]."""

    def __call__(self, x: Tensor) -> Tensor:
        """A new [rows, out]."""

    def add_to(self, total: Tensor, x: Tensor) -> None:
        """total [rows, out] += x times the matrix."""


Layout: TypeAlias = Callable[[Tensor], Product]
Bits: TypeAlias = npt.NDArray[np.int32]
Spans: TypeAlias = Sequence[tuple[int, int]]  # panels from the first to before the last of each


class Plain:
    """By torch's own product. On a CPU the matrix lies as [in, out]: quicker for few rows."""

    def __init__(self, weight: Tensor) -> None:
        self._matrix = weight.t().contiguous() if weight.is_cpu else weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self._matrix)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.addmm_(x, self._matrix)


class Paneled:
    """By compiled loops that read the matrix once, as fast as memory gives it: float32 rows.

    panels: flat, as the loops want them; of so many columns, its lanes, each. num_thirds: of each
    number, where they are split into some; 0 where they are whole, and where each is one: see the
    dtype of the panels. row_parts: thirds of each number of rows, where they are split.
    num_threads: as torch has, if None. counted: what `count_thirds` says of the weight, where that
    is known.
    """

    num_thirds, row_parts = 0, 3
    lanes: int

    def __init__(
        self, weight: Tensor, num_threads: int | None = None, counted: int | None = None
    ) -> None:
        self.width, self.depth = weight.shape
        self._num_threads = num_threads or torch.get_num_threads()
        self._multiply, panels = self._laid(weight, counted)
        self.num_panels, self.panels = len(panels), panels.view(-1).numpy()

    def _laid(self, weight: Tensor, counted: int | None) -> tuple[Callable[..., None], Tensor]:
        """The loop, and the panels of a weight [out, in] as it wants them: [panels, ...]; sets
        `lanes`."""
        from ..loops import panels

        self.lanes = panels.LANES

        loop = compiled(panels.multiply, panels.SIGNATURE, is_reordered=False)
        return loop, _in_panels(weight, panels.LANES, torch.float32)

    def __call__(self, x: Tensor) -> Tensor:
        out = x.new_empty(len(x), self.width)
        self._run(x, out, False)
        return out

    def add_to(self, total: Tensor, x: Tensor) -> None:
        if total.is_contiguous():
            self._run(x, total, True)
        else:
            total += self(x)

    def spans(self, bits: Bits) -> Spans | None:
        """The panels that have a column whose bit is set (32 a word); None where `some` of them
        would take as long as all."""
        if self.depth * self.width < _WHOLE:
            return None
        flags = _in_groups(bits, self.lanes)[: self.num_panels]
        borders = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
        spans = list(zip(borders[::2], borders[1::2], strict=True))
        cost = int(np.count_nonzero(flags)) + _SPAN_COST * len(spans)
        return spans if cost < self.num_panels else None

    def some(self, x: Tensor, spans: Spans) -> Tensor:
        """The same, to the last bit, in the columns of these panels, and zeros elsewhere. Spans are
        shared out among threads where there is much to do."""
        out = x.new_zeros(len(x), self.width)
        arrays = x.contiguous().numpy(), self.panels, out.numpy(), False
        num_columns = self.lanes * sum(last - first for first, last in spans)
        is_shared = is_spread_out(len(x), self.depth * num_columns)
        num_threads = max(1, min(self._num_threads, len(spans))) if is_shared else 1
        self._share_out(arrays, [spans[part::num_threads] for part in range(num_threads)])
        return out

    def _run(self, x: Tensor, out: Tensor, is_added: bool) -> None:
        """Panels are shared out among threads where there is much to do."""
        if (x.shape[1], out.shape) != (self.depth, (len(x), self.width)):  # loops look at nothing
            sizes = f"{list(x.shape)} and a matrix {[self.depth, self.width]}"
            raise ValueError(f"{sizes} have no product {list(out.shape)}")
        arrays = x.contiguous().numpy(), self.panels, out.numpy(), is_added
        num_threads = min(self._num_threads, self.num_panels)
        if num_threads == 1 or not is_spread_out(len(x), x.shape[1] * self.width):
            self._multiply(*arrays, 0, self.num_panels)
            return
        borders = [self.num_panels * i // num_threads for i in range(num_threads + 1)]
        self._share_out(arrays, [[span] for span in itertools.pairwise(borders)])

    def _share_out(self, arrays: tuple[Any, ...], parts: Sequence[Spans]) -> None:
        """Each thread multiplies a part of the panels: this one the first."""

        def multiply(spans: Spans) -> None:
            for first, last in spans:
                self._multiply(*arrays, first, last)

        others = [helpers(self._num_threads).submit(multiply, part) for part in parts[1:]]
        multiply(parts[0])
        for other in others:
            other.result()


class Halved(Paneled):
    """The same, to the last bit, of float32 numbers that are bfloat16 ones: these lie in half the
    memory, and are read in half the time."""

    def _laid(self, weight: Tensor, counted: int | None) -> tuple[Callable[..., None], Tensor]:
        from ..loops import panels

        if (counted or count_thirds(weight)) != 1:
            raise ValueError("a weight has numbers that are not bfloat16")
        self.lanes = panels.LANES
        loop = compiled(panels.multiply, panels.HALVED_SIGNATURE, is_reordered=False)
        return loop, _in_panels(weight, panels.LANES, torch.bfloat16).view(torch.uint16)


class InThirds(Paneled):
    """By loops for processors that multiply tiles, for float32 numbers that are bfloat16 or float16
    ones: these lie in half the memory, or in as much; results have float32's precision."""

    def _laid(self, weight: Tensor, counted: int | None) -> tuple[Callable[..., None], Tensor]:
        from ..jit import amx
        from ..loops import thirds

        num = counted or count_thirds(weight)
        if num is None:
            raise ValueError("a weight has numbers that are neither bfloat16 nor float16")
        _check_tiles()
        self.num_thirds, self.lanes = num, thirds.LANES
        width, depth = weight.shape
        steps = -(-depth // amx.DEPTH)
        sides, tiles = thirds.SIDES, thirds.TILES
        shape = -(-width // thirds.LANES), sides, steps, tiles, num, amx.ROWS, amx.ROWS, 2
        memory = roomy(shape, torch.bfloat16)
        for panel, rest in zip(memory, _filled(weight, thirds.LANES, amx.DEPTH), strict=True):
            for third in range(num):
                upper = _upper(rest)
                parts = upper.bfloat16().view(sides, tiles, amx.ROWS, steps, 2, amx.ROWS)
                panel[:, :, :, third] = parts.permute(0, 3, 1, 5, 2, 4)
                rest -= upper
        multiply = compiled(thirds.multiply, thirds.SIGNATURE, is_reordered=False)
        return functools.partial(multiply, num, self.row_parts), memory.view(torch.uint16)


class Rounded(InThirds):
    """The same of rows that are rounded to bfloat16: a third of the products."""

    row_parts = 1


class Products:
    """Makes products; remembers which layout won for a shape."""

    def __init__(self) -> None:
        self._winners: dict[tuple[torch.Size, torch.dtype], Layout] = {}

    def of(self, weight: Tensor) -> Product:
        """The product with a weight [out, in], which is copied where that is quicker. Rows are of
        `row_dtype`."""
        if weight.is_cpu and weight.dtype is torch.float32 and can_compile():
            return _own(weight)
        if weight.is_cpu and weight.dtype is torch.bfloat16 and _is_mixed():
            kind = Rounded if _has_tiles() else Halved
            return kind(weight.float(), counted=1)
        if weight.is_cpu and weight.dtype in HALVES and not is_native(weight.dtype):
            return Converted(self.of(weight.float()))
        key = weight.shape, weight.dtype
        if key not in self._winners:
            self._winners[key] = _layout(weight)
        return self._winners[key](weight)


def row_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The numbers of rows that are multiplied with matrices of some numbers, and of what stands
    between products: float32 for bfloat16 matrices on a CPU where our loops multiply these."""
    is_mixed = dtype is torch.bfloat16 and device.type == "cpu" and _is_mixed()
    return torch.float32 if is_mixed else dtype


def _is_mixed() -> bool:
    """Whether our loops multiply bfloat16 matrices. Without tiles of them, oneDNN is quicker where
    the processor has instructions."""
    return can_compile() and (_has_tiles() or not is_native(torch.bfloat16))


def _own(weight: Tensor) -> Paneled:
    """By the quickest of our loops for a weight. No trial: libraries that win one by a little add
    up in another order, and not alike for each number of rows."""
    counted = count_thirds(weight)
    if counted is not None and _has_tiles():
        return InThirds(weight, counted=counted)
    return Halved(weight, counted=counted) if counted == 1 else Paneled(weight)


def _has_tiles() -> bool:
    """Whether our loops can multiply tiles on this machine."""
    if not can_compile():
        return False
    from ..jit import amx

    return amx.can_multiply()


def _check_tiles() -> None:
    """Raise ValueError where tiles cannot be multiplied; the system is asked for leave, too."""
    if not _has_tiles():
        raise ValueError("this processor, or its system, does not let tiles be multiplied")


def _layout(weight: Tensor) -> Layout:
    if not weight.is_cpu or weight.dtype is torch.float16:
        return Plain
    if not can_pack(weight.dtype):
        return Plain
    if weight.dtype is torch.bfloat16:
        return Packed
    layouts: list[Layout] = [Plain, Packed]
    with ThreadPoolExecutor(1, "forkroot-trial") as aside:  # as steps run: not in the main thread
        return layouts[aside.submit(_winner, layouts, weight[:_TRIAL_COLUMNS]).result()]


def _in_panels(weight: Tensor, lanes: int, dtype: torch.dtype) -> Tensor:
    """[panels, in, lanes] of a weight [out, in]; the last panel is filled up with zeros."""
    width, depth = weight.shape
    memory = roomy((-(-width // lanes), depth, lanes), dtype)
    for panel, rows in zip(memory, weight.split(lanes), strict=True):
        panel[:, len(rows) :] = 0
        panel[:, : len(rows)] = rows.t()
    return memory


def _filled(weight: Tensor, lanes: int, step: int) -> Iterator[Tensor]:
    """The rows of each panel of a weight [out, in], filled up with zeros: new ones [lanes, a
    multiple of `step`]."""
    depth = weight.shape[1]
    for rows in weight.split(lanes):
        filled = weight.new_zeros(lanes, -(-depth // step) * step)
        filled[: len(rows), :depth] = rows
        yield filled


def _in_groups(bits: Bits, size: int) -> npt.NDArray[np.bool_]:
    """[groups of so many bits, a multiple of 8] whether any of a group is set."""
    bytes_ = np.ascontiguousarray(bits).view(np.uint8)
    padded = np.pad(bytes_, (0, -len(bytes_) % (size // 8)))
    flags: npt.NDArray[np.bool_] = np.logical_or.reduce(padded.reshape(-1, size // 8), axis=1)
    return flags


def is_spread_out(num_rows: int, num_numbers: int) -> bool:
    """Whether several threads multiply so many rows and a matrix of so many numbers."""
    return max(num_rows, _FEW) * num_numbers >= _SPREAD


def count_thirds(weight: Tensor) -> int | None:
    """How many bfloat16 numbers make up each number of a weight; None if they are too many."""
    from ..loops.thirds import MOST

    most = 1
    for rest in weight.split(_TRIAL_COLUMNS):
        num = 0
        while num == 0 or rest.any():
            if num == MOST:
                return None
            rest = rest - _upper(rest)
            num += 1
        most = max(most, num)
    return most


def _upper(x: Tensor) -> Tensor:
    """Float32 numbers without the bits that a bfloat16 number does not have."""
    return (x.contiguous().view(torch.int32) & ~0xFFFF).view(torch.float32)


def is_native(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies numbers of half precision, and its libraries do."""
    return (dtype is torch.bfloat16 and _has_tiles()) or is_multiplied(dtype)


@torch.inference_mode()
def _winner(layouts: list[Layout], weight: Tensor) -> int:
    """The first layout that, over a few numbers of rows, takes about the least of the time that it
    must."""
    products = [layout(weight) for layout in layouts]
    shares, others = [0.0] * len(layouts), torch.ones(_FORGOTTEN)
    for rows in _TRIAL_ROWS:
        x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
        seconds = [_best(product, x, others) for product in products]
        for i, taken in enumerate(seconds):
            shares[i] += taken / min(seconds)
    return next(i for i, share in enumerate(shares) if share <= min(shares) * _MARGIN)


def _best(product: Product, x: Tensor, others: Tensor) -> float:
    seconds: list[float] = []
    while len(seconds) < _TRIALS and sum(seconds) < _PATIENCE:
        others.add_(1)
        time.sleep(_PAUSE)
        seconds.append(_seconds(product, x))
    return min(seconds)


def _seconds(product: Product, x: Tensor) -> float:
    start = time.perf_counter()
    product(x)
    return time.perf_counter() - start
