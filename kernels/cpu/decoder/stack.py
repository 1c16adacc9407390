"""The layers of a decoder in one call, or in one call per layer where attention takes several work
items. For few rows, calls would take longer than the computation. Many rows stay in near caches
from one linear layer to the next. Rows in float32 on a CPU; needs numba.

Without it decode steps take 25 to 30 % longer, and prompts in bfloat16 over 40 % (56M parameters,
one thread). Gives the same bits as the same layers one by one: the loops are the same. Many rows
are distributed over threads, each of which computes everything between two attentions for its own
rows. Writes records of addresses; `blocks` computes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import Struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...backend import LayerSizes, LayerWeights, Matrix, Norm, Step
from ..attention.attention import CpuAttention
from ..attention.decode import is_spread, uses_amx
from ..attention.extend import has_longer_loops
from ..jit.addresses import address, entry
from ..linear.linear import Bf16PairsLinear, Bf16x3Linear, PackedLinear, is_spread_out
from ..linear.rows import CompiledNorm
from ..loops import blocks, entries, fused_mlp
from ..pages import LARGE, empty_in_large_pages
from ..threads import run_all
from ..work_items import InPlacePlan, ScoreMod
from .shares import Reading, Records, Share, by_sequences, in_rows, num_tiles, reading, shares_of

_MOST = 4096  # rows above which buffers for all of them are too large to keep
_MOST_OF_HEAD = 256  # above which the cost of calls is negligible
_LEAST_SHARE = 64  # rows for which a thread reads all matrices, rather than a part of each for all
_MOST_TRIED = 1 << 31  # multiplications of a thread in a step that only tries how long it takes
_UNEVEN = 1.5  # times as many keys as the mean, with which one share would hold up the others
_LINE = 16  # numbers after which a cache's next line begins
_STEP, _READ = (Struct(f"{len(it.names or ())}q") for it in (blocks.STEP, blocks.READ))


class Stack:
    """Consecutive layers and their workspace, used by one caller at a time. num_threads: torch's
    number, if None. is_bf16_kv: whether keys and values are bfloat16."""

    def __init__(
        self,
        sizes: LayerSizes,
        layers: Sequence[LayerWeights],
        num_threads: int | None = None,
        is_bf16_kv: bool = False,
    ) -> None:
        self._sizes, self._layers = sizes, tuple(layers)
        self._enter = entry(_loop(is_bf16_kv, sizes.dim)).ctypes
        self._extend = _extend_entry(is_bf16_kv)
        self._scale = sizes.dim**-0.5
        self._log2_scale = float(ScoreMod(self._scale, None).in_log2()[0])
        self._num_threads = num_threads or torch.get_num_threads()
        num_heads = sizes.num_heads + 2 * sizes.num_kv_heads
        self._largest = sizes.hidden * max(2 * sizes.ffn, num_heads * sizes.dim)
        width = (num_heads + sizes.num_heads) * sizes.dim + 3 * sizes.ffn
        self._num_numbers = len(layers) * sizes.hidden * width
        self._memory = _Memory()
        _gather([matrix.kernel for weights in layers for matrix in _matrices(weights)])
        self._records = np.zeros(len(layers), blocks.LAYER)
        self._records[:] = [self._described(weights) for weights in layers]
        self._lock = threading.Lock()
        self._held: tuple[object, ...] = ()  # that a step reads by address
        self._steps = np.zeros(self._num_threads, blocks.STEP)  # of each share of the rows
        self._workspace = _Workspace(sizes)
        num_windows = 1 + max(weights.window for weights in layers)
        self._reads = np.zeros((self._num_threads, num_windows), blocks.READ)  # of each share
        self._addresses = tuple(
            address(array) for array in (self._records, self._steps, self._reads)
        )

    def ways(self, x: Tensor, step: Step) -> tuple[int, ...]:
        """The numbers of shares of which one is the fastest for x [rows, hidden]; 0: layer by
        layer."""
        if len(x) > _MOST or not x.is_contiguous() or not step.pool.storage.is_contiguous():
            return (0,)
        if not all(isinstance(plan, InPlacePlan) for plan in step.plans):
            return (0,)
        if self._num_threads == 1 or not is_spread_out(len(x), self._largest):
            return (1,)
        if len(x) >= _LEAST_SHARE * self._num_threads:
            return (self._num_threads,)
        work, most = len(x) * self._num_numbers, min(self._num_threads, num_tiles(len(x)))
        return (0, *(num for num in sorted({1, most}) if work <= num * _MOST_TRIED))

    def __call__(self, x: Tensor, step: Step, num_shares: int = 1) -> Tensor:
        """As `Layers.__call__`; x is changed. num_shares: of its rows, each computed by a thread of
        its own; of fewer where there are few rows."""
        wanted, attention, storage = step.wanted, step.attention, step.pool.storage
        with self._lock:
            shares = shares_of(len(x), min(num_shares, self._num_threads))
            found, num_layers = self._decode_readings(step, shares), len(self._layers)
            if found is None:  # the last layer goes by itself where it needs fewer rows
                shares, found = self._prompt_readings(step, len(x), shares)
                num_layers -= wanted is not None
            num_wanted = 0 if wanted is None else len(wanted)  # one may be wanted twice
            self._workspace.grow(max(len(x), num_wanted), len(shares))
            self._begin(x, step, found or (), shares)
            if found is None:
                self._run(0, 1, blocks.ENTER, len(shares))
                num_layers = 0
            else:
                stages = blocks.ENTER | blocks.ATTEND | blocks.LEAVE
                if num_layers < len(self._layers):
                    stages |= blocks.ENTER_NEXT
                self._run(0, num_layers, stages, len(shares))
                if num_layers == len(self._layers):
                    return x if wanted is None else x.index_select(0, wanted)
            for i, layer in enumerate(self._layers[num_layers:], num_layers):
                is_last = i + 1 == len(self._layers)
                of_last = wanted if is_last else None
                q, plan = self._workspace.q(len(x)), step.plan(layer.window, of_last)
                attn_out = attention.attend(q, storage[i], plan, self._scale).contiguous()
                if of_last is not None:
                    x, attn_out = x.index_select(0, of_last), attn_out.index_select(0, of_last)
                    shares = shares_of(len(x), len(shares))
                self._set_rows(x, attn_out, shares)
                stages = blocks.LEAVE if is_last else blocks.LEAVE | blocks.ENTER_NEXT
                self._run(i, i + 1, stages, len(shares))
            return x

    def _run(self, first: int, last: int, stages: int, num_shares: int = 1) -> None:
        """Run some stages of some layers, each share of rows in its own thread, the first in this
        one."""
        layers, step, _ = self._addresses
        size = blocks.STEP.itemsize
        steps = range(step, step + num_shares * size, size)
        run_all(self._num_threads, self._enter, [(layers, first, last, at, stages) for at in steps])

    def _begin(
        self,
        x: Tensor,
        step: Step,
        found: Sequence[Sequence[Reading]],
        shares: Sequence[Share],
    ) -> None:
        """Write the addresses of a step's inputs into the records of its shares. found: of each
        share, one for each window."""
        storage, table = step.pool.storage, step.rotary.table(step.positions).contiguous()
        positions, slots = step.positions.contiguous(), step.slots.contiguous()
        of_shares = [[Records(it, self._extend) for it in of_share] for of_share in found]
        self._held = table, positions, slots, of_shares
        for i, (first, last) in enumerate(shares):
            _STEP.pack_into(
                self._steps.data,
                i * _STEP.size,
                last - first,
                _row(x, first),
                table.data_ptr(),
                len(table),
                _row(positions, first),
                _row(slots, first),
                storage.data_ptr(),
                storage.stride(0) * storage.itemsize,
                storage.shape[3],
                *self._workspace.pointers(first, i),
                self._addresses[2] + i * self._reads.strides[0],
            )
        for i, of_share in enumerate(of_shares):
            for window, records in enumerate(of_share):
                place = i * self._reads.strides[0] + window * _READ.size
                _READ.pack_into(self._reads.data, place, *records.read)

    def _set_rows(self, x: Tensor, attn_out: Tensor, shares: Sequence[Share]) -> None:
        """Write the addresses of rows and of attention's output into the record."""
        for record, (first, last) in zip(self._steps, shares, strict=False):
            pointers = _row(x, first), _row(attn_out, first)
            record["rows"], (record["x"], record["attn_out"]) = last - first, pointers

    def _decode_readings(self, step: Step, shares: Sequence[Share]) -> list[list[Reading]] | None:
        """Of each share what is read for each window; None where a step does not only decode, or
        has so much to read that threads would help."""
        if not isinstance(step.attention, CpuAttention):
            return None
        width, found = self._sizes.num_kv_heads * self._sizes.dim, list[list[Reading]]()
        for plan in step.plans:
            item = step.attention.decode_item(plan)
            if item is None:
                return None
            items = [item] if len(shares) == 1 else [in_rows(item, *share) for share in shares]
            most = max(int(it.reads[-1]) for it in items) * len(shares)
            is_even = len(shares) > 1 and most <= _UNEVEN * item.reads[-1]
            if not is_even and is_spread(item, width, self._num_threads):
                return None
            found.append([Reading(it) for it in items])
        return [list(of_share) for of_share in zip(*found, strict=True)]

    def _prompt_readings(
        self, step: Step, num_rows: int, shares: list[Share]
    ) -> tuple[list[Share], list[list[Reading]] | None]:
        """The same of a step with prompts, whose shares are whole sequences then; None where loops
        do not read it, or sequences are too uneven."""
        attention = step.attention
        if all(plan.is_decode for plan in step.plans):
            return shares, None
        if not self._extend or not isinstance(attention, CpuAttention) or not attention.is_plain:
            return shares, None
        whole = by_sequences(step.plans[0], num_rows, len(shares))
        if whole is None:
            return shares, None
        return whole, [[reading(plan, share) for plan in step.plans] for share in whole]

    def _described(self, weights: LayerWeights) -> tuple[float, ...]:
        """A layer's record."""
        sizes, memory = self._sizes, self._memory
        norms = [memory.norm(norm) for norm in weights[:3]]
        attn_out, kv = sizes.num_heads * sizes.dim, sizes.num_kv_heads * sizes.dim
        return (
            *norms,
            memory.matrix(weights.qkv, sizes.hidden, attn_out + 2 * kv),
            memory.matrix(weights.out, attn_out, sizes.hidden),
            up := memory.matrix(weights.gate_up, sizes.hidden, 2 * sizes.ffn),
            down := memory.matrix(weights.down, sizes.ffn, sizes.hidden),
            memory.fused_mlp(weights, (norms[2], up, down, sizes.eps)),
            sizes.hidden,
            sizes.num_heads,
            sizes.num_kv_heads,
            sizes.dim,
            sizes.ffn,
            weights.window,
            sizes.eps,
            self._log2_scale,
        )


class FusedHead:
    """A norm and the matrix after it by one call, with the same bits as by two. num_threads: as
    torch has, if None."""

    def __init__(self, norm: CompiledNorm, matrix: Matrix, num_threads: int | None = None) -> None:
        kernel = matrix.kernel
        assert isinstance(kernel, PackedLinear)
        self._hidden, self._width = kernel.depth, kernel.width
        self._num_threads = num_threads or torch.get_num_threads()
        self._enter = entry(blocks.end).ctypes
        self._memory, self._record = _Memory(), np.zeros(1, blocks.END)
        place = self._memory.matrix(matrix, kernel.depth, kernel.width)
        self._record[0] = (self._memory.norm(norm), place, kernel.depth, norm.eps)
        self._address = address(self._record)

    def fits(self, x: Tensor) -> bool:
        """Whether x [rows, hidden] has so few rows that this is faster: a second thread would not
        help with the product."""
        if len(x) > _MOST_OF_HEAD or x.shape[1] != self._hidden or not x.is_contiguous():
            return False
        return self._num_threads == 1 or not is_spread_out(len(x), self._hidden * self._width)

    def __call__(self, x: Tensor) -> Tensor:
        """A new [rows, width]."""
        out, normed = _floats(len(x) * self._width), _floats(x.numel())
        self._enter(self._address, x.data_ptr(), len(x), out.data_ptr(), normed.data_ptr())
        return out.view(len(x), self._width)


class _Memory:
    """Keeps alive what records refer to by address."""

    def __init__(self) -> None:
        self._held: list[object] = []

    def norm(self, norm: Norm | None) -> int:
        """The address of its weight; 0 for none."""
        assert norm is None or isinstance(norm, CompiledNorm)
        return self.tensor(norm.weight if norm is not None else None)

    def tensor(self, x: Tensor | None) -> int:
        """The address of the same numbers, side by side; 0 for none."""
        if x is None:
            return 0
        self._held.append(x := x.contiguous())
        return x.data_ptr()

    def matrix(self, matrix: Matrix, depth: int, width: int) -> int:
        """The address of its record, of a matrix [depth, width]. Raises ValueError for another."""
        kernel, record = matrix.kernel, np.zeros(1, entries.MATRIX)
        assert isinstance(kernel, PackedLinear)
        if (kernel.depth, kernel.width) != (depth, width):
            found = [kernel.depth, kernel.width]
            raise ValueError(f"a layer has a matrix {found}; its sizes want {[depth, width]}")
        weights, bias = kernel.weights, self.tensor(matrix.bias)
        self._held += [weights, record]
        function = _entry_of(kernel)
        shape = depth, kernel.width, address(weights), len(weights), kernel.num_panels
        parts = kernel.num_terms, kernel.row_terms
        record[0] = (entry(function).address, *shape, *parts, bias)
        return address(record)

    def fused_mlp(self, weights: LayerWeights, parts: tuple[int, int, int, float]) -> int:
        """The address of a record of a layer's norm, gates and ups, and last matrix, which are
        `parts`; 0 where the feed-forward cannot be fused."""
        up, down = weights.gate_up.kernel, weights.down.kernel
        assert isinstance(up, PackedLinear)
        assert isinstance(down, PackedLinear)
        has_bias = weights.gate_up.bias is not None or weights.down.bias is not None
        if has_bias or not up.num_terms or not down.num_terms or up.row_terms != down.row_terms:
            return 0
        if not fused_mlp.fits(up.depth, up.width, down.depth):
            return 0
        self._held.append(record := np.zeros(1, fused_mlp.FUSED_MLP))
        record[0] = (entry(fused_mlp.feed_forward).address, *parts)
        return address(record)


class _Workspace:
    """Buffers for results between layers, reused as long as they are large enough."""

    def __init__(self, sizes: LayerSizes) -> None:
        heads, kv_heads, dim, ffn = sizes.num_heads, sizes.num_kv_heads, sizes.dim, sizes.ffn
        self._num_heads, self._dim = heads, dim
        qkv, attn_out = (heads + 2 * kv_heads) * dim, heads * dim
        self._widths, self._passing = (dim, qkv, attn_out, heads), (sizes.hidden, 2 * ffn, ffn)
        self._steps = [4 * width for width in (*self._widths, *self._passing)]  # bytes of a row
        self._sizes, self._starts, self._qkv = (0, 0), [0] * len(self._steps), _floats(0)
        self._share_rows = 0  # rows of a share that are held at a time

    def grow(self, num_rows: int, num_shares: int) -> None:
        """Grow to so many rows, in so many shares."""
        if num_rows <= self._sizes[0] and num_shares <= self._sizes[1]:
            return
        num_rows, num_shares = max(num_rows, self._sizes[0]), max(num_shares, self._sizes[1])
        counts = [num_rows * width for width in self._widths]
        self._share_rows = -(-min(num_rows, blocks.MOST) // _LINE) * _LINE
        counts += [self._share_rows * num_shares * width for width in self._passing]
        lens = [-(-count // _LINE) * _LINE for count in counts]
        parts = _floats(sum(lens)).split(lens)
        self._sizes, self._qkv = (num_rows, num_shares), parts[1]
        self._starts = [item.data_ptr() for item in parts]

    def pointers(self, first: int, share: int) -> list[int]:
        """The addresses of cos_sin, qkv, attn_out and lse from a row on, and of normed, gate_up and
        gated, which hold some rows of a share at a time."""
        if first == share == 0:
            return self._starts
        rows = [first] * len(self._widths) + [share * self._share_rows] * len(self._passing)
        return [at + n * step for at, n, step in zip(self._starts, rows, self._steps, strict=True)]

    def q(self, num_rows: int) -> Tensor:
        """Queries [rows, heads, dim]."""
        qkv = self._qkv[: num_rows * self._widths[1]].view(num_rows, -1, self._dim)
        return qkv[:, : self._num_heads]


def _entry_of(kernel: PackedLinear) -> Callable[..., None]:
    """The loop of `entries` for a matrix."""
    if isinstance(kernel, Bf16x3Linear):
        return entries.bf16x3_linear
    if isinstance(kernel, Bf16PairsLinear):
        return entries.packed_pairs
    return entries.packed_f32 if kernel.weights.dtype == np.float32 else entries.packed_bf16


def _loop(is_bf16_kv: bool, dim: int) -> Callable[..., None]:
    """The loop over layers with such keys and values."""
    if not is_bf16_kv:
        return blocks.layers
    return blocks.layers_bf16_amx if uses_amx(torch.bfloat16, dim) else blocks.layers_bf16


def _extend_entry(is_bf16_kv: bool) -> int:
    """The address of the loop for the extend items of a step; 0 where other loops read some."""
    if has_longer_loops(torch.bfloat16 if is_bf16_kv else torch.float32):
        return 0
    loop = blocks.extend_bf16 if is_bf16_kv else blocks.extend_f32
    return int(entry(loop).address)


def _matrices(weights: LayerWeights) -> tuple[Matrix, ...]:
    """In the order in which a step reads them."""
    return weights.qkv, weights.out, weights.gate_up, weights.down


def _gather(products: Sequence[Any]) -> None:
    """Move weights too small for large pages of their own into shared ones, one behind another:
    fewer TLB misses, and prefetching past the end of one reads the next."""
    small = [it for it in products if isinstance(it, PackedLinear) and it.weights.nbytes < LARGE]
    ends = list(accumulate(-(-it.weights.nbytes // 64) * 64 for it in small))
    memory = empty_in_large_pages((ends[-1] if ends else 0,), torch.uint8).numpy()
    for it, start in zip(small, [0, *ends], strict=False):
        place = memory[start : start + it.weights.nbytes].view(it.weights.dtype)
        place[:] = it.weights
        it.weights = place


def _row(x: Tensor, row: int) -> int:
    """The address of a row of a contiguous tensor."""
    return x.data_ptr() + row * x.stride(0) * x.itemsize


def _floats(count: int) -> Tensor:
    """A new float32 buffer, whatever torch's default is meanwhile: it may change at any time."""
    return torch.empty(count, dtype=torch.float32, device="cpu")
