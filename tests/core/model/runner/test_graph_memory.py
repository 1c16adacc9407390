"""Recorded steps take the memory that is kept for them: counted at full size on a device without
memory, where kernels are not run."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():  # before Triton is first imported
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")

from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.arch.mixtral import Mixtral
from forkroot.core.model.checkpoint.dummy import SHAPES
from forkroot.core.model.checkpoint.memory import Load, graph_bytes, weight_bytes, working_bytes
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.step_sizes import num_graphs, sizes_up_to
from forkroot.kernels.cpu.decoder.layerwise import LayerwiseBackend
from forkroot.kernels.cpu.linear.linear import TorchLinear
from forkroot.kernels.devices import Pool
from forkroot.kernels.gpu.attention.attention import GpuAttention
from forkroot.kernels.gpu.launch import Launch
from forkroot.kernels.gpu.rows import GpuRows

from .counting import AllocationCounter, CountingRecorder, EmptyWeights

META, CPU = torch.device("meta"), torch.device("cpu")
H100_PROGRAMS, H100_BYTES = 2 * 132, 80 * 10**9
NUM_SLOTS = 100


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are not launched: what is allocated for them is all that counts."""
    monkeypatch.setattr(Launch, "__call__", lambda *args, **constants: None)


def attention_of_an_h100(pool: Pool) -> GpuAttention:
    """Attention with as many programs as an H100 has."""
    sizes = pool.num_kv_heads, pool.dtype, pool.group
    return GpuAttention(pool.device, *sizes, num_programs=H100_PROGRAMS)


class BackendOfAGpu(LayerwiseBackend):
    """What computes a decoder on a GPU, on whatever device: torch multiplies."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device, GpuRows())

    def linear(self, weight: torch.Tensor) -> TorchLinear:
        """As `DecoderBackend.linear`."""
        return TorchLinear(weight)

    def row_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """As `DecoderBackend.row_dtype`."""
        return dtype


class Counted:
    """All steps of a model, recorded. total: bytes beside model and pool at the worst moment."""

    def __init__(self, config: ModelConfig, max_running: int, device: torch.device = META) -> None:
        kind, dtype = Mixtral if config.num_experts else Llama, torch.bfloat16
        weights = EmptyWeights(config.weight_shapes(), dtype, device)
        model = kind(config, weights, device, Ranks(), BackendOfAGpu(device))
        counter = AllocationCounter(device)
        self.recorder = CountingRecorder(counter)
        attention = f"{__name__}:attention_of_an_h100"
        sizes: dict[str, Any] = {"max_running": max_running, "attention": attention}
        with counter:
            runner = ModelRunner(model, NUM_SLOTS, recorder=self.recorder, **sizes)
            runner.record_steps()
            others = (NUM_SLOTS + 1) * config.kv_bytes_per_token("bfloat16")
            self.total = max(self.recorder.highest, counter.alive) - others


def with_few_layers(name: str, num_layers: int = 3) -> ModelConfig:
    """A known shape: layers run one after another, in the same memory."""
    config = SHAPES[name]
    return replace(config, num_layers=num_layers, windows=config.windows[:num_layers])


@pytest.mark.parametrize("max_running", [8, 64])
def test_recorded_steps_keep_one_buffer_for_all_of_them(max_running: int) -> None:
    config = with_few_layers("llama-3-8b")
    recorder = Counted(config, max_running).recorder
    assert len(recorder.kept) >= 2 * len(sizes_up_to(max_running)) - 1
    assert sum(recorder.kept) <= graph_bytes(config, "bfloat16", max_running).buffers


@pytest.mark.parametrize(
    ("name", "max_running"),
    [("llama-3-8b", 64), ("llama-3-8b", 256), ("llama-3-8b", 512), ("mixtral-8x7b", 64)],
)
def test_as_much_memory_is_kept_as_recorded_steps_take(name: str, max_running: int) -> None:
    config = with_few_layers(name)
    counted, kept = Counted(config, max_running), graph_bytes(config, "bfloat16", max_running)
    assert counted.total <= kept.buffers + kept.transient <= 3 * counted.total


@pytest.mark.parametrize("max_running", [1, 8, 100, 256])
def test_memory_is_kept_for_as_many_launches_as_are_recorded(max_running: int) -> None:
    config = with_few_layers("56m", 1)
    num_recorded = len(Counted(config, max_running).recorder.kept)
    assert num_recorded <= num_graphs(max_running) <= num_recorded + 16


def test_a_device_without_memory_counts_what_one_with_memory_does() -> None:
    config = replace(with_few_layers("56m"), context_len=64)
    empty, real = (Counted(config, 4, device).recorder for device in (META, CPU))
    assert len(empty.peaks) == len(real.peaks)
    for counted, taken in zip(empty.peaks, real.peaks, strict=True):
        assert counted == pytest.approx(taken, rel=0.05)


@pytest.mark.parametrize(("max_running", "num_tokens"), [(64, 450), (256, 440), (512, 430)])
def test_llama_3_8b_leaves_an_80_gb_gpu_room_for_keys_and_values(
    max_running: int, num_tokens: int
) -> None:
    config = SHAPES["llama-3-8b"]
    load = Load(8192, max_running, has_host=True)
    free = H100_BYTES - weight_bytes(config, "bfloat16", "cuda")
    free -= working_bytes(config, "bfloat16", load)
    assert free // config.kv_bytes_per_token("bfloat16") > 1000 * num_tokens
