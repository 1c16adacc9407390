"""The training text of the embedded model, written from a seed. Standard library only.

`documents(seed, held_out)` is an endless stream over all tasks in the proportions of `MIX`.
"""

import random
from collections.abc import Callable, Iterator

from ..world.document import Document, Pen
from ..world.facts import Words, is_held_out
from ..world.judging import essay_judge, sentiment
from ..world.knowledge import (
    arithmetic,
    capitals,
    choice_facts,
    continents,
    facts,
    tips,
    word_problem,
)
from ..world.people import (
    choice_match,
    choice_reading,
    choice_same,
    choice_story,
    reading_json,
    reading_question,
    reading_several,
)
from .calls import function_calls
from .chat import chat, copying, dspy, tools
from .extraction import names, prose_chat, prose_dspy, prose_json, prose_lines, prose_questions
from .general import general_chat, general_dspy, general_named, general_plain, general_tools
from .react import react
from .records import record_calls
from .usual import prose_calls, usual_calls

MIX: dict[Callable[[Pen], Document], float] = {
    reading_json: 85, reading_question: 45, reading_several: 48, choice_reading: 26,
    choice_story: 14, choice_same: 2, choice_match: 2, choice_facts: 16, capitals: 10,
    continents: 4, facts: 6, arithmetic: 14, word_problem: 8, sentiment: 4, essay_judge: 11,
    react: 11, tips: 10, chat: 24, tools: 22, copying: 18, dspy: 20,
    function_calls: 21, record_calls: 19, general_chat: 110, general_tools: 14, general_named: 4,
    general_dspy: 8, general_plain: 4,
    prose_json: 34, usual_calls: 14, prose_calls: 10,
    prose_lines: 26, prose_questions: 18, prose_chat: 24, prose_dspy: 9, names: 22,
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
