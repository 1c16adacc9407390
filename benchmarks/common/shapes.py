"""What engines are compared on: workloads as programs, in sizes that take seconds on two cores.

The workloads of `workloads`, over words whose text gives the same tokens again, and a few more with
constraints. Who runs them is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forkroot.benchmarks.common import workloads
from forkroot.benchmarks.common.programs import (
    Body,
    Ids,
    Maker,
    Program,
    ProgramContext,
    Workload,
    answering,
)
from forkroot.core.api.protocol import (
    Call,
    Choices,
    Constraint,
    JsonSchema,
    Regex,
    Sampling,
    Tokens,
)

_HOUSES = ("Gryffindor", "Slytherin", "Ravenclaw", "Hufflepuff")
_NAME, _LINE = "[A-Z][a-z]{2,12}", "[a-z ]{8,40}"
RECORD = (
    rf'\{{"name":"{_NAME} {_NAME}","house":"({"|".join(_HOUSES)})","blood":"(pure|half|muggle)",'
    rf'"year":[1-7],"born":"19[0-9]{{2}}-[01][0-9]-[0-3][0-9]","alive":(true|false),'
    rf'"wand":\{{"wood":"{_NAME}","core":"{_NAME}","length":1[0-9]\.[0-9]\}},'
    rf'"patronus":"{_NAME}","note":"{_LINE}"\}}'
)


def _text(least: int, most: int) -> dict[str, Any]:
    return {"type": "string", "minLength": least, "maxLength": most}


_FIELDS: dict[str, Any] = {
    "name": _text(6, 24),
    "house": {"enum": list(_HOUSES)},
    "blood": {"enum": ["pure", "half", "muggle"]},
    "year": {"type": "integer", "minimum": 1, "maximum": 7},
    "born": _text(4, 10),
    "alive": {"type": "boolean"},
    "wood": _text(3, 12),
    "core": _text(3, 12),
    "length": {"type": "integer", "minimum": 10, "maximum": 19},
    "patronus": _text(3, 12),
    "note": _text(8, 40),
}
SCHEMA = {
    "type": "object",
    "properties": _FIELDS,
    "required": list(_FIELDS),
    "additionalProperties": False,
}


class Words(Maker):
    """Draws texts from these tokens; as `Maker` for the rest."""

    def __init__(self, words: Sequence[int], share: float, seed: int, size: float) -> None:
        super().__init__(range(0), share, seed, size)
        self._words = words

    def ids(self, low: int, high: int | None = None) -> Ids:
        """A text of `low` to `high` tokens that occurs nowhere else."""
        return tuple(self.random.choices(self._words, k=self.length(low, high or low)))


class Shape(NamedTuple):
    """A workload, and how much of the paper's is run.

    needs: what not every server can do: "regex", "json", "choice", "score", or nothing.
    at_once: how many programs run at a time; None: as many as the run sets.
    """

    make: Callable[[Maker], Workload]
    share: float = 0.1
    size: float = 0.5
    needs: str = ""
    at_once: int | None = None

    def workload(self, words: Sequence[int], seed: int, scale: float) -> Workload:
        """Its programs over these words; `scale` times as many."""
        return self.make(Words(words, self.share * scale, seed, self.size))


def few_subjects(make: Maker) -> Workload:
    """Five examples of a subject, then many questions: one token each."""
    bodies = [
        answering(shots, question, length=1)
        for shots in make.texts(make.num(8, 2), 600, 1536)
        for question in make.texts(make.num(64, 2), 60, 140)
    ]
    return Workload("5-shot, one token", bodies, 64)


def regex_records(make: Maker) -> Workload:
    """A record of eleven fields by a regular expression."""
    return Workload("JSON by regex", _constrained(make, lambda: Regex(RECORD)))


def schema_records(make: Maker) -> Workload:
    """A record of eleven fields by a JSON schema."""
    return Workload("JSON by schema", _constrained(make, lambda: JsonSchema(SCHEMA)))


def choices(make: Maker) -> Workload:
    """Twenty examples, then one of four endings, decoded under a constraint."""

    def four() -> Constraint:
        return Choices(tuple(make.option() for _ in range(4)))

    return Workload("choice of 4, decoded", _constrained(make, four, 200, 2000))


def _constrained(
    make: Maker, constraint: Callable[[], Constraint], num: int = 50, head_len: int = 300
) -> list[Body]:
    head = make.ids(head_len)

    def body(question: Ids, allowed: Constraint) -> Body:
        def run(context: ProgramContext) -> Program:
            sampling = Sampling(max_tokens=384, temperature=0.0)
            yield [Call((Tokens((*head, *question)),), sampling, constraint=allowed)]

        return run

    return [body(question, constraint()) for question in make.texts(make.num(num), 30, 70)]


def decoding(make: Maker) -> Workload:
    """Short prompts and answers of 256 tokens: nothing but decode steps."""
    bodies = [answering(text, length=256) for text in make.texts(make.num(64, 1), 16)]
    return Workload("decoding", bodies)


SHAPES = {
    "5-shot": Shape(few_subjects, 0.5),
    "react": Shape(workloads.react),
    "tree": Shape(workloads.tree_of_thought, 0.1, 0.25),
    "skeleton": Shape(workloads.skeleton_of_thought, 0.25),
    "chat": Shape(workloads.chat, 0.8),
    "long chat": Shape(workloads.long_chat, 0.4, 0.25),
    "rag": Shape(workloads.rag, 0.2),
    "judge": Shape(workloads.judge, 0.3, 0.5),
    "none": Shape(workloads.nothing_shared, 0.3, 0.25),
    "schema": Shape(schema_records, 0.4, needs="json"),
    "regex": Shape(regex_records, 0.4, needs="regex"),
    "select": Shape(workloads.hellaswag, 0.05, needs="score"),
    "choice": Shape(choices, 0.15, needs="choice"),
}
STEPS = {str(num): Shape(decoding, num / 64, 1.0, at_once=num) for num in (1, 8, 64)}
