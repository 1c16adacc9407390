"""The paper's running example with its image: ask whether a picture shows something; if so look at
it in several ways, in branches that share it, and give a verdict as JSON.

The questions are worded as those that the embedded model "tiny-vision" was taught.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import function, gen, image, select, video

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .. import ProgramState

ASPECTS = {
    "Shapes": "How many shapes are there?",
    "Left": "Which shape is on the left?",
    "All": "Describe the picture.",
}
ASKED = "Question: {question}\nAnswer:"
NOT_SHOWN = "\nSummary: The picture does not show it.\n"
VERDICT = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 0, "maximum": 5}},
    "required": ["count"],
    "additionalProperties": False,
}


@function
def picture_judge(s: ProgramState, picture: bytes, thing: str) -> None:
    """The state then holds `shown`, and if that is " yes" also `verdict`, a text that `VERDICT`
    accepts; each branch holds `answer`. picture: an encoded image. thing: as "red star"."""
    s += image(picture) + "\n" + ASKED.format(question=f"Is there a {thing}?")
    s += select("shown", [" yes", " no"])
    if s["shown"].strip() == "no":
        s += NOT_SHOWN
        return
    branches = s.fork(len(ASPECTS))
    for branch, question in zip(branches, ASPECTS.values(), strict=True):
        branch += "\n" + ASKED.format(question=question)
        branch += gen("answer", max_tokens=24, stop="\n")
    for branch, aspect in zip(branches, ASPECTS, strict=True):
        s += f"\n{aspect}:" + branch["answer"]
    branches.join()
    s += "\nFields: count\nJSON: "
    s += gen("verdict", max_tokens=16, json_schema=VERDICT)


@function
def clip_judge(s: ProgramState, clip: bytes, num_frames: int, questions: Sequence[str]) -> None:
    """Ask several questions about one clip, in branches that share its frames. The state then holds
    `answer`, a list in the order of the questions."""
    s += video(clip, num_frames) + "\n"
    branches = s.fork(len(questions))
    for branch, question in zip(branches, questions, strict=True):
        branch += ASKED.format(question=question) + gen("answer", max_tokens=24, stop="\n")
    branches.join()


@function
def frame_judge(s: ProgramState, frames: Sequence[bytes], question: str) -> None:
    """Ask one question about each frame of a clip, in branches that share what is said before; then
    compare the answers. The state then holds `seen`, a list in the order of the frames, and
    `change`."""
    s += "These are frames of one clip.\n"
    branches = s.fork(len(frames))
    for branch, frame in zip(branches, frames, strict=True):
        branch += image(frame) + "\n" + ASKED.format(question=question)
        branch += gen("seen", max_tokens=12, stop="\n")
    for number, branch in enumerate(branches, 1):
        s += f"Frame {number}:" + branch["seen"] + "\n"
    branches.join()
    s += ASKED.format(question="Do the frames differ?") + select("change", [" yes", " no"])
