"""EVAL.md: what was asked, how much was right, how the checkpoint was made, and examples."""

import itertools
from typing import Any, NamedTuple

from .exams import Exam
from .world.document import BOS

TEMPLATE = """\
# What the embedded model can do

Measured by `python -m forkroot.models.training.evaluate` (seed {seed}) with transformers, greedy,
in fp32, on held-out prompts: their made-up names, towns and words occur nowhere in the training
text; in the closed tasks (capitals, facts, arithmetic, tips), which have none, the whole prompt is
that of no training document. Jobs, houses, ages and grades come from closed lists, paired at
random. Four passages in ten tell of two or three people. In calls of functions, the functions'
names and the numbers and names to be copied are those of no such call in training. In general chat
the whole message is in no training text; the usual wordings of a topic (its first three) are
trained on and not asked. Free-form records are asked of sentences of other wordings than those
trained on, and about invented names that are in no training text.

| Task | Prompts | Right | Bar |
|---|---|---|---|
{table}

## How it was made

`python -m forkroot.models.training.train` from seed {first[seed]}: {first[steps]:,} steps,
{first[tokens]:,} tokens with padding, {first[minutes]} minutes on one CPU core in bfloat16.
{num_parameters:,} parameters
(embeddings tied). Muon at {first[muon_rate]} for the matrices, AdamW at {first[adam_rate]} for the
rest; level for the first 2,600 steps, then falling to zero. All text is written by
`models/training/tasks/world.py`; no other data and no other model was used. The network starts
with a rough copying circuit (`plant_induction`) and with like embeddings for like spellings
(`plant_spelling`); a run without them could not copy after 800 steps.

The run was stopped and resumed several times to change the text: record lines, `choice_story`,
`choice_same`, `choice_match`, `copying` and the threefold weight of decisions came in after a
quarter of it, `continents` and names of other kinds after two thirds, `reading_several` at step
5,800 (the learning rate rose a little there and at steps 6,600, 7,450 and 7,700). The tokenizer
learned its merges from the text as it was at the start.
{later}
The proportions (`MIX`) stand as they were at the end. Exams of other seeds were looked at on the
way, and this report's only after the training.

## Format

ChatML, with `<|im_end|>` and `<|end_of_text|>` as ends. Plain encoding adds `<|begin_of_text|>` by
itself; the chat template writes it into its text, so encode a rendered template with
`add_special_tokens=False`. Digits are single tokens.

## Examples

The shortest prompt of each row without its beginning-of-text token, and what the model said.

{examples}
"""

LATER = """
Then it learned on from that checkpoint (`--from`, a fresh optimizer): {steps:,} steps,
{tokens:,} tokens with padding, {minutes} minutes on one CPU core. Muon at {muon_rate}, AdamW at
{adam_rate}, falling to zero over the last {decay_steps:,} steps. {news}
"""
# What was new in the text of each later run, oldest first.
NEWS = (
    """New in its text were
`function_calls`, `record_calls` and, in `copying`, names in any script; the rest was written as
before. Nothing was trained after this report's seed was looked at, but the rows of calls were: the
begun call, which a runtime writes by its schema, was made a row of its own after that, with its
score (the digits alone: what a schema of integers forbids after them is not looked at), because
whole calls that nothing holds to a schema often go wrong, as their rows say.""",
    """New in its text were
general chat (`general_chat`, `general_tools`, `general_named`, `general_dspy`, `general_plain`),
free-form sentences (`prose_json`, `prose_lines`, `prose_questions`, `prose_chat`, `prose_dspy`,
`prose_calls`), `names` of many shapes and `usual_calls`. Since then `tools` always offers the
functions that it calls: a request without tools is answered in words. The rest was written as
before, function and record calls a little less often. The run shared its core with other work. It
was stopped and resumed at step 200 (sums without spaces and short sentences came in), at 600 (real
cities among the invented ones, the usual wordings twice as often) and at 720 (the world's own facts
asked in general chat, which had begun to answer them with "I do not know that"). At step 940 an
exam showed that reading had lost a few points; its tasks were given twice their weight, and 170
steps more were run. The rate rose a little at the last two. At step 1,110 another 590 steps were
added, for general chat.""",
    """Its text was that of the
run before, with known facts, chat, tool calls, DSPy's format and tips asked about twice as often:
an exam had shown that these had lost.""",
)


class Row(NamedTuple):
    """A line of the report: what was asked how often, the share right, the bar, an example."""

    title: str
    asked: int
    share: float
    bar: float | None
    exam: Exam
    said: str

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        return f"≥ {self.bar:.2f}: {'met' if self.share >= self.bar else 'MISSED'}"

    @property
    def line(self) -> str:
        return f"| {self.title} | {self.asked} | {self.share:.3f} | {self.verdict} |"

    @property
    def example(self) -> str:
        prompt = self.exam.prompt.removeprefix(BOS)
        return f"### {self.title}\n\n````text\n{prompt}⟶{self.said}\n````\n"


def report(rows: list[Row], seed: int, runs: list[dict[str, Any]], num_parameters: int) -> str:
    """The whole of EVAL.md; runs: that made the checkpoint, oldest first, as its training.json
    tells them."""
    table, examples = "\n".join(r.line for r in rows), "\n".join(r.example for r in rows)
    return TEMPLATE.format(
        table=table,
        examples=examples,
        seed=seed,
        first=runs[0],
        later="".join(
            LATER.format(news=news, **run)
            for run, news in zip(
                runs[1:], itertools.chain(NEWS, itertools.repeat("")), strict=False
            )
        ),
        num_parameters=num_parameters,
    )
