"""Common knowledge for chat turns: explanations, simple questions, lists, opposites, and texts
about a theme that the user names.
"""

from collections.abc import Callable

from ..world.data import table_of
from ..world.document import Pen
from ..world.facts import CAPITALS, EUROPE
from ..world.invented import invented
from ..world.knowledge import addition, closed_question, translation
from ..world.turns import UNKNOWN, spoken

_DATA = table_of(__file__)
EXPLAINED: dict[str, str] = _DATA["explained"]
ANSWERED: dict[str, str] = _DATA["answered"]
LISTS: dict[str, str] = _DATA["lists"]
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
THEMES: list[str] = _DATA["themes"]


def drawn(pen: Pen, draw: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """A prompt and its reply as `draw` gives them, of the side that the pen writes for."""
    drawn_turns = dict[str, tuple[str, str]]()

    def prompt() -> str:
        text, reply = draw()
        drawn_turns[spoken(text)] = text, reply
        return spoken(text)

    return drawn_turns[pen.words.drawn(prompt)]


def explanation(pen: Pen) -> tuple[str, str]:
    """A question what something is."""
    what = pen.one(*EXPLAINED)
    return pen.one(*_DATA["explain"]).format(what), EXPLAINED[what]


def answered(pen: Pen) -> tuple[str, str]:
    """A simple question of general knowledge."""
    question = pen.one(*ANSWERED)
    return f"{question}{pen.one('?', '?', '?', '')}", ANSWERED[question]


def opposite(pen: Pen) -> tuple[str, str]:
    word, other = pen.rng.sample(pen.one(*_DATA["opposites"]).split(), 2)
    forms = ("What is the opposite of {}?", "Opposite of {}?", "Name the opposite of {}.")
    return pen.one(*forms).format(word), other


def listing(pen: Pen) -> tuple[str, str]:
    """Two to five things of a kind, in a line or in numbered lines."""
    kind = pen.one(*LISTS)
    every = LISTS[kind].split()
    count = pen.rng.randint(2, min(5, len(every)))
    items = every[:count]
    number = pen.one(COUNTS[count], str(count))
    verb = pen.one("List", "Name", "Give me", "Tell me", "Write", "Name me", "I need", "Say")
    if pen.chance(0.3):
        numbered = "\n".join(f"{i}. {item}" for i, item in enumerate(items, 1))
        return f"{verb} a numbered list of {number} {kind}.", numbered
    return f"{verb} {number} {kind}{pen.one('.', '.', '')}", ", ".join(items)


def sequence(pen: Pen) -> tuple[str, str]:
    """What comes after a day, a month or a number, or numbers counted up to one."""
    items = pen.one(*(LISTS[kind] for kind in ("days", "months", "numbers", "letters"))).split()
    i, count = pen.rng.randrange(len(items) - 1), pen.rng.randint(2, 10)
    after = pen.one("What comes after {}?", "Which one comes after {}?", "What is next after {}?")
    counted = pen.one("Count to {}.", "Count from 1 to {}.", "Please count to {}.")
    return pen.rng.choice((
        (after.format(items[i]), items[i + 1]),
        (counted.format(count), ", ".join(map(str, range(1, count + 1)))),
    ))  # fmt: skip


def theme(pen: Pen) -> str:
    return pen.one(*THEMES) if pen.chance(0.6) else invented(pen)


def composed(pen: Pen) -> tuple[str, str]:
    """A short text about a theme, which it names."""
    it, verb = theme(pen), pen.one("Write", "Write", "Tell me", "Give me", "Make", "Please write")
    it = it[4:] if it.startswith("the ") and pen.chance(0.3) else it
    start = it[0].upper() + it[1:]
    words = {name: pen.one(*options) for name, options in _DATA["compositions"].items()}
    said, reply = (
        part.format(verb=verb, it=it, start=start, **words)
        for part in pen.rng.choice(_DATA["composed"])
    )
    return said, reply


def sum_of_two(pen: Pen) -> tuple[str, str]:
    """A small sum, as users write it."""
    problem, value = addition(pen)
    a, sign, b = problem.split()
    word = {"+": "plus", "-": "minus", "*": "times"}[sign]
    written = pen.one(f"{a}{sign}{b}", f"{a} {sign} {b}", f"{a} {word} {b}")
    return pen.one("What's {}?", "What is {}?", "{}", "{}=?", "How much is {}?").format(
        written
    ), value


def world_fact(pen: Pen) -> tuple[str, str]:
    """A question about the world's own facts, which the model knows by heart."""
    if pen.chance(0.25):
        country = pen.one(*CAPITALS)
        place = pen.one(country, CAPITALS[country], CAPITALS[country])
        return f"Is {place} in Europe?", "yes" if country in EUROPE else "no"
    question, answer, _ = closed_question(pen) if pen.chance(0.8) else translation(pen)
    return question, answer


def unknown(pen: Pen) -> tuple[str, str]:
    """A question beyond what the model knows, and the reply that says so."""
    what = pen.one(*_DATA["unknown_words"]) if pen.chance(0.5) else invented(pen)
    return pen.one(*_DATA["obscure"]).format(what), UNKNOWN
