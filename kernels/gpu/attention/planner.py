"""Plans a step's attention from the slot table alone: work items of decode, of extend and of shared
prefixes, as the arrays that kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ...interface import Ints, Past, within_groups
from ...sharing import find_runs
from .decode import KEYS, DecodeItems
from .extend import ExtendItems, queries_per_tile

ROOT_READS = 8  # shared prefixes, one behind the other, that a token reads on average at most
MIN_PIECE_KEYS = 256  # least keys of a shared prefix, or of an extend, for each program
MAX_EXTENDS = 128  # sequences of several new tokens in a recorded step
EXTEND_TOKENS = 16  # of such a sequence, about: what tiles of recorded steps are for


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step's kernels read. merges: as in `merge`, of num_partials results in all."""

    decodes: DecodeItems | None
    roots: ExtendItems | None
    extends: ExtendItems | None
    merges: Tensor
    num_partials: int


class WorkItems(NamedTuple):
    """Queries over keys, as `ExtendItems` lists them."""

    tile: int
    tokens: Ints
    items: Ints
    tiles: Ints

    @classmethod
    def of(cls, tile: int, tokens: Ints, items: Ints) -> WorkItems:
        """Cut items into tiles of queries."""
        counts = -(-items[:, 1] // tile)
        which = np.repeat(np.arange(len(items)), counts)
        return cls(tile, tokens, items, _table(which, within_groups(counts) * tile))

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Tokens, items and tiles."""
        return self.tokens, self.items, self.tiles


@dataclass(frozen=True, slots=True)
class StepItems:
    """The work of a step, in arrays as `DecodeItems`, `ExtendItems` and `Plan` have them.
    num_partials: how many partial results there are to merge."""

    decodes: Ints
    extends: WorkItems
    roots: WorkItems
    merges: Ints
    num_partials: int

    @property
    def has_roots(self) -> bool:
        """Whether sequences share a prefix that is read once."""
        return len(self.roots.items) > 0


class Capacity(NamedTuple):
    """How much of everything a step of some size may have. fill: items that fill the device."""

    decodes: int
    root_tokens: int
    root_items: int
    root_tiles: int
    partials: int
    extends: int
    extend_tiles: int


@dataclass(frozen=True, slots=True)
class Planner:
    """How much work fills a device: num_programs of it. The rest as in `GpuAttention`."""

    num_kv_heads: int
    dtype: torch.dtype
    group: int
    num_programs: int

    def capacity(self, num_tokens: int) -> Capacity:
        """What suffices for every step of so many tokens, but for extends, and for roots beyond
        `ROOT_READS` of a token: what these would be is read token by token."""
        fill = self._fill()
        num_rows = fill * (1 + self.tile(num_tokens) + self.extend_tile())
        num_reads = ROOT_READS * num_tokens
        num_extends = min(num_tokens // 2, MAX_EXTENDS)
        return Capacity(
            decodes=fill + num_tokens,
            root_tokens=num_reads,
            root_items=fill + num_tokens,
            root_tiles=fill + num_tokens,
            partials=num_rows + num_tokens + num_reads,
            extends=fill + num_extends,
            extend_tiles=fill + num_tokens // self.extend_tile() + num_extends,
        )

    def tile(self, num_tokens: int) -> int:
        """Queries in a tile for work items of up to `num_tokens` queries."""
        return queries_per_tile(max(num_tokens, 1), self.group, self.dtype)

    def extend_tile(self) -> int:
        """The same in recorded steps."""
        return self.tile(EXTEND_TOKENS)

    def items(
        self, past: Past, window: int | None, root_tile: int = 0, extend_tile: int = 0
    ) -> StepItems:
        """The work of a step. root_tile, extend_tile: queries in a tile; 0: by how many there
        are."""
        firsts = ints(np.cumsum(past.lens) - past.lens)
        decode_rows, extend_rows = (
            ints(np.flatnonzero(it)) for it in (past.lens == 1, past.lens > 1)
        )
        offsets = np.zeros(len(past.rows), np.int32)
        if window is not None:  # the first key that the last new token of a sequence sees
            offsets = ints(np.maximum(past.starts + past.lens - window, 0))
        root_tile = root_tile or self.tile(len(decode_rows))
        roots, num_pieces = self._roots(past, decode_rows, firsts, offsets, root_tile)
        starts, ends = offsets[decode_rows], past.starts[decode_rows] + 1
        split_len = self._decode_split(ends - starts)
        counts = -(-(ends - starts) // split_len)
        num_own = num_pieces[decode_rows]  # where a token's own keys come among its results
        num_pieces[decode_rows] += counts
        extend_tile = extend_tile or self.tile(int(past.lens.max(initial=1)))
        extends = self._extends(past, extend_rows, firsts, extend_tile, window, num_pieces)
        totals = np.where(num_pieces > 1, num_pieces, 0)
        partials = np.cumsum(totals * past.lens) - totals * past.lens
        merges = np.stack([partials, totals], 1)
        if len(extend_rows):
            merges = np.repeat(merges, past.lens, 0)
            merges[:, 0] += within_groups(past.lens) * merges[:, 1]
        which = np.repeat(np.arange(len(counts)), counts)
        split = within_groups(counts)
        begin, owner = starts[which] + split * split_len, decode_rows[which]
        decodes = _table(
            firsts[owner],
            past.rows[owner],
            begin,
            np.minimum(begin + split_len, ends[which]),
            np.where(totals[owner] > 0, partials[owner] + num_own[which] + split, -1),
        )
        num_partials = int((totals * past.lens).sum())
        return StepItems(decodes, extends, roots, _table(*merges.T), num_partials)

    def _fill(self) -> int:
        """Work items that fill the device, each of which is a program for each head of keys."""
        return max(self.num_programs // self.num_kv_heads, 1)

    def _decode_split(self, lens: Ints) -> int:
        """How many keys of a sequence one program reads (split-KV), so that programs have about
        the same number and fill the device."""
        wanted = -(-int(lens.sum()) // self._fill())
        return max(-(-wanted // KEYS), 1) * KEYS

    def _extends(
        self,
        past: Past,
        rows: Ints,
        firsts: Ints,
        tile: int,
        window: int | None,
        num_pieces: Ints,
    ) -> WorkItems:
        """The new tokens of sequences that have several, each over all that it reads; where these
        fill no device, their cached keys in pieces. Sets the number of each sequence's pieces."""
        counts, starts = past.lens[rows], past.starts[rows]
        keys = starts + counts
        piece_len = self._piece_len(int((-(-counts // tile) * keys).sum()))
        pieces = 1 + np.minimum(-(-keys // piece_len) - 1, starts // piece_len)
        if window is not None:
            pieces[:] = 1
        num_pieces[rows] = pieces
        which = np.repeat(np.arange(len(rows)), pieces)
        level = within_groups(pieces)
        is_last = level + 1 == pieces[which]
        begin = level * piece_len
        items = _table(
            (np.cumsum(counts) - counts)[which],
            counts[which],
            past.rows[rows][which],
            begin,
            np.where(is_last, keys[which] - begin, piece_len),
            np.where(is_last, counts[which], 0),
            np.where(pieces[which] > 1, level, -1),
        )
        tokens = ints(np.repeat(firsts[rows], counts) + within_groups(counts))
        return WorkItems.of(tile, tokens, items)

    def _piece_len(self, num_keys: int) -> int:
        """How many keys of a shared prefix, or of an extend, one program reads, so that a step's
        pieces fill the device. num_keys: of all tiles of queries."""
        return max(MIN_PIECE_KEYS, -(-num_keys // self._fill()))

    def _roots(
        self, past: Past, decode_rows: Ints, firsts: Ints, offsets: Ints, tile: int
    ) -> tuple[WorkItems, Ints]:
        """Prefixes that several decode tokens share, each read once, split over programs, and how
        many pieces the token of each sequence [S] reads; moves its offset past them. Sequences
        whose window does not reach their start share none."""
        num_pieces = np.zeros(len(past.rows), np.int32)
        starts = np.where(offsets[decode_rows] > 0, 0, past.starts[decode_rows])
        some = Past(past.table, past.rows[decode_rows], starts, past.lens[decode_rows])
        capacity = self.capacity(len(past.lens))
        runs, num_tokens, num_tiles, work = [], 0, 0, 0
        for run in find_runs(some, np.ones(len(decode_rows), bool)):
            members = decode_rows[list(run.sequences)]
            tiles = -(-len(members) // tile)
            is_room = num_tokens + len(members) <= capacity.root_tokens
            if not is_room or num_tiles + tiles > len(past.lens) or offsets[members[0]] < run.start:
                continue
            offsets[members] = run.end
            runs.append((members, run.start, run.end))
            num_tokens, num_tiles = num_tokens + len(members), num_tiles + tiles
            work += tiles * (run.end - run.start)
        piece_len = self._piece_len(work)
        items, at = [], 0
        for members, start, end in runs:
            level, row = int(num_pieces[members[0]]), int(past.rows[members[0]])
            begins = range(start, end, piece_len)
            for begin in begins:
                size = min(piece_len, end - begin)
                items.append((at, len(members), row, begin, size, 0, level))
                level += 1
            num_pieces[members] = level
            at += len(members)
        found = np.array(items, np.int32).reshape(-1, 7)
        tokens = concatenated([firsts[members] for members, _, _ in runs])
        return WorkItems.of(tile, tokens, found), num_pieces


def _table(*columns: npt.NDArray[Any]) -> Ints:
    found: Ints = np.stack(columns, 1).astype(np.int32, copy=False)
    return found


def ints(numbers: npt.NDArray[Any]) -> Ints:
    """These numbers as int32."""
    return numbers.astype(np.int32, copy=False)


def concatenated(arrays: list[Ints]) -> Ints:
    """One behind the other; of none, an empty one."""
    return ints(np.concatenate(arrays)) if arrays else np.empty(0, np.int32)
