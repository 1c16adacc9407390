"""A decoder's layers in one call give what they give one by one, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from forkroot.core.model.arch.llama import MLP, Layer, Llama
from forkroot.core.model.arch.parts import Parts
from forkroot.core.model.arch.rotary import RotaryEmbedding
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.inputs import Inputs
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.kernels.backend import LayerSizes, Matrix, Step
from forkroot.kernels.cpu.attention.attention import CpuAttention
from forkroot.kernels.cpu.attention.extend import has_longer_loops
from forkroot.kernels.cpu.decoder.fused import CpuBackend, fused_head, fused_stack
from forkroot.kernels.cpu.decoder.layerwise import Layerwise, LayerwiseBackend
from forkroot.kernels.cpu.decoder.stack import Stack
from forkroot.kernels.cpu.jit import amx
from forkroot.kernels.cpu.linear.linear import TorchLinear, linear_kernel
from forkroot.kernels.cpu.linear.rows import PlainNorm, PlainRows

from ..conftest import NUM_SLOTS, PLAIN, Placement

BIASED = replace(PLAIN, has_qkv_bias=True, has_output_bias=True, has_mlp_bias=True)
NORMED = replace(PLAIN, head_dim=34, num_heads=3, num_kv_heads=1, has_head_norms=True)
WINDOWED = replace(PLAIN, windows=(None, 24, 24), hidden_size=70)
CHAINED = replace(PLAIN, hidden_size=64, ffn_size=192)
CPU = torch.device("cpu")


class RandomWeights:
    """Float32 numbers, with no more digits than a type has."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype = torch.float32) -> None:
        self._shapes, self._dtype = config.weight_shapes(), dtype
        self._random = torch.Generator().manual_seed(0)

    def take(self, name: str) -> torch.Tensor:
        numbers = torch.randn(self._shapes[name], generator=self._random) / 4
        return numbers.to(self._dtype).float()

    def take_part(self, name: str, dim: int, part: slice) -> torch.Tensor:
        raise AssertionError("there is one rank")


class Decoder:
    """The same layers in both ways, each over a pool of its own."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype = torch.float32) -> None:
        parts = Parts(config, RandomWeights(config, dtype), Ranks(), CpuBackend())
        self.windows = tuple(dict.fromkeys(config.windows))
        self.layers = [
            Layer(parts, i, self.windows.index(window), MLP(parts, i))
            for i, window in enumerate(config.windows)
        ]
        heads = config.num_heads, config.num_kv_heads, config.head_dim
        sizes = LayerSizes(*heads, config.hidden_size, config.ffn_size, config.norm_eps)
        weights = [layer.weights for layer in self.layers]
        found = fused_stack(weights, sizes, torch.float32)
        assert found is not None
        self.fused, self.num_shares = found, 1
        self._parts = sizes, [it for it in weights if it is not None]
        self.rope = RotaryEmbedding(config.rope, config.head_dim, config.context_len, CPU)
        self.pools = [KVPool(config, NUM_SLOTS, torch.float32, CPU, Ranks()) for _ in range(2)]
        for pool in self.pools:
            pool.storage.fill_(torch.nan)
        self.attention = CpuAttention(torch.float32)
        self.random = torch.Generator().manual_seed(1)
        self.hidden_size = config.hidden_size

    def step(self, inputs: Inputs, pool: KVPool, wanted: torch.Tensor | None = None) -> Step:
        """One step over a pool."""
        tokens = inputs.positions, inputs.slots, inputs.plans, wanted
        return Step(*tokens, self.rope, pool, self.attention)

    def with_threads(self, num_threads: int) -> Stack:
        """The layers in one call, whatever torch has."""
        return Stack(*self._parts, num_threads)

    @torch.inference_mode()
    def run(self, batch: Any, wanted: list[int] | None = None) -> torch.Tensor:
        """One step in both ways, which must agree."""
        inputs = Inputs.of(batch, self.windows, self.attention, CPU)
        rows = None if wanted is None else torch.tensor(wanted, dtype=torch.int64)
        shape = len(batch.ids), self.hidden_size
        first = torch.randn(shape, generator=self.random, dtype=torch.float32)
        x, (one, other) = first.clone(), self.pools
        x = Layerwise(self.layers)(x, self.step(inputs, one, rows))
        step = self.step(inputs, other, rows)
        assert self.fused.ways(first, step) != (0,)
        made = self.fused(first, step, self.num_shares)
        assert x.isfinite().all()
        assert torch.equal(x, made)
        assert torch.equal(one.storage.nan_to_num(7), other.storage.nan_to_num(7))
        return made


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (PLAIN, torch.float32),
        (PLAIN, torch.float16),
        (BIASED, torch.bfloat16),
        (BIASED, torch.float32),
        (NORMED, torch.float32),
        (WINDOWED, torch.float32),
    ],
)
def test_a_step_is_the_same_whatever_it_holds(config: ModelConfig, dtype: torch.dtype) -> None:
    decoder, placement = Decoder(config, dtype), Placement()
    ids = list(range(60))
    root = placement.add(ids)
    decoder.run(placement.batch({root: 40}), wanted=[39, *range(40), *range(40)])  # a prompt
    forks = [placement.fork(root, ids[:3]) for _ in range(3)]
    other = placement.add(ids)
    decoder.run(placement.batch({other: 9, forks[0]: 1}))  # a prompt beside a single token
    singles = dict.fromkeys((*forks, other), 1)
    decoder.run(placement.batch(singles))  # single tokens over a root that they share
    decoder.run(placement.batch(singles), wanted=[2, 0])
    decoder.run(placement.batch({other: 1}))  # one alone
    decoder.run(placement.batch({root: 1, other: 1}), wanted=[])


def test_a_step_is_the_same_with_weights_in_half_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(amx, "can_multiply", lambda: False)
    decoder, placement = Decoder(BIASED, torch.bfloat16), Placement()
    root = placement.add(list(range(60)))
    decoder.run(placement.batch({root: 40}))
    decoder.run(placement.batch({root: 1, placement.fork(root, [1, 2]): 1}))


def test_a_row_is_the_same_in_any_batch() -> None:
    alone, together = Decoder(PLAIN), Decoder(PLAIN)
    random = np.random.default_rng(0)
    hidden = torch.from_numpy(random.standard_normal((5, PLAIN.hidden_size), np.float32))
    placement = Placement()
    batch = placement.batch({placement.add([1]): 1 for _ in range(5)})
    whole = _made(together, batch, hidden)
    for row in range(5):
        one = replace(
            batch,
            ids=batch.ids[row : row + 1],
            positions=batch.positions[row : row + 1],
            slots=batch.slots[row : row + 1],
            rows=batch.rows[row : row + 1],
            starts=batch.starts[row : row + 1],
            lens=batch.lens[row : row + 1],
        )
        assert torch.equal(_made(alone, one, hidden[row : row + 1])[0], whole[row])


@torch.inference_mode()
def _made(decoder: Decoder, batch: Any, hidden: torch.Tensor) -> torch.Tensor:
    inputs = Inputs.of(batch, decoder.windows, decoder.attention, CPU)
    return decoder.fused(hidden.clone(), decoder.step(inputs, decoder.pools[0]))


def test_layers_that_loops_do_not_know_are_left_as_they_are() -> None:
    parts = Parts(PLAIN, RandomWeights(PLAIN), Ranks(), CpuBackend())
    layer = Layer(parts, 0, 0, MLP(parts, 0))
    sizes = LayerSizes(4, 2, 12, 48, 80, 1e-5)
    assert fused_stack([layer.weights], sizes, torch.float32) is not None
    assert fused_stack([layer.weights, None], sizes, torch.float32) is None
    with pytest.raises(ValueError, match=r"matrix \[48, 96\]; its sizes want \[48, 84\]"):
        fused_stack([layer.weights], sizes._replace(num_heads=3), torch.float32)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_of_many_rows_is_the_same(dtype: torch.dtype, num_threads: int) -> None:
    decoder, placement = Decoder(CHAINED, dtype), Placement()
    decoder.fused = decoder.with_threads(num_threads)
    root, ids = placement.add([1] * 220), list(range(150))
    decoder.run(placement.batch({root: 200}))
    other, third = placement.add(ids), placement.add(ids)
    batch = placement.batch({root: 1, other: 101, third: 150})
    decoder.run(batch, wanted=[0, 101, 251])
    decoder.run(placement.batch({root: 1, other: 49}))  # one share
    placement = Placement()
    fourth, fifth = placement.add(ids), placement.add(ids)
    batch = placement.batch({fourth: 150, fifth: 149})
    decoder.run(batch, wanted=[*range(298), *range(100)])  # more than there are


@pytest.mark.parametrize("num_rows", [128, 150, 170, 192, 255, 300])
def test_shares_of_a_step_have_buffers_of_their_own(num_rows: int) -> None:
    config = replace(BIASED, head_dim=128, has_head_norms=True, ffn_size=320)
    decoder = Decoder(config)
    decoder.num_shares = 3 if num_rows >= 192 else 2
    decoder.fused = decoder.with_threads(decoder.num_shares)
    for _ in range(4):
        placement = Placement()
        first, other = placement.add([1] * 240), placement.add([2] * 240)
        decoder.run(placement.batch({first: num_rows // 2, other: num_rows - num_rows // 2}))


@pytest.mark.parametrize("config", [BIASED, WINDOWED])
@pytest.mark.parametrize("num_shares", [2, 3, 12])
def test_single_tokens_are_the_same_in_several_shares(config: ModelConfig, num_shares: int) -> None:
    decoder, placement = Decoder(config), Placement(num_rows=40)
    decoder.fused, decoder.num_shares = decoder.with_threads(num_shares), num_shares
    lens = [3 + 7 * i % 24 for i in range(37)]
    sequences = [placement.add([i] * (length + 2)) for i, length in enumerate(lens)]
    decoder.run(placement.batch(dict(zip(sequences, lens, strict=True))))
    decoder.run(placement.batch(dict.fromkeys(sequences, 1)))
    decoder.run(placement.batch(dict.fromkeys(sequences, 1)), wanted=[36, 0, 17, 16])


def attention_calls(decoder: Decoder) -> list[int]:
    """One item for each call of the decoder's attention from now on."""
    calls: list[int] = []
    attend = CpuAttention.attend

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return attend(*args, **kwargs)

    decoder.attention.attend = counted.__get__(decoder.attention)  # type: ignore[method-assign]
    return calls


@pytest.mark.parametrize("config", [BIASED, NORMED, WINDOWED])
@pytest.mark.parametrize("num_shares", [1, 2, 3])
def test_prompts_beside_single_tokens_are_the_same_in_several_shares(
    config: ModelConfig, num_shares: int
) -> None:
    decoder, placement = Decoder(config), Placement(num_rows=40)
    decoder.fused, decoder.num_shares = decoder.with_threads(num_shares), num_shares
    calls = attention_calls(decoder)
    root = placement.add([1] * 50)
    decoder.run(placement.batch({root: 40}))
    forks = [placement.fork(root, [i] * (2 + i % 9)) for i in range(12)]
    others = [placement.add([i] * (3 + 5 * i)) for i in range(9)]
    lens = {it: 1 + i % 9 for i, it in enumerate(forks)}
    lens |= {it: 2 + 5 * i for i, it in enumerate(others)}
    for wanted in (None, [0, 30, 70]):  # once more behind them, beside single tokens
        calls.clear()
        batch = placement.batch(lens)
        decoder.run(batch, wanted)
        if not has_longer_loops(torch.float32):
            assert len(calls) == config.num_layers + (wanted is not None)
        lens = dict.fromkeys([*forks, *others], 1)
        lens |= {placement.add([i] * 20): 11 + i for i in range(4)}


def test_one_long_prompt_is_not_one_share() -> None:
    decoder, placement = Decoder(PLAIN), Placement(num_rows=8)
    decoder.fused, decoder.num_shares = decoder.with_threads(2), 2
    single, prompt = placement.add([1] * 9), placement.add([2] * 90)
    decoder.run(placement.batch({single: 8}))
    decoder.run(placement.batch({single: 1, prompt: 80}))


def test_a_share_that_reads_most_keys_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, placement = Decoder(PLAIN), Placement(num_rows=60)
    decoder.fused, decoder.num_shares = decoder.with_threads(2), 2
    monkeypatch.setattr("forkroot.kernels.cpu.attention.decode._SPREAD", 1)
    calls = attention_calls(decoder)
    lens = [200, *[5] * 19]
    sequences = [placement.add([i] * (length + 2)) for i, length in enumerate(lens)]
    decoder.run(placement.batch(dict(zip(sequences, lens, strict=True))))
    calls.clear()
    decoder.run(placement.batch(dict.fromkeys(sequences, 1)))
    assert len(calls) == 2 * PLAIN.num_layers  # by threads, here as layer by layer
    calls.clear()
    decoder.run(placement.batch(dict.fromkeys(sequences[4:], 1)))
    assert len(calls) == 2 * PLAIN.num_layers  # of one share
    even = [placement.add([i + 30] * 9) for i in range(32)]
    decoder.run(placement.batch(dict.fromkeys(even, 8)))
    calls.clear()
    decoder.run(placement.batch(dict.fromkeys(even, 1)))
    assert len(calls) == PLAIN.num_layers


def test_ways_that_may_be_fastest_depend_on_rows_and_threads() -> None:
    decoder, placement = Decoder(PLAIN), Placement()
    layers = decoder.with_threads(12)
    batch = placement.batch({placement.add([1] * 250): 250, placement.add([1] * 250): 250})
    inputs = Inputs.of(batch, decoder.windows, decoder.attention, CPU)
    x, step = torch.zeros(1000, PLAIN.hidden_size), decoder.step(inputs, decoder.pools[0])
    assert layers.ways(x[:9], step) == (1,)  # a second thread would not do better
    assert layers.ways(x, step) == (12,)
    assert layers.ways(x[:600], step) == (0, 1, 12)
    assert decoder.with_threads(1).ways(x[:600], step) == (1,)
    assert decoder.with_threads(100).ways(x[:600], step) == (0, 1, 38)  # tiles of 16 rows


def test_no_thread_tries_a_step_that_would_take_it_very_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoder, placement = Decoder(PLAIN), Placement()
    inputs = Inputs.of(
        placement.batch({placement.add([1] * 250): 250}), decoder.windows, decoder.attention, CPU
    )
    x, step = torch.zeros(600, PLAIN.hidden_size), decoder.step(inputs, decoder.pools[0])
    num_numbers = sum(
        kernel.depth * kernel.width
        for layer in decoder.layers
        for kernel in (matrix.kernel for matrix in layer.weights[3:7])  # type: ignore[index]
    )
    for most, ways in ((600, (0, 1, 12)), (599, (0, 12)), (50, (0, 12)), (49, (0,))):
        monkeypatch.setattr("forkroot.kernels.cpu.decoder.stack._MOST_TRIED", most * num_numbers)
        assert decoder.with_threads(12).ways(x, step) == ways


class Known(NamedTuple):
    """Rotations of some positions, which do not grow."""

    cos_sin: torch.Tensor

    def table(self, positions: torch.Tensor) -> torch.Tensor:
        """As `Rotary.table`."""
        return self.cos_sin

    angles = table


@torch.inference_mode()
def test_a_row_at_an_unknown_position_is_not_finite_and_harms_no_other() -> None:
    decoder, placement = Decoder(PLAIN), Placement()
    batch = placement.batch({placement.add([1]): 1 for _ in range(3)})
    inputs = Inputs.of(batch, decoder.windows, decoder.attention, CPU)
    step, table = decoder.step(inputs, decoder.pools[0]), decoder.rope.table(inputs.positions)
    x = torch.ones(3, PLAIN.hidden_size)
    for place in (len(table), -1):
        positions = torch.tensor([0, place, 0])
        made = decoder.fused(x.clone(), replace(step, positions=positions, rotary=Known(table)))
        assert made.isfinite().all(dim=-1).tolist() == [True, False, True]


def test_what_is_torchs_default_meanwhile_changes_nothing() -> None:
    decoder, placement = Decoder(PLAIN), Placement()
    root = placement.add(list(range(60)))
    torch.set_default_dtype(torch.float16)  # as libraries do while they load a model of theirs
    try:
        decoder.run(placement.batch({root: 40}))
        decoder.run(placement.batch({root: 1}))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@torch.inference_mode()
def test_logits_by_one_call_are_those_by_two(dtype: torch.dtype) -> None:
    weights = RandomWeights(PLAIN, dtype)
    weight, scale = weights.take("model.embed_tokens.weight"), weights.take("model.norm.weight")
    norm, matrix = PlainRows.norm(scale, 1e-5), Matrix(linear_kernel(weight), None)
    head = fused_head(norm, matrix)
    assert head is not None
    random = torch.Generator().manual_seed(2)
    for num_rows in (0, 1, 2, 17, 100):
        x = torch.randn(num_rows, PLAIN.hidden_size, generator=random)
        assert head.fits(x)
        assert torch.equal(head(x), matrix.kernel(norm(x)))
    assert not head.fits(torch.zeros(300, PLAIN.hidden_size))
    assert not head.fits(torch.zeros(PLAIN.hidden_size, 3).T[:, ::2])
    assert fused_head(PlainNorm(scale, 1e-5), matrix) is None
    assert fused_head(norm, Matrix(TorchLinear(weight), None)) is None


class OtherAttention(CpuAttention):
    """The same, but for what tokens see."""

    def attend(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """As `Attention.attend`."""
        return super().attend(*args, **kwargs).neg()


def test_an_attention_of_its_own_kind_is_called() -> None:
    decoder, placement = Decoder(PLAIN), Placement()
    decoder.attention = OtherAttention(torch.float32)
    root = placement.add(list(range(60)))
    decoder.run(placement.batch({root: 20}))
    decoder.run(placement.batch({root: 1}))


class OtherRows(PlainRows):
    """The same, but for its gates."""

    @staticmethod
    def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
        """As `Rows.silu_mul`."""
        return PlainRows.silu_mul(gate_up).neg_()


def test_rows_of_their_own_kind_are_called() -> None:
    backends = None, LayerwiseBackend(CPU, OtherRows())
    models = [Llama(PLAIN, RandomWeights(PLAIN), CPU, Ranks(), each) for each in backends]
    hidden = []
    for model in models:
        placement = Placement()
        attention = CpuAttention(torch.float32)
        batch = placement.batch({placement.add([5, 6, 7]): 3})
        inputs = Inputs.of(batch, model.windows, attention, CPU)
        pool = KVPool(PLAIN, NUM_SLOTS, torch.float32, CPU, Ranks())
        with torch.inference_mode():
            hidden.append(model.hidden(inputs, pool, attention))
    assert not torch.allclose(*hidden)
