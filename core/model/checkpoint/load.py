"""From a checkpoint folder to a model: whose code runs it, what it is, its number type, and its
weights.

A model that is named "dummy:" and a shape, as in "dummy:llama-2-7b", has no folder.
"""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from typing import TypeAlias

import torch

from ....kernels.cpu.linear.linear import is_native
from ...api.protocol import InvalidCall, InvalidModel
from ..arch.llama import Llama
from ..architectures import ARCHITECTURES
from ..config import ModelConfig, read_architecture
from ..hub.folders import DUMMY, is_dummy
from ..keys import Keys
from ..model import Model
from ..parallel import Ranks
from ..sizes import DTYPE_BYTES, Sizes
from ..transformers import model as hub
from ..transformers.model import HubConfig
from ..weights import Checkpoint
from .beside_tower import text_name, with_own_text
from .dummy import DummyWeights, dummy_config

Described: TypeAlias = ModelConfig | HubConfig

SMALL = 256 << 20  # bytes in float32 up to which half precision gains nothing worth its rounding


def describe(model: str | Path) -> Described:
    """What a checkpoint is, without its weights. Raises InvalidModel if it cannot be run."""
    if is_dummy(model):
        return dummy_config(str(model).removeprefix(DUMMY))
    keys = Keys.read(Path(model) / "config.json")
    if keys.values.get("quantization_config") is not None:
        raise keys.refuse("quantization_config", "null: weights in float32, bfloat16 or float16")
    if read_architecture(keys) in ARCHITECTURES:
        return ModelConfig.from_folder(model)
    return with_own_text(model, hub.describe(model))


def auto_dtype(sizes: Sizes, device: str) -> str:
    """The dtype that "auto" means on a device ("cpu", "cuda:0").

    It follows from the checkpoint and the machine's abilities, and never from a measurement, so
    that a call is answered alike in every run.

    What is stored in float32, and small models, are run in float32. Others in the half precision
    that they are stored in; on a CPU in bfloat16 if it multiplies that, else in float32.
    """
    if sizes.dtype == "float32" or sizes.num_parameters() * DTYPE_BYTES["float32"] < SMALL:
        return "float32"
    if device != "cpu":
        return sizes.dtype
    return "bfloat16" if is_native(torch.bfloat16) else "float32"


def load_model(
    model: str | Path,
    described: Described,
    dtype: torch.dtype,
    device: torch.device,
    ranks: Ranks,
) -> Model:
    """Load a checkpoint; of every matrix that is shared out only this rank's part. Raises
    InvalidModel, and then nothing stays loaded."""
    check_shares(described, ranks.size)
    if isinstance(described, HubConfig):
        return hub.load(model, described, dtype, device)
    module, _, name = ARCHITECTURES[described.architecture].model.partition(":")
    kind: type[Llama] = getattr(import_module(f"..arch.{module}", __package__), name)
    if is_dummy(model):
        return kind(described, DummyWeights(described, dtype, device), device, ranks)
    ignored = (*kind.ignored_weights, *(("lm_head.weight",) if described.is_tied else ()))
    named = text_name if described.tower else str
    with Checkpoint(model, described.weight_shapes(), dtype, device, ignored, named) as checkpoint:
        loaded = kind(described, checkpoint, device, ranks)
    if described.tower:
        loaded.tower = hub.load_tower(model, dtype, device)
    return loaded


def check_shares(described: Described, num_ranks: int) -> None:
    """Raise InvalidModel for what cannot be shared out over so many ranks."""
    if num_ranks == 1:
        return
    if isinstance(described, HubConfig):
        name, path, known = described.architecture, described.path, ", ".join(ARCHITECTURES)
        requested = f"{name} on {num_ranks} ranks"
        raise InvalidModel(f"{requested}; expected 1, as it runs by {path}; on several run {known}")
    shared = {
        "num_attention_heads": described.num_heads,
        "num_key_value_heads": described.num_kv_heads,
        "intermediate_size": described.ffn_size,
    }
    common = math.gcd(*shared.values())
    allowed = ", ".join(str(size) for size in range(1, common + 1) if common % size == 0)
    for key, count in shared.items():
        if count % num_ranks:
            message = f"ranks={num_ranks} does not divide {key}={count}; expected {allowed}"
            raise InvalidModel(message)


def check_deterministic(described: Described, dtype: str) -> None:
    """Raise InvalidCall where a token's numbers may depend on those beside it."""
    if dtype != "float32":
        raise InvalidCall("dtype", dtype, "float32, with deterministic=True")
    if not isinstance(described, ModelConfig) or described.num_experts:
        allowed = "False, but for dense models of our own architectures (docs/models.md)"
        raise InvalidCall("deterministic", True, allowed)
