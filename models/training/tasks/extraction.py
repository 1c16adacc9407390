"""Fields taken out of free-form sentences, in the forms that programs ask for them, and invented
names repeated.
"""

import json

from ..world.data import table_of
from ..world.document import END_TURN, SYSTEM, TURN, Document, Pen, shots
from ..world.invented import firm, full_name, invented, place, product
from ..world.prose import NUMBERS, prose
from .chat import exchange, put_signature, turn

_DATA = table_of(__file__)
LABELS: dict[str, list[str]] = _DATA["labels"]


def wanted(pen: Pen) -> tuple[str, dict[str, str]]:
    """A passage, and some of its fields by the keys that a program would give them."""
    passage, fields = prose(pen, pen.words.held_out)
    keys = pen.rng.sample(list(fields), pen.rng.randint(1, min(len(fields), 5)))
    if pen.chance(0.5):
        keys = [key for key in fields if key in keys]
    named = dict[str, str]()
    for key in keys:
        label = pen.one(*LABELS.get(key, (key,))) if pen.chance(0.4) else key
        named[key if label in fields or label in named else label] = fields[key]
    return passage, named


def is_number(key: str, value: str) -> bool:
    """Whether JSON has the value as a number: an amount, and no code."""
    numeric = value.replace(".", "", 1).isdigit() and not (value[0] == "0" and len(value) > 1)
    asked = any(key == n or key in LABELS.get(n, ()) for n in NUMBERS)
    return numeric and asked


def put_json(pen: Pen, doc: Document, fields: dict[str, str], listed: bool = True) -> None:
    """Append a JSON object of the fields, each value as a decision; listed: whether the prompt
    lists its keys, so that they are to be learned, too.
    """
    write = doc.answer if listed else doc.say
    styles = ((", ", ": "), (", ", ": "), (", ", ": "), (",", ":"), (",\n  ", ": "))
    joint, colon = pen.rng.choice(styles)
    opened, closed = ("{\n  ", "\n}") if "\n" in joint else ("{", "}")
    write(opened)
    for i, (key, value) in enumerate(fields.items()):
        written = value if is_number(key, value) else json.dumps(value, ensure_ascii=False)
        write(f'{joint if i else ""}"{key}"{colon}').decide(written)
    doc.answer(closed)


def prose_json(pen: Pen) -> Document:
    """Sentences to JSON, after up to two examples."""
    doc, lead = Document("prose_json"), pen.one(*_DATA["leads"])
    ask = pen.one(*_DATA["json_prompts"])
    listed = pen.words.held_out or pen.chance(0.8)
    ask = ask if listed else pen.one("JSON:", "Output:", "As JSON:", "Record:")
    for i in range(shots(pen, 2) + 1):
        passage, fields = wanted(pen)
        doc.say("\n\n" if i else "").noise(f"{lead}{passage}\n{ask.format(', '.join(fields))}")
        put_json(pen, doc.answer("" if doc.text.endswith("\n") else " "), fields, listed)
    return doc


def prose_lines(pen: Pen) -> Document:
    """Sentences to lines such as `Name: Brolk`, each label written by the program."""
    doc, lead = Document("prose_lines"), pen.one(*_DATA["leads"])
    form = pen.one("{}: ", "{}: ", "{} = ", "- {}: ", "The {} is ", "<{}>")
    upper = pen.chance(0.5)
    for i in range(shots(pen, 2) + 1):
        passage, fields = wanted(pen)
        doc.say("\n\n" if i else "").noise(f"{lead}{passage}")
        for key, value in fields.items():
            label = key.replace("_", " ").capitalize() if upper else key
            begun = form.format(label)
            doc.noise(f"\n{begun.rstrip()}")
            if form == "<{}>":
                doc.decide(value).answer(f"</{label}>")
            else:
                doc.decide(f" {value}").answer("." if form.startswith("The") else "")
        doc.answer("\n" if pen.chance(0.3) else "")
    return doc


def prose_questions(pen: Pen) -> Document:
    """Sentences and questions about them."""
    doc = Document("prose_questions")
    passage, fields = prose(pen, pen.words.held_out)
    ask, answer = pen.rng.choice((("Question", "Answer"), ("Question", "Answer"), ("Q", "A")))
    doc.noise(f"{pen.one(*_DATA['leads'])}{passage}")
    for key in pen.rng.sample(list(fields), min(len(fields), pen.rng.randint(1, 4))):
        doc.noise(f"\n{ask}: {question(pen, key)}").say(f"\n{answer}:").decide(f" {fields[key]}")
    return doc


def question(pen: Pen, key: str) -> str:
    plain = f"What is the {key}?"
    return pen.one(*_DATA["questions"].get(key, ()), plain, plain, f"Which {key} is named?")


def prose_chat(pen: Pen) -> Document:
    """A user who gives a text and wants fields of it, as JSON, as lines, or one value."""
    doc = Document("prose_chat")
    if pen.chance(0.5):
        turn(doc, "system", pen.one(SYSTEM, SYSTEM, *_DATA["readers"]))
    for _ in range(pen.rng.choice((1, 1, 2))):
        passage, fields = wanted(pen)
        styles = ("json", "json", "lines", "value", "value")
        style = pen.one(*styles, *(() if pen.words.held_out else ("bare",)))
        fields = dict(list(fields.items())[:1]) if style == "value" else fields
        ask = pen.one(*_DATA["requests"][style]).format(", ".join(fields))
        request = pen.one(*_DATA["request_forms"]).format(text=passage, ask=ask)
        request = passage if style == "bare" and pen.chance(0.4) else request
        doc.say(f"{TURN}user\n").noise(request).say(f"{END_TURN}\n{TURN}assistant\n")
        if style in ("json", "bare"):
            put_json(pen, doc, fields, style == "json")
        for i, (key, value) in enumerate(fields.items() if style in ("lines", "value") else ()):
            label = f"{key}: " if style == "lines" else ""
            doc.answer(("\n" if i else "") + label).decide(value)
        doc.answer(END_TURN).say("\n")
    return doc


def prose_dspy(pen: Pen) -> Document:
    """A signature whose input is a text and whose outputs are fields of it."""
    passage, fields = wanted(pen)
    fields = dict(list(fields.items())[:3])
    name = pen.one("text", "text", "message", "passage", "sentence", "note", "document")
    return put_signature(Document("prose_dspy"), {name: passage}, fields, pen.one(*_DATA["briefs"]))


def names(pen: Pen) -> Document:
    """Invented names to be said again."""
    doc = Document("names")
    source = pen.rng.choice((full_name, full_name, product, place, firm, invented))
    if pen.chance(0.5):
        return named_chat(pen, doc, source(pen))
    form = pen.one("Name: {}\nName again:", "{} =", "Repeat {}:", "Input: {}\nOutput:", "{} ->")
    many = pen.chance(0.5)
    for i in range(pen.rng.randint(1, 4)):
        listed = [source(pen) for _ in range(pen.rng.randint(2, 5))]
        doc.say("\n" if i else "")
        if many:
            quoted = ", ".join(json.dumps(it, ensure_ascii=False) for it in listed)
            doc.noise(f"Names: {', '.join(listed)}\nJSON:").answer(" [").decide(quoted).answer("]")
        else:
            doc.noise(form.format(listed[0])).decide(f" {listed[0]}")
    return doc


def named_chat(pen: Pen, doc: Document, name: str) -> Document:
    """A user with an invented name."""
    greeting = pen.one(*_DATA["greetings"]).format(name)
    exchange(doc, greeting, f"Hello, {name}! How can I help you?")
    if pen.chance(0.5):
        asked = pen.one("What is my name?", "Who am I?", "Do you know my name?")
        exchange(doc, asked, f"Your name is {name}.")
    if pen.chance(0.4):
        other = full_name(pen)
        asked = pen.one(f"Say hello to {other}.", f"Please greet {other}.")
        exchange(doc, asked, f"Hello, {other}!")
    return doc
