"""The training text of the embedded model, written from a seed. Standard library only.

A document is a list of parts; each part says whether its text is context, an answer to learn, or noise that nobody
could predict. `documents(seed, held_out)` is an endless stream over all tasks in the proportions of `MIX`.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from ..examples.essay_judge import DIMENSIONS, NOT_RELATED, RUBRIC
from .essays import verdict_json, write_essay
from .facts import CAPITALS, COLOURS, FRUITS, HELLO, HOUSES, JOBS, SOUNDS, TIPS, Words, is_held_out

BOS, EOS, TURN, END_TURN = "<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>"
SYSTEM = "You are a helpful assistant."
LETTERS = "ABCD"


class Kind(Enum):
    """How much a part of a document teaches."""

    CONTEXT = 0.1
    ANSWER = 1.0
    NOISE = 0.0


@dataclass(slots=True)
class Document:
    """One training text, without its beginning-of-text token. `ask` and `answer` append to it."""

    task: str = ""
    parts: list[tuple[str, Kind]] = field(default_factory=list)

    def say(self, text: str) -> "Document":
        self.parts.append((text, Kind.CONTEXT))
        return self

    def answer(self, text: str) -> "Document":
        self.parts.append((text, Kind.ANSWER))
        return self

    def noise(self, text: str) -> "Document":
        self.parts.append((text, Kind.NOISE))
        return self

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)

    @property
    def last_exam(self) -> tuple[str, str]:
        """The document as an exam: all text before its last answer, and that answer."""
        last = max(i for i, (_, kind) in enumerate(self.parts) if kind is Kind.ANSWER)
        return "".join(text for text, _ in self.parts[:last]), self.parts[last][0]


@dataclass(frozen=True, slots=True)
class Pen:
    """What a task writes with: a source of chance and of made-up words."""

    rng: random.Random
    words: Words

    def one(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability


def shots(pen: Pen, most: int) -> int:
    """A number of worked examples to show first; none half of the time."""
    return 0 if pen.chance(0.5) else pen.rng.randint(1, most)


def shuffled(pen: Pen, items: tuple[str, ...]) -> list[str]:
    return pen.rng.sample(items, len(items))


# People: told in sentences, asked for in several formats.

FIELDS = ("name", "age", "job", "city", "house")


@dataclass(frozen=True, slots=True)
class Person:
    """A made-up person; `house` is one of six."""

    name: str
    age: int
    job: str
    city: str
    house: str

    def fields(self, keys: tuple[str, ...] = FIELDS) -> dict[str, str | int]:
        return {key: getattr(self, key) for key in keys}


def person(pen: Pen) -> Person:
    rng, words = pen.rng, pen.words
    return Person(words.name(), rng.randint(18, 89), rng.choice(JOBS), words.town(), rng.choice(HOUSES))


def tell(pen: Pen, p: Person) -> str:
    """All that is known about a person, in sentences whose order and wording vary."""
    opening = pen.one(
        f"{p.name} is a {p.age} year old {p.job} from {p.city}.",
        f"{p.name} is a {p.job} who lives in {p.city} and is {p.age} years old.",
        f"{p.name} lives in {p.city}. {p.name} is {p.age} years old and works as a {p.job}.",
        f"{p.name}, aged {p.age}, works as a {p.job} in {p.city}.",
        f"In {p.city} lives a {p.job} named {p.name}. {p.name} is {p.age} years old.",
    )
    house = pen.one(
        f"{p.name} belongs to the house of {p.house}.",
        f"The house of {p.name} is {p.house}.",
        f"{p.name} is a member of house {p.house}.",
    )
    return " ".join(pen.rng.sample((opening, house), 2))


QUESTIONS = {
    "age": ("How old is {}?", "What is the age of {}?"),
    "job": ("What is the job of {}?", "What does {} do?", "What does {} work as?"),
    "city": ("Where does {} live?", "In which city does {} live?", "What is the city of {}?"),
    "house": ("What is the house of {}?", "Which house does {} belong to?"),
}


def story(pen: Pen) -> tuple[str, list[Person]]:
    """A passage about one person or, four times in ten, about two or three."""
    people = [person(pen) for _ in range(1 if pen.chance(0.6) else pen.rng.randint(2, 3))]
    return " ".join(tell(pen, p) for p in people), people


def inquiry(pen: Pen, people: list[Person]) -> tuple[str, str, str, Person]:
    """A question about one of the people: question, answer, the asked field, the person."""
    p = pen.rng.choice(people)
    key = pen.rng.choice(tuple(QUESTIONS))
    return pen.rng.choice(QUESTIONS[key]).format(p.name), str(getattr(p, key)), key, p


JSON_STYLES: tuple[dict[str, object], ...] = ({}, {}, {"separators": (",", ":")}, {"indent": 4}, {"indent": 2})


def reading_json(pen: Pen) -> Document:
    """Passage to JSON record: all five fields, or those that the prompt lists."""
    doc, style = Document("reading_json"), pen.rng.choice(JSON_STYLES)
    for _ in range(shots(pen, 2) + 1):
        passage, people = story(pen)
        p = pen.rng.choice(people)
        keys, ask = FIELDS, ""
        if pen.chance(0.4):
            keys = tuple(pen.rng.sample(FIELDS, pen.rng.randint(1, 5)))
            ask = f"Fields: {', '.join(keys)}\n"
        who = f"Person: {p.name}\n" if len(people) > 1 or pen.chance(0.3) else ""
        doc.say("\n\n" if doc.parts else "").noise(passage).say(f"\n{who}{ask}JSON:")
        doc.answer(" " + json.dumps(p.fields(keys), **style))  # type: ignore[arg-type]
    return doc


def reading_question(pen: Pen) -> Document:
    """Passage, question, answer."""
    doc = Document("reading_question")
    passage, people = story(pen)
    doc.noise(passage)
    for _ in range(pen.rng.randint(1, 3)):
        question, answer, _, _ = inquiry(pen, people)
        doc.noise(f"\nQuestion: {question}").say("\nAnswer:").answer(f" {answer}")
    return doc


# Multiple choice.


def others(pen: Pen, key: str, answer: str) -> list[str]:
    """Three wrong options of the same sort as the answer."""
    wrong: list[str] = []
    draw: dict[str, Callable[[], str]] = {
        "age": lambda: str(pen.rng.randint(18, 89)),
        "job": lambda: pen.rng.choice(JOBS),
        "house": lambda: pen.rng.choice(HOUSES),
        "city": pen.words.town,
    }
    while len(wrong) < 3:
        option = draw[key]()
        if option != answer and option not in wrong:
            wrong.append(option)
    return wrong


def put_choice(pen: Pen, doc: Document, question: str, answer: str, wrong: list[str]) -> None:
    """Append a question with its four options and the letter of the right one."""
    options = shuffled(pen, (answer, *wrong))
    listing = "".join(f"\n{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))
    doc.noise(f"{question}{listing}").say("\nAnswer:").answer(f" {LETTERS[options.index(answer)]}")


def choice_reading(pen: Pen) -> Document:
    """Multiple choice about a passage, after 0 to 5 worked examples."""
    doc = Document("choice_reading")
    doc.say(pen.one("", "The following are multiple choice questions (with answers) about people.\n\n"))
    for i in range(shots(pen, 5) + 1):
        people = [person(pen) for _ in range(1 if pen.chance(0.7) else 2)]
        question, answer, key, _ = inquiry(pen, people)
        options = others(pen, key, answer)
        doc.say("\n\n" if i else "")
        put_choice(pen, doc, f"{' '.join(tell(pen, p) for p in people)} {question}", answer, options)
    return doc


def closed_question(pen: Pen) -> tuple[str, str, list[str]]:
    """A question about the world's own facts, its answer, and three wrong ones."""
    table, forms = pen.rng.choice((
        (CAPITALS, ("What is the capital of {}?", "Which city is the capital of {}?")),
        (CAPITALS, ("What is the capital of {}?", "Name the capital of {}.")),
        (COLOURS, ("What colour is {}?", "Which colour has {}?")),
        (SOUNDS, ("What does a {} say?", "Which sound does a {} make?")),
    ))  # fmt: skip
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
    subject = pen.one(*SUBJECTS)
    doc.say(pen.one("", f"The following are multiple choice questions (with answers) about {subject}.\n\n"))
    for i in range(shots(pen, 5) + 1):
        doc.say("\n\n" if i else "")
        put_choice(pen, doc, *closed_question(pen))
    return doc


# Facts and sums.


def capitals(pen: Pen) -> Document:
    """Capitals in questions, in sentences and as JSON, after 0 to 5 examples in the same form."""
    doc = Document("capitals")
    form, joint = pen.rng.choice((
        (("Question: What is the capital of {}?\nAnswer:", " {}"), "\n\n"),
        (("Q: What is the capital of {}?\nA:", " {}"), "\n"),
        (("The capital of {} is", " {}."), " "),
        (("{} is a country. Its capital is", " {}."), "\n"),
        (("Country: {}\nCapital:", " {}"), "\n\n"),
        (("Country: {}\nJSON:", ' {{"capital": "{}"}}'), "\n"),
    ))  # fmt: skip
    for i, country in enumerate(pen.rng.sample(tuple(CAPITALS), shots(pen, 5) + 1)):
        doc.noise(joint if i else "").say(form[0].format(country)).answer(form[1].format(CAPITALS[country]))
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
        doc.say("\n" if i else "").noise(form.format(problem)).answer(f" {value}")
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
            f"Question: {who} has {a} {what}. {who} buys {b} more and then {'finds' if more else 'loses'} {c}."
            f" How many {what} does {who} have?"
        )
        sign = "+" if more else "-"
        doc.say("\nAnswer:").answer(
            f" {who} has {a} + {b} = {a + b} {what}. Then {a + b} {sign} {c} = {end}. The answer is {end}."
        )
    return doc


# Sentiment, grades, the essay judge.

GOOD_WORDS = ("wonderful", "great", "lovely", "excellent", "delightful", "brilliant")
BAD_WORDS = ("awful", "boring", "terrible", "poor", "dreadful", "dull")
THINGS = ("film", "book", "meal", "hotel", "song", "game", "play", "shop")


def review(pen: Pen) -> tuple[str, int]:
    """A review of four remarks, and how many of them are kind."""
    kind = pen.rng.randint(0, 3)
    tones = pen.rng.sample([1] * kind + [0] * (3 - kind), 3)
    thing = pen.one(*THINGS)
    subjects = pen.rng.sample(("beginning", "middle", "end", "price", "service", "idea"), 3)
    remarks = (f"The {s} was {pen.one(*(GOOD_WORDS if t else BAD_WORDS))}." for s, t in zip(subjects, tones, strict=True))
    return f"About the {thing} from {pen.words.town()}: {' '.join(remarks)}", kind


def sentiment(pen: Pen) -> Document:
    """Reviews with their sentiment, or their letter grade (A for three kind remarks, D for none)."""
    doc = Document("sentiment")
    graded = pen.chance(0.5)
    doc.say("Grade each review: A for three kind remarks, B for two, C for one, D for none.\n\n" if graded else "")
    for i in range(shots(pen, 4) + 1):
        text, kind = review(pen)
        doc.say("\n\n" if i else "").noise(f"Review: {text}").say("\nGrade:" if graded else "\nSentiment:")
        doc.answer(" " + ("DCBA"[kind] if graded else "positive" if kind > 1 else "negative"))
    return doc


def essay_judge(pen: Pen) -> Document:
    """The judge's whole path through one to three essays, or one branch of it, with or without the rubric."""
    doc = Document("essay_judge").say(RUBRIC if pen.chance(0.35) else "")
    for _ in range(pen.rng.randint(0, 2) if not doc.parts[0][0] else 0):
        put_judged_essay(pen, doc)
        doc.say("\n\n")
    put_judged_essay(pen, doc)
    return doc


def put_judged_essay(pen: Pen, doc: Document) -> None:
    """Append an essay and either all judgments to the verdict, or those of one branch."""
    essay = write_essay(pen.rng, pen.words)
    doc.noise(essay.question).answer(" yes" if essay.related else " no")
    if not essay.related:
        doc.answer(NOT_RELATED.rstrip("\n"))
        return
    if pen.chance(0.35):
        dimension = pen.one(*DIMENSIONS)
        doc.say(f"\n{dimension}:").answer(essay.judgment(dimension))
        return
    for dimension in DIMENSIONS:
        doc.say(f"\n{dimension}:").answer(essay.judgment(dimension))
    if pen.chance(0.8):
        doc.say("\nSummary:").answer(essay.summary).say("\nGrade:").answer(f" {essay.grade}")
    if pen.chance(0.3):
        doc.say("\nVerdict as JSON:").answer(" " + verdict_json(essay, compact=pen.chance(0.5)))


# Reason and act.

NUMBERS = {1: "1", 2: "2", 3: "3", 4: "4"}


def react(pen: Pen) -> Document:
    """Questions answered by looking things up: thought, action, observation, and so on to the finish."""
    doc = Document("react")
    for i in range(shots(pen, 2) + 1):
        doc.say("\n\n" if i else "")
        pen.rng.choice((put_person_hop, put_person_hop, put_mayor_hops, put_missing))(pen, doc)
    return doc


def put_step(doc: Document, number: int, thought: str, action: str) -> None:
    doc.say(f"\nThought {number}:").answer(f" {thought}\nAction {number}: {action}")


def observe(doc: Document, number: int, observation: str) -> None:
    doc.say(f"\nObservation {number}:").noise(f" {observation}")


def put_person_hop(pen: Pen, doc: Document) -> None:
    """One search answers it."""
    p = person(pen)
    question, answer, key, _ = inquiry(pen, [p])
    doc.noise(f"Question: {question}")
    put_step(doc, 1, f"I need to search {p.name} and find the {key}.", f"Search[{p.name}]")
    observe(doc, 1, tell(pen, p))
    put_step(doc, 2, f"The {key} of {p.name} is {answer}. So the answer is {answer}.", f"Finish[{answer}]")


def put_mayor_hops(pen: Pen, doc: Document) -> None:
    """Two searches: first the town's mayor, then the mayor."""
    p, town = person(pen), pen.words.town()
    key = pen.one("age", "job", "house", "city")
    answer = str(getattr(p, key))
    doc.noise(f"Question: What is the {key} of the mayor of {town}?")
    put_step(doc, 1, f"I need to search {town} and find its mayor.", f"Search[{town}]")
    observe(doc, 1, f"{town} is a town of {pen.rng.randint(2, 99)} thousand people. Its mayor is {p.name}.")
    put_step(doc, 2, f"The mayor of {town} is {p.name}. I need to search {p.name} and find the {key}.", f"Search[{p.name}]")
    observe(doc, 2, tell(pen, p))
    put_step(doc, 3, f"The {key} of {p.name} is {answer}. So the answer is {answer}.", f"Finish[{answer}]")


def put_missing(pen: Pen, doc: Document) -> None:
    """The lookup finds nothing."""
    name, key = pen.words.name(), pen.one("age", "job", "house", "city")
    doc.noise(f"Question: What is the {key} of {name}?")
    put_step(doc, 1, f"I need to search {name} and find the {key}.", f"Search[{name}]")
    observe(doc, 1, f"Could not find {name}.")
    put_step(doc, 2, f"{name} is not known. So the answer is unknown.", "Finish[unknown]")


# Tips.


def tips(pen: Pen) -> Document:
    """A list of tips on a topic, and the expansion of one or all of them."""
    doc, topic = Document("tips"), pen.rng.choice(tuple(TIPS))
    chosen = TIPS[topic][: pen.rng.randint(3, 5)] if pen.chance(0.7) else TIPS[topic][:2]
    if len(chosen) == 2:
        doc.noise(f"Here are two tips for {topic}:").answer("".join(f" {i}. {t}." for i, (t, _) in enumerate(chosen, 1)))
        for i, (_, text) in enumerate(chosen, 1) if pen.chance(0.5) else [(2, chosen[1])]:
            doc.say(f"\n\nNow, expand tip {i} into a paragraph:\n").answer(text)
        return doc
    doc.noise(f"Topic: {topic}\n{len(chosen)} tips:").answer("".join(f"\n{i}. {t}" for i, (t, _) in enumerate(chosen, 1)))
    for i, (tip, text) in pen.rng.sample(list(enumerate(chosen, 1)), pen.rng.randint(1, len(chosen))):
        doc.say(f"\n\nExpand tip {i}").say(pen.one(":", f" ({tip}):")).answer(f" {text}")
    return doc


# Chat turns and tools.


def turn(doc: Document, role: str, text: str) -> None:
    """Append a turn; an assistant's text and end of turn are an answer."""
    if role == "assistant":
        doc.say(f"{TURN}{role}\n").answer(f"{text}{END_TURN}").say("\n")
    else:
        doc.say(f"{TURN}{role}\n").noise(text).say(f"{END_TURN}\n")


def small_talk(pen: Pen) -> tuple[str, str]:
    """A user's message and the assistant's reply."""
    word = pen.words.any()
    topic = pen.rng.choice(tuple(TIPS))
    problem, value = addition(pen)
    question, answer, _ = closed_question(pen)
    foreign, translated, _ = translation(pen)
    passage, people = story(pen)
    asked, found, _, _ = inquiry(pen, people)
    return pen.rng.choice((
        (pen.one("Hello!", "Hi!", "Good morning!", "Hello, how are you?"), "Hello! How can I help you?"),
        (pen.one("Thank you!", "Thanks!", "Thank you very much."), "You are welcome!"),
        (pen.one("Who are you?", "What are you?"), "I am a small language model."),
        (f"Hello, my name is {word}.", f"Hello, {word}! How can I help you?"),
        (f"{pen.one('Repeat after me', 'Say', 'Write')}: {word}", word),
        (f"Say {word} three times.", f"{word} {word} {word}"),
        (f"What is {problem}?", value),
        (question, answer),
        (foreign, translated),
        (f"{passage} {asked}", found),
        (f"{asked} {passage}", found),
        (f"Give me a tip for {topic}.", f"{TIPS[topic][0][0]}. {TIPS[topic][0][1]}"),
        (f"Give me three tips for {topic}.", "\n".join(f"{i}. {tip}" for i, (tip, _) in enumerate(TIPS[topic][:3], 1))),
    ))  # fmt: skip


def chat(pen: Pen) -> Document:
    """One to four turns of small talk; sometimes the name is asked for at the end."""
    doc = Document("chat")
    if pen.chance(0.4):
        turn(doc, "system", SYSTEM)
    name = pen.words.name() if pen.chance(0.25) else None
    if name:
        turn(doc, "user", f"Hello, my name is {name}.")
        turn(doc, "assistant", f"Hello, {name}! How can I help you?")
    for _ in range(pen.rng.choice((1, 1, 2, 3))):
        message, reply = small_talk(pen)
        turn(doc, "user", message)
        turn(doc, "assistant", reply)
    if name:
        turn(doc, "user", "What is my name?")
        turn(doc, "assistant", f"Your name is {name}.")
    return doc


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of one argument, and ways to ask for it."""

    name: str
    argument: str
    number: bool
    requests: tuple[str, ...]


TOOLS = (
    Tool("lookup", "word", False, ("Look up {}.", "Look up the word {}.", "What does {} mean?")),
    Tool("translate", "text", False, ("Translate {}.", "Translate the word {} into English.")),
    Tool("weather", "city", False, ("What is the weather in {}?", "How is the weather in {}?")),
    Tool("call", "person", False, ("Call {}.", "Please call {} for me.")),
    Tool("timer", "minutes", True, ("Set a timer for {} minutes.", "Wake me in {} minutes.")),
    Tool("square", "number", True, ("Square {}.", "What is the square of {}?")),
)


def tool_prompt(tools: list[Tool]) -> str:
    """The system turn that offers tools, as the chat template writes it."""
    lines = "\n".join(json.dumps(tool_schema(tool)) for tool in tools)
    return f"{SYSTEM}\nTools:\n{lines}\nTo use a tool, answer with <tool_call>{{...}}</tool_call>."


def tool_schema(tool: Tool) -> dict[str, object]:
    """The tool in the form of an OpenAI function."""
    kind = "integer" if tool.number else "string"
    parameters = {"type": "object", "properties": {tool.argument: {"type": kind}}, "required": [tool.argument]}
    return {"name": tool.name, "parameters": parameters}


def tool_call(tool: Tool, value: str) -> str:
    """The text of a call, as the chat template writes it."""
    arguments = {tool.argument: int(value) if tool.number else value}
    call = json.dumps({"name": tool.name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"


def tools(pen: Pen) -> Document:
    """A request that needs a tool, the call with its copied argument, and sometimes the tool's answer told."""
    doc = Document("tools")
    offered = pen.rng.sample(TOOLS, pen.rng.randint(1, 3))
    if pen.chance(0.7):
        turn(doc, "system", tool_prompt(offered))
    else:
        offered = list(TOOLS)
    for _ in range(pen.rng.choice((1, 1, 2))):
        tool = pen.rng.choice(offered)
        value = str(pen.rng.randint(2, 999)) if tool.number else pen.words.any()
        turn(doc, "user", pen.rng.choice(tool.requests).format(value))
        turn(doc, "assistant", tool_call(tool, value))
        if pen.chance(0.4):
            result = pen.words.name()
            turn(doc, "tool", f'{{"result": "{result}"}}')
            turn(doc, "assistant", f"The result is {result}.")
    return doc


# DSPy's chat format.


def dspy(pen: Pen) -> Document:
    """A signature of one or two inputs and one output, in the format of DSPy's chat adapter."""
    doc = Document("dspy")
    inputs, (output, answer) = dspy_task(pen)
    names = [*inputs, output]
    brief = "\n".join(
        f"Your {kind} fields are:\n" + "\n".join(f"{i}. `{n}` (str):" for i, n in enumerate(keys, 1))
        for kind, keys in (("input", list(inputs)), ("output", [output]))
    )
    slots_ = "\n\n".join(f"[[ ## {name} ## ]]\n{{{name}}}" for name in names)
    turn(doc, "system", (
        f"{brief}\nAll interactions will be structured in the following way, with the appropriate values filled in."
        f"\n\n{slots_}\n\n[[ ## completed ## ]]\nIn adhering to this structure, your objective is: \n        Given the"
        f" fields {', '.join(f'`{n}`' for n in inputs)}, produce the fields `{output}`."
    ))  # fmt: skip
    turn(doc, "user", "\n\n".join(f"[[ ## {k} ## ]]\n{v}" for k, v in inputs.items()) + (
        f"\n\nRespond with the corresponding output fields, starting with the field `[[ ## {output} ## ]]`, and then"
        " ending with the marker for `[[ ## completed ## ]]`."
    ))  # fmt: skip
    turn(doc, "assistant", f"[[ ## {output} ## ]]\n{answer}\n\n[[ ## completed ## ]]")
    return doc


def dspy_task(pen: Pen) -> tuple[dict[str, str], tuple[str, str]]:
    """Input fields and the output field with its value."""
    passage, people = story(pen)
    question, answer, _, _ = inquiry(pen, people)
    fact, truth, _ = closed_question(pen)
    text, kind = review(pen)
    return pen.rng.choice((
        ({"context": passage, "question": question}, ("answer", answer)),
        ({"question": fact}, ("answer", truth)),
        ({"review": text}, ("sentiment", "positive" if kind > 1 else "negative")),
    ))  # fmt: skip


MIX: dict[Callable[[Pen], Document], float] = {
    reading_json: 14, reading_question: 8, choice_reading: 12, choice_facts: 5, capitals: 4, facts: 4, arithmetic: 5,
    word_problem: 4, sentiment: 4, essay_judge: 14, react: 9, tips: 4, chat: 8, tools: 8, dspy: 4,
}  # fmt: skip
CLOSED_TASKS = frozenset({"capitals", "facts", "arithmetic", "tips"})  # no made-up words: whole prompts are held out


def documents(
    seed: int, held_out: bool, mix: dict[Callable[[Pen], Document], float] | None = None
) -> Iterator[Document]:
    """An endless stream of documents, the same for the same seed.

    held_out: write with held-out words, and ask the closed tasks only with held-out prompts; training streams hold
    neither. mix: relative frequency of each task, instead of `MIX`.
    """
    rng, mix = random.Random(seed), mix or MIX
    tasks, weights = list(mix), list(mix.values())
    while True:
        doc = rng.choices(tasks, weights)[0](Pen(rng, Words(rng, held_out)))
        if doc.task not in CLOSED_TASKS or is_held_out(doc.last_exam[0]) == held_out:
            yield doc
