"""Every number type of the setting `dtype` runs on this processor, whatever it lacks. `.ci/run`
repeats this with features masked."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from forkroot.core.model.checkpoint.dummy import SHAPES
from forkroot.core.model.checkpoint.load import auto_dtype, describe, load_model
from forkroot.core.model.parallel import Ranks

from ..conftest import Machine, Placement

SIZES = {"vocabulary_size": 97, "num_layers": 2, "hidden_size": 64, "ffn_size": 48}
HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 16, "windows": SHAPES["56m"].windows[:2]}


def logits(dtype: torch.dtype) -> torch.Tensor:
    source = "dummy:56m"
    machine = Machine(load_model(source, describe(source), dtype, torch.device("cpu"), Ranks()))
    placement = Placement()
    return machine.logits(placement.batch({placement.add(list(range(3, 60))): 57}))[0].float()


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16", "auto"])
def test_a_number_type_runs_and_gives_the_logits_of_float32(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(SHAPES["56m"], **SIZES, **HEADS)
    monkeypatch.setattr("forkroot.core.model.checkpoint.load.dummy_config", lambda shape: small)
    if name == "auto":
        name = auto_dtype(SHAPES["llama-2-7b"], "cpu")
    dtype = getattr(torch, name)
    wanted = logits(torch.float32)
    tolerance = 16 * torch.finfo(dtype).eps * float(wanted.abs().max())
    assert float((logits(dtype) - wanted).abs().max()) <= max(tolerance, 1e-4)
