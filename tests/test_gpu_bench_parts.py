"""The parts of the script for GPUs: sizes from free memory, steps, vLLM, pytest's lines."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from forkroot.benchmarks.common import report
from forkroot.benchmarks.gpu.gpu_batches import Layout, params_of
from forkroot.benchmarks.gpu.gpu_bench import Bench
from forkroot.benchmarks.gpu.gpu_loaded import (
    fixed_bytes,
    layers_that_fit,
    prefill_products,
    shortened,
    slots_that_fit,
    step_bytes,
)
from forkroot.benchmarks.gpu.gpu_profile import largest
from forkroot.benchmarks.tables import table
from forkroot.core.model.checkpoint.dummy import SHAPES
from forkroot.core.model.checkpoint.memory import Load

GB = 10**9
CARDS = {"24 GB": 24.6 * GB, "80 GB": 84.5 * GB, "H200": 149.5 * GB}  # free, in bytes


# --- sizes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize(
    ("name", "batch"), [("llama-3.1-8b", 256), ("llama-2-7b", 128), ("mixtral-8x7b", 128)]
)
def test_as_many_layers_are_taken_as_fit_and_no_more(name: str, batch: int, card: str) -> None:
    sizes, free, slots = SHAPES[name], int(CARDS[card]), batch * 1088 + 8192
    load = Load(8192, batch)
    num = layers_that_fit(sizes, "bfloat16", free, slots, load)
    assert num > 0

    def needed(layers: int) -> float:
        short = shortened(sizes, layers)
        pool = slots * short.kv_bytes_per_token("bfloat16")
        working = fixed_bytes(short, "bfloat16", load)
        return 2 * (short.num_parameters() - shortened(short, 1).num_parameters()) + pool + working

    assert needed(num) < free
    assert num == sizes.num_layers or needed(num + 2) > 0.94 * free


def test_a_model_is_whole_where_there_is_room_and_nothing_is_taken_where_there_is_none() -> None:
    sizes, load = SHAPES["llama-3.1-8b"], Load(8192, 256)
    assert layers_that_fit(sizes, "bfloat16", int(CARDS["80 GB"]), 286_720, load) == 32
    assert 8 <= layers_that_fit(sizes, "bfloat16", int(CARDS["24 GB"]), 286_720, load) < 16
    assert layers_that_fit(sizes, "bfloat16", 2 * GB, 286_720, load) == 0
    assert slots_that_fit(sizes, "bfloat16", 2 * GB, load) == 0
    assert 300_000 < slots_that_fit(sizes, "bfloat16", int(CARDS["80 GB"]), load) < 500_000
    large = SHAPES["llama-2-70b"]
    assert 0 < layers_that_fit(large, "bfloat16", int(CARDS["80 GB"]), 40_000, load) < 60


def test_batches_are_measured_whole_where_they_fit_else_by_some_layers_else_not() -> None:
    pytest.importorskip("triton")
    from forkroot.benchmarks.gpu.gpu_steps import groups

    bench = Bench(torch.device("cuda"), is_tiny=False, seed=0)
    sizes, batches = bench.sizes("llama-2-7b"), (1, 32, 128)
    large, small, tiny = (
        groups(bench, sizes, int(free), batches) for free in (CARDS["H200"], CARDS["80 GB"], GB)
    )
    assert [group.batches for group in large] == [(1, 32, 128)] and large[0].num_layers == 32
    assert [group.batches for group in small] == [(1, 32), (128,)]
    assert small[0].num_layers == 32 > small[1].num_layers > 20
    assert tiny == [(0, batches)]


def test_floors_are_those_of_published_shapes_on_an_h200() -> None:
    bench = replace(
        Bench(torch.device("cpu"), is_tiny=False, seed=0), bandwidth=4.3e12, rate=7.9e14
    )
    sizes = SHAPES["llama-3.1-8b"]
    floors = [bench.floor(step_bytes(sizes, "bfloat16", n, 1024)) * 1e3 for n in (1, 32, 128, 256)]
    assert np.allclose(floors, (3.52, 4.49, 7.49, 11.5), rtol=0.01)
    prefill = bench.floor(products=prefill_products(sizes, 1024)) * 1e3
    assert abs(prefill - 18.4) < 0.2
    rooted = step_bytes(sizes, "bfloat16", 64, 64, root=2048)
    assert rooted < step_bytes(sizes, "bfloat16", 64, 2112) / 1.9
    mixture = SHAPES["mixtral-8x7b"]
    few, many = (step_bytes(mixture, "bfloat16", batch, 0) for batch in (1, 64))
    assert few < 0.3 * many and many < 2 * mixture.num_parameters()


# --- steps ----------------------------------------------------------------------------------------

PLACE = Layout(num=6, context=10, room=8, root=32, tail=3, vocabulary_size=50)


@pytest.mark.parametrize("root", [0, 16, 32])
def test_sequences_share_the_root_and_nothing_else(root: int) -> None:
    table = PLACE.table(root)
    ends = (root + PLACE.tail if root else PLACE.context) + PLACE.room
    assert table.shape == (6, PLACE.width) and table.max() < PLACE.num_slots
    assert (table[:, :root] == table[0, :root]).all()
    own = table[:, root:ends]
    assert len(np.unique(own)) == own.size and not np.isin(own, table[0, :root]).any()


def test_steps_write_each_token_to_its_own_slot_and_name_the_tokens_before() -> None:
    written: set[int] = set()
    for index in range(PLACE.room):
        step = PLACE.decode(index, 4, 16, params_of("top-p", index, 4, seed=5))
        assert (step.starts == 16 + PLACE.tail + index).all() and (step.lens == 1).all()
        assert (step.table[step.rows, step.starts] == step.slots).all()
        assert not written & set(step.slots.tolist())
        written |= set(step.slots.tolist())
        assert (step.ids >= 0).all() if not index else step.ids.tolist() == [-1, -2, -3, -4]
        assert [it.seed for it in step.sampling_params] == [5, 6, 7, 8]
    filled = np.concatenate([batch.slots for batch in PLACE.fills(20)])
    assert len(filled) == len(set(filled.tolist())) == 6 * 10 + 32
    extend, mixed = PLACE.extend(3, 5, 16), PLACE.mixed(4, 20)
    assert extend.lens.tolist() == [5, 5, 5] and extend.sampled.tolist() == [4, 9, 14]
    assert mixed.lens.tolist() == [1, 1, 1, 1, 20] and mixed.table.shape == (6, PLACE.width)
    for step in (extend, mixed):
        reads = [
            step.table[row, start : start + length]
            for row, start, length in zip(step.rows, step.starts, step.lens, strict=True)
        ]
        assert (np.concatenate(reads) == step.slots).all()
        assert len(step.sampling_params) == len(step.sampled)


class FakeDevice:
    """A device whose clock goes on by 2 ms a step, and a runner that replays three steps of four.
    events: what was launched and read, in order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.num_replayed = self.num_eager = 0
        self._clock = 0.0

    def mark(self) -> float:
        return self._clock

    def between(self, first: float, last: float) -> float:
        return last - first

    def wait(self) -> None:
        self.events.append("wait")

    def launch(self, batch: Any) -> Any:
        index = self.num_replayed + self.num_eager
        self.num_eager += index % 4 == 0
        self.num_replayed += index % 4 != 0
        self.events.append(f"launch {index}")

        def sample(params: Any) -> None:
            self._clock += 0.002

        def result() -> Any:
            self.events.append(f"result {index}")
            return SimpleNamespace(tokens=np.zeros(1))

        return SimpleNamespace(sample=sample, result=result)


def test_steps_are_launched_ahead_and_timed_by_the_devices_clock() -> None:
    from forkroot.benchmarks.gpu.gpu_steps import pipelined

    fake = FakeDevice()
    batches = [PLACE.decode(index, 1) for index in range(8)]
    figures = pipelined(fake, fake, batches)  # type: ignore[arg-type]
    assert figures["device_ms"] == 2.0 and figures["replayed"] == 0.75
    assert set(figures) == {"ms", "device_ms", "host_ms", "replayed"}
    assert fake.events[:4] == ["launch 0", "launch 1", "result 0", "launch 2"]
    assert fake.events[-3:] == ["result 6", "result 7", "wait"]


# --- vLLM, pytest, tables -------------------------------------------------------------------------

VLLM = """
import json, os
from pathlib import Path
from types import SimpleNamespace


def TokensPrompt(prompt_token_ids):
    return {"prompt_token_ids": prompt_token_ids}


def SamplingParams(**params):
    return params


class LLM:
    def __init__(self, model, **settings):
        assert (Path(model) / "config.json").exists()
        self.seen = [settings]

    def generate(self, prompts, params, use_tqdm):
        self.seen.append([[it["prompt_token_ids"] for it in prompts], params])
        Path(os.environ["SEEN"]).write_text(json.dumps(self.seen))
        answer = [7] * params["max_tokens"]
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=answer)]) for _ in prompts]
"""


def test_vllm_answers_the_same_prompts_with_weights_it_makes_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    from forkroot.benchmarks.gpu import gpu_peers

    (tmp_path / "vllm.py").write_text(VLLM)
    monkeypatch.syspath_prepend(tmp_path)
    path = os.pathsep.join([str(tmp_path), *sys.path])  # this package comes from here too
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("SEEN", str(tmp_path / "seen.json"))
    bench = Bench(torch.device("cpu"), is_tiny=True, seed=3)
    (case,) = (it for it in gpu_peers.cases(bench) if it.name == "vLLM")
    figures = case.run()
    settings, *calls = json.loads((tmp_path / "seen.json").read_text())
    assert settings["load_format"] == "dummy" and settings["skip_tokenizer_init"] is True
    assert settings["enable_prefix_caching"] is True and 0 < settings["gpu_memory_utilization"] < 1
    tasks = gpu_peers.TINY_TASKS
    assert list(figures) == list(tasks)
    for (name, task), (warming, timed) in zip(
        tasks.items(), zip(calls[::2], calls[1::2], strict=True), strict=True
    ):
        assert (warming[0], timed[0]) == (task.prompts(4), task.prompts(3))
        assert timed[1]["max_tokens"] == task.answer and timed[1]["ignore_eos"] is True
        assert figures[name]["prompts_per_second"] > 0


def test_the_prompts_of_a_group_share_its_root_and_no_more() -> None:
    from forkroot.benchmarks.gpu.gpu_peers import TASKS

    task = TASKS["ten roots, one token"]
    prompts = task.prompts(1)
    assert len(prompts) == 320 and {len(ids) for ids in prompts} == {task.length}
    assert len({tuple(ids[:1024]) for ids in prompts}) == 10
    assert len({tuple(ids) for ids in prompts}) == 320


def test_the_description_of_a_model_for_others_is_that_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from forkroot.benchmarks.gpu.gpu_peers import hub_config
    from forkroot.core.model.config import ModelConfig

    for name in ("llama-3.1-8b", "llama-2-7b"):
        wanted = SHAPES[name]
        hub_config(wanted).save_pretrained(tmp_path)
        found = ModelConfig.from_folder(tmp_path)
        assert found.weight_shapes() == wanted.weight_shapes() and found.rope == wanted.rope


def test_the_largest_kernels_are_those_of_the_device_by_their_sum() -> None:
    kinds = torch.autograd.DeviceType
    events = [
        SimpleNamespace(
            name=name, device_type=kind, time_range=SimpleNamespace(elapsed_us=lambda us=us: us)
        )
        for name, kind, us in (
            *(
                ("gemm", kinds.CUDA, 30.0),
                ("cudaLaunchKernel", kinds.CPU, 9.0),
                ("gemm", kinds.CUDA, 50.0),
            ),
            *((f"small {index}", kinds.CUDA, 1.0 + index / 10) for index in range(20)),
        )
    ]
    found = largest(events, is_cuda=True, rounds=2)
    assert found["kernels"][0] == {"name": "gemm", "us": 40.0, "launches": 1.0, "share": 0.6723}
    assert [it["name"] for it in found["kernels"][1:]] == [f"small {n}" for n in range(19, 5, -1)]
    assert found["busy_us"] == 59.5 and found["kernels_launched"] == 11.0
    assert found["launch_calls"] == 0.5


def test_tests_that_ended_are_counted_also_where_their_time_was_over() -> None:
    from forkroot.benchmarks.gpu.gpu_correct import outcome

    lines = [
        "tests/gpu/test_a.py::test_one[float32-cascade 64] PASSED       [ 20%]",
        "tests/gpu/test_a.py::test_two FAILED                           [ 40%]",
        "tests/gpu/test_a.py::test_three SKIPPED (needs a CUDA device)  [ 60%]",
        "tests/gpu/test_a.py::test_four ",
    ]
    found: dict[str, Any] = outcome(lines, status=-9, is_over=True)
    assert {name: found[name] for name in ("passed", "failed", "skipped")} == {
        **dict.fromkeys(("passed", "failed", "skipped"), 1)
    }
    assert found["bad"] == ["tests/gpu/test_a.py::test_two"] and not found["is_right"]
    assert found["summary"] == "its time was over" and found["end"] == lines
    ended = outcome(["tests/a.py::test_one PASSED", "== 1 passed in 0.1s =="], 0, is_over=False)
    assert ended == {"passed": 1, "is_right": True, "summary": "1 passed in 0.1s"}


def test_tables_are_not_made_of_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    copies = {"us": 2.0, "floor_us": 1.0, "over_floor": 2.0, "error": 1e-6}
    page = "<!-- table: gpu kernels -->\n<!-- end -->"
    for is_tiny, text in ((True, "Not measured yet"), (False, "| a copy | 1.0e-06 | 2.0 µs |")):
        figures = {"cases": {"a copy": copies}}
        row = report.make_row("gpu", figures, stage="kernels", tiny=is_tiny, device={"name": "X"})
        report.keep("gpu", [row])
        assert text in table.render(page)
        assert row["torch"] == version("torch")
