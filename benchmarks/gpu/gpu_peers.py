"""Other engines that are installed, and ours: the same prompts in each, on weights that mean
nothing. Prompts are answered once to warm up, then others of the same lengths are timed."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_engine import CHUNK, TOO_LARGE, engine_model
from forkroot.benchmarks.gpu.gpu_loaded import LoadedModel
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.model.checkpoint.dummy import SHAPES, DummyWeights
from forkroot.core.model.checkpoint.memory import Load
from forkroot.core.model.config import ModelConfig

MODEL = "llama-3.1-8b"
BLOCK = 256  # tokens, of transformers' cache
PATIENCE = 240.0  # seconds for another engine's process
MEMORY_SHARE = 0.85  # of the free memory, for another engine
Prompts = list[list[int]]
Answers = list[list[int]]


class Task(NamedTuple):
    """Prompts of `length` tokens, each answered with so many; `num` of them, in `groups` of equal
    size whose members share their first `root` tokens."""

    num: int
    length: int
    answer: int
    root: int = 0
    groups: int = 1

    def prompts(self, seed: int) -> Prompts:
        """Random tokens, the groups one after another."""
        rng = random.Random(seed)
        roots = [rng.choices(range(300, 3000), k=self.root) for _ in range(self.groups)]
        rest, each = self.length - self.root, self.num // self.groups
        return [root + rng.choices(range(300, 3000), k=rest) for root in roots for _ in range(each)]

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer, and a few."""
        return self.length + self.answer + 8


TASKS: Mapping[str, Task] = {
    "half shared": Task(64, 1024, 128, root=512),
    "nothing shared": Task(64, 1024, 128),
    "ten roots, one token": Task(320, 1152, 1, root=1024, groups=10),
    "one root of 4k": Task(64, 4160, 128, root=4096),
}
TINY_TASKS = {"half shared": Task(3, 16, 6, root=8), "two roots": Task(4, 12, 1, 8, 2)}


def cases(bench: Bench) -> Cases:
    """Ours first; what is not installed is reported."""
    tasks = TINY_TASKS if bench.is_tiny else TASKS
    kept: dict[str, Any] = {}
    yield Case("forkroot", lambda: _ours(bench, tasks, kept), 15)
    yield _if_installed("vllm", "vLLM", lambda: _vllm(bench, tasks), 60)
    for name, run in (("continuous batching", _batching), ("static cache", _static)):
        yield _if_installed(
            "transformers",
            f"transformers, {name}",
            lambda run=run: run(bench, tasks["half shared"], kept.get("half shared")),
            25,
        )


def _if_installed(package: str, name: str, run: Callable[[], Figures], seconds: float) -> Case:
    if find_spec(package) is None:
        return Case(name, lambda: {"absent": f"{package} is not installed"}, 0)
    return Case(name, run, seconds)


def _timed(task: Task, seed: int, answer: Callable[[Prompts], Answers]) -> tuple[Answers, Figures]:
    """Answers to the second of two sets of prompts, and how fast they came."""
    answer(task.prompts(seed + 1))
    prompts = task.prompts(seed)
    started = time.perf_counter()
    answers = answer(prompts)
    seconds = time.perf_counter() - started
    assert [len(it) for it in answers] == [task.answer] * task.num
    return answers, rates(task, seconds)


def rates(task: Task, seconds: float) -> Figures:
    """Prompts and tokens of answers in a second."""
    return {
        "prompts_per_second": round(task.num / seconds, 3),
        "output_tokens_per_second": round(task.num * task.answer / seconds, 1),
    }


# --- ours -----------------------------------------------------------------------------------------


def _loaded(bench: Bench, tasks: Mapping[str, Task]) -> tuple[LoadedModel | None, dict[str, int]]:
    """The model, by as many layers as fit beside the pool that the tasks need; and its sizes."""
    longest = max(task.context for task in tasks.values())
    most = max(task.num for task in tasks.values() if task.answer > 1)
    wanted = max(task.num * task.context for task in tasks.values() if task.answer > 1)
    loaded = engine_model(bench, MODEL, longest, wanted, Load(CHUNK, most))
    return loaded, {"num_slots": wanted, "max_running": most, "context_len": longest}


def _ours(bench: Bench, tasks: Mapping[str, Task], kept: dict[str, Any]) -> Figures:
    loaded, settings = _loaded(bench, tasks)
    if loaded is None:
        return {"skipped": TOO_LARGE}
    figures: Figures = {}
    with loaded.backend(chunk_tokens=CHUNK, **settings) as backend:
        for name, task in tasks.items():
            sampling = Sampling(max_tokens=task.answer, temperature=0.0, ignore_eos=True)

            def answer(prompts: Prompts, sampling: Sampling = sampling) -> Answers:
                calls = [Call((Tokens(tuple(ids)),), sampling) for ids in prompts]
                replies = [backend.submit(call) for call in calls]
                return [list(reply.result().outputs[0].ids) for reply in replies]

            backend.clear_cache()
            kept[name], figures[name] = _timed(task, bench.seed, answer)
    loaded.close()
    return figures | loaded.about()


# --- vLLM -----------------------------------------------------------------------------------------


def _vllm(bench: Bench, tasks: Mapping[str, Task]) -> Figures:
    """In a process of its own, which gives all memory back."""
    loaded, settings = _loaded(bench, tasks)
    if loaded is None:
        return {"skipped": TOO_LARGE}
    free = bench.free()
    total = torch.cuda.get_device_properties(bench.device).total_memory if bench.is_cuda else free
    with TemporaryDirectory() as folder:
        hub_config(loaded.sizes).save_pretrained(folder)
        given = {
            "folder": folder,
            "dtype": bench.dtype_name,
            "max_model_len": settings["context_len"],
            "memory_share": round(MEMORY_SHARE * free / total, 3),
            "max_num_seqs": max(task.num for task in tasks.values()),
            "out": str(Path(folder) / "out.json"),
            "tasks": {
                name: [task.prompts(bench.seed + 1), task.prompts(bench.seed), task.answer]
                for name, task in tasks.items()
            },
        }
        (Path(folder) / "given.json").write_text(json.dumps(given))
        command = [sys.executable, "-m", "forkroot.benchmarks.gpu.gpu_vllm"]
        left = min(PATIENCE, max(bench.until - time.time(), 10.0))
        subprocess.run(
            [*command, f"{folder}/given.json"], check=True, timeout=left, stdout=sys.stderr
        )
        seconds = json.loads(Path(given["out"]).read_text())
    return {name: rates(tasks[name], it) for name, it in seconds.items()} | loaded.about()


# --- transformers ---------------------------------------------------------------------------------


def hub_config(sizes: ModelConfig) -> Any:
    """A Llama of these sizes as transformers describes it, for as many tokens as were published."""
    from transformers import LlamaConfig

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": sizes.rope.theta}
    if sizes.rope.kind == "llama3":
        rope |= {
            "rope_type": "llama3",
            "factor": sizes.rope.factor,
            "low_freq_factor": sizes.rope.low_freq_factor,
            "high_freq_factor": sizes.rope.high_freq_factor,
            "original_max_position_embeddings": sizes.rope.original_len,
        }
    return LlamaConfig(
        vocab_size=sizes.vocabulary_size,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.ffn_size,
        num_hidden_layers=sizes.num_layers,
        num_attention_heads=sizes.num_heads,
        num_key_value_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        max_position_embeddings=SHAPES[MODEL].context_len,
        rms_norm_eps=sizes.norm_eps,
        rope_parameters=rope,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        architectures=["LlamaForCausalLM"],
    )


def hub_model(loaded: LoadedModel) -> Any:
    """The model of transformers on the device, with the very weights of ours."""
    from transformers import AutoModelForCausalLM

    sizes, bench = loaded.sizes, loaded.bench
    with torch.device(bench.device):
        model = AutoModelForCausalLM.from_config(hub_config(sizes), dtype=bench.dtype)
    weights = DummyWeights(sizes, bench.dtype, bench.device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights.take(name))
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model.eval()


def _batching(bench: Bench, task: Task, ours: Answers | None) -> Figures:
    """`generate_batch`, with the number of its blocks set: its defaults take what there is."""
    from transformers import GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
    loaded = engine_model(bench, MODEL, task.context, 2 * task.num * task.context, Load(CHUNK, 64))
    if loaded is None:
        return {"skipped": TOO_LARGE}
    model = hub_model(loaded)
    num_blocks = 2 * task.num * -(-task.context // BLOCK)
    options = {
        "generation_config": GenerationConfig(
            max_new_tokens=task.answer, do_sample=False, eos_token_id=-1, pad_token_id=0
        ),
        "continuous_batching_config": ContinuousBatchingConfig(
            num_blocks=num_blocks, max_batch_tokens=64 if bench.is_tiny else 8192
        ),
        "persistent_manager": True,
    }

    def answer(prompts: Prompts) -> Answers:
        found = model.generate_batch(inputs=prompts, **options).values()
        by_prompt = {tuple(it.prompt_ids): list(it.generated_tokens) for it in found}
        return [by_prompt[tuple(ids)] for ids in prompts]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            answers, figures = _timed(task, bench.seed, answer)
        finally:
            model.destroy_cached_continuous_batching_manager()
    if ours is not None:
        figures["same_answers"] = sum(map(list.__eq__, answers, ours)) / task.num
    return figures | loaded.about()


def _static(bench: Bench, task: Task, ours: Answers | None) -> Figures:
    """Milliseconds for each token of one prompt by `generate` over a static cache, which
    transformers compiles on a GPU."""
    few, many = (2, 6) if bench.is_tiny else (8, 136)
    length = task.length + many + 8
    loaded = engine_model(bench, MODEL, length, length, Load(CHUNK, 1))
    if loaded is None:
        return {"skipped": TOO_LARGE}
    model = hub_model(loaded)
    (ids, *_) = task.prompts(bench.seed)
    given = torch.tensor([ids], device=bench.device)

    def seconds(num: int) -> float:
        started = time.perf_counter()
        made = model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=num,
            do_sample=False,
            cache_implementation="static",
        )
        bench.wait()
        assert made.shape[1] == given.shape[1] + num
        return time.perf_counter() - started

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiling = seconds(many)
        taken = sorted(seconds(many) - seconds(few) for _ in range(3))
    return {
        "ms_per_token": round(taken[1] / (many - few) * 1000, 3),
        "first_call_seconds": round(compiling, 1),
    } | loaded.about()
