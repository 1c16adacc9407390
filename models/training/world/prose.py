"""Free-form sentences about orders, people, products and the like, whose names are invented.

A `Kind` has fields, each with a source of values, and sentences that tell some of them. One
sentence in eight is kept for exams, as one invented name in eight is.
"""

from collections.abc import Callable
from dataclasses import dataclass
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


WORDS: dict[str, list[str]] = table_of(__file__)

FIELDS: dict[str, Source] = {
    "customer": full_name, "name": full_name, "author": full_name, "owner": full_name,
    "founder": full_name, "mayor": full_name, "passenger": full_name, "speaker": full_name,
    "user": full_name, "guest": full_name, "patient": full_name, "doctor": full_name,
    "manager": full_name, "winner": full_name, "city": place, "town": place, "origin": place,
    "destination": place, "company": firm, "maker": firm, "shop": firm, "hotel": firm, "team": firm,
    "product": product, "pet": lambda pen: full_name(pen).split()[-1], "title": product,
    "item": among(*(f"{it}s" for it in GOODS if it not in ("watch",))), "thing": among(*GOODS),
    "quantity": whole(2, 99), "age": whole(18, 96), "years": whole(1, 19), "stock": whole(2, 900),
    "employees": whole(5, 9000), "population": whole(200, 99000), "pages": whole(40, 900),
    "founded": whole(1850, 2024), "year": whole(1900, 2026), "nights": whole(2, 14),
    "rooms": whole(1, 6), "points": whole(3, 180), "price": price, "total": price, "date": date,
    "time": among(*WORDS["hours"]), "number": code, "flight": code, "email": email, "phone": phone,
    "job": among(*JOBS), "colour": among(*sorted(set(COLOURS.values()))),
    "subject": among(*WORDS["subjects"]),
    "industry": among(*WORDS["industries"]), "species": among(*WORDS["pets"]),
    "problem": among(*WORDS["faults"]),
    "priority": among(*WORDS["tiers"]), "country": place, "river": place, "weight": whole(1, 95),
}  # fmt: skip
NUMBERS = frozenset((
    "quantity", "age", "years", "stock", "employees", "population", "pages", "founded", "year",
    "nights", "rooms", "points", "price", "total", "weight",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its fields in braces."""

    text: str

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(field for _, field, _, _ in Formatter().parse(self.text) if field)


KINDS = tuple(tuple(Sentence(line) for line in block.split("\n")) for block in blocks_of(__file__))


def sentences(kind: tuple[Sentence, ...], held_out: bool) -> list[Sentence]:
    """Those of a kind for training, or those kept for exams, of which some kinds have none."""
    return [it for it in kind if is_held_out(it.text) == held_out]


def prose(pen: Pen, held_out: bool) -> tuple[str, dict[str, str]]:
    """One or two sentences about one thing, and the fields that they tell, in their order."""
    told = pen.rng.choice([found for kind in KINDS if (found := sentences(kind, held_out))])
    chosen = pen.rng.sample(told, 2 if len(told) > 1 and pen.chance(0.3) else 1)
    fields = {key: FIELDS[key](pen) for it in chosen for key in it.fields}
    for a, b in (("item", "thing"), ("origin", "destination")):
        if a in fields and fields[a] == fields.get(b):
            fields[b] = FIELDS[b](pen)
    return " ".join(it.text.format_map(fields) for it in chosen), fields
