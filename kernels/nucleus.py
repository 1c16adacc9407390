"""Draws tokens from weights over a whole vocabulary, on a CPU: loops compiled by numba.

The least weight that a filter keeps is found without a sort: a ladder of marks, evenly spaced in
the bits of a float (those of ascending positive floats ascend), is laid between two bounds; what
lies above each mark is summed, the bounds close in about the right rung, and only the weights
between them are looked at again. The last few are sorted. Only float32.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from .paged import can_compile, compiled

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
Longs: TypeAlias = npt.NDArray[np.int64]

BLOCK = 128
_COLDEST = 1e-6
_SLACK = 1 - 1e-4  # of a bound that sums of floats stand behind
_FEW = 24  # weights that are sorted
_CHUNK = 512  # weights summed in float32 before the sum goes to float64
_ONE = 0x3F800000  # bits of the float 1
_LEAST = np.float32(-126)  # powers of two below it count as this one

_ROWS, _REALS, _WIDE, _INTS = "float32[:, ::1]", "float32[::1]", "float64[::1]", "int64[::1]"
_WEIGH = f"void({_ROWS}, {_REALS}, {_REALS}, {_ROWS})"
_ADD_UP = f"void({_ROWS}, {_INTS}, {_REALS}, {_WIDE}, {_WIDE})"
_DESCEND = f"void({_ROWS}, {_INTS}, {_INTS}, {_WIDE}, float32, {_REALS})"
_PICK = f"void({_ROWS}, {_REALS}, {_WIDE}, {_INTS})"


class Filters(NamedTuple):
    """What each row keeps. top_ks: [N] tokens at most, not positive: all. top_ps: [N] the share of
    the mass of these that is enough. min_ps: [N] the least weight, that of the likeliest being 1.
    Tokens as likely as the last one kept are kept."""

    top_ks: Longs
    top_ps: Doubles
    min_ps: Floats


class Drawer:
    """Draws tokens; has its loops compiled when it is made."""

    def __init__(self) -> None:
        self._weigh = compiled(_weigh, _WEIGH)
        self._add_up = compiled(_add_up, _ADD_UP)
        self._descend = compiled(_descend, _DESCEND)
        self._pick = compiled(_pick, _PICK)

    def draw(
        self, logits: Floats, temperatures: Doubles, filters: Filters, numbers: Doubles
    ) -> Longs:
        """A token for each row of logits [N, vocabulary]: that at which the running sum of the
        weights kept, in the order of token ids, passes `numbers` [N] of the whole."""
        weights = self.weights(logits, temperatures)
        floors = self.floors(weights, logits.shape[1], filters)
        tokens = np.empty(len(logits), np.int64)
        self._pick(weights, floors, numbers, tokens)
        return tokens

    def weights(self, logits: Floats, temperatures: Doubles) -> Floats:
        """Probabilities up to a factor: the likeliest token of a row has 1. Filled up with zeros
        to whole blocks: [N, at least vocabulary]."""
        num_rows, size = logits.shape
        weights = np.empty((num_rows, -(-size // BLOCK) * BLOCK), np.float32)
        scales = (1 / (math.log(2) * temperatures.clip(_COLDEST))).astype(np.float32)
        self._weigh(logits, logits.max(-1), scales, weights)
        return weights

    def floors(self, weights: Floats, size: int, filters: Filters) -> Floats:
        """[N] the least weight that each row's filters keep. size: of the vocabulary."""
        top_ks, top_ps, min_ps = filters
        counts = np.where((top_ks > 0) & (top_ks < size), top_ks, size)
        floors = np.zeros(len(weights), np.float32)
        rows = np.flatnonzero(counts < size)
        if len(rows):
            wanted = counts[rows].astype(np.float64)
            floors[rows] = self._least(weights, rows, _ranked(weights, rows, counts[rows]), wanted)
        rows = np.flatnonzero(top_ps < 1)
        if len(rows):
            wanted = top_ps[rows] * self._masses(weights, rows, floors, counts, size)
            left = (1 - top_ps[rows]) / top_ps[rows].clip(1e-9) * wanted / counts[rows] * _SLACK
            lows = np.maximum(floors[rows], left.astype(np.float32))
            floors[rows] = self._least(weights, rows, lows, wanted, by_mass=True)
        return np.maximum(floors, min_ps)

    def _masses(
        self, weights: Floats, rows: Longs, floors: Floats, counts: Longs, size: int
    ) -> Doubles:
        """[n] what the `counts` largest weights of these rows add up to, the least of which are
        the floors."""
        masses, nums = np.empty((2, len(rows)))
        self._add_up(weights, rows, floors[rows], masses, nums)
        of_least = (counts[rows] - nums) * floors[rows]
        whole: Doubles = masses + np.where(counts[rows] < size, of_least, 0)
        return whole

    def _least(
        self, weights: Floats, rows: Longs, lows: Floats, wanted: Doubles, by_mass: bool = False
    ) -> Floats:
        """[n] the greatest weight of each row such that those from it on are `wanted` [n] in
        number, or in mass; it is not below `lows` [n]."""
        floors = np.empty(len(rows), np.float32)
        bits = np.minimum(lows.view(np.int32), _ONE).astype(np.int64)
        self._descend(weights, rows, bits, wanted, np.float32(by_mass), floors)
        return floors


@functools.cache
def drawer() -> Drawer | None:
    """The one of this process; None where numba is not installed."""
    return Drawer() if can_compile() else None


def _ranked(weights: Floats, rows: Longs, counts: Longs) -> Floats:
    """[n] a weight that is not above the one of rank `counts` [n]: of that rank among the largest
    of as many groups as there are blocks, or 0 where these are fewer."""
    some = weights if len(rows) == len(weights) else weights[rows]
    best = some.reshape(len(rows), BLOCK, -1).max(1)
    best.sort(axis=-1)
    places = best.shape[-1] - counts
    found = np.take_along_axis(best, places.clip(0)[:, None], axis=-1)[:, 0]
    return np.where(places >= 0, found, np.float32(0))


def _weigh(logits, tops, scales, weights):  # type: ignore[no-untyped-def]
    """weights = 2^((logits - tops) * scales): a power of two times a polynomial of the rest
    (coefficients of Cephes' exp2f)."""
    size = logits.shape[1]
    for row in range(len(logits)):
        x, y = logits[row], weights[row]
        bits, top, scale = y.view(np.int32), tops[row], scales[row]
        for i in range(size):
            z = (x[i] - top) * scale
            z = z if z > _LEAST else _LEAST
            n = np.int32(z - np.float32(0.5))
            f = z - np.float32(n)
            p = np.float32(1.535336188e-4) * f + np.float32(1.339887440e-3)
            p = p * f + np.float32(9.618437357e-3)
            p = p * f + np.float32(5.550332471e-2)
            p = p * f + np.float32(2.402264791e-1)
            p = p * f + np.float32(6.931472028e-1)
            y[i] = p * f + np.float32(1)
            bits[i] += n << np.int32(23)
        y[size:] = 0


def _add_up(weights, rows, floors, masses, nums):  # type: ignore[no-untyped-def]
    """Mass and number of each row's weights above a floor."""
    for j in range(len(rows)):
        row, floor = weights[rows[j]], floors[j]
        total, count = np.float64(0), np.int64(0)
        for block in range(len(row) // BLOCK):
            mass, num = np.float32(0), np.int32(0)
            for i in range(block * BLOCK, (block + 1) * BLOCK):
                x = row[i]
                mass += x if x > floor else np.float32(0)
                num += np.int32(x > floor)
            total += mass
            count += num
        masses[j], nums[j] = total, count


def _descend(weights, rows, lows, wanted, by_mass, floors):  # type: ignore[no-untyped-def]
    """As `Drawer._least`; by_mass: 1 or 0, lows: bits."""
    zero, one = np.float32(0), np.float32(1) - by_mass
    kept, marks, sums = np.empty(weights.shape[1], np.int32), np.empty(8, np.int32), np.empty(8)
    values, levels = kept.view(np.float32), marks.view(np.float32)
    for j in range(len(rows)):
        low, high, base = lows[j], np.int64(_ONE + 1), 0.0
        source, num = weights[rows[j]].view(np.int32), np.int64(weights.shape[1])
        while True:
            first, span, place = np.int32(low), np.uint32(high - low), np.uint32(0)
            for i in range(num):
                bits = source[i]
                kept[place] = bits
                place += np.uint32(np.uint32(bits - first) < span)
            source, num = kept, np.int64(place)
            least, most = np.int32(high - 1), first
            for i in range(num):
                least, most = min(least, kept[i]), max(most, kept[i])
            low, high = np.int64(least), np.int64(most) + 1
            if num <= _FEW or high - low <= 1:
                break
            for m in range(8):
                marks[m] = low + (high - low) * (m + 1) // 9
            sums[:] = base
            l0, l1, l2, l3 = levels[0], levels[1], levels[2], levels[3]
            l4, l5, l6, l7 = levels[4], levels[5], levels[6], levels[7]
            for start in range(0, num, _CHUNK):
                s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = zero
                stop = start + _CHUNK if start + _CHUNK < num else num
                for i in range(start, stop):
                    x = values[i]
                    y = x * by_mass + one
                    s0 += y if x >= l0 else zero
                    s1 += y if x >= l1 else zero
                    s2 += y if x >= l2 else zero
                    s3 += y if x >= l3 else zero
                    s4 += y if x >= l4 else zero
                    s5 += y if x >= l5 else zero
                    s6 += y if x >= l6 else zero
                    s7 += y if x >= l7 else zero
                sums[0] += s0
                sums[1] += s1
                sums[2] += s2
                sums[3] += s3
                sums[4] += s4
                sums[5] += s5
                sums[6] += s6
                sums[7] += s7
            rung = 0
            while rung < 8 and sums[rung] >= wanted[j]:
                low = np.int64(marks[rung])
                rung += 1
            if rung < 8:
                high, base = np.int64(marks[rung]), sums[rung]
        for i in range(1, num):  # descending
            bits, hole = kept[i], i
            while hole > 0 and kept[hole - 1] < bits:
                kept[hole] = kept[hole - 1]
                hole -= 1
            kept[hole] = bits
        marks[0] = high
        for i in range(num):
            marks[0] = kept[i]
            base += values[i] * by_mass + one
            if base >= wanted[j]:
                break
        floors[j] = levels[0]


def _pick(weights, floors, numbers, tokens):  # type: ignore[no-untyped-def]
    """As `Drawer.draw`; where rounding puts the goal behind the sum, the last that adds to it."""
    num_blocks = weights.shape[1] // BLOCK
    sums = np.empty(num_blocks)
    for row in range(len(weights)):
        x, floor, total = weights[row], floors[row], np.float64(0)
        for block in range(num_blocks):
            mass = np.float32(0)
            for i in range(block * BLOCK, (block + 1) * BLOCK):
                mass += x[i] if x[i] >= floor else np.float32(0)
            total += mass
            sums[block] = total
        goal, before, chosen = numbers[row] * total, 0.0, 0
        for block in range(num_blocks):
            if sums[block] > before:
                chosen = block
                if sums[block] > goal:
                    break
            before = sums[block]
        goal -= sums[chosen - 1] if chosen else 0.0
        total, token = np.float64(0), chosen * BLOCK
        for i in range(chosen * BLOCK, (chosen + 1) * BLOCK):
            if x[i] >= floor and x[i] > 0:
                token = i
                total += x[i]
                if total > goal:
                    break
        tokens[row] = token
