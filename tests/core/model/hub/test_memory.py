"""The memory of well-known models: published shapes, and the table of the docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forkroot.core.api.protocol import InvalidModel
from forkroot.core.model.checkpoint.memory import matrix_parameters, weight_bytes
from forkroot.core.model.checkpoint.speed import Machine, estimate
from forkroot.core.model.hub.headers import Tensors, counted, joined, read_header

ROOT = Path(__file__).resolve().parents[4]
PUBLISHED = {  # parameters, as the hub reports them of each model's safetensors
    "Qwen/Qwen2.5-0.5B-Instruct": 494_032_768,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "mistralai/Mistral-7B-Instruct-v0.3": 7_248_023_552,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "meta-llama/Llama-3.1-8B-Instruct": 8_030_261_248,
    "Qwen/Qwen2.5-14B-Instruct": 14_770_033_664,
    "mistralai/Mixtral-8x7B-Instruct-v0.1": 46_702_792_704,
}


@pytest.fixture(scope="module")
def script() -> Any:
    """The script that prints the table."""
    from forkroot.benchmarks.models import model_memory

    return model_memory


def test_shapes_have_the_published_numbers_of_parameters(script: Any) -> None:
    assert {name: it.num_parameters() for name, it in script.configs()} == PUBLISHED


def test_the_table_of_the_docs_is_what_the_script_prints(script: Any) -> None:
    assert script.table() in (ROOT / "docs" / "models.md").read_text("utf-8")


def test_weights_on_a_cpu_keep_their_stored_width_and_their_own_output_matrix(script: Any) -> None:
    model = dict(script.configs())["Qwen/Qwen2.5-0.5B-Instruct"]
    count, table = model.num_parameters(), 151_936 * 896
    assert weight_bytes(model, "bfloat16", "cuda") == 2 * count
    assert weight_bytes(model, "bfloat16") == 2 * count + 2 * table
    assert weight_bytes(model, "float32") == 2 * count + 4 * table


def test_of_experts_only_those_that_a_token_uses_count_for_speed(script: Any) -> None:
    model = dict(script.configs())["mistralai/Mixtral-8x7B-Instruct-v0.1"]
    of_experts = 32 * 8 * 3 * 4096 * 14_336
    written, read = matrix_parameters(model, of_experts, 2 / 8)
    table = 32_000 * 4096
    assert written == model.num_parameters() - of_experts * 3 // 4 - table
    assert read == written - table
    machine = Machine(bandwidth=1e11, flops=1e12)
    found = estimate(model, "bfloat16", "cuda", machine, of_experts, 2 / 8)
    kv = 1000 * model.kv_bytes_per_token("bfloat16")
    assert found.decode == 1e11 / (2 * written + kv)
    assert found.prefill == 1e12 / (2 * read)


def test_headers_of_several_files_add_up() -> None:
    one = counted([("a.weight", "BF16", 6), ("l.0.experts.1.w", "BF16", 4)])
    assert joined([one, counted([("b", "F32", 5)])]) == Tensors({"BF16": 10, "F32": 5}, 4)
    assert one.count == 10


@pytest.mark.parametrize("data", [b"", b"\x08\0\0\0\0\0\0\0not JSON", b"\xff" * 9])
def test_a_file_that_is_not_safetensors_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(InvalidModel, match="cannot be read as safetensors"):
        read_header(tmp_path / "model.safetensors")
