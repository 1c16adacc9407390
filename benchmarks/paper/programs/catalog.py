"""All workloads, in the paper's order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..figure import Settings
from . import agents, branches, chats, few_shot, rag, records
from .texts import Texts
from .workload import Workload

WORKLOADS: Mapping[str, Callable[[Texts], Workload]] = MappingProxyType(
    {
        "mmlu": few_shot.mmlu,
        "hellaswag": few_shot.hellaswag,
        "gsm8k": few_shot.gsm8k,
        "react": agents.react,
        "generative agents": agents.generative_agents,
        "tree of thought": branches.tree_of_thought,
        "skeleton of thought": branches.skeleton_of_thought,
        "llm judge": branches.judge,
        "json character": records.character,
        "json city": records.city,
        "chat short": chats.chat,
        "chat long": chats.long_chat,
        "dspy rag": rag.rag,
        "extraction": records.extraction,
    }
)


def workload(name: str, settings: Settings) -> Workload:
    """A workload, the same for the same settings."""
    return WORKLOADS[name](Texts.of(settings))
