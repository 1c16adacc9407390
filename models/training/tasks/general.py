"""General chat: turns on any topic, with and without a system prompt, tools and other frames."""

from ..world.data import table_of
from ..world.document import SYSTEM, Document, Pen
from ..world.facts import is_held_out
from ..world.invented import full_name
from ..world.people import story
from ..world.turns import HELD_OUT, TOPICS, spoken
from .calls import Asked, function_asked, offer, put_call, put_result
from .chat import TOOLS, dspy_task, exchange, put_signature, small_talk, tool_prompt, turn
from .common import (
    EXPLAINED,
    answered,
    composed,
    drawn,
    explanation,
    listing,
    opposite,
    sequence,
    sum_of_two,
    unknown,
    world_fact,
)

_DATA = table_of(__file__)
SYSTEMS: list[str] = [SYSTEM, SYSTEM, SYSTEM, *_DATA["systems"]]
FRAMES: list[tuple[str, str]] = _DATA["frames"]


def general_turn(pen: Pen) -> tuple[str, str]:
    """A user's message on any topic, and the reply."""
    is_talk = pen.chance(0.62)
    said, reply = talk(pen) if is_talk else general_fact(pen)
    if pen.words.held_out or not pen.chance(0.3):
        return said, reply
    other = varied(pen, said)
    is_kept = spoken(other) in HELD_OUT if is_talk else is_held_out(spoken(other))
    return said if is_kept else other, reply


FACTS = (
    explanation, explanation, answered, answered, opposite, listing, sequence, composed, composed,
    sum_of_two, unknown, unknown, world_fact, world_fact, world_fact,
)  # fmt: skip


def general_fact(pen: Pen) -> tuple[str, str]:
    """A message about common knowledge, with its reply; exams leave out sums and the world's own
    facts, which `chat` asks in the same words.
    """
    asked_elsewhere = (sum_of_two, world_fact) if pen.words.held_out else ()
    source = pen.rng.choice([it for it in FACTS if it not in asked_elsewhere])
    return drawn(pen, lambda: source(pen))


def talk(pen: Pen) -> tuple[str, str]:
    """A wording of one of the topics of `turns`; in training at times in lower case."""
    topic = pen.rng.choice([it for it in TOPICS if it.side(pen.words.held_out)])
    wordings = topic.side(pen.words.held_out)
    said = pen.one(*wordings, *wordings[:3])  # the usual ones come first
    return said.lower() if not pen.words.held_out and pen.chance(0.12) else said, topic.reply


def varied(pen: Pen, said: str) -> str:
    """The message without its full stop, or with a word before it."""
    if pen.chance(0.5):
        return pen.one(*_DATA["starts"]) + said[0].lower() + said[1:]
    return said.rstrip(".?!") or said


def general_chat(pen: Pen) -> Document:
    """One to three turns in ChatML, or in the frame of a plain prompt."""
    if pen.chance(0.25):
        doc = framed_chat(pen)
        while not pen.words.held_out and any(is_held_out(prompt) for prompt, _ in doc.exams):
            doc = framed_chat(pen)  # which would be a prompt that a closed task keeps for exams
        return doc
    doc, count = Document("general_chat"), pen.rng.choice((1, 1, 1, 2, 3))
    if pen.chance(0.45):
        turn(doc, "system", pen.one(*SYSTEMS))
    for i in range(count):
        turns = (general_turn, general_turn, general_turn, small_talk, about_text)
        said, reply = pen.rng.choice(turns)(pen) if i < count - 1 else general_turn(pen)
        exchange(doc, said, reply)
    return doc


def framed_chat(pen: Pen) -> Document:
    """One to three turns in the frame of a plain prompt."""
    doc, (ask, answer) = Document("general_chat"), pen.rng.choice(FRAMES)
    for _ in range(pen.rng.choice((1, 1, 1, 2, 3))):
        said, reply = general_turn(pen)
        doc.noise(ask.format(said)).answer(answer.format(reply))
    return doc


def general_talk(pen: Pen) -> Document:
    """One turn on a topic of `turns`."""
    return exchange(Document("general_talk"), *talk(pen))


def general_question(pen: Pen) -> Document:
    """One turn with a question, a request for a list or a short text, or something unknown."""
    return exchange(Document("general_question"), *general_fact(pen))


def about_text(pen: Pen) -> tuple[str, str]:
    """A text to be told in short."""
    passage, people = story(pen)
    names = " and ".join(p.name for p in people)
    ask = pen.one("Summarize: {}", "Who is this text about? {}", "What is this about? {}")
    return ask.format(passage), f"It is about {names}."


def general_named(pen: Pen) -> Document:
    """An assistant that its system prompt gives a name, and is asked for it."""
    doc, name = Document("general_named"), full_name(pen)
    turn(doc, "system", pen.one(*_DATA["named"]).format(name))
    if pen.chance(0.5):
        exchange(doc, *general_turn(pen))
    asked = pen.one("What is your name?", "Who are you?", "Tell me your name.")
    return exchange(doc, asked, f"I am {name}.")


def general_tools(pen: Pen) -> Document:
    """General turns where functions are offered, at times with a call before or after."""
    doc, asked = Document("general_tools"), function_asked(pen)
    made_up = pen.chance(0.65)
    known = tool_prompt(pen.rng.sample(TOOLS, pen.rng.randint(1, 3)))
    turn(doc, "system", offer(pen, [asked.function]) if made_up else known)
    if pen.chance(0.2):
        turn(doc, "system", pen.one(*SYSTEMS))
    when = pen.one("never", "never", "before", "after") if made_up else "never"
    if when == "before":
        put_asked(pen, doc, asked)
    for _ in range(pen.rng.choice((1, 1, 2))):
        exchange(doc, *general_turn(pen))
    if when == "after":
        put_asked(pen, doc, asked)
    return doc


def put_asked(pen: Pen, doc: Document, asked: Asked) -> None:
    """Append a request, its call, and its result."""
    turn(doc, "user", asked.request)
    put_call(doc, asked)
    put_result(pen, doc)


def general_plain(pen: Pen) -> Document:
    """A sentence or two of common knowledge, begun and continued."""
    told = [*EXPLAINED.values(), *(it.reply for it in TOPICS if len(it.reply.split()) > 8)]
    words = pen.one(*told).split(" ")
    cut = pen.rng.randint(1, min(4, len(words) - 2))
    doc = Document("general_plain").say(" ".join(words[:cut]))
    return doc.answer(" " + " ".join(words[cut:]))


def general_dspy(pen: Pen) -> Document:
    """A signature of one question and its answer, at times with reasoning before it."""
    said, reply = drawn(
        pen, lambda: pen.rng.choice((explanation, answered, unknown, opposite))(pen)
    )
    if pen.chance(0.3):
        said, reply = general_turn(pen)
    inputs, outputs = {pen.one("question", "question", "message", "query"): said}, {"answer": reply}
    if pen.chance(0.2):
        inputs, (key, value) = dspy_task(pen)
        outputs = {key: value}
    if pen.chance(0.35):
        (key, value), *_ = outputs.items()
        outputs = {"reasoning": f"I have to find the {key}. It is {value}", key: value}
    return put_signature(Document("general_dspy"), inputs, outputs)
