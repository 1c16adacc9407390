"""Free-form sentences about orders, people, products and the like, whose names are invented.

A `Kind` has fields, each with a source of values, and sentences that tell some of them. One
sentence in eight is kept for exams, as one invented name in eight is.
"""

from collections.abc import Callable
from string import Formatter

from .data import blocks_of, table_of
from .document import Pen
from .facts import COLOURS, JOBS, is_held_out
from .invented import GOODS, code, date, email, firm, full_name, phone, place, price, product

Source = Callable[[Pen], str]


def whole(least: int, most: int) -> Source:
    return lambda pen: str(pen.rng.randint(least, most))


def among(*options: str) -> Source:
    return lambda pen: pen.one(*options)


_DATA = table_of(__file__)
_INVENTED = (code, date, email, firm, full_name, phone, place, price, product)
FIELDS: dict[str, Source] = {
    **{field: source for source in _INVENTED for field in _DATA["invented"][source.__name__]},
    **{field: whole(*bounds) for field, bounds in _DATA["amounts"].items()},
    **{field: among(*options) for field, options in _DATA["words"].items()},
    "pet": lambda pen: full_name(pen).split()[-1],
    "item": among(*(f"{it}s" for it in GOODS if it not in ("watch",))),
    "thing": among(*GOODS),
    "job": among(*JOBS),
    "colour": among(*sorted(set(COLOURS.values()))),
}
NUMBERS = frozenset((*_DATA["amounts"], "price", "total"))


KINDS = tuple(tuple(block.split("\n")) for block in blocks_of(__file__))


def fields_of(text: str) -> tuple[str, ...]:
    """The fields that stand in braces in a text, in their order."""
    return tuple(field for _, field, _, _ in Formatter().parse(text) if field)


def sentences(kind: tuple[str, ...], held_out: bool) -> list[str]:
    """Those of a kind for training, or those kept for exams, of which some kinds have none."""
    return [text for text in kind if is_held_out(text) == held_out]


def prose(pen: Pen, held_out: bool) -> tuple[str, dict[str, str]]:
    """One or two sentences about one thing, and the fields that they tell, in their order."""
    told = pen.rng.choice([found for kind in KINDS if (found := sentences(kind, held_out))])
    chosen = pen.rng.sample(told, 2 if len(told) > 1 and pen.chance(0.3) else 1)
    fields = {key: FIELDS[key](pen) for text in chosen for key in fields_of(text)}
    for a, b in (("item", "thing"), ("origin", "destination")):
        if a in fields and fields[a] == fields.get(b):
            fields[b] = FIELDS[b](pen)
    return " ".join(text.format_map(fields) for text in chosen), fields
