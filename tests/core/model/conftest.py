"""Small random checkpoints as transformers writes them, and sequences placed by hand."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch

from forkroot.core.api.batch import GREEDY, Batch, SamplingParams
from forkroot.core.model.checkpoint.load import describe, load_model
from forkroot.core.model.config import ModelConfig, RopeConfig
from forkroot.core.model.inputs import Inputs
from forkroot.core.model.model import Model
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.transformers.model import HubConfig
from forkroot.kernels.cpu.attention.attention import CpuAttention

CONTEXT_LEN = 256
NUM_SLOTS = 700
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT_LEN,
    "initializer_range": 0.2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
PLAIN = ModelConfig(
    architecture="LlamaForCausalLM",
    vocabulary_size=97,
    num_layers=3,
    num_kv_heads=2,
    head_dim=12,
    context_len=256,
    dtype="float32",
    bos_id=1,
    eos_ids=(2,),
    hidden_size=48,
    ffn_size=80,
    num_heads=4,
    norm_eps=1e-5,
    rope=RopeConfig(),
    is_tied=True,
    windows=(None, None, None),
)
MakeCheckpoint: TypeAlias = Callable[..., tuple[Path, Any]]


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """make_checkpoint(kind="llama", seed=0, **config): a folder, and the model saved there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers import AutoConfig, AutoModelForCausalLM

    def make(kind: str = "llama", seed: int = 0, **changes: Any) -> tuple[Path, Any]:
        torch.manual_seed(seed)
        config = AutoConfig.for_model(kind, **{**SIZES, **changes})
        model = AutoModelForCausalLM.from_config(config).eval()
        for name, parameter in model.named_parameters():
            if name.endswith(("norm.weight", "bias")):
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
        folder = tmp_path_factory.mktemp("checkpoint")
        model.save_pretrained(folder)
        return folder, model

    return make


def load(
    folder: Path, dtype: torch.dtype = torch.float32, config: ModelConfig | HubConfig | None = None
) -> Model:
    return load_model(folder, config or describe(folder), dtype, torch.device("cpu"), Ranks())


class Machine:
    """A model over a poisoned pool, that shows its logits."""

    def __init__(self, model: Model, ranks: Ranks = Ranks()) -> None:  # noqa: B008 (frozen)
        self.model = model
        self.pool = KVPool(model.config, NUM_SLOTS, model.dtype, model.device, ranks)
        for layer in self.pool.layers:
            layer.fill_(torch.nan)
        self.attention = CpuAttention(model.dtype)

    @torch.inference_mode()
    def logits(self, batch: Batch) -> list[torch.Tensor]:
        """Logits of all new tokens, by sequence."""
        batch = replace(batch, sampled=np.arange(len(batch.ids), dtype=np.int32))
        inputs = Inputs.of(batch, self.model.windows, self.attention, self.model.device)
        hidden = self.model.hidden(inputs, self.pool, self.attention)
        return list(self.model.logits(hidden).split(batch.lens.tolist()))


@torch.inference_mode()
def plain(model: Any, ids: list[int]) -> torch.Tensor:
    """What transformers says after each of these tokens."""
    return model(torch.tensor([ids])).logits[0].float()


def assert_near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= 1e-4


def write(runner: ModelRunner, placement: Placement, count: int) -> None:
    """Let every sequence that was placed go on by so many greedy tokens."""
    counts = {s: len(ids) for s, ids in enumerate(placement.ids)}
    for _ in range(count):
        tokens = runner.run(placement.batch(counts)).tokens
        for s, token in enumerate(tokens.tolist()):
            placement.ids[s].append(token)
        counts = dict.fromkeys(counts, 1)


@dataclass
class Placement:
    """Sequences in slots scattered over the pool, as a scheduler would place them."""

    seed: int = 0
    context_len: int = CONTEXT_LEN
    num_rows: int = 16
    ids: list[list[int]] = field(default_factory=list)
    computed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.free = self.random.permutation(NUM_SLOTS).astype(np.int32).tolist()
        self.table = np.full((self.num_rows, self.context_len), -1, np.int32)
        self.rows = self.random.permutation(self.num_rows).astype(np.int32)

    def add(self, ids: list[int]) -> int:
        """A new sequence, of which nothing is computed."""
        self.ids.append(list(ids))
        self.computed.append(0)
        return len(self.ids) - 1

    def fork(self, sequence: int, ids: list[int]) -> int:
        """A new sequence that goes on with `ids` behind what is computed of another."""
        length = self.computed[sequence]
        branch = self.add(self.ids[sequence][:length] + ids)
        self.table[self.rows[branch], :length] = self.table[self.rows[sequence], :length]
        self.computed[branch] = length
        return branch

    def batch(self, counts: dict[int, int], draw: SamplingParams = GREEDY) -> Batch:
        """Compute the next `counts[s]` tokens of each sequence s, sampling after the last one."""
        spans = {s: (self.computed[s], self.computed[s] + n) for s, n in counts.items()}
        for s, (start, end) in spans.items():
            self.table[self.rows[s], start:end] = [self.free.pop() for _ in range(start, end)]
            self.computed[s] = end
        lens = np.array(list(counts.values()), np.int32)
        rows = np.array([self.rows[s] for s in counts], np.int32)
        positions = np.concatenate([np.arange(*span) for span in spans.values()])
        ids = np.concatenate([self.ids[s][slice(*span)] for s, span in spans.items()])
        return Batch(
            ids=ids.astype(np.int64),
            positions=positions,
            slots=self.table[np.repeat(rows, lens), positions],
            rows=rows,
            starts=np.array([start for start, _ in spans.values()], np.int32),
            lens=lens,
            table=self.table,
            sampled=np.cumsum(lens, dtype=np.int32) - 1,
            sampling_params=(draw,) * len(counts),
        )


@pytest.fixture
def rewrite() -> Callable[..., None]:
    """rewrite(folder, key=value, ...): change keys of config.json; None removes one."""

    def change(folder: Path, **values: Any) -> None:
        path = folder / "config.json"
        config = {**json.loads(path.read_text()), **values}
        path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return change
