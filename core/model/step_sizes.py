"""The sizes of steps that are recorded, so that memory can be kept for them. Knows no torch."""

from __future__ import annotations

import sys

SPACINGS = ((8, 64), (16, 128), (32, 256), (64, sys.maxsize))  # of sizes, and up to which size
EXTEND_SIZES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # tokens


def sizes_up_to(max_size: int) -> tuple[int, ...]:
    """The sizes that are recorded for decode steps of up to `max_size` sequences: further apart the
    larger they are. Each but the first is recorded with and without shared roots."""
    sizes, last = [size for size in (1, 2, 4) if size < max_size], 0
    for spacing, end in SPACINGS:
        sizes += range(last + spacing, min(end + 1, max_size), spacing)
        last = end
    return (*sizes, max_size)


def num_graphs(max_size: int) -> int:
    """How many steps are recorded, those with several new tokens of a sequence included."""
    return 2 * len(sizes_up_to(max_size)) + len(EXTEND_SIZES)
