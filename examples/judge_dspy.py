"""Branch, solve, merge: essays judged along three dimensions at once, with DSPy.

    python -m forkroot.examples.judge_dspy

All prompts about one essay are the same, and all begin with the same rubric. A branch is told what
to judge by the pattern of its answer, and the merge gets the branches' lines as text that it has
no choice about. The embedded model is tiny: it judges essays of the kind in the box by this very
rubric, and no others.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from rich.console import Console

from ..adapters.dspy import LM
from .demo import Essay, load_essays
from .essay_judge import DIMENSIONS, GRADES, RUBRIC
from .savings import (
    Done,
    Options,
    RunContext,
    compare,
    needed,
    run_example,
    settings_of,
    show_savings,
    show_table,
)

try:
    import dspy
    from dspy.utils.exceptions import AdapterParseError, LMError
except ImportError as error:
    needed("dspy", error)


YES_OR_NO = ("no", "yes")


class Lines(dspy.ChatAdapter):  # type: ignore[misc]
    """A DSPy adapter of one's own: one line for each field, as in "Grade: A".

    The embedded model learned to judge essays in such lines, and has no use for the headers of
    DSPy's own adapters. Every prompt of a program whose signatures have the same task and inputs is
    the same: which outputs are wanted is said by the pattern of the answer alone, see `pattern`.
    """

    def __init__(self) -> None:
        super().__init__(use_json_adapter_fallback=False)

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """The task alone."""
        return str(signature.instructions).strip()

    def format_user_message_content(
        self, signature: type[dspy.Signature], inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """A line for each input."""
        return "\n".join(
            line(name, inputs[name]) for name in signature.input_fields if name in inputs
        )

    def format_assistant_message_content(
        self, signature: type[dspy.Signature], outputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> str:
        """A line for each output."""
        return "\n".join(line(name, outputs.get(name)) for name in signature.output_fields)

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """The outputs in the types of their fields. Raises AdapterParseError."""
        found = dict(text.partition(": ")[::2] for text in completion.splitlines())
        try:
            return {
                name: value_of(field.annotation, found[name.capitalize()])
                for name, field in signature.output_fields.items()
            }
        except (KeyError, ValueError) as error:
            raise AdapterParseError("Lines", signature, completion, message=str(error)) from error


def line(name: str, value: Any) -> str:
    """A field as it is written."""
    text = YES_OR_NO[value] if isinstance(value, bool) else str(value)
    return f"{name.capitalize()}: {text}"


def value_of(kind: Any, text: str) -> Any:
    """A field's value of its type: a bool, one of a Literal's texts, or a text. Raises ValueError
    for any other text."""
    if kind is bool:
        return bool(YES_OR_NO.index(text))
    if kind is not str and text not in get_args(kind):
        raise ValueError(f"{text!r} is none of {get_args(kind)}")
    return text


def pattern(signature: type[dspy.Signature], known: Mapping[str, str] | None = None) -> str:
    """The answers that `Lines` parses: for the `regex=` of a Predict, or of one of its calls.

    known: outputs whose text is settled already; it is computed in one pass, and not written token
    by token.
    """
    known = known or {}
    return "\n".join(
        re.escape(f"{name.capitalize()}: {known[name]}")
        if name in known
        else f"{name.capitalize()}: {_values(field.annotation)}"
        for name, field in signature.output_fields.items()
    )


def _values(kind: Any) -> str:
    if kind is str:
        return r"[^\n]{1,60}\."
    return "(" + "|".join(map(re.escape, YES_OR_NO if kind is bool else get_args(kind))) + ")"


def judging(**outputs: Any) -> type[dspy.Signature]:
    """A signature of an essay with these outputs; the task and the inputs are always the same."""
    inputs = {name: (str, dspy.InputField()) for name in ("topic", "essay")}
    fields = inputs | {name: (kind, dspy.OutputField()) for name, kind in outputs.items()}
    signature: type[dspy.Signature] = dspy.Signature(fields, RUBRIC)
    return signature


RELATION = judging(related=bool)
BRANCHES = (judging(clarity=str), judging(evidence=str), judging(style=str))
MERGE = judging(
    clarity=str, evidence=str, style=str, summary=str, grade=Literal["A", "B", "C", "D"]
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """marks: whether each dimension is good. All is empty for an essay about something else."""

    marks: tuple[bool, ...] = ()
    summary: str = ""
    grade: str = ""


class EssayJudge(dspy.Module):  # type: ignore[misc]
    """Judges one essay: is it related, then a branch for each dimension, then the merge."""

    def __init__(self, namespace: str = "") -> None:
        super().__init__()
        self.namespace = namespace
        self.relation = self._predict(RELATION)
        self.branches = [self._predict(signature) for signature in BRANCHES]
        self.merge = self._predict(MERGE)

    def forward(self, topic: str, essay: str) -> Any:
        """A prediction with a `Verdict`."""
        inputs = {"topic": topic, "essay": essay}
        if not self.relation(**inputs).related:
            return dspy.Prediction(verdict=Verdict())
        parallel = dspy.Parallel(num_threads=len(self.branches), disable_progress_bar=True)
        lines: dict[str, str] = {}
        for prediction in parallel([(branch, inputs) for branch in self.branches]):
            lines |= prediction.toDict()
        merged = self.merge(**inputs, config={"regex": pattern(MERGE, lines)})
        marks = tuple(text.startswith("good") for text in lines.values())
        return dspy.Prediction(verdict=Verdict(marks, merged.summary, merged.grade))

    def _predict(self, signature: type[dspy.Signature]) -> dspy.Predict:
        return dspy.Predict(signature, regex=pattern(signature), namespace=self.namespace)


def judge_all(context: RunContext, essays: Sequence[Essay]) -> Done[list[Verdict]]:
    """Judge all essays at once. DSPy's own cache would answer the second run: it is off."""
    lm = LM(context.backend, settings=context.settings, temperature=0, max_tokens=96, cache=False)
    inputs = [{"topic": essay.topic, "essay": essay.text} for essay in essays]
    with dspy.context(lm=lm, adapter=Lines()):
        judge = EssayJudge(context.namespace)
        parallel = dspy.Parallel(num_threads=8, disable_progress_bar=True)
        found = parallel([(judge, each) for each in inputs])
    usages = [entry["usage"] for entry in lm.history]
    return Done(
        [prediction.verdict for prediction in found],
        len(usages),
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages),
    )


def example(options: Options, console: Console) -> None:
    """Judge the essays with the cache and without, and print verdicts and savings."""
    essays = load_essays()[: options.limit]
    compared = compare(options, lambda context: judge_all(context, essays))
    rows = [_row(essay, verdict) for essay, verdict in zip(essays, compared.answers, strict=True)]
    names = ("topic", *map(str.lower, DIMENSIONS), "grade", "")
    show_table(console, "What was judged", names, rows)
    num_right = sum(not row[-1] for row in rows)
    console.print(f"{num_right} of {len(rows)} are what the rubric asks for.")
    show_savings(console, compared)
    lm = LM(options.backend, settings=settings_of(options.backend, cache=True))
    console.print("\n[bold]What the adapter says of each run with the cache[/bold]")
    console.print(lm.runtime.connection().prefixes.report(), markup=False)


main = partial(run_example, __doc__, example, refusals=(LMError, dspy.lm15.LM15Error, OSError))


def _row(essay: Essay, verdict: Verdict) -> tuple[str, ...]:
    marks = ["good" if mark else "poor" for mark in verdict.marks] or ["–"] * len(DIMENSIONS)
    earned = essay.deserves() or ()
    is_right = verdict.marks == earned
    is_right &= verdict.grade == (GRADES[earned.count(False)] if earned else "")
    return (essay.topic, *marks, verdict.grade or "unrelated", "" if is_right else "wrong")


if __name__ == "__main__":
    sys.exit(main())
