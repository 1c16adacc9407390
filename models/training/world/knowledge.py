"""What can be known by heart or worked out: capitals, colours, words, sums, tips."""

from .data import table_of
from .document import Document, Pen, shots
from .facts import CAPITALS, COLOURS, EUROPE, FRUITS, HELLO, SOUNDS, TIPS
from .people import put_choice, put_choice_header

_DATA = table_of(__file__)
_TABLES = {"capitals": CAPITALS, "colours": COLOURS, "sounds": SOUNDS}


def closed_question(pen: Pen) -> tuple[str, str, list[str]]:
    """A question about the world's own facts, its answer, and three wrong ones."""
    kind, forms = pen.rng.choice(_DATA["closed_questions"])
    table = _TABLES[kind]
    key = pen.rng.choice(tuple(table))
    if table is COLOURS and key not in ("snow", "coal", "blood"):
        key = f"an {key}" if key[0] in "aeiou" else f"a {key}"
    answer = table[key.split()[-1]] if table is COLOURS else table[key]
    wrong = pen.rng.sample(sorted(set(table.values()) - {answer}), 3)
    return pen.rng.choice(forms).format(key), answer, wrong


SUBJECTS = ("geography", "general knowledge", "the world", "nature")


def choice_facts(pen: Pen) -> Document:
    """Multiple choice about the world's own facts, after 0 to 5 worked examples."""
    doc = Document("choice_facts")
    put_choice_header(pen, doc, pen.one(*SUBJECTS))
    for i in range(shots(pen, 5) + 1):
        doc.say("\n\n" if i else "")
        put_choice(pen, doc, *closed_question(pen))
    return doc


def capitals(pen: Pen) -> Document:
    """Capitals in questions, in sentences and as JSON, after 0 to 5 examples in the same form."""
    doc = Document("capitals")
    ask, reply, joint = pen.rng.choice(_DATA["capitals"])
    for i, country in enumerate(pen.rng.sample(tuple(CAPITALS), shots(pen, 5) + 1)):
        doc.noise(joint if i else "").say(ask.format(country))
        doc.decide(reply.format(CAPITALS[country]))
    return doc


def continents(pen: Pen) -> Document:
    """Whether capitals, named first, are in Europe."""
    doc = Document("continents")
    for i, country in enumerate(pen.rng.sample(tuple(CAPITALS), pen.rng.randint(1, 4))):
        doc.say("\n" if i else "").noise(f"The capital of {country} is")
        doc.decide(f" {CAPITALS[country]}").say(". Is that in Europe?")
        doc.decide(" yes" if country in EUROPE else " no")
    return doc


def facts(pen: Pen) -> Document:
    """Colours, sounds and words in other languages, as questions."""
    doc = Document("facts")
    for i in range(shots(pen, 4) + 1):
        question, answer, _ = closed_question(pen) if pen.chance(0.5) else translation(pen)
        doc.say("\n\n" if i else "").say(f"Question: {question}\nAnswer:").answer(f" {answer}")
    return doc


def translation(pen: Pen) -> tuple[str, str, list[str]]:
    language = pen.rng.choice(tuple(HELLO))
    word = pen.rng.choice(tuple(HELLO[language]))
    return f"What is {word} in {language}?", HELLO[language][word], []


def addition(pen: Pen, two_digits: float = 0.4) -> tuple[str, str]:
    """A sum, a difference or a product of small numbers, and its value."""
    a, b = pen.rng.randint(0, 9), pen.rng.randint(0, 9)
    if pen.chance(two_digits):
        a, b = pen.rng.randint(10, 49), pen.rng.choice((b, 10 * b, pen.rng.randint(10, 49)))
    sign = pen.rng.choice("+++-*") if a < 10 else pen.rng.choice("++-")
    a, b = (max(a, b), min(a, b)) if sign == "-" else (a, b)
    return f"{a} {sign} {b}", str({"+": a + b, "-": a - b, "*": a * b}[sign])


def arithmetic(pen: Pen) -> Document:
    """Small sums in several forms, after 0 to 4 examples."""
    doc = Document("arithmetic")
    form = pen.one("Question: What is {}?\nAnswer:", "{} =", "Q: {}\nA:", "Compute {}.\nResult:")
    for i in range(shots(pen, 4) + 1):
        problem, value = addition(pen)
        doc.say("\n" if i else "").noise(form.format(problem)).decide(f" {value}")
    return doc


def word_problem(pen: Pen) -> Document:
    """A word problem with a line of reasoning before the answer."""
    doc = Document("word_problem")
    for i in range(shots(pen, 3) + 1):
        who, what = pen.words.name(), pen.one(*FRUITS)
        a, b, c = (pen.rng.randint(1, 9) for _ in range(3))
        more = pen.chance(0.5)
        end = a + b + c if more else max(a + b - c, 0)
        c = c if more else a + b - end
        doc.say("\n\n" if i else "").noise(
            f"Question: {who} has {a} {what}. {who} buys {b} more and then"
            f" {'finds' if more else 'loses'} {c}. How many {what} does {who} have?"
        )
        sign = "+" if more else "-"
        doc.say("\nAnswer:").answer(
            f" {who} has {a} + {b} = {a + b} {what}. Then {a + b} {sign} {c} = {end}."
            f" The answer is {end}."
        )
    return doc


def tips(pen: Pen) -> Document:
    """A list of tips on a topic, and the expansion of one or all of them."""
    doc, topic = Document("tips"), pen.rng.choice(tuple(TIPS))
    chosen = TIPS[topic][: pen.rng.randint(3, 5)] if pen.chance(0.7) else TIPS[topic][:2]
    if len(chosen) == 2:
        doc.noise(f"Here are two tips for {topic}:").answer(
            "".join(f" {i}. {t}." for i, (t, _) in enumerate(chosen, 1))
        )
        for i, (_, text) in enumerate(chosen, 1) if pen.chance(0.5) else [(2, chosen[1])]:
            doc.say(f"\n\nNow, expand tip {i} into a paragraph:\n").answer(text)
        return doc
    doc.noise(f"Topic: {topic}\n{len(chosen)} tips:").answer(
        "".join(f"\n{i}. {t}" for i, (t, _) in enumerate(chosen, 1))
    )
    for i, (tip, text) in pen.rng.sample(
        list(enumerate(chosen, 1)), pen.rng.randint(1, len(chosen))
    ):
        doc.say(f"\n\nExpand tip {i}").say(pen.one(":", f" ({tip}):")).answer(f" {text}")
    return doc
