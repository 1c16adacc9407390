"""Other engines that are installed, and ours: the same prompts, half of each shared by all, on the
same weights. Prompts are answered once to warm up, then others of the same lengths are timed."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures, distance
from forkroot.benchmarks.gpu.gpu_hub import hub_config, hub_model, write_folder
from forkroot.core.api.protocol import Call, Sampling, Tokens
from forkroot.core.local import LocalBackend
from forkroot.core.model.checkpoint.dummy import dummy_config
from forkroot.core.model.config import ModelConfig

MODEL = "llama-3.1-8b"
BLOCK = 256  # tokens, of transformers' cache
Prompts = list[list[int]]
Answers = list[list[int]]


class Task(NamedTuple):
    """How many prompts there are, of how many tokens, and how many each is answered with."""

    num: int
    length: int
    answer: int

    def prompts(self, seed: int) -> Prompts:
        """Random tokens; the first half is the same in all."""
        rng = random.Random(seed)
        root = rng.choices(range(300, 3000), k=self.length // 2)
        rest = self.length - len(root)
        return [root + rng.choices(range(300, 3000), k=rest) for _ in range(self.num)]

    @property
    def context(self) -> int:
        """Tokens of a prompt and its answer, and a few."""
        return self.length + self.answer + 8


def cases(bench: Bench) -> Cases:
    """Ours first; what is not installed is reported."""
    task = Task(3, 16, 6) if bench.is_tiny else Task(64, 1024, 128)
    sizes = dummy_config(bench.shape(MODEL).removeprefix("dummy:"))
    answers: dict[str, Answers] = {}
    yield Case("ours", lambda: _ours(bench, task, answers), 10)
    yield _if_installed(
        "transformers", "continuous batching", _batching(bench, sizes, task, answers)
    )
    yield _if_installed("vllm", "vLLM", lambda: _vllm(bench, sizes, task), 60)
    if bench.is_tiny:
        yield _if_installed("transformers", "folder", lambda: _folder(bench, sizes, task))
    yield _if_installed("transformers", "static cache", lambda: _static(bench, sizes, task), 35)


def _if_installed(package: str, name: str, run: Callable[[], Figures], seconds: float = 25) -> Case:
    title = f"{package} {name}" if package != name.lower() else name
    if find_spec(package) is None:
        return Case(title, lambda: {"absent": f"{package} is not installed"}, 0)
    return Case(title, run, seconds)


def _rates(task: Task, seconds: float) -> Figures:
    return {
        "prompts_per_second": round(task.num / seconds, 3),
        "output_tokens_per_second": round(task.num * task.answer / seconds, 1),
    }


def _timed(task: Task, seed: int, answer: Callable[[Prompts], Answers]) -> tuple[Answers, Figures]:
    """Answers to the second of two sets of prompts, and how fast they came."""
    answer(task.prompts(seed + 1))
    prompts = task.prompts(seed)
    started = time.perf_counter()
    answers = answer(prompts)
    seconds = time.perf_counter() - started
    assert [len(it) for it in answers] == [task.answer] * task.num
    return answers, _rates(task, seconds)


def _ours(bench: Bench, task: Task, kept: dict[str, Answers]) -> Figures:
    settings = bench.engine(
        num_slots=2 * task.num * task.context,
        max_running=task.num,
        chunk_tokens=8192,
        context_len=task.context,
    )
    sampling = Sampling(max_tokens=task.answer, temperature=0.0, ignore_eos=True)
    with LocalBackend.from_folder(bench.shape(MODEL), **settings) as backend:

        def answer(prompts: Prompts) -> Answers:
            calls = [Call((Tokens(tuple(ids)),), sampling) for ids in prompts]
            replies = [backend.submit(call) for call in calls]
            return [list(reply.result().outputs[0].ids) for reply in replies]

        kept["ours"], figures = _timed(task, bench.seed, answer)
    return figures


def _batching(
    bench: Bench, sizes: ModelConfig, task: Task, kept: dict[str, Answers]
) -> Callable[[], Figures]:
    """`generate_batch`, with the number of its blocks set: its defaults take what there is."""

    def run() -> Figures:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        logging.getLogger("ContinuousBatchingLogger").setLevel(logging.CRITICAL)
        model = hub_model(sizes, task.context, bench.dtype, bench.device)
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
        if "ours" in kept:
            pairs = zip(answers, kept["ours"], strict=True)
            figures["same_answers"] = sum(a == b for a, b in pairs) / task.num
        return figures

    return run


def _static(bench: Bench, sizes: ModelConfig, task: Task) -> Figures:
    """Milliseconds for each token of one prompt by `generate` over a static cache, which
    transformers compiles on a GPU."""
    few, many = (2, 6) if bench.is_tiny else (8, 136)
    model = hub_model(sizes, task.length + many + 8, bench.dtype, bench.device)
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
    }


def _folder(bench: Bench, sizes: ModelConfig, task: Task) -> Figures:
    """Tries the folder that a peer would be given: transformers must read the same model there."""
    from transformers import AutoModelForCausalLM

    ids = torch.tensor(task.prompts(bench.seed), device=bench.device)
    with TemporaryDirectory() as name, torch.inference_mode():
        write_folder(sizes, task.context, bench.dtype, bench.device, Path(name))
        read = AutoModelForCausalLM.from_pretrained(name, dtype=bench.dtype).to(bench.device)
        made = hub_model(sizes, task.context, bench.dtype, bench.device)
        error = distance(read(ids).logits, made(ids).logits)
        wanted = dummy_config(MODEL)
        hub_config(wanted, wanted.context_len).save_pretrained(name)
        is_same = ModelConfig.from_folder(Path(name)).rope == wanted.rope
    return {"error": error, "is_right": error < 1e-5 and is_same}


def _vllm(bench: Bench, sizes: ModelConfig, task: Task) -> Figures:
    from vllm import LLM, SamplingParams

    with TemporaryDirectory() as name:
        write_folder(sizes, task.context, bench.dtype, bench.device, Path(name))
        bench.forget()
        engine = LLM(
            model=name,
            skip_tokenizer_init=True,
            dtype=bench.dtype_name,
            max_model_len=task.context,
            gpu_memory_utilization=0.6,
            enable_prefix_caching=True,
        )
        sampling = SamplingParams(
            max_tokens=task.answer, temperature=0.0, ignore_eos=True, detokenize=False
        )

        def answer(prompts: Prompts) -> Answers:
            found = engine.generate([{"prompt_token_ids": ids} for ids in prompts], sampling)
            return [list(it.outputs[0].token_ids) for it in found]

        _, figures = _timed(task, bench.seed, answer)
    return figures
