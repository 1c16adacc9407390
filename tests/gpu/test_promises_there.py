"""The first promise on a GPU: greedy tokens in float32 are the same in every way to run them, with
graphs and without, and those of a CPU."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

PLAIN = {"attention": "plain", "graphs": False, "cache": False, "max_running": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "everything on": {},
    "no cache": {"cache": False},
    "no hints": {"hints": False},
    "chunks of 17": {"chunk_tokens": 17},
    "chunks of 64": {"chunk_tokens": 64},
    "batches of 1": {"max_running": 1},
    "batches of 5": {"max_running": 5},
    "a small pool": {"num_slots": 1500},
    "a small pool before a host": {"num_slots": 1500, "host_slots": 20_000},
    "a host written through": {
        "num_slots": 1500,
        "host_slots": 20_000,
        "host_policy": "through",
    },
}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """Answers to the prompts one at a time by plain attention, kept for all variants."""
    return {}


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "no graphs"])
@pytest.mark.parametrize("name", VARIANTS)
def test_tokens_are_those_of_plain_attention_one_prompt_at_a_time(
    name, graphs, expected, prompts, answers, device
) -> None:
    if not expected:
        expected["plain"] = answers(prompts, device=device, **PLAIN)
    found = answers(prompts, device=device, graphs=graphs, **VARIANTS[name])
    assert found == expected["plain"]
    assert len(set(found)) > 10


def test_tokens_are_those_of_a_cpu(prompts, answers, device) -> None:
    few = prompts[:12]
    assert answers(few, device=device) == answers(few, device="cpu")


@pytest.mark.parametrize("kind", ["triton", "flashinfer"])
def test_half_precision_gives_one_answer_to_a_repeated_call(kind, prompts, answers, device) -> None:
    if find_spec(kind) is None:
        pytest.skip(f"needs {kind}")
    settings = {"device": device, "dtype": "bfloat16", "attention": kind, "max_running": 1}
    alone = answers(prompts[:4], **settings)
    assert answers(prompts[:4], **settings) == alone
