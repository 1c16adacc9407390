"""The paper's running example: judge an essay along several dimensions, in branches that share its
prefix.

The embedded model was taught these very strings (`models/training/world/essays.py` imports
them), so change them only with the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import function, gen, select

if TYPE_CHECKING:
    from .. import ProgramState

DIMENSIONS = ("Clarity", "Evidence", "Style")
GRADES = ("A", "B", "C", "D")

RUBRIC = """\
You judge short essays. Read the topic and the essay, then mark three dimensions as good or poor.
Clarity is good when the points come in order, with words such as First, Then and Finally.
Evidence is good when the essay counts something, and poor when it only claims.
Style is good when the tone is calm, and poor when the essay shouts!!!
The summary says all three in one sentence. The grade counts the good marks: A for three, B for \
two, C for one, D for none. An essay about something else is not related to its topic and gets no \
marks.

Topic: longer school breaks in Westbrook
Essay: First, longer school breaks help the children of Westbrook. Then, a survey of 38 parents \
showed that longer school breaks save time. Finally, Westbrook should try longer school breaks.
Related: yes
Clarity: good, the points come in order.
Evidence: good, it counts 38 parents.
Style: good, the tone is calm.
Summary: The essay is clear, supported and calm.
Grade: A

Topic: cheaper bus tickets in Oakham
Essay: Wow, cheaper bus tickets are the best!!! Everyone in Oakham knows that cheaper bus tickets \
help the workers!!! Oakham should try cheaper bus tickets, and it is great!!!
Related: yes
Clarity: poor, the points come in no order.
Evidence: poor, it only claims.
Style: poor, the essay shouts.
Summary: The essay is muddled, unsupported and loud.
Grade: D

"""
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
