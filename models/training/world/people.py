"""Made-up people, told in sentences and asked for as JSON, by questions, and by multiple choice."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from .data import table_of
from .document import LETTERS, Document, Pen, shots
from .facts import HOUSES, JOBS

_DATA = table_of(__file__)
FIELDS: tuple[str, ...] = ("name", "age", "job", "city", "house")


@dataclass(frozen=True, slots=True)
class Person:
    """A made-up person; `house` is one of six."""

    name: str
    age: int
    job: str
    city: str
    house: str

    def fields(self, keys: tuple[str, ...] = FIELDS) -> dict[str, str | int]:
        return {key: getattr(self, key) for key in keys}


def person(pen: Pen) -> Person:
    rng, words = pen.rng, pen.words
    return Person(
        words.name(), rng.randint(18, 89), rng.choice(JOBS), words.town(), rng.choice(HOUSES)
    )


def tell(pen: Pen, p: Person) -> str:
    """All that is known about a person: in sentences of varying wording and order, or in lines."""
    style = pen.rng.random()
    if style < 0.6:
        told = [pen.one(*_DATA[kind]).format(p=p) for kind in ("lives", "houses")]
        return " ".join(pen.rng.sample(told, 2))
    facts = pen.rng.sample([(key, value) for key, value in p.fields().items() if key != "name"], 4)
    if style < 0.8:
        return " ".join(f"The {key} of {p.name} is {value}." for key, value in facts)
    lines = [f"{key.capitalize()}: {value}" for key, value in [("name", p.name), *facts]]
    return pen.one("\n", "; ").join(lines) + "."


QUESTIONS: dict[str, list[str]] = _DATA["questions"]


def story(pen: Pen) -> tuple[str, list[Person]]:
    """A passage about one person, or sometimes about two or three."""
    people = [person(pen) for _ in range(pen.rng.choice((1, 1, 1, 1, 1, 1, 2, 2, 2, 3)))]
    return " ".join(tell(pen, p) for p in people), people


def inquiry(pen: Pen, people: list[Person]) -> tuple[str, str, str, Person]:
    """A question about one of the people: question, answer, the asked field, the person."""
    p = pen.rng.choice(people)
    key = pen.rng.choice(tuple(QUESTIONS))
    return pen.rng.choice(QUESTIONS[key]).format(p.name), str(getattr(p, key)), key, p


VALUE = re.compile(r'((?<=:")\w+|(?<=: ")\w+|(?<=:)\d+|(?<=: )\d+)')


def reading_json(pen: Pen) -> Document:
    """Passage to JSON record: all five fields, or those that the prompt lists."""
    doc, style = Document("reading_json"), pen.rng.choice(_DATA["json_styles"])
    for _ in range(shots(pen, 2) + 1):
        passage, people = story(pen)
        p = pen.rng.choice(people)
        keys, ask = FIELDS, ""
        if pen.chance(0.4):
            keys = tuple(pen.rng.sample(FIELDS, pen.rng.randint(1, 5)))
            ask = f"Fields: {', '.join(keys)}\n"
        who = f"Person: {p.name}\n" if len(people) > 1 or pen.chance(0.3) else ""
        doc.say("\n\n" if doc.parts else "").noise(passage).say(f"\n{who}{ask}JSON:")
        put_record(doc, json.dumps(p.fields(keys), **style))
    return doc


def put_record(doc: Document, record: str) -> None:
    """Append a space and a JSON record, each of its values as a decision."""
    for i, piece in enumerate(VALUE.split(f" {record}")):
        (doc.decide if i % 2 else doc.answer)(piece)


def reading_question(pen: Pen) -> Document:
    """Passage, question, answer."""
    doc = Document("reading_question")
    passage, people = story(pen)
    doc.noise(passage)
    for _ in range(pen.rng.randint(2, 5) + 2 * len(people) - 2):
        question, answer, _, _ = inquiry(pen, people)
        doc.noise(f"\nQuestion: {question}").say("\nAnswer:").decide(f" {answer}")
    return doc


STATEMENTS: dict[str, str] = _DATA["statements"]


def reading_several(pen: Pen) -> Document:
    """One thing about each of two to four people, and all of it asked for again."""
    doc, people = Document("reading_several"), [person(pen) for _ in range(pen.rng.randint(2, 4))]
    key, form = pen.rng.choice(tuple(QUESTIONS)), pen.rng.randrange(3)
    told = pen.one(STATEMENTS[key], f"The {key} of {{}} is {{}}.")
    doc.noise(" ".join(told.format(p.name, getattr(p, key)) for p in people))
    for p in pen.rng.sample(people, len(people)):
        value = getattr(p, key)
        if form == 0:
            doc.noise(f"\nPerson: {p.name}\nFields: {key}\nJSON:")
            put_record(doc, json.dumps({key: value}))
        elif form == 1:
            question = pen.rng.choice(QUESTIONS[key]).format(p.name)
            doc.noise(f"\nQuestion: {question}\nAnswer:").decide(f" {value}")
        else:
            doc.noise(f"\n{p.name}:").decide(f" {value}")
    return doc


def others(pen: Pen, key: str, answer: str) -> list[str]:
    """Three wrong options of the same sort as the answer."""
    wrong: list[str] = []
    draw: dict[str, Callable[[], str]] = {
        "age": lambda: str(pen.rng.randint(18, 89)),
        "job": lambda: pen.rng.choice(JOBS),
        "house": lambda: pen.rng.choice(HOUSES),
        "city": pen.words.town,
    }
    while len(wrong) < 3:
        option = draw[key]()
        if option != answer and option not in wrong:
            wrong.append(option)
    return wrong


def put_choice(pen: Pen, doc: Document, question: str, answer: str, wrong: list[str]) -> None:
    """Append a question with its four options and the letter of the right one."""
    options = pen.rng.sample((answer, *wrong), len(wrong) + 1)
    listing = "".join(
        f"\n{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True)
    )
    doc.noise(f"{question}{listing}").say("\nAnswer:").decide(f" {LETTERS[options.index(answer)]}")


def put_choice_header(pen: Pen, doc: Document, subject: str) -> None:
    """Append what announces questions about a subject, or nothing."""
    header = f"The following are multiple choice questions (with answers) about {subject}.\n\n"
    doc.say(pen.one("", header))


def choice_reading(pen: Pen) -> Document:
    """Multiple choice about a passage, after 0 to 5 worked examples."""
    doc = Document("choice_reading")
    put_choice_header(pen, doc, "people")
    for i in range(shots(pen, 5) + 1):
        people = [person(pen) for _ in range(1 if pen.chance(0.7) else 2)]
        question, answer, key, _ = inquiry(pen, people)
        options = others(pen, key, answer)
        doc.say("\n\n" if i else "")
        put_choice(
            pen, doc, f"{' '.join(tell(pen, p) for p in people)} {question}", answer, options
        )
    return doc


def choice_story(pen: Pen) -> Document:
    """One passage and several multiple choice questions about it."""
    doc = Document("choice_story")
    passage, people = story(pen)
    doc.noise(passage)
    for _ in range(pen.rng.randint(2, 5)):
        question, answer, key, _ = inquiry(pen, people)
        put_choice(pen, doc.say("\n"), f"Question: {question}", answer, others(pen, key, answer))
    return doc


def choice_same(pen: Pen) -> Document:
    """Which letter a word has: the simplest multiple choice, up to six times."""
    doc = Document("choice_same")
    for i in range(pen.rng.randint(1, 6)):
        word, *wrong = (pen.rng.choice((pen.words.name, pen.words.town))() for _ in range(4))
        ask = pen.one("Which of these is {}?", "Question: Which option is {}?", "The answer is {}.")
        put_choice(pen, doc.say("\n\n" if i else ""), ask.format(word), word, wrong)
    return doc


def choice_match(pen: Pen) -> Document:
    """Four lettered words, then the same words in another order with the letter of each."""
    doc = Document("choice_match")
    for i in range(pen.rng.randint(1, 4)):
        options = [pen.rng.choice((pen.words.name, pen.words.town))() for _ in range(4)]
        listing = [f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True)]
        doc.say("\n\n" if i else "").noise("\n".join(listing))
        for option in pen.rng.sample(options, 4):
            doc.noise(f"\n{option}").say(":").decide(f" {LETTERS[options.index(option)]}")
    return doc
