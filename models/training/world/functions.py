"""Functions with made-up names and made-up parameters, and values for them in many scripts.

A value is kept as it stands in a request and as JSON; it knows nothing of how it is asked for.
"""

import json
from dataclasses import dataclass

from .data import table_of
from .document import Pen

WORDS: dict[str, list[str]] = table_of(__file__)
ALPHABETS = (
    (0x4E00, 0x9FA5), (0x4E00, 0x9FA5), (0x4E00, 0x9FA5), (0x3041, 0x3093), (0x3041, 0x3093),
    (0x30A1, 0x30F3), (0xAC00, 0xD7A3), (0x0410, 0x044F), (0x0410, 0x044F), (0x03B1, 0x03C9),
    (0x05D0, 0x05EA), (0x0627, 0x063A), (0x0905, 0x0939), (0x0E01, 0x0E2E), (0x0561, 0x0586),
)  # fmt: skip
ACCENTED = "áàâäãåçéèêëíîïñóôöøúüýžšłőčřæœß"


@dataclass(frozen=True, slots=True)
class Value:
    """A value as a request says it and as JSON writes it."""

    said: str
    written: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function; kind: its type in JSON Schema; digits: of the largest number that
    it takes."""

    key: str
    kind: str
    digits: int
    schema: dict[str, object]


@dataclass(frozen=True, slots=True)
class Function:
    """A function, all of whose parameters are required; schema: of its arguments as an object."""

    name: str
    parameters: tuple[Parameter, ...]
    schema: dict[str, object]

    @property
    def words(self) -> str:
        """Its name as it is spoken."""
        spaced = "".join(f" {c.lower()}" if c.isupper() else c for c in self.name)
        return spaced.replace("_", " ").strip()


def function(pen: Pen) -> Function:
    """A function with a made-up name, and with one parameter more often than with two or three."""
    keys = pen.rng.sample(WORDS["keys"], pen.rng.choice((1, 1, 1, 1, 2, 2, 3)))
    if pen.chance(0.2):
        keys[0] = pen.words.name().lower()
    parameters = tuple(parameter(pen, key, kind_of(pen, key)) for key in keys)
    return Function(function_name(pen), parameters, object_schema(pen, parameters))


def function_name(pen: Pen) -> str:
    """A name such as get_score, luckyNumber or zorvek, of this side of the split."""
    return pen.words.drawn(lambda: _joined(pen, _name_parts(pen)))


def _name_parts(pen: Pen) -> list[str]:
    word = pen.words.free_word().lower()
    verb, quality, noun = (pen.one(*WORDS[kind]) for kind in ("verbs", "qualities", "nouns"))
    return pen.rng.choice((
        [verb, noun], [quality, noun], [verb, quality, noun], [word], [verb, word], [word, noun],
        [quality, word],
    ))  # fmt: skip


def _joined(pen: Pen, parts: list[str]) -> str:
    if pen.chance(0.75):
        return "_".join(parts)
    first, *rest = parts
    return first + "".join(part.capitalize() for part in rest)


def kind_of(pen: Pen, key: str) -> str:
    """A type that fits the key."""
    if key in ("text", "item", "label", "query", "target", "data"):
        return "string"
    return pen.one("integer", "integer", "integer", "integer", "number", "string")


def parameter(pen: Pen, key: str, kind: str) -> Parameter:
    """A parameter whose schema says its type, and at times more, in any order."""
    schema: dict[str, object] = {"type": kind}
    digits = 2 if key == "age" else pen.rng.choice((1, 2, 2, 3, 3, 4, 5))
    if kind != "string" and pen.chance(0.3):
        schema[pen.one("minimum", "exclusiveMinimum")] = -(10**digits)
        schema[pen.one("maximum", "exclusiveMaximum")] = 10**digits
    if pen.chance(0.25):
        schema["description"] = pen.one(*WORDS["about"]).format(key.replace("_", " "))
    if pen.chance(0.2):
        schema["title"] = key.replace("_", " ").title()
    return Parameter(key, kind, digits, disordered(pen, schema))


def object_schema(pen: Pen, parameters: tuple[Parameter, ...]) -> dict[str, object]:
    """The schema of an object of these parameters, its members in any order."""
    schema: dict[str, object] = {
        "type": "object",
        "properties": {p.key: p.schema for p in parameters},
        "required": [p.key for p in parameters],
    }
    if pen.chance(0.15):
        schema["additionalProperties"] = False
    return schema if pen.chance(0.4) else disordered(pen, schema)


def disordered(pen: Pen, members: dict[str, object]) -> dict[str, object]:
    return dict(pen.rng.sample(list(members.items()), len(members)))


def value(pen: Pen, p: Parameter) -> Value:
    """A value that a parameter takes."""
    if p.kind == "string":
        text = pen.words.any() if pen.chance(0.6) else name_of_any_script(pen)
        return Value(text, json.dumps(text, ensure_ascii=False))
    text = pen.words.drawn(lambda: number(pen, p))
    return Value(text, text)


def number(pen: Pen, p: Parameter) -> str:
    """A number of one digit or more, at times a negative one or, if the type allows, a fraction."""
    sign = "-" if pen.chance(0.08) and p.key != "age" else ""
    whole = pen.rng.randint(1, 10 ** pen.rng.randint(1, p.digits) - 1)
    if p.kind == "integer" or pen.chance(0.3):
        return f"{sign}{whole}"
    return f"{sign}{whole}.{pen.rng.randint(1, 99)}".rstrip("0")


def name_of_any_script(pen: Pen) -> str:
    """One word of one alphabet out of thirteen, at times two, or a Latin name with accents."""
    words = 2 if pen.chance(0.12) else 1
    return pen.words.drawn(lambda: " ".join(_spelled(pen) for _ in range(words)))


def _spelled(pen: Pen) -> str:
    if pen.chance(0.15):
        letters = [pen.one(*"bdfgklmnprst") + pen.one(*ACCENTED, *"aeiou") for _ in range(3)]
        return "".join(letters).capitalize() + pen.one("", "n", "r", "s")
    first, last = pen.rng.choice(ALPHABETS)
    count = pen.rng.choice((2, 2, 3, 3, 4, 4, 5, 6, 7, 9))
    return "".join(chr(pen.rng.randint(first, last)) for _ in range(count))
