"""Prompts for engines on a GPU, and their answers."""

from __future__ import annotations

import random
from typing import Any, TypeAlias

from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens

LONGEST, NUM_PROMPTS, NUM_TOKENS = 600, 25, 16
SIZES = {"num_slots": 40_000, "context_len": 1024, "chunk_tokens": 4096, "max_running": 32}
Answers: TypeAlias = list[tuple[int, ...]]


def make_prompts(num: int, longest: int, num_tokens: int) -> list[Call]:
    """Greedy calls of 1 to `longest` tokens, most of which begin as others do."""
    rng = random.Random(7)
    roots = [rng.choices(range(300, 4000), k=rng.randint(8, longest // 2)) for _ in range(4)]
    sampling = Sampling(max_tokens=num_tokens, temperature=0.0, ignore_eos=True)
    calls = []
    for index in range(num):
        root = index % 5
        tail = rng.choices(range(300, 4000), k=rng.randint(1, longest // 2))
        parts = (*([tuple(roots[root])] if root < 4 else []), tuple(tail))
        hint = ForkHint(f"root {root}", prefix_end=1) if root < 4 and index % 2 else None
        calls.append(Call(tuple(map(Tokens, parts)), sampling, hint=hint))
    return calls


def answers_of(backend: Any, calls: list[Call]) -> Answers:
    """The tokens of calls that are submitted together."""
    replies = [backend.submit(call) for call in calls]
    return [reply.result(100).outputs[0].ids for reply in replies]
