"""What a decode step costs beside the bare products of its weights.

One row for the shape of the embedded model and one for a Llama of 56 million parameters, random
weights, float32 by default. Weights are rounded to what they are stored in, bfloat16 by default,
as in the embedded model and in published ones; all compute in the same dtype. A step is
`ModelRunner.run` on a batch of greedy sequences whose prompts share nothing ("alone") or all but
their last 32 tokens ("root"); slots lie as the engine places them. "bare" is one product for each
(fused) matrix of the model and the output matrix, through `torch.nn.functional.linear`. Steps and
products take turns; the best of all rounds counts, in microseconds of processor time, so that other
load on the machine counts less. "sampling" is what a nucleus (top_p 0.9, temperature 1) costs more
than the likeliest token, for a batch of 32.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.batch import GREEDY, Batch, SamplingParams
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.config import ModelConfig, RopeConfig
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.sampling.sampler import sample

TINY = Path(__file__).resolve().parents[2] / "models" / "tiny"
BATCHES, CONTEXTS, TAIL_LEN = (1, 8, 32), (64, 1024), 32


class RandomWeights:
    """Stands in for a checkpoint."""

    def __init__(
        self, config: ModelConfig, dtype: torch.dtype, stored: torch.dtype = torch.float32
    ) -> None:
        self._shapes = config.weight_shapes()
        self._dtype, self._stored = dtype, stored

    def take(self, name: str) -> torch.Tensor:
        shape = self._shapes[name]
        weight = torch.randn(shape, dtype=torch.float32).div_(math.sqrt(shape[-1]))
        return weight.to(self._stored).to(self._dtype)

    def take_part(self, name: str, dim: int, part: slice) -> torch.Tensor:
        return self.take(name)[part] if dim == 0 else self.take(name)[:, part]


def shapes() -> dict[str, ModelConfig]:
    tiny = ModelConfig.from_folder(TINY)
    sizes = {"vocabulary_size": 32_000, "num_layers": 8, "hidden_size": 512, "ffn_size": 1408}
    heads = {"num_heads": 8, "num_kv_heads": 4, "head_dim": 64}
    other = replace(tiny, **sizes, **heads, rope=RopeConfig(), is_tied=False, eos_ids=())
    other = replace(other, windows=(None,) * other.num_layers)
    return {"tiny": tiny, "56M": other}


def decode_batch(batch_size: int, context_len: int, is_shared: bool) -> Batch:
    """Sequences of `context_len` cached tokens: a prompt, then 16 generated in step."""
    table = np.zeros((batch_size, context_len + 1), np.int32)
    prompt_len, root_len = context_len - 16, (context_len - TAIL_LEN) * is_shared
    table[:, :root_len] = np.arange(root_len)
    own = np.arange(batch_size * (prompt_len - root_len)).reshape(batch_size, -1) + root_len
    table[:, root_len:prompt_len] = own
    used = root_len + own.size
    table[:, prompt_len:] = np.arange(17 * batch_size).reshape(17, -1).T + used
    starts = np.full(batch_size, context_len, np.int32)
    return Batch(
        ids=np.arange(batch_size, dtype=np.int64) + 5,
        positions=starts.astype(np.int64),
        slots=table[:, context_len],
        rows=np.arange(batch_size, dtype=np.int32),
        starts=starts,
        lens=np.ones(batch_size, np.int32),
        table=table,
        sampled=np.arange(batch_size, dtype=np.int32),
        sampling_params=(GREEDY,) * batch_size,
    )


def matrices(config: ModelConfig, dtype: torch.dtype, stored: torch.dtype) -> list[torch.Tensor]:
    q_dim, kv_dim = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    layer = [
        (q_dim + 2 * kv_dim, config.hidden_size),
        (config.hidden_size, q_dim),
        (2 * config.ffn_size, config.hidden_size),
        (config.hidden_size, config.ffn_size),
    ]
    sizes = [*layer * config.num_layers, (config.vocabulary_size, config.hidden_size)]
    return [torch.randn(size).to(stored).to(dtype) for size in sizes]


def measure(
    config: ModelConfig, dtype: torch.dtype, stored: torch.dtype, rounds: int
) -> list[dict[str, Any]]:
    slots = BATCHES[-1] * (CONTEXTS[-1] + 1)
    model = Llama(config, RandomWeights(config, dtype, stored), torch.device("cpu"))
    runner, weights = ModelRunner(model, slots), matrices(config, dtype, stored)
    rows = []
    for batch_size in BATCHES:
        inputs = {w.shape[1]: torch.randn(batch_size, w.shape[1]).to(dtype) for w in weights}
        for context_len in CONTEXTS:
            batches = [decode_batch(batch_size, context_len, shared) for shared in (False, True)]
            best = [math.inf] * 3
            for _ in range(rounds):
                best[0] = min(best[0], timed(lambda: bare(weights, inputs)))  # noqa: B023
                for i, batch in enumerate(batches, 1):
                    best[i] = min(best[i], timed(lambda: runner.run(batch)))  # noqa: B023
            rows.append(row(batch_size, context_len, *best))
    return rows


@torch.inference_mode()
def sampling(vocabulary_size: int, rounds: int) -> dict[str, int]:
    """Microseconds for 32 rows of logits of which a few tokens stand out."""
    logits = 3 * torch.randn(BATCHES[-1], vocabulary_size)
    random_params = [
        SamplingParams(temperature=1.0, top_p=0.9, seed=row) for row in range(BATCHES[-1])
    ]
    best = [math.inf, math.inf]
    for _ in range(rounds):
        for i, requested in enumerate(((GREEDY,) * BATCHES[-1], random_params)):
            best[i] = min(best[i], timed(lambda: sample(logits, requested)))  # noqa: B023
    greedy, nucleus = (round(seconds * 1e6) for seconds in best)
    return {"greedy": greedy, "top_p": nucleus, "added": nucleus - greedy}


@torch.inference_mode()
def bare(weights: list[torch.Tensor], inputs: dict[int, torch.Tensor]) -> None:
    for weight in weights:
        F.linear(inputs[weight.shape[1]], weight)


def timed(action: Any) -> float:
    start = time.process_time()
    action()
    return time.process_time() - start


def row(
    batch_size: int, context_len: int, bare: float, alone: float, root: float
) -> dict[str, Any]:
    figures = {"batch": batch_size, "context": context_len}
    figures |= {"bare": round(bare * 1e6), "alone": round(alone * 1e6), "root": round(root * 1e6)}
    return {**figures, "alone/bare": round(alone / bare, 2), "root/bare": round(root / bare, 2)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    options.add_argument("--stored", default="bfloat16", choices=("float32", "bfloat16"))
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--rounds", type=int, default=30)
    options.add_argument("--model", choices=tuple(shapes()), action="append")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    dtypes = getattr(torch, arguments.dtype), getattr(torch, arguments.stored)
    figures = {}
    for name, config in shapes().items():
        if arguments.model is None or name in arguments.model:
            figures[name] = {
                "steps": measure(config, *dtypes, arguments.rounds),
                "sampling": sampling(config.vocabulary_size, arguments.rounds),
            }
    settings = {"dtype": arguments.dtype, "stored": arguments.stored}
    report("decode", figures, arguments.out, **settings, clock="process_time")


if __name__ == "__main__":
    main()
