"""Decode steps by FlashInfer that are recorded once and repeated (CUDA graphs): before each repeat,
wrappers are planned on the host, into the buffers that the recorded kernels read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...interface import Ints, Past
from ..upload import ALIGNMENT, uploaded
from .flashinfer_plan import Heads, Rows, Settings, Wrapper, joined, rows_of

INT_WORKSPACE = 8 << 20  # bytes of a plan, as many as a wrapper allocates


class Buffers:
    """What recorded steps of all sizes read of a plan: one at a time is planned and repeated.

    library: FlashInfer. work: for split results. max_rows, max_slots: of a step.
    """

    def __init__(
        self, library: Any, heads: Heads, work: Tensor, max_rows: int, max_slots: int
    ) -> None:
        def zeros(size: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=work.device)

        self._library, self._heads, self._work = library, heads, work
        self.device, self.max_slots = work.device, max_slots
        self._int_work = zeros(INT_WORKSPACE, torch.uint8)
        self._firsts, self._ends, self._lens = (zeros(max_rows + 1) for _ in range(3))
        self._slots = zeros(max_slots)

    def decode(self, size: int) -> Wrapper:
        """The wrapper of steps of `size` tokens, each a row of its own."""
        wrapper = self._library.BatchDecodeWithPagedKVCacheWrapper(
            self._work,
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=self._heads.is_grouped,
            paged_kv_indptr_buffer=self._ends[: size + 1],
            paged_kv_indices_buffer=self._slots,
            paged_kv_last_page_len_buffer=self._lens[:size],
            backend="fa2",
        )
        return self._sharing(wrapper, is_decode=True)

    def shared(self, size: int) -> Wrapper:
        """The wrapper of roots that `size` tokens share, and of one row for those without."""
        num_rows = num_shared_rows(size)
        wrapper = self._library.BatchPrefillWithPagedKVCacheWrapper(
            self._work,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=self._firsts[: num_rows + 1],
            paged_kv_indptr_buf=self._ends[: num_rows + 1],
            paged_kv_indices_buf=self._slots,
            paged_kv_last_page_len_buf=self._lens[:num_rows],
            backend="fa2",
        )
        return self._sharing(wrapper, is_decode=False)

    def _sharing(self, wrapper: Any, is_decode: bool) -> Wrapper:
        wrapper.reset_workspace_buffer(self._work, self._int_work)
        return Wrapper(wrapper, self._heads, is_decode)


def num_shared_rows(size: int) -> int:
    """Rows of roots that `size` tokens may share, and one more."""
    return size // 2 + 1


class StepRows(NamedTuple):
    """The rows of a decode step, and of the roots in it."""

    own: Rows
    roots: Rows | None

    @property
    def has_roots(self) -> bool:
        """Whether sequences share any."""
        return self.roots is not None


class StaticWrappers(NamedTuple):
    """Of recorded steps of one size. shared: None for steps without roots. merge: the library's
    `merge_state_in_place`."""

    own: Wrapper
    shared: Wrapper | None
    merge: Callable[..., None]


class StaticRows:
    """The `Static` of `FlashInferAttention`, for decode steps of one size. window: as in
    `Settings`. spare: the slot that tokens read which fill the step."""

    def __init__(
        self, wrappers: StaticWrappers, size: int, window: int, spare: int, buffers: Buffers
    ) -> None:
        self.wrappers = wrappers
        self._size, self._window, self._spare = size, window, spare
        self._max_slots, self._device = buffers.max_slots, buffers.device
        self._settings: Settings | None = None  # of the layers: not known before these have run
        self._rows: list[Rows] = []

    @property
    def num_numbers(self) -> int:
        """As `Static.num_numbers`: of roots, where each token is in their rows, which token is at
        each place there, and which tokens are under a root."""
        block = -(-self._size // ALIGNMENT) * ALIGNMENT
        return 3 * block if self.wrappers.shared is not None else 0

    def items(self, past: Past) -> StepRows | None:
        """As `Static.items`."""
        has_roots = self.wrappers.shared is not None
        found = StepRows(*rows_of(past, self._window, has_roots))
        listed = [len(rows.slots) for rows in found if rows is not None]
        return found if max(listed) + self._size <= self._max_slots else None

    def write(self, items: StepRows, numbers: Ints) -> None:
        """As `Static.write`; also plans the wrappers, once layers have run."""
        own, size = items.own, self._size
        lens = np.ones(size, np.int32)
        lens[: len(own.lengths)] = own.lengths
        unused = np.full(size - len(own.lengths), self._spare, np.int32)
        tokens, counts = np.arange(size, dtype=np.int32), np.ones_like(lens)
        self._rows = [Rows(tokens, counts, lens, joined([own.slots, unused]), True)]
        if self.wrappers.shared is not None:
            self._rows.append(self._shared_rows(items.roots, numbers.reshape(3, -1)))
        if self._settings is not None:
            self._prepare(self._settings)

    def plan(self, numbers: Tensor) -> StaticPlan:
        """As `Static.plan`."""
        if self.wrappers.shared is None:
            return StaticPlan(self, numbers, numbers, numbers)
        order, places, is_member = numbers.reshape(3, -1)
        flags = is_member.view(torch.bool)[: self._size]
        return StaticPlan(self, order[: self._size], places[: self._size], flags)

    def ensure(self, scale: float, softcap: float | None) -> None:
        """Plan for the settings of the layers, when the first of them runs: before it is recorded,
        as nothing can be planned then."""
        settings = Settings(self._window, scale, softcap)
        if self._settings is None:
            self._settings = settings
            self._prepare(settings)
        assert self._settings == settings, "layers of one window have the same scale and softcap"

    def _prepare(self, settings: Settings) -> None:
        slots = uploaded([rows.slots for rows in self._rows], self._device)
        wrappers = [it for it in (self.wrappers.own, self.wrappers.shared) if it is not None]
        for wrapper, rows, listed in zip(wrappers, self._rows, slots, strict=True):
            wrapper.plan(rows, listed, settings)

    def _shared_rows(self, roots: Rows | None, numbers: Ints) -> Rows:
        """As many rows as there may be, of all tokens: roots, and last the tokens without."""
        num_rows, size = num_shared_rows(self._size), self._size
        counts, lens = np.zeros(num_rows, np.int32), np.ones(num_rows, np.int32)
        tokens = slots = np.empty(0, np.int32)
        num_roots = 0
        if roots is not None:
            tokens, slots, num_roots = roots.tokens, roots.slots, len(roots.counts)
            counts[:num_roots], lens[:num_roots] = roots.counts, roots.lengths
        counts[-1] = size - len(tokens)
        is_member = numbers[2].view(np.bool_)[:size]
        is_member[tokens] = True
        order = joined([tokens, np.flatnonzero(~is_member).astype(np.int32)])
        numbers[0, :size] = order
        numbers[1, order] = np.arange(size)
        slots = joined([slots, np.full(num_rows - num_roots, self._spare, np.int32)])
        return Rows(order, counts, lens, slots, False)


class StaticPlan(NamedTuple):
    """The plan of a recorded step. order: [tokens] the token at each place in the rows of roots.
    places: [tokens] where each token is there. is_member: [tokens] which are under a root."""

    rows: StaticRows
    order: Tensor
    places: Tensor
    is_member: Tensor

    def attend(self, q: Tensor, kv: Tensor, scale: float, softcap: float | None) -> Tensor:
        """As `Attention.attend`, with contiguous q."""
        own, shared, merge = self.rows.wrappers
        self.rows.ensure(scale, softcap)
        if shared is None:
            return own.run(q, kv)
        out, lse = own.run_with_lse(q, kv)
        other, other_lse = shared.run_with_lse(q.index_select(0, self.order), kv)
        other, other_lse = (it.index_select(0, self.places) for it in (other, other_lse))
        merge(out, lse, other, other_lse, mask=self.is_member)
        return out
