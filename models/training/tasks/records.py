"""Customers, members and the like, named in any script, to be noted by calling a function."""

import json

from ..world.data import table_of
from ..world.document import Document, Pen
from ..world.functions import (
    Function,
    Parameter,
    Value,
    function_name,
    name_of_any_script,
    object_schema,
    parameter,
    value,
)
from .calls import Asked, conversation, offers

_DATA = table_of(__file__)
EXTRAS: dict[str, list[str]] = _DATA["extras"]


def record_calls(pen: Pen) -> Document:
    """Things to be noted down by name, each by the function for it."""
    return conversation(pen, "record_calls", [record_asked(pen) for _ in range(offers(pen))])


def record_asked(pen: Pen) -> Asked:
    """A request to note somebody or something down by its name, with up to two more facts."""
    noun = pen.one(*_DATA["records"])
    name = name_of_any_script(pen) if pen.chance(0.75) else pen.words.any()
    keys = extra_keys(pen)
    parameters = [parameter(pen, name_key(pen, noun), "string")]
    parameters += [parameter(pen, key, kind_of_fact(key)) for key in keys]
    facts = [Value(name, quoted(name)), *(fact(pen, p) for p in parameters[1:])]
    request = pen.one(*_DATA["asks"]).format(noun) + calling(pen, name)
    for key, extra in zip(keys, facts[1:], strict=True):
        request += pen.one(*EXTRAS[key]).format(extra.said)
    pairs = list(zip(parameters, facts, strict=True))
    if pen.chance(0.3):
        pen.rng.shuffle(pairs)
    f = recorder(pen, noun, tuple(p for p, _ in pairs))
    return Asked(f, request + pen.one("", "", "."), tuple(v for _, v in pairs))


def extra_keys(pen: Pen) -> tuple[str, ...]:
    """None to two of `EXTRAS`, the description most often."""
    keys = pen.rng.choice((("description",), ("description",), *((key,) for key in EXTRAS), ()))
    if keys and pen.chance(0.2):
        return (*keys, pen.one(*(key for key in EXTRAS if key not in keys)))
    return keys


def recorder(pen: Pen, noun: str, parameters: tuple[Parameter, ...]) -> Function:
    """The function that notes such things down."""
    made = pen.words.drawn(
        lambda: f"{pen.one(*_DATA['writers'])}_{noun}{pen.one('', '_record', '_entry')}"
    )
    name = made if pen.chance(0.6) else function_name(pen)
    return Function(name, parameters, object_schema(pen, parameters))


def calling(pen: Pen, name: str) -> str:
    """What the name of a record is introduced with, and at times a second name in brackets."""
    text = pen.one(*_DATA["callings"]).format(pen.one(*_DATA["quotes"]).format(name))
    return f"{text} ({pen.words.name()} {pen.one(*_DATA['firms'])})" if pen.chance(0.35) else text


def name_key(pen: Pen, noun: str) -> str:
    return pen.one("name", "name", f"{noun}_name", f"{noun}_name", f"{noun}_name", "title", "label")


def kind_of_fact(key: str) -> str:
    return {"age": "integer", "quantity": "integer", "price": "number"}.get(key, "string")


def fact(pen: Pen, p: Parameter) -> Value:
    """A value for a parameter whose key is one of `EXTRAS`."""
    if p.kind != "string":
        return value(pen, p)
    if p.key == "city":
        town = pen.words.town()
        return Value(town, quoted(town))
    origin = pen.one(*_DATA["origins"])
    article = "an" if origin[0] in "aeiouAEIOU" else "a"
    text = f"{article} {origin} {pen.one(*_DATA['trades'])} {pen.one(*_DATA['kinds'])}"
    return Value(text, quoted(text))


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
