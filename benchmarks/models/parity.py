"""Greedy tokens of the engine beside those of transformers, and under every setting.

Prompts are slices of the small world's text, of 1 to 1,500 tokens; most share a root with others.
`transformers.generate` runs each by itself in float32; our engine runs them all together, once for
each variant: cache, hints, chunks, batch sizes, retraction, and a pool that is much too small.
A row has how many prompts of each variant got the very tokens that transformers gave them.
"""

from __future__ import annotations

import random
import time
import warnings
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch

from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens
from forkroot.core.api.reply import Mailbox
from forkroot.core.assembly import build_engine
from forkroot.core.engine.input import InputProcessor
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.checkpoint.load import load_model
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.host import Host
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.text.tokenizer import Tokenizer
from forkroot.models.training.tasks.world import documents

Answer: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids in two parts: those of a root that other prompts may share, and the rest."""

    root: tuple[int, ...]
    rest: tuple[int, ...]
    name: str

    @property
    def ids(self) -> tuple[int, ...]:
        return self.root + self.rest


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run the engine.

    retract_every: all that runs is retracted after so many steps; 0: never.
    is_small: the pool holds one and a half of the longest sequences, where it else holds twenty.
    """

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    hints: Literal["right", "none", "wrong"] = "right"
    retract_every: int = 0
    is_small: bool = False


VARIANTS = (
    Variant("everything on"),
    Variant("no cache", {"cache": False}),
    Variant("no hints", hints="none"),
    Variant("hints not followed", {"hints": False}),
    Variant("wrong hints", hints="wrong"),
    Variant("chunks of 7", {"chunk_tokens": 7}),
    Variant("chunks of 64", {"chunk_tokens": 64}),
    Variant("batches of 1", {"max_running": 1}),
    Variant("batches of 4", {"max_running": 4}),
    Variant("retraction at every third step", retract_every=3),
    Variant("overlap", {"overlap": True}),
    Variant(
        "overlap in chunks of 64 in a small pool",
        {"overlap": True, "chunk_tokens": 64},
        is_small=True,
    ),
    Variant("a small pool", is_small=True),
    Variant("a small pool without a cache", {"cache": False}, is_small=True),
    Variant("a small pool before a host", {"host_slots": 20_000}, is_small=True),
    Variant(
        "a host written through", {"host_slots": 20_000, "host_policy": "through"}, is_small=True
    ),
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder, and what is needed to run it."""

    folder: Path
    config: ModelConfig
    tokenizer: Tokenizer
    model: Llama

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        config = ModelConfig.from_folder(folder)
        model = load_model(str(folder), config, torch.float32, torch.device("cpu"), Ranks())
        return cls(folder, config, Tokenizer.from_folder(folder), model)


def make_prompts(tokenizer: Tokenizer, count: int, longest: int, seed: int) -> list[Prompt]:
    """`count` prompts of 1 to `longest` tokens; three in four begin with one of a few roots."""
    rng = random.Random(seed)
    text = "\n\n".join(document.text for document in islice(documents(seed, held_out=False), 900))
    ids = tokenizer.encode(text)

    def piece(size: int) -> tuple[int, ...]:
        start = rng.randrange(len(ids) - size)
        return tuple(ids[start : start + size])

    tail = longest // 4
    roots = [piece(rng.randint(1, longest - tail)) for _ in range(count // 12 + 1)]
    prompts = []
    for _ in range(count):
        root_index = rng.randrange(len(roots) * 4 // 3 + 1)
        root = roots[root_index] if root_index < len(roots) else ()
        rest = piece(rng.randint(1, tail if root else longest))
        prompts.append(Prompt(root, rest, f"root {root_index}"))
    return prompts


def make_call(prompt: Prompt, hints: str, rng: random.Random, max_tokens: int) -> Call:
    """The greedy call of a prompt, to be continued to the last token, with this kind of hint."""
    sampling = Sampling(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    parts = tuple(Tokens(part) for part in (prompt.root, prompt.rest) if part)
    hint = None
    if hints == "right" and prompt.root:
        hint = ForkHint(prompt.name, prefix_end=1)
    elif hints == "wrong":
        name = f"root {rng.randrange(3)}"
        hint = ForkHint(name, rng.choice((None, 0, 1, 3)), rng.choice((None, 1, 2, 9)))
    return Call(parts, sampling, hint=hint)


def serve(
    checkpoint: Checkpoint, prompts: list[Prompt], variant: Variant, max_tokens: int, seed: int
) -> list[Answer]:
    """Tokens that the engine gives all prompts, submitted together, under one variant."""
    longest = max(len(prompt.ids) for prompt in prompts)
    context_len = longest + max_tokens
    sizes = {"num_slots": 20 * context_len, "max_running": 32, "chunk_tokens": 32 * longest}
    if variant.is_small:
        sizes["num_slots"] = context_len * 3 // 2
    config = EngineConfig.from_settings(sizes | {"context_len": context_len} | variant.settings)
    assert config.num_slots is not None
    runner = ModelRunner(checkpoint.model, config.num_slots, host=Host(config.host_slots))
    engine, _ = build_engine(config, checkpoint.tokenizer, runner)
    vocabulary_size = checkpoint.config.vocabulary_size
    pending_calls = InputProcessor(
        checkpoint.tokenizer, context_len, config.num_slots, vocabulary_size, frozenset()
    )
    rng = random.Random(seed)
    calls = [make_call(prompt, variant.hints, rng, max_tokens) for prompt in prompts]
    replies = [Mailbox(call) for call in calls]
    for call, reply in zip(calls, replies, strict=True):
        engine.admit(pending_calls.job(call, reply))
    steps = 0
    while engine.has_work:
        engine.step()
        steps += 1
        if variant.retract_every and steps % variant.retract_every == 0:
            engine.retract_all()
    engine.check()
    return [reply.result().outputs[0].ids for reply in replies]


def expected(folder: Path, prompts: list[Prompt], max_tokens: int) -> list[Answer]:
    """Tokens that `transformers.generate` gives each prompt by itself, in float32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt.ids])
        mask = torch.ones_like(ids)
        made = model.generate(ids, attention_mask=mask, max_new_tokens=max_tokens, do_sample=False)
        answers.append(tuple(made[0, len(prompt.ids) :].tolist()))
    return answers


def num_identical(first: list[Answer], second: list[Answer]) -> int:
    """Prompts with the same tokens."""
    return sum(one == other for one, other in zip(first, second, strict=True))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--model", default="tiny")
    options.add_argument("--prompts", type=int, default=200)
    options.add_argument("--longest", type=int, default=1500)
    options.add_argument("--max-tokens", type=int, default=16)
    given = options.parse_args()
    folder = model_folder(given.model)
    checkpoint = Checkpoint.load(folder)
    prompts = make_prompts(checkpoint.tokenizer, given.prompts, given.longest, given.seed)
    theirs = expected(folder, prompts, given.max_tokens)
    identical, seconds = {}, {}
    for variant in VARIANTS:
        started = time.perf_counter()
        ours = serve(checkpoint, prompts, variant, given.max_tokens, given.seed)
        identical[variant.name] = num_identical(ours, theirs)
        seconds[variant.name] = round(time.perf_counter() - started, 1)
    figures = {
        "prompts": len(prompts),
        "prompt_tokens": sum(len(prompt.ids) for prompt in prompts),
        "max_tokens": given.max_tokens,
        "identical": identical,
        "seconds": seconds,
    }
    report("parity", figures, given.out, model=folder.name, dtype="float32", seed=given.seed)


if __name__ == "__main__":
    main()
