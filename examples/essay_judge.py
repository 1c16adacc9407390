"""The paper's running example: judge an essay along several dimensions, in branches that share its
prefix.

The embedded model was taught these very strings (`models/training/world/` imports them), so change
them only with the model.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .. import function, gen, select

if TYPE_CHECKING:
    from .. import ProgramState

DIMENSIONS = ("Clarity", "Evidence", "Style")
GRADES = ("A", "B", "C", "D")
RUBRIC = (Path(__file__).parent / "essays" / "rubric.txt").read_text("utf-8")
QUESTION = "Topic: {topic}\nEssay: {essay}\nRelated:"
NOT_RELATED = "\nSummary: The essay is not about the topic.\n"
VERDICT = {
    "type": "object",
    "properties": {
        "grade": {"enum": list(GRADES)},
        "summary": {
            "type": "string",
            "pattern": r"^The essay is (clear|muddled), (un)?supported and (calm|loud)\.$",
        },
    },
    "required": ["grade", "summary"],
    "additionalProperties": False,
}


@function
def essay_judge(s: ProgramState, topic: str, essay: str) -> None:
    """Ask whether the essay is related; if so judge each dimension in its own branch, summarise,
    grade, and give the verdict as JSON.

    The state then holds `related`, and for a related essay also `summary`, `grade` and `verdict`,
    a text that `VERDICT` accepts; each branch holds `judgment`.
    """
    s += RUBRIC + QUESTION.format(topic=topic, essay=essay)
    s += select("related", [" yes", " no"])
    if s["related"].strip() == "no":
        s += NOT_RELATED
        return
    branches = s.fork(len(DIMENSIONS))
    for branch, dimension in zip(branches, DIMENSIONS, strict=True):
        branch += f"\n{dimension}:"
        branch += gen("judgment", max_tokens=24, stop="\n")
    for branch, dimension in zip(branches, DIMENSIONS, strict=True):
        s += f"\n{dimension}:" + branch["judgment"]
    branches.join()
    s += "\nSummary:" + gen("summary", max_tokens=32, stop="\n")
    s += "\nGrade:" + select("grade", [f" {grade}" for grade in GRADES])
    s += "\nVerdict as JSON:"
    write_verdict(s)


@function
def write_verdict(s: ProgramState) -> None:
    """Write `verdict`, once all else was said."""
    s += gen("verdict", max_tokens=96, json_schema=VERDICT)
