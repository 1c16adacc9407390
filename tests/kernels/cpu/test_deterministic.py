"""Attention that gives a token the same bits in any step, whatever is computed before or beside."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from forkroot.kernels.cpu.attention.deterministic import DeterministicAttention
from forkroot.kernels.cpu.jit.jit import can_compile
from forkroot.kernels.interface import Past
from forkroot.kernels.plain import PlainAttention

pytestmark = pytest.mark.skipif(not can_compile(), reason="needs numba and vector instructions")

HEADS, KV_HEADS, DIM, LEN, SLOTS = 6, 2, 32, 300, 900


class Case:
    """Sequence 0 of LEN tokens in any slots, and three forks of it after 200 tokens."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(seed)
        self.q = torch.randn(LEN, HEADS, DIM, generator=generator)
        self.kv = torch.randn(2, KV_HEADS, SLOTS, DIM, generator=generator)
        slots = self.rng.permutation(SLOTS).astype(np.int32)
        self.table = np.tile(slots[:LEN], (4, 1))
        self.table[1:, 200:] = slots[LEN : LEN + 300].reshape(3, 100)

    def attend(
        self,
        spans: list[tuple[int, int, int]],
        window: int | None,
        attention: DeterministicAttention,
    ) -> torch.Tensor:
        """Of a step with the tokens start:end of each (row, start, end): all in a row."""
        rows, starts, ends = (np.array(it, np.int32) for it in zip(*spans, strict=True))
        plan = attention.plan(Past(self.table, rows, starts, ends - starts), window)
        q = torch.cat([self.q[start:end] for _, start, end in spans])
        return attention.attend(q, self.kv, plan, DIM**-0.5)


@pytest.mark.parametrize("window", [None, 50, 130])
@pytest.mark.parametrize("seed", range(3))
def test_a_token_gets_the_same_bits_in_any_step(seed: int, window: int | None) -> None:
    case, attention = Case(seed), DeterministicAttention(torch.float32)
    whole = case.attend([(0, 0, LEN)], window, attention)
    for size in (1, 2, 3, 7, 32, 33, 64, 127, LEN - 1):
        for start in range(0, LEN, size) if size > 1 else range(0, LEN, 17):
            end = min(start + size, LEN)
            beside = [(row, 200, int(case.rng.integers(201, 300))) for row in (1, 2, 3)]
            spans = [(0, start, end), *beside[: case.rng.integers(4)]]
            found = case.attend(spans, window, attention)[: end - start]
            assert torch.equal(found, whole[start:end]), (size, start)


@pytest.mark.parametrize("window", [None, 50])
def test_it_is_the_attention_of_its_oracle(window: int | None) -> None:
    case = Case(5)
    found = case.attend([(0, 0, LEN), (2, 200, 260)], window, DeterministicAttention(torch.float32))
    plain = PlainAttention(torch.device("cpu"))
    rows, starts, lens = (np.array(it, np.int32) for it in ([0, 2], [0, 200], [LEN, 60]))
    q = torch.cat([case.q, case.q[200:260]])
    plan = plain.plan(Past(case.table, rows, starts, lens), window)
    expected = plain.attend(q, case.kv, plan, DIM**-0.5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_narrowing_a_plan_keeps_the_bits() -> None:
    case, attention = Case(7), DeterministicAttention(torch.float32)
    whole = case.attend([(0, 0, LEN)], None, attention)
    past = Past(case.table, *(np.array([it], np.int32) for it in (0, 0, LEN)))
    last = np.array([LEN - 1])
    plan = attention.narrowed(attention.plan(past), last)
    found = attention.attend(case.q, case.kv, plan, DIM**-0.5)
    assert torch.equal(found[last], whole[last])
