"""The innermost loop of a matrix product, with all sums in registers, for any number of rows.

One loop is emitted for each kind of tile, as LLVM instructions: numba has no loop over
registers. A sum adds up its products in the order of depth at every height, so a row gets the same
bits from each of them. Needs numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ..jit.vectors import fused, prefetch, spread_lanes, stored_kind, widened

CHUNK = 8  # adjacent numbers of a row in packed rows
_LINE = 64  # bytes of a cache line
_FLOAT, _SHORT, _LONG = ir.FloatType(), ir.IntType(16), ir.IntType(64)
_FIRST, _SECOND = 3, 2  # caches, as llvm.prefetch numbers them


class Shape(NamedTuple):
    """A kind of tile. height: its rows. width: panels of packed weights that they are multiplied by
    at a time. streams: addresses that are prefetched in each; hardware then prefetches behind each
    of these, too. near: rows of a panel after which lines are prefetched into the first cache; 0:
    that is left to hardware."""

    height: int
    width: int
    streams: int
    near: int = 0


def microkernel(
    shapes: Mapping[int, Shape], lanes: int, product: Callable[..., Any] = fused
) -> Any:
    """A function for compiled code that adds up a tile: packed rows times packed weights, whose
    panels have `lanes` columns. product: emits a vector of sums plus the product of a number of a
    row, in all lanes, and a row of a panel. The function takes

    - kind: a key of `shapes`.
    - rows, start: flat float32 array and where [chunks, height, CHUNK] begins in it.
    - weights, at, stride, depth: flat array, float32 or the bits of bfloat16; where [depth, lanes]
      of the first panel begins in it, and how many numbers later that of the next one.
    - prefetched, prefetched_at, step: flat array, where the part that this tile prefetches into the
      second cache begins in it, and how many numbers that is for each of `depth`; a tile of several
      panels prefetches as much in each.
    - sums, to, sums_stride: flat float32 array, where [height, lanes] of the first panel begins in
      it, and how many numbers later that of the next one.
    - is_first: whether sums are overwritten; otherwise added to.
    """

    @intrinsic
    def accumulate_tile(
        typing, kind, rows, start, weights, at, stride, depth, prefetched, prefetched_at, step,
        sums, to, sums_stride, is_first,
    ):  # fmt: skip
        def emit(context, builder, signature, args):
            def pointers(array, at, stride, num):
                """Pointers to the first number of so many panels."""
                data = context.make_array(signature.args[array])(context, builder, args[array]).data
                shifts = (builder.mul(args[stride], ir.Constant(_LONG, i)) for i in range(num))
                return [builder.gep(data, [builder.add(args[at], shift)]) for shift in shifts]

            after = builder.append_basic_block("tile.end")
            switch = builder.switch(args[0], after)
            for kind, shape in shapes.items():
                num = shape.width
                block = builder.append_basic_block(f"tile.{kind}")
                switch.add_case(ir.Constant(_LONG, kind), block)
                builder.position_at_end(block)
                tile = _Tile(builder, shape, lanes, signature.args[3].dtype, product)
                tile.prefetch(pointers(7, 8, 5, num), args[9], args[6])
                tile.add_up(pointers(1, 2, 2, 1)[0], pointers(3, 4, 5, num), args[6])
                tile.store(pointers(10, 11, 12, num), args[13])
                builder.branch(after)
            builder.position_at_end(after)
            return context.get_dummy_value()

        long = types.intp
        tiles = (long, rows, long, weights, long, long, long)
        return types.void(*tiles, prefetched, long, long, sums, long, long, types.boolean), emit

    return accumulate_tile


class _Tile:
    """Emits the loop of one kind."""

    def __init__(
        self, builder: Any, shape: Shape, lanes: int, stored: Any, product: Callable[..., Any]
    ) -> None:
        self._builder, self._height, self._lanes = builder, shape.height, lanes
        self._product = product
        self._streams, self._near, self._stored = shape.streams, shape.near, stored
        self._kind = ir.VectorType(_FLOAT, lanes)
        self._zeros = ir.Constant(self._kind, [0.0] * lanes)
        self._sums = [
            [cgutils.alloca_once(builder, self._kind) for _ in range(shape.height)]
            for _ in range(shape.width)
        ]
        for total in (total for sums in self._sums for total in sums):
            builder.store(self._zeros, total)

    def prefetch(self, pointers: Any, step: Any, depth: Any) -> None:
        """Set where prefetching begins, in each panel, and how far it advances."""
        builder, (lines, every) = self._builder, self._lines(pointers[0])
        stride = builder.sdiv(builder.mul(step, depth), ir.Constant(_LONG, self._streams))
        step = builder.mul(step, ir.Constant(_LONG, every))
        self._step = builder.sdiv(step, ir.Constant(_LONG, lines))
        self._prefetched = [
            [cgutils.alloca_once(builder, pointer.type) for _ in range(self._streams)]
            for pointer in pointers
        ]
        for pointer, addresses in zip(pointers, self._prefetched, strict=True):
            for i, prefetched in enumerate(addresses):
                start = builder.mul(stride, ir.Constant(_LONG, i))
                builder.store(builder.gep(pointer, [start]), prefetched)

    def add_up(self, rows: Any, weights: Any, depth: Any) -> None:
        """Whole chunks, then what is left of the last one."""
        builder, chunk = self._builder, ir.Constant(_LONG, CHUNK)
        rows_step = ir.Constant(_LONG, CHUNK * self._height)
        num = builder.sdiv(depth, chunk)
        with cgutils.for_range(builder, num) as loop:
            here = self._rows_of(weights, builder.mul(loop.index, chunk))
            numbers = builder.gep(rows, [builder.mul(loop.index, rows_step)])
            for d in range(CHUNK):
                self._add(numbers, here, d)
        rest = builder.gep(rows, [builder.mul(num, rows_step)])
        with cgutils.for_range(builder, builder.srem(depth, chunk)) as loop:
            at = builder.add(builder.mul(num, chunk), loop.index)
            self._add(builder.gep(rest, [loop.index]), self._rows_of(weights, at), 0)

    def store(self, pointers: Any, is_first: Any) -> None:
        """Add the sums to what these pointers point to."""
        builder, kind = self._builder, self._kind.as_pointer()
        for sums, pointer in zip(self._sums, pointers, strict=True):
            for i, total in enumerate(sums):
                to = builder.gep(pointer, [ir.Constant(_LONG, i * self._lanes)])
                to = builder.bitcast(to, kind)
                before = builder.select(is_first, self._zeros, builder.load(to, align=4))
                builder.store(builder.fadd(before, builder.load(total)), to, align=4)

    def _rows_of(self, weights: Any, d: Any) -> list[Any]:
        """Pointers to row d of each panel."""
        at = self._builder.mul(d, ir.Constant(_LONG, self._lanes))
        return [self._builder.gep(panel, [at]) for panel in weights]

    def _add(self, rows: Any, weights: Any, d: int) -> None:
        """A number of each row times a row of each panel."""
        builder = self._builder
        self._prefetch_near(weights, d)
        self._prefetch_far(d)
        columns = [self._columns(panel, d) for panel in weights]
        for i in range(self._height):
            number = builder.load(builder.gep(rows, [ir.Constant(_LONG, i * CHUNK + d)]))
            for sums, x in zip(self._sums, columns, strict=True):
                number_lanes = spread_lanes(builder, number, self._kind)
                total = builder.load(sums[i])
                builder.store(self._product(builder, total, number_lanes, x), sums[i])

    def _prefetch_near(self, weights: Any, d: int) -> None:
        """What these panels have some rows after row d."""
        lines, every = self._lines(weights[0])
        for i in range(lines if self._near and d % every == 0 else 0):
            for panel in weights:
                at = (d + self._near) * self._lanes + i * self._lanes // lines
                pointer = self._builder.gep(panel, [ir.Constant(_LONG, at)])
                prefetch(self._builder, pointer, _FIRST)

    def _prefetch_far(self, d: int) -> None:
        """As many lines as a row of a panel has; streams alternate."""
        builder = self._builder
        lines, every = self._lines(builder.load(self._prefetched[0][0]))
        for i in range(lines if d % every == 0 else 0):
            for addresses in self._prefetched:
                prefetched = addresses[(d // every * lines + i) % self._streams]
                pointer = builder.load(prefetched)
                prefetch(builder, pointer, _SECOND)
                builder.store(builder.gep(pointer, [self._step]), prefetched)

    def _lines(self, pointer: Any) -> tuple[int, int]:
        """How many cache lines a row of a panel has, at least one, and how many rows a line."""
        size = self._lanes * (2 if pointer.type.pointee == _SHORT else 4)
        return max(size // _LINE, 1), max(_LINE // size, 1)

    def _columns(self, panel: Any, d: int) -> Any:
        """A row of a panel, as float32."""
        builder, dtype = self._builder, self._stored
        stored = stored_kind(dtype, self._lanes)
        pointer = builder.gep(panel, [ir.Constant(_LONG, d * self._lanes)])
        row = builder.load(builder.bitcast(pointer, stored.as_pointer()), align=2)
        return widened(builder, row, dtype)
