"""Decode steps by FlashInfer are recorded, and give what plain attention gives; on a double where
there is no GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from forkroot.core.api.batch import SamplingParams
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.checkpoint.dummy import SHAPES
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.checkpoint.memory import Load, flashinfer_bytes
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.model import Model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.weights import Checkpoint
from forkroot.kernels.devices import Pool, backend_for
from forkroot.kernels.gpu.attention import flashinfer
from forkroot.kernels.interface import StepShape

from ....kernels.gpu import flashinfer_double
from ..conftest import NUM_SLOTS, MakeCheckpoint, Placement
from .counting import AllocationCounter
from .test_gpu_path import SMALL, take

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

DTYPE, TOLERANCE = (torch.float16, 2e-2) if DEVICE.type == "cuda" else (torch.float32, 1e-4)


def doubled(pool: Pool) -> flashinfer.FlashInferAttention:
    """FlashInfer's attention over a pool; on a CPU by the double."""
    library = None if DEVICE.type == "cuda" else flashinfer_double
    sizes = pool.group * pool.num_kv_heads, pool.num_kv_heads, pool.dim, pool.dtype
    return flashinfer.FlashInferAttention(DEVICE, *sizes, library, num_slots=pool.num_slots)


class Counting:
    """Repeats what it is to record, and counts."""

    def __init__(self) -> None:
        self.recorded = 0

    def __call__(self, run: Any) -> Any:
        self.recorded += 1
        run()
        return run


def load(folder: Any) -> Model:
    config = describe(folder)
    assert isinstance(config, ModelConfig)
    backend = backend_for(DEVICE, "triton" if DEVICE.type == "cuda" else "plain")
    shapes = config.weight_shapes()
    with Checkpoint(folder, shapes, DTYPE, DEVICE, Llama.ignored_weights) as weights:
        return Llama(config, weights, DEVICE, Ranks(), backend)


@pytest.mark.parametrize("changes", [{}, {"kind": "mistral", "sliding_window": 12}], ids=str)
def test_decode_steps_are_replayed_with_and_without_roots(
    changes: dict[str, Any], make_checkpoint: MakeCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    if DEVICE.type == "cuda":
        pytest.importorskip("flashinfer")
    else:
        monkeypatch.setattr(flashinfer, "WORKSPACE", 1 << 10)
    sizes = {"head_dim": 64, "num_hidden_layers": 2}
    model = load(make_checkpoint(**{**SMALL, **changes, **sizes})[0])
    counting = Counting()
    plain = ModelRunner(model, NUM_SLOTS, attention="plain", sampling="plain", graphs=False)
    recorder = None if DEVICE.type == "cuda" else counting
    kinds: dict[str, Any] = {"attention": f"{__name__}:doubled", "sampling": "plain"}
    recorded = ModelRunner(model, NUM_SLOTS, **kinds, max_running=16, recorder=recorder)
    placement = Placement(3)

    def check(counts: dict[int, int]) -> None:
        batch = placement.batch(counts, SamplingParams(logprobs=0))
        wanted, found = plain.run(batch), recorded.run(batch)
        assert found.tokens.tolist() == wanted.tokens.tolist()
        assert found.logprobs == pytest.approx(wanted.logprobs, abs=TOLERANCE)

    root = placement.add(placement.random.integers(3, 61, 140).tolist())
    check({root: 140})
    assert (recorded.num_replayed, recorded.num_eager) == (0, 1)
    branches = [placement.fork(root, [5 + i]) for i in range(15)]
    check(dict.fromkeys(branches, 1))
    for some in (branches[:14], branches[:3], branches[3:4], branches[4:]):
        check(take(placement, some, [7 + i for i in some]))
    assert (recorded.num_replayed, recorded.num_eager) == (5, 1)
    if recorder is not None:  # of 16 tokens with a root and without, of 4 and of 1
        assert counting.recorded == (3 if "sliding_window" in changes else 4)


def test_memory_is_kept_for_what_attention_by_flashinfer_keeps() -> None:
    config = replace(SHAPES["mistral-7b"], windows=(None, 4096) * 16)
    meta, load = torch.device("meta"), Load(8192, 64, has_flashinfer=True, context_len=8192)
    heads = config.num_heads, config.num_kv_heads, config.head_dim
    with AllocationCounter(meta) as counter:
        attention = flashinfer.FlashInferAttention(
            meta, *heads, torch.bfloat16, flashinfer_double, num_slots=1000
        )
        attention.reserve(load.max_running, load.context_len)
        shapes = [StepShape(size, is_rooted) for size in (1, 8, 64) for is_rooted in (False, True)]
        kept = [attention.static(shape, window) for shape in shapes for window in (None, 4096)]
    assert len(kept) == 12
    assert counter.alive <= flashinfer_bytes(config, load) <= 1.1 * counter.alive
