"""Calls of the functions that first programs offer (weather, search, sums, mail and the like), and
of functions that take the fields of a sentence.
"""

from ..world.data import blocks_of
from ..world.document import Document, Pen
from ..world.functions import Function, Value, object_schema, parameter
from ..world.invented import acronym, email, firm, full_name, place, product, spelled
from ..world.prose import FIELDS, Source, among, fields_of
from .calls import Asked, conversation
from .common import THEMES
from .extraction import is_number, wanted
from .records import quoted


def usual_source(pen: Pen, key: str) -> str:
    """A value for a parameter of one of the usual functions."""
    if key in ("a", "b", "x", "y"):
        return pen.words.drawn(lambda: str(pen.rng.randint(0, 10 ** pen.rng.randint(1, 4))))
    if key == "expression":
        a, b = pen.rng.randint(1, 999), pen.rng.randint(1, 99)
        return pen.words.drawn(lambda: f"{a} {pen.one(*'+-*/')} {b + pen.rng.randint(0, 99)}")
    return SOURCES[key](pen)


SOURCES: dict[str, Source] = {
    **FIELDS,
    **dict.fromkeys(("task", "subject"), among(*THEMES)),
    **dict.fromkeys(("artist", "person"), full_name),
    **dict.fromkeys(("ticker", "symbol"), acronym),
    **dict.fromkeys(("place", "location"), place),
    "song": product,
    "query": lambda pen: pen.one(pen.one(*THEMES), product(pen), full_name(pen), firm(pen)),
    "to": lambda pen: pen.one(email(pen), full_name(pen)),
    "path": lambda pen: f"{spelled(pen, 2)}.{pen.one('txt', 'md', 'csv', 'json', 'py')}",
    "filename": lambda pen: f"{spelled(pen, 2)}.{pen.one('txt', 'csv', 'pdf')}",
}


FUNCTIONS = tuple(
    (names.split(), [text.strip() for text in texts.replace("\n", "|").split("|")])
    for names, _, texts in (block.partition("\n") for block in blocks_of(__file__))
)


def usual_calls(pen: Pen) -> Document:
    """The usual functions, one or two of which are asked for."""
    return conversation(
        pen, "usual_calls", [usual_asked(pen) for _ in range(pen.rng.choice((1, 1, 1, 2)))]
    )


def usual_asked(pen: Pen) -> Asked:
    """A request for one of the usual functions."""
    names, texts = pen.rng.choice(FUNCTIONS)
    text = pen.one(*texts)
    values = {key: usual_source(pen, key) for key in fields_of(text)}
    asked = taking(pen, pen.one(*names), values)
    return asked._replace(request=text.format_map(values) + pen.one("", "", "", " Use the tool."))


def taking(pen: Pen, name: str, values: dict[str, str]) -> Asked:
    """A function that takes these values, and its arguments; the request is still empty."""
    is_amount = {key: is_number(key, value) or key in "abxy" for key, value in values.items()}
    parameters = tuple(
        parameter(
            pen, key, ("number" if "." in value else "integer") if is_amount[key] else "string"
        )
        for key, value in values.items()
    )
    arguments = tuple(
        Value(value, value if is_amount[key] else quoted(value)) for key, value in values.items()
    )
    return Asked(Function(name, parameters, object_schema(pen, parameters)), "", arguments)


def prose_calls(pen: Pen) -> Document:
    """A sentence whose fields are handed to a function that takes them."""
    passage, fields = wanted(pen)
    noun = pen.one("record", "data", "info", "details", "entry", "fields", "item")
    name = pen.words.drawn(
        lambda: pen.one(
            f"{pen.one('extract', 'save', 'store', 'Extract', 'parse', 'submit')}_{noun}",
            noun.capitalize(), pen.one("Person", "Order", "Product", "Event", "Company", "Answer"),
            spelled(pen, 2).capitalize(),
        )
    )  # fmt: skip
    lead = pen.one(
        "", "", "Extract the data: ", "Save this: ", "Read: ", "Extract from this text: "
    )
    asked = taking(pen, name, fields)
    return conversation(pen, "prose_calls", [asked._replace(request=lead + passage)])
