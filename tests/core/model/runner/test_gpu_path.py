"""What runs on a GPU against what runs on a CPU: Triton's kernels in layers, attention, pool and
draws; in Triton's interpreter where there is no GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.api.batch import Batch, NoMemory, SamplingParams
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, InvalidCall, Sampling, Text
from forkroot.core.local import LocalBackend
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.arch.mixtral import Mixtral
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.checkpoint.memory import Load, working_bytes
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.model import Model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.weights import Checkpoint
from forkroot.kernels.cpu.linear.rows import PlainRows
from forkroot.kernels.devices import backend_for
from forkroot.kernels.interface import Past

from ..conftest import NUM_SLOTS, MakeCheckpoint, Placement, load

SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1200,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 2},
    "mistral": {"kind": "mistral", "sliding_window": 20},
    "qwen3": {"kind": "qwen3", "head_dim": 16, "attention_bias": True},
    "mixtral": {"kind": "mixtral", "num_local_experts": 3},
}


@pytest.fixture
def device() -> torch.device:
    """A GPU, or a CPU that plays one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def load_there(folder: Any, device: torch.device) -> Model:
    """The model by Triton's kernels."""
    config = describe(folder)
    assert isinstance(config, ModelConfig)
    kind = Mixtral if config.num_experts else Llama
    shapes, dtype = config.weight_shapes(), torch.float32
    with Checkpoint(folder, shapes, dtype, device, kind.ignored_weights) as weights:
        return kind(config, weights, device, Ranks(), backend_for(device, "triton"))


class Both:
    """The same checkpoint on both paths. What a GPU's pool holds at first is NaN."""

    def __init__(self, folder: Any, device: torch.device, **settings: Any) -> None:
        self.here = ModelRunner(load(folder), NUM_SLOTS * 2)
        kinds = {"attention": "triton", "sampling": "triton"} | settings
        self.there = ModelRunner(load_there(folder, device), NUM_SLOTS * 2, **kinds)

    def check(self, batch: Batch) -> list[int]:
        """Every token's distribution is near on both; gives the tokens that follow."""
        every = np.arange(len(batch.ids), dtype=np.int32)
        scoring = replace(batch, scored=every, targets=batch.ids, num_top_logprobs=2)
        here, there = self.here.run(scoring), self.there.run(scoring)
        assert np.abs(here.scores - there.scores).max() <= 1e-4
        for mine, other in zip(here.score_tops, there.score_tops, strict=True):
            assert [token for token, _ in mine] == [token for token, _ in other]
        assert here.tokens.tolist() == there.tokens.tolist()
        return here.tokens.tolist()


def make_placement(seed: int) -> Placement:
    placement = Placement(seed, context_len=1200)
    placement.free = placement.random.permutation(NUM_SLOTS * 2).astype(np.int32).tolist()
    return placement


def take(placement: Placement, sequences: list[int], tokens: list[int]) -> dict[int, int]:
    """Each sequence goes on with its token."""
    for sequence, token in zip(sequences, tokens, strict=True):
        placement.ids[sequence].append(token)
    return dict.fromkeys(sequences, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_prefill_decode_and_a_cached_prefix_are_those_of_the_cpu(
    kind: str, make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    both = Both(make_checkpoint(**{**SMALL, **KINDS[kind]})[0], device)
    placement = make_placement(1)
    prompts = [placement.random.integers(3, 61, size).tolist() for size in (9, 1, 25)]
    first, second, third = (placement.add(prompt) for prompt in prompts)
    both.check(placement.batch({third: 11}))  # in chunks
    tokens = both.check(placement.batch({first: 9, second: 1, third: 14}))
    branch = placement.fork(first, [7, 8, 9])  # behind a cached prefix
    counts = take(placement, [first, second, third], tokens)
    tokens = both.check(placement.batch({**counts, branch: 3}))
    both.check(placement.batch(take(placement, [first, second, third, branch], tokens)))


def test_a_shared_root_is_read_as_on_the_cpu(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    both = Both(make_checkpoint(**SMALL)[0], device)
    placement = make_placement(2)
    root = placement.add(placement.random.integers(3, 61, 130).tolist())
    both.here.run(placement.batch({root: 130}))
    placement.computed[root] = 0
    both.there.run(rewritten(placement, root, 130))
    branches = [placement.fork(root, [5 + i]) for i in range(15)]
    batch = placement.batch(dict.fromkeys(branches, 1))
    from forkroot.kernels.gpu.attention.attention import GpuAttention

    past = Past(batch.table, batch.rows, batch.starts, batch.lens)
    assert GpuAttention(device, 1, torch.float32, 2).plan(past).roots is not None
    both.check(batch)


def rewritten(placement: Placement, sequence: int, length: int) -> Batch:
    """The batch that computes a sequence once more into the same slots."""
    slots = placement.table[placement.rows[sequence], :length].copy()
    placement.free += slots[::-1].tolist()
    return placement.batch({sequence: length})


def test_samples_on_the_device_are_those_of_the_cpu(
    make_checkpoint: MakeCheckpoint, device: torch.device
) -> None:
    both = Both(make_checkpoint(**SMALL)[0], device)
    placement = make_placement(3)
    prompts = [placement.random.integers(3, 61, 4).tolist() for _ in range(5)]
    batch = placement.batch({placement.add(prompt): 4 for prompt in prompts})
    allowed = np.array([0b1010110000, 0], np.int32)
    sampling_params = (
        SamplingParams(),
        SamplingParams(mask=allowed),
        SamplingParams(temperature=1.0, seed=5, top_p=0.8),
        SamplingParams(temperature=2.0, seed=6, top_k=4, mask=allowed[:1]),
        SamplingParams(temperature=0.7, seed=7, min_p=0.1, index=3),
    )
    batch = replace(batch, sampling_params=sampling_params)
    found = both.there.run(batch).tokens
    assert found.tolist() == both.here.run(batch).tokens.tolist()
    assert found.dtype == np.int64
    assert {int(found[1]), int(found[3])} <= {4, 5, 7, 9}
    scoring = replace(
        batch,
        sampling_params=(
            *sampling_params[:4],
            replace(sampling_params[4], logprobs=2, presence_penalty=0.5),
        ),
    )
    here, there = both.here.run(scoring), both.there.run(scoring)
    assert here.tokens.tolist() == there.tokens.tolist()
    assert there.logprobs[4] == pytest.approx(here.logprobs[4], abs=1e-4)


class Narrow:
    """A model whose device has memory for so many tokens of a batch."""

    def __init__(self, model: Model, most: int) -> None:
        self._model, self.most = model, most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def hidden(self, inputs: Any, *rest: Any) -> torch.Tensor:
        if len(inputs.ids) > self.most:
            raise torch.OutOfMemoryError("no memory")
        return self._model.hidden(inputs, *rest)


def test_a_batch_that_does_not_fit_is_computed_in_micro_batches(
    make_checkpoint: MakeCheckpoint,
) -> None:
    folder, _ = make_checkpoint(**SMALL)
    model: Any = Narrow(load(folder), 10_000)
    whole, narrow = ModelRunner(load(folder), 2 * NUM_SLOTS), ModelRunner(model, 2 * NUM_SLOTS)
    placement = make_placement(4)
    prompts = [placement.random.integers(3, 61, size).tolist() for size in (30, 1, 50)]
    batch = placement.batch({placement.add(prompt): len(prompt) for prompt in prompts})
    batch = replace(
        batch, scored=np.array([3, 40, 41, 80], np.int32), targets=np.array([5, 6, 7, 8])
    )
    wanted = whole.run(batch)
    model.most = 21
    launched = narrow.launch(replace(batch, sampling_params=()))
    launched.sample(batch.sampling_params)
    found = launched.result()
    assert found.tokens.tolist() == wanted.tokens.tolist()
    assert found.scores == pytest.approx(wanted.scores, abs=1e-5)
    assert (len(found.tops), len(found.score_tops)) == (3, 0)
    again = placement.batch(take(placement, [0, 1, 2], found.tokens.tolist()))
    assert narrow.run(again).tokens.tolist() == whole.run(again).tokens.tolist()


def test_a_batch_of_which_no_micro_batch_fits_is_refused(make_checkpoint: MakeCheckpoint) -> None:
    model: Any = Narrow(load(make_checkpoint(**SMALL)[0]), 1)
    placement = make_placement(5)
    batch = placement.batch({placement.add([5] * 20): 20})
    with pytest.raises(NoMemory, match="the memory of cpu is too small for a batch"):
        ModelRunner(model, NUM_SLOTS).run(batch)


def test_a_cpu_has_its_own_rows() -> None:
    assert isinstance(backend_for(torch.device("cpu")).rows, PlainRows)
    with pytest.raises(InvalidCall, match="invalid backend='fast'"):
        backend_for(torch.device("cpu"), "fast")


def test_a_runtime_uses_the_attention_that_is_set() -> None:
    prompt = (Text("The capital of France is"),)
    call = Call(prompt, Sampling(temperature=0, max_tokens=4))
    answers = []
    for settings in ({}, {"attention": "plain", "graphs": False}):
        with LocalBackend.from_folder("tiny", num_slots=256, context_len=128, **settings) as it:
            answers.append(it.submit(call).result(60).outputs[0].ids)
            it.check()
    assert answers[0] == answers[1]
    with pytest.raises(InvalidCall, match="invalid attention='flashinfer'"):
        LocalBackend.from_folder("tiny", num_slots=256, attention="flashinfer")
    with pytest.raises(InvalidCall, match="invalid attention='quick'"):
        EngineConfig.from_settings({"attention": "quick"})


def test_a_gpu_keeps_memory_for_its_largest_steps() -> None:
    def gigabytes(name: str, load: Load, num_ranks: int = 1) -> float:
        config = describe(f"dummy:{name}")
        return working_bytes(config, "bfloat16", load, num_ranks) / 2**30

    small, large = Load(1024, 64), Load(8192, 256)
    assert 1 < gigabytes("llama-2-7b", small) < gigabytes("llama-3.1-8b", small) < 3
    assert gigabytes("llama-3.1-8b", large) > gigabytes("llama-3.1-8b", small) + 1
    assert gigabytes("llama-2-70b", large, 2) < gigabytes("llama-2-70b", large)
    plain = Load(1024, 64, has_graphs=False)
    assert gigabytes("llama-3.1-8b", plain) < gigabytes("llama-3.1-8b", small)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
def test_larger_models_are_those_of_the_cpu(kind: str, make_checkpoint: MakeCheckpoint) -> None:
    sizes = {"vocab_size": 5000, "hidden_size": 512, "intermediate_size": 1024, "head_dim": 64}
    heads = {"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2}
    changes = {**SMALL, **KINDS[kind], **sizes, **heads}
    both = Both(make_checkpoint(**changes, initializer_range=0.05)[0], torch.device("cuda"))
    placement = make_placement(7)
    prompts = [placement.random.integers(3, 5000, size).tolist() for size in (300, 1, 77, 500)]
    sequences = [placement.add(prompt) for prompt in prompts]
    tokens = both.check(placement.batch({s: len(placement.ids[s]) for s in sequences}))
    for _ in range(5):
        tokens = both.check(placement.batch(take(placement, sequences, tokens)))
