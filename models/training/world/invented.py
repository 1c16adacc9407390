"""Invented names of many shapes: people, places, companies, products, codes, addresses, dates."""

import re
from collections.abc import Callable

from .data import table_of
from .document import Pen
from .facts import CAPITALS, HEADS, NAMES, TAILS, TOWNS

WORDS: dict[str, list[str]] = table_of(__file__)
GOODS = WORDS["goods"]


def part(pen: Pen, kind: str) -> str:
    return pen.one(*WORDS[kind])


def drawn(pen: Pen, draw: Callable[[], str]) -> str:
    """What `draw` gives on the pen's side of the split; a name that begins as those of `facts` do
    is not taken, because its beginning decides the side there.
    """

    def fresh() -> str:
        while True:
            text = draw()
            starts = re.findall(r"\b[A-Z][a-z]{5}", text)
            if not any(word[:3] in HEADS and word[3:] in TAILS for word in starts):
                return text

    return pen.words.drawn(fresh)


def invented(pen: Pen) -> str:
    """A capitalized word of one to four syllables, such as Brolk or Quistavelth."""
    return drawn(pen, lambda: spelled(pen, pen.rng.choice((1, 2, 2, 2, 3, 3, 4))).capitalize())


def spelled(pen: Pen, syllables: int) -> str:
    """That many syllables, plain ones or such as a stranger would invent."""
    rng, text = pen.rng, "" if pen.chance(0.85) else pen.one(*"aeiou")
    rare = rng.choice((0.0, 0.3, 1.0))
    for i in range(syllables):
        ends = pen.chance(0.7 if i == syllables - 1 else 0.3)
        text += part(pen, "onsets") if pen.chance(rare) else pen.one(*"bcdfghjklmnprstvwz")
        text += part(pen, "vowels") if pen.chance(rare) else pen.one(*"aeiou")
        if ends:
            text += part(pen, "codas") if pen.chance(rare) else pen.one("", *"lnrst")
    return text


def surname(pen: Pen) -> str:
    return drawn(pen, lambda: _surname(pen))


def _surname(pen: Pen) -> str:
    root = spelled(pen, pen.rng.choice((1, 1, 2))).capitalize()
    return pen.rng.choice((
        root, root, root + part(pen, 'surname_ends'), root + part(pen, 'surname_ends'), f"O'{root}",
        f"Mc{root}", f"{root}-{spelled(pen, 1).capitalize()}", f"van {root}", f"de {root}",
        part(pen, 'last_names'),
    ))  # fmt: skip


def full_name(pen: Pen) -> str:
    """A person's name of one to three words, with a title at times."""
    first = pen.one(*NAMES) if pen.chance(0.3) else invented(pen)
    parts = [first, surname(pen)] if pen.chance(0.8) else [first]
    if len(parts) > 1 and pen.chance(0.1):
        parts.insert(1, f"{pen.one(*'ABCDEFGHJKLMNPRSTW')}.")
    if pen.chance(0.1):
        parts.insert(0, part(pen, "titles"))
    return " ".join(parts)


def place(pen: Pen) -> str:
    """A town of one or two words."""
    if pen.chance(0.25):
        return pen.one(*TOWNS, *CAPITALS.values())
    town = drawn(
        pen,
        lambda: (
            spelled(pen, pen.rng.choice((1, 2))).capitalize()
            + (part(pen, "place_ends") if pen.chance(0.6) else "")
        ),
    )
    return pen.one(
        f"{pen.one('New', 'East', 'Port', 'Lake', 'Upper', 'Saint')} {town}", *[town] * 6
    )


def firm(pen: Pen) -> str:
    """A company of one to three words."""
    name = invented(pen) if pen.chance(0.7) else drawn(pen, lambda: acronym(pen))
    return f"{name} {pen.one(*WORDS['firm_ends'])}" if pen.chance(0.75) else name


def acronym(pen: Pen) -> str:
    return "".join(pen.rng.choices("ABCDEFGHIKLMNOPQRSTUVWXZ", k=pen.rng.randint(2, 5)))


def product(pen: Pen) -> str:
    """A product's name such as Vortexa X9 or ZelFlow Pro."""
    name = invented(pen) if pen.chance(0.8) else f"{invented(pen)}{invented(pen)}"
    number = str(pen.rng.choice((pen.rng.randint(2, 99), 100 * pen.rng.randint(1, 90))))
    return pen.one(
        name, f"{name} {number}", f"{name} {pen.one(*'XZTSGVM')}{number}",
        f"{name} {part(pen, 'model_ends')}", f"{name} {number} {part(pen, 'model_ends')}",
        f"{name}-{number}",
    )  # fmt: skip


def code(pen: Pen) -> str:
    """An order's number such as AB-1234 or 700213."""
    digits = drawn(pen, lambda: str(pen.rng.randint(10, 10 ** pen.rng.randint(3, 6))))
    letters = acronym(pen)
    return pen.one(f"{letters}-{digits}", f"{letters}{digits}", f"#{digits}", digits)


def email(pen: Pen) -> str:
    user, host = invented(pen).lower(), invented(pen).lower()
    user += pen.one("", f".{surname(pen).lower()}")
    return f"{user}@{host}.{pen.one('com', 'org', 'net', 'de', 'io')}"


def phone(pen: Pen) -> str:
    parts = [pen.rng.randint(100, 999), pen.rng.randint(100, 999), pen.rng.randint(1000, 9999)]
    return pen.one("-", " ").join(map(str, parts[pen.rng.randint(0, 1) :]))


def date(pen: Pen) -> str:
    """A date in one of six ways of writing it."""
    day, month, year = pen.rng.randint(1, 28), pen.rng.randint(1, 12), pen.rng.randint(1950, 2029)
    name = WORDS["months"][month - 1]
    return pen.one(
        f"{day} {name} {year}", f"{name} {day}, {year}", f"{year}-{month:02}-{day:02}",
        f"{day} {name}", f"{name} {day}", f"{day}.{month}.{year}",
    )  # fmt: skip


def price(pen: Pen) -> str:
    whole = pen.rng.randint(1, 10 ** pen.rng.randint(1, 4))
    return f"{whole}.{pen.rng.randint(0, 99):02}" if pen.chance(0.35) else str(whole)
