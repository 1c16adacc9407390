"""The training text of the embedded model, written from a seed. Standard library only.

`documents(seed, held_out)` is an endless stream over all tasks in the proportions of `MIX`.
"""

import random
from collections.abc import Callable, Iterator

from .calls import function_calls
from .chat import chat, copying, dspy, tools
from .document import Document, Pen
from .facts import Words, is_held_out
from .judging import essay_judge, sentiment
from .knowledge import arithmetic, capitals, choice_facts, continents, facts, tips, word_problem
from .people import (
    choice_match,
    choice_reading,
    choice_same,
    choice_story,
    reading_json,
    reading_question,
    reading_several,
)
from .react import react
from .records import record_calls

MIX: dict[Callable[[Pen], Document], float] = {
    reading_json: 38, reading_question: 26, reading_several: 30, choice_reading: 14,
    choice_story: 9, choice_same: 1, choice_match: 1, choice_facts: 2, capitals: 8, continents: 3,
    facts: 5, arithmetic: 7, word_problem: 4, sentiment: 2, essay_judge: 8, react: 6, tips: 3,
    chat: 8, tools: 8, copying: 14, dspy: 4, function_calls: 26, record_calls: 26,
}  # fmt: skip
# These have no made-up words, so that whole prompts are held out.
CLOSED_TASKS = frozenset({"capitals", "facts", "arithmetic", "tips"})


def documents(
    seed: int, held_out: bool, mix: dict[Callable[[Pen], Document], float] | None = None
) -> Iterator[Document]:
    """An endless stream of documents, the same for the same seed.

    held_out: write with held-out words, and ask the closed tasks only with held-out prompts;
    training streams hold neither. mix: relative frequency of each task, instead of `MIX`.
    """
    rng, mix = random.Random(seed), mix or MIX
    tasks, weights = list(mix), list(mix.values())
    while True:
        doc = rng.choices(tasks, weights)[0](Pen(rng, Words(rng, held_out)))
        if doc.task not in CLOSED_TASKS or is_held_out(doc.exams[-1][0]) == held_out:
            yield doc
