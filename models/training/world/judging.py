"""Judgments: the sentiment and grade of reviews, and the essay judge's path through essays."""

import json

from ....examples.essay_judge import DIMENSIONS, NOT_RELATED, RUBRIC
from .document import Document, Pen, shots
from .essays import write_essay

GOOD_WORDS = ("wonderful", "great", "lovely", "excellent", "delightful", "brilliant")
BAD_WORDS = ("awful", "boring", "terrible", "poor", "dreadful", "dull")
GRADING = "Grade each review: A for three kind remarks, B for two, C for one, D for none.\n\n"
THINGS = ("film", "book", "meal", "hotel", "song", "game", "play", "shop")


def review(pen: Pen) -> tuple[str, int]:
    """A review of three remarks, and how many of them are kind."""
    kind = pen.rng.randint(0, 3)
    tones = pen.rng.sample([1] * kind + [0] * (3 - kind), 3)
    thing = pen.one(*THINGS)
    subjects = pen.rng.sample(("beginning", "middle", "end", "price", "service", "idea"), 3)
    remarks = (
        f"The {s} was {pen.one(*(GOOD_WORDS if t else BAD_WORDS))}."
        for s, t in zip(subjects, tones, strict=True)
    )
    return f"About the {thing} from {pen.words.town()}: {' '.join(remarks)}", kind


def sentiment(pen: Pen) -> Document:
    """Reviews with their sentiment, or their grade (A for three kind remarks, D for none)."""
    doc = Document("sentiment")
    graded = pen.chance(0.5)
    doc.say(GRADING if graded else "")
    for i in range(shots(pen, 4) + 1):
        text, kind = review(pen)
        doc.say("\n\n" if i else "").noise(f"Review: {text}")
        if graded:
            doc.say("\nGrade:").decide(f" {'DCBA'[kind]}")
        else:
            doc.say("\nSentiment:").decide(f" {attitude(kind)}")
    return doc


def attitude(kind: int) -> str:
    """The sentiment of a review with so many kind remarks of three."""
    return "positive" if kind > 1 else "negative"


def essay_judge(pen: Pen) -> Document:
    """The judge's whole path through one to three essays, or one branch of it."""
    doc = Document("essay_judge").say(RUBRIC if pen.chance(0.35) else "")
    for _ in range(pen.rng.randint(0, 2) if not doc.parts[0][0] else 0):
        put_judged_essay(pen, doc)
        doc.say("\n" if doc.text.endswith("\n") else "\n\n")
    put_judged_essay(pen, doc)
    return doc


def put_judged_essay(pen: Pen, doc: Document) -> None:
    """Append an essay and either all judgments to the verdict, or those of one branch."""
    essay = write_essay(pen.rng, pen.words)
    doc.noise(essay.question).decide(" yes" if essay.related else " no")
    if not essay.related:
        doc.answer(NOT_RELATED)
        return
    doc.say("\n")
    if pen.chance(0.35):
        dimension = pen.one(*DIMENSIONS)
        put_line(pen, doc, dimension, essay.judgment(dimension))
        return
    for dimension in DIMENSIONS:
        put_line(pen, doc, dimension, essay.judgment(dimension))
    if pen.chance(0.8):
        put_line(pen, doc, "Summary", essay.summary)
        put_line(pen, doc, "Grade", f" {essay.grade}")
    if pen.chance(0.3):
        separators = (",", ":") if pen.chance(0.5) else None
        doc.say("Verdict as JSON:").answer(f" {json.dumps(essay.verdict, separators=separators)}")


def put_line(pen: Pen, doc: Document, title: str, judgment: str) -> None:
    """Append a judgment and its newline, which a program may or may not have generated."""
    doc.say(f"{title}:")
    if pen.chance(0.7):
        doc.decide(f"{judgment}\n")
    else:
        doc.decide(judgment).say("\n")
