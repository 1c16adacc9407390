"""Reason and act: questions that are answered by looking things up, step by step."""

from ..world.document import Document, Pen, shots
from ..world.people import inquiry, person, tell


def react(pen: Pen) -> Document:
    """Questions answered by looking things up: thought, action, observation, and so on to the
    finish.
    """
    doc = Document("react")
    for i in range(shots(pen, 2) + 1):
        doc.say("\n\n" if i else "")
        pen.rng.choice((put_person_hop, put_person_hop, put_mayor_hops, put_missing))(pen, doc)
    return doc


def put_step(doc: Document, number: int, thought: str, action: str) -> None:
    doc.say(f"\nThought {number}:").answer(f" {thought}\nAction {number}: {action}")


def put_finish(doc: Document, number: int, what: str, answer: str) -> None:
    put_step(doc, number, f"{what} is {answer}. So the answer is {answer}.", f"Finish[{answer}]")


def observe(doc: Document, number: int, observation: str) -> None:
    doc.say(f"\nObservation {number}:").noise(f" {observation}")


def put_person_hop(pen: Pen, doc: Document) -> None:
    """One search answers it."""
    p = person(pen)
    question, answer, key, _ = inquiry(pen, [p])
    doc.noise(f"Question: {question}")
    put_step(doc, 1, f"I need to search {p.name} and find the {key}.", f"Search[{p.name}]")
    observe(doc, 1, tell(pen, p))
    put_finish(doc, 2, f"The {key} of {p.name}", answer)


def put_mayor_hops(pen: Pen, doc: Document) -> None:
    """Two searches: first the town's mayor, then the mayor."""
    p, town = person(pen), pen.words.town()
    key = pen.one("age", "job", "house", "city")
    answer = str(getattr(p, key))
    doc.noise(f"Question: What is the {key} of the mayor of {town}?")
    put_step(doc, 1, f"I need to search {town} and find its mayor.", f"Search[{town}]")
    size = f"a town of {pen.rng.randint(2, 99)} thousand people"
    observe(doc, 1, f"{town} is {size}. Its mayor is {p.name}.")
    known = f"The mayor of {town} is {p.name}."
    put_step(doc, 2, f"{known} I need to search {p.name} and find the {key}.", f"Search[{p.name}]")
    observe(doc, 2, tell(pen, p))
    put_finish(doc, 3, f"The {key} of {p.name}", answer)


def put_missing(pen: Pen, doc: Document) -> None:
    """The lookup finds nothing."""
    name, key = pen.words.name(), pen.one("age", "job", "house", "city")
    doc.noise(f"Question: What is the {key} of {name}?")
    put_step(doc, 1, f"I need to search {name} and find the {key}.", f"Search[{name}]")
    observe(doc, 1, f"Could not find {name}.")
    put_step(doc, 2, f"{name} is not known. So the answer is unknown.", "Finish[unknown]")
