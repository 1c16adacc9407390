"""Records drawn out of texts, eight at a time, with Guidance: JSON, patterns and choices.

    python -m forkroot.examples.extract_guidance

Every program begins with the same worked example, which is computed once for all threads, and what
a grammar leaves no choice about is not decoded. The embedded model is tiny: it reads passages about
people of its made-up world.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from ..adapters.connection import shared
from ..adapters.guidance import Forkroot
from .retrieval import Passage, load_passages
from .savings import (
    Done,
    Options,
    RunContext,
    compare,
    needed,
    run_example,
    show_savings,
    show_table,
)

try:
    from guidance import gen, guidance, select
    from guidance import json as gen_json
except ImportError as error:
    needed("guidance", error)

NUM_THREADS = 8
HOUSES = ("Ember", "Tide", "Gale", "Stone", "Thorn", "Frost")
FIELDS = ("name", "age", "job", "city", "house")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "job": {"type": "string", "maxLength": 20},
        "city": {"type": "string", "maxLength": 20},
        "house": {"enum": list(HOUSES)},
    },
    "required": list(FIELDS),
    "additionalProperties": False,
}
EXAMPLE = (
    "Anna lives in Lyon. Anna is 31 years old and works as a pilot. Anna belongs to the house of"
    ' Frost.\nJSON: {"name": "Anna", "age": 31, "job": "pilot", "city": "Lyon", "house": "Frost"}'
    "\nQuestion: How old is Anna?\nAnswer: 31"
    "\nQuestion: Which house does Anna belong to?\nAnswer: Frost\n\n"
)


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was read in a passage: a record, and two of its fields read a second time."""

    record: dict[str, Any]
    age: int
    house: str

    @property
    def agrees(self) -> bool:
        """Whether the model said the same twice."""
        return (self.age, self.house) == (self.record["age"], self.record["house"])


@guidance  # type: ignore[untyped-decorator,unused-ignore]
def extract(lm: Any, passage: Passage) -> Any:
    """Read one passage: its record as JSON, then age and house by questions."""
    name = passage.name.capitalize()
    lm += EXAMPLE + passage.text + "\nJSON: " + gen_json("record", schema=SCHEMA)
    lm += f"\nQuestion: How old is {name}?\nAnswer: " + gen("age", regex="[0-9]{1,3}")
    lm += f"\nQuestion: Which house does {name} belong to?\nAnswer:"
    return lm + select([f" {house}" for house in HOUSES], name="house")


def extract_all(context: RunContext, passages: Sequence[Passage]) -> Done[list[Extracted]]:
    """Read all passages, in threads."""
    lm = Forkroot(context.backend, namespace=context.namespace, **context.settings)
    backend = shared(context.backend, **context.settings).backend
    num_calls = backend.info().counters["calls"]
    with ThreadPoolExecutor(NUM_THREADS) as pool:
        states = list(pool.map(lambda passage: lm + extract(passage), passages))
    return Done(
        [
            Extracted(json.loads(state["record"]), int(state["age"]), state["house"].strip())
            for state in states
        ],
        int(backend.info().counters["calls"] - num_calls),
        sum(state.used.prompt_tokens for state in states),
        sum(state.used.cached_tokens for state in states),
    )


def example(options: Options, console: Console) -> None:
    """Read the passages with the cache and without, and print records and savings."""
    passages = load_passages()[: options.limit]
    compared = compare(options, lambda context: extract_all(context, passages))
    rows = [
        (*map(str, it.record.values()), "" if it.agrees else f"then {it.age}, {it.house}")
        for it in compared.answers
    ]
    show_table(console, "What was read", (*FIELDS, ""), rows)
    num_agreeing = sum(it.agrees for it in compared.answers)
    console.print(f"{num_agreeing} of {len(rows)} say the same when read a second time.")
    show_savings(console, compared)


main = partial(run_example, __doc__, example)


if __name__ == "__main__":
    sys.exit(main())
