"""Linear layers with a fixed weight, packed as this machine multiplies it fastest.

On a CPU in float32 by compiled loops (`packed_linear`, `bf16x3`), which give a row the same numbers
in any batch. They take a bfloat16 weight with rows in float32 (`row_dtype`). Where these cannot be
compiled, torch multiplies. Half precision is multiplied in float32 where the processor has no
instructions for it: torch's own product takes 30 times as long there.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...backend import LinearKernel
from ..jit.jit import can_compile, compiled
from ..pages import empty_in_large_pages
from ..threads import run_all
from ..trial import is_right
from .half_precision import HALVES, ConvertedLinear, OneDnnLinear, is_multiplied

_ROWS_AT_ONCE = 4096  # of a weight whose numbers are looked at
_FEW = 8  # rows for which a matrix is read as long as for one
_SPREAD = 1 << 22  # multiplications from which a second thread is worth its wake-up
_WHOLE = 1 << 22  # numbers of a matrix below which it is read whole: that takes less than to choose
_SPAN_COST = 4  # panels that are multiplied in the time that it takes to begin with a span


Bits: TypeAlias = npt.NDArray[np.int32]
Spans: TypeAlias = Sequence[tuple[int, int]]  # panels from the first to before the last of each


class TorchLinear:
    """By torch.mm. On a CPU the matrix lies as [in, out]: faster for few rows."""

    def __init__(self, weight: Tensor) -> None:
        self._matrix = weight.t().contiguous() if weight.is_cpu else weight.t()

    def __call__(self, x: Tensor) -> Tensor:
        return torch.mm(x, self._matrix)

    def add_to(self, total: Tensor, x: Tensor) -> None:
        total.addmm_(x, self._matrix)


class PackedLinear:
    """By compiled loops that read the packed weight once, at memory speed: float32 rows.

    weights: flat, as the loops read them, in panels of `lanes` columns. num_terms: bfloat16 terms
    of each number, where it is split; 0 where it is not, see the dtype of the weights. row_terms:
    terms of each number of rows, where they are split. num_threads: torch's, if None.
    known_terms: `count_bf16_terms` of the weight, where that is known.
    """

    num_terms, row_terms = 0, 3
    lanes: int

    def __init__(
        self, weight: Tensor, num_threads: int | None = None, known_terms: int | None = None
    ) -> None:
        self.width, self.depth = weight.shape
        self._num_threads = num_threads or torch.get_num_threads()
        self._multiply, weights = self._pack(weight, known_terms)
        self.num_panels, self.weights = len(weights), weights.view(-1).numpy()

    def _pack(self, weight: Tensor, known_terms: int | None) -> tuple[Callable[..., None], Tensor]:
        """The loop, and a weight [out, in] packed for it: [panels, ...]; sets `lanes`."""
        from ..loops import packed_linear

        self.lanes = packed_linear.LANES

        loop = compiled(packed_linear.multiply, packed_linear.SIGNATURE, is_reordered=False)
        return loop, _pack_columns(weight, packed_linear.LANES, torch.float32)

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
        """The same bits as the whole result in the columns of these panels, and zeros elsewhere.
        Spans are distributed over threads where there is much to do."""
        out = x.new_zeros(len(x), self.width)
        arrays = x.contiguous().numpy(), self.weights, out.numpy(), False
        num_columns = self.lanes * sum(last - first for first, last in spans)
        is_shared = is_spread_out(len(x), self.depth * num_columns)
        num_threads = max(1, min(self._num_threads, len(spans))) if is_shared else 1
        self._share_out(arrays, [spans[part::num_threads] for part in range(num_threads)])
        return out

    def _run(self, x: Tensor, out: Tensor, is_added: bool) -> None:
        """Panels are distributed over threads where there is much to do."""
        if (x.shape[1], out.shape) != (self.depth, (len(x), self.width)):  # loops look at nothing
            sizes = f"{list(x.shape)} and a matrix {[self.depth, self.width]}"
            raise ValueError(f"{sizes} have no product {list(out.shape)}")
        arrays = x.contiguous().numpy(), self.weights, out.numpy(), is_added
        num_threads = min(self._num_threads, self.num_panels)
        if num_threads == 1 or not is_spread_out(len(x), x.shape[1] * self.width):
            self._multiply(*arrays, 0, self.num_panels)
            return
        borders = [self.num_panels * i // num_threads for i in range(num_threads + 1)]
        self._share_out(arrays, [[span] for span in itertools.pairwise(borders)])

    def _share_out(self, arrays: tuple[Any, ...], parts: Sequence[Spans]) -> None:
        """Each thread multiplies some of the panels: this one the first."""

        def multiply(spans: Spans) -> None:
            for first, last in spans:
                self._multiply(*arrays, first, last)

        run_all(self._num_threads, multiply, [(part,) for part in parts])


class PackedBf16Linear(PackedLinear):
    """The same bits, for float32 weights whose numbers are bfloat16 ones: in half the memory, read
    in half the time."""

    def _pack(self, weight: Tensor, known_terms: int | None) -> tuple[Callable[..., None], Tensor]:
        from ..loops import packed_linear

        if (known_terms or count_bf16_terms(weight)) != 1:
            raise ValueError("a weight has numbers that are not bfloat16")
        self.lanes = packed_linear.LANES
        loop = compiled(packed_linear.multiply, packed_linear.BF16_SIGNATURE, is_reordered=False)
        return loop, _pack_columns(weight, packed_linear.LANES, torch.bfloat16).view(torch.uint16)


class Bf16PairsLinear(PackedLinear):
    """By AVX-512 BF16, for float32 weights whose numbers are bfloat16 ones: rows are rounded to
    bfloat16."""

    row_terms = 1

    def _pack(self, weight: Tensor, known_terms: int | None) -> tuple[Callable[..., None], Tensor]:
        from ..jit import pairs
        from ..loops import bf16_pairs, packed_linear

        if (known_terms or count_bf16_terms(weight)) != 1:
            raise ValueError("a weight has numbers that are not bfloat16")
        if not pairs.can_multiply():
            raise ValueError("this processor does not multiply pairs of bfloat16 numbers")
        self.lanes = packed_linear.LANES
        loop = compiled(bf16_pairs.multiply, bf16_pairs.SIGNATURE, is_reordered=False)
        width, depth = weight.shape
        shape = -(-width // self.lanes), -(-depth // 2), self.lanes, 2
        memory = empty_in_large_pages(shape, torch.bfloat16)
        for panel, rows in zip(memory, _filled(weight, self.lanes, 2), strict=True):
            panel[:] = rows.unflatten(1, (-1, 2)).transpose(0, 1)
        return loop, memory.view(torch.float32)


class Bf16x3Linear(PackedLinear):
    """By AMX, for float32 weights whose numbers are bfloat16 or float16 ones: in half the memory,
    or in as much. Results have float32's precision."""

    def _pack(self, weight: Tensor, known_terms: int | None) -> tuple[Callable[..., None], Tensor]:
        from ..jit import amx
        from ..loops import bf16x3

        num = known_terms or count_bf16_terms(weight)
        if num is None:
            raise ValueError("a weight has numbers that are neither bfloat16 nor float16")
        if not _has_amx():
            raise ValueError("this processor, or its system, does not let tiles be multiplied")
        self.num_terms, self.lanes = num, bf16x3.LANES
        width, depth = weight.shape
        steps = -(-depth // amx.DEPTH)
        sides, tiles = bf16x3.SIDES, bf16x3.TILES
        shape = -(-width // bf16x3.LANES), sides, steps, tiles, num, amx.ROWS, amx.ROWS, 2
        memory = empty_in_large_pages(shape, torch.bfloat16)
        for panel, rest in zip(memory, _filled(weight, bf16x3.LANES, amx.DEPTH), strict=True):
            for term in range(num):
                upper = _upper(rest)
                parts = upper.bfloat16().view(sides, tiles, amx.ROWS, steps, 2, amx.ROWS)
                panel[:, :, :, term] = parts.permute(0, 3, 1, 5, 2, 4)
                rest -= upper
        multiply = compiled(bf16x3.multiply, bf16x3.SIGNATURE, is_reordered=False)
        return functools.partial(multiply, num, self.row_terms), memory.view(torch.uint16)


class Bf16Linear(Bf16x3Linear):
    """The same with rows rounded to bfloat16: a third of the products."""

    row_terms = 1


def linear_kernel(weight: Tensor) -> LinearKernel:
    """The kernel for a weight [out, in], which is copied where that is faster. Rows are of
    `row_dtype`."""
    if not weight.is_cpu:
        return TorchLinear(weight)
    if weight.dtype is torch.float32 and can_compile():
        return _tried(_compiled_kernel(weight), weight)
    if weight.dtype is torch.bfloat16 and _multiplies_bf16():
        return _tried(_bf16_kind()(weight.float(), known_terms=1), weight)
    if weight.dtype in HALVES and not is_native(weight.dtype):
        return ConvertedLinear(linear_kernel(weight.float()))
    return OneDnnLinear(weight) if weight.dtype is torch.bfloat16 else TorchLinear(weight)


def multiplies_faster(weight: Tensor) -> bool:
    """Whether `linear_kernel` multiplies float32 rows by this weight in clearly less time than
    torch does, with float32's precision."""
    is_known = weight.is_cpu and weight.dtype is torch.float32 and _has_amx()
    return is_known and count_bf16_terms(weight) is not None


def row_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of rows for weights of some dtype, and of activations between them: float32 for
    bfloat16 weights on a CPU where compiled loops multiply these."""
    takes_float32 = dtype is torch.bfloat16 and device.type == "cpu" and _multiplies_bf16()
    return torch.float32 if takes_float32 else dtype


def _multiplies_bf16() -> bool:
    """Whether compiled loops multiply bfloat16 weights: not on a processor with other instructions
    for these than they use, where oneDNN is faster."""
    return can_compile() and (has_bf16_loops() or not is_native(torch.bfloat16))


def has_bf16_loops() -> bool:
    """Whether loops use instructions for bfloat16 numbers here. Needs numba."""
    from ..jit import pairs

    return _has_amx() or pairs.can_multiply()


def _bf16_kind() -> type[PackedLinear]:
    """The fastest for bfloat16 weights."""
    if _has_amx():
        return Bf16Linear
    return Bf16PairsLinear if has_bf16_loops() else PackedBf16Linear


def _compiled_kernel(weight: Tensor) -> PackedLinear:
    """The fastest compiled kernel for a weight. Not timed against libraries, which sum in another
    order, and not alike for each number of rows."""
    known_terms = count_bf16_terms(weight)
    if known_terms is not None and _has_amx():
        return Bf16x3Linear(weight, known_terms=known_terms)
    return (
        PackedBf16Linear(weight, known_terms=known_terms)
        if known_terms == 1
        else PackedLinear(weight)
    )


def _tried(kernel: PackedLinear, weight: Tensor) -> LinearKernel:
    """The kernel for a weight; torch's where its loop is wrong here."""
    kind: Any = type(kernel)
    if is_product_right(kind, kernel.num_terms):
        return kernel
    return TorchLinear(weight.float())


@functools.cache
def is_product_right(kind: Any, num_terms: int) -> bool:
    """Whether the loop of a class, a PackedLinear, multiplies random matrices as torch does; tried
    once. num_terms: of each number of the weight, where it is split."""
    random = torch.Generator().manual_seed(0)
    rest, weight = torch.randn(70, 130, generator=random), torch.zeros(70, 130)
    for _ in range(max(num_terms, 1)):
        upper = _upper(rest)
        weight, rest = weight + upper, rest - upper
    kernel, x = kind(weight, 1, num_terms or None), torch.randn(40, 130, generator=random)
    tolerance = 2e-2 if kind.row_terms == 1 else 1e-4
    return all(
        is_right(kind.__name__, functools.partial(kernel, rows), rows @ weight.T, tolerance)
        for rows in (x[:1], x[:3], x)
    )


def _has_amx() -> bool:
    """Whether compiled loops can use AMX on this machine."""
    if not can_compile():
        return False
    from ..jit import amx

    return amx.can_multiply()


def _pack_columns(weight: Tensor, lanes: int, dtype: torch.dtype) -> Tensor:
    """[panels, in, lanes] of a weight [out, in]; the last panel is padded with zeros."""
    width, depth = weight.shape
    memory = empty_in_large_pages((-(-width // lanes), depth, lanes), dtype)
    for panel, rows in zip(memory, weight.split(lanes), strict=True):
        panel[:, len(rows) :] = 0
        panel[:, : len(rows)] = rows.t()
    return memory


def _filled(weight: Tensor, lanes: int, step: int) -> Iterator[Tensor]:
    """The rows of each panel of a weight [out, in], padded with zeros: new ones [lanes, a multiple
    of `step`]."""
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


def count_bf16_terms(weight: Tensor) -> int | None:
    """How many bfloat16 terms make up each number of a weight; None if they are too many."""
    from ..loops.bf16x3 import MAX_TERMS

    most = 1
    for rest in weight.split(_ROWS_AT_ONCE):
        num = 0
        while num == 0 or rest.any():
            if num == MAX_TERMS:
                return None
            rest = rest - _upper(rest)
            num += 1
        most = max(most, num)
    return most


def _upper(x: Tensor) -> Tensor:
    """Float32 numbers truncated to bfloat16."""
    return (x.contiguous().view(torch.int32) & ~0xFFFF).view(torch.float32)


def is_native(dtype: torch.dtype) -> bool:
    """Whether this processor multiplies half precision, and its libraries do."""
    return (dtype is torch.bfloat16 and _has_amx()) or is_multiplied(dtype)
