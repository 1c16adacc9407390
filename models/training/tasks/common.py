"""Common knowledge for chat turns: explanations, simple questions, lists, opposites, and texts
about a theme that the user names.
"""

from collections.abc import Callable

from ..world.document import Pen
from ..world.facts import CAPITALS, EUROPE
from ..world.invented import invented
from ..world.knowledge import addition, closed_question, translation
from ..world.turns import UNKNOWN, spoken

EXPLAINED = {
    "gravity": "Gravity is the pull between things that have mass. It keeps us on the ground.",
    "rain": "Rain is water that falls from clouds in drops.",
    "a rainbow": "A rainbow is sunlight that raindrops split into colours.",
    "the moon": "The moon is a ball of rock that circles the earth.",
    "the sun": "The sun is a star that gives us light and warmth.",
    "the earth": "The earth is the planet that we live on.",
    "a star": "A star is a hot ball of gas that shines.",
    "fire": "Fire is fuel that burns with air and gives heat and light.",
    "ice": "Ice is water that is frozen.",
    "snow": "Snow is frozen water that falls from clouds.",
    "wind": "Wind is air that moves.",
    "electricity": "Electricity is a flow of charge that powers our machines.",
    "a magnet": "A magnet is a piece of metal that pulls iron.",
    "photosynthesis": "In photosynthesis, plants make sugar out of light, water and air.",
    "a computer": "A computer is a machine that follows the steps of a program.",
    "the internet": "The internet is a net of computers that exchange messages.",
    "a language model": "A language model is a program that guesses how a text goes on.",
    "machine learning": "Machine learning means that a program learns from examples.",
    "artificial intelligence": "Artificial intelligence means programs that do tasks of the mind.",
    "a neural network": "A neural network is a program of many small sums that learns from"
    " examples.",
    "a token": "A token is a piece of text, such as a word or a part of one.",
    "a prompt": "A prompt is the text that a model is given.",
    "a cache": "A cache keeps results, so that they need not be computed again.",
    "prefix caching": "Prefix caching keeps what was computed for the start of a text for the"
    " next.",
    "a radix tree": "A radix tree keeps texts with the same start on one branch.",
    "JSON": "JSON is a text format of keys and values in curly brackets.",
    "Python": "Python is a programming language that is easy to read.",
    "a regular expression": "A regular expression is a pattern that texts may match.",
    "a server": "A server is a program that answers requests of others.",
    "a database": "A database is a program that keeps records and finds them again.",
    "an algorithm": "An algorithm is a list of steps that solves a problem.",
    "a function": "A function is a named piece of code that can be called.",
    "a variable": "A variable is a name for a value in a program.",
    "a bug": "A bug is a mistake in a program.",
    "an API": "An API is a set of calls by which programs talk to each other.",
    "a CPU": "A CPU is the part of a computer that does the work.",
    "a GPU": "A GPU is a chip that does many sums at the same time.",
    "a tree": "A tree is a tall plant with a trunk and leaves.",
    "a volcano": "A volcano is a mountain out of which hot rock flows.",
    "a bank": "A bank keeps money and lends it.",
    "money": "Money is what people pay with.",
    "democracy": "In a democracy, the people choose who governs them.",
    "a vitamin": "A vitamin is something in food that the body needs.",
    "bread": "Bread is baked out of flour, water and yeast.",
    "a cat": "A cat is a small animal that hunts mice and likes to sleep.",
    "a dog": "A dog is an animal that lives with people and guards the house.",
    "history": "History is the story of what happened in the past.",
    "mathematics": "Mathematics is the study of numbers and shapes.",
    "an atom": "An atom is the smallest piece of a chemical element.",
    "water": "Water is a clear liquid that all life needs.",
}
EXPLAIN = (
    "What is {}?", "What is {}?", "Explain {}.", "Explain {} in simple words.", "Define {}.",
    "Explain {} to me.", "Tell me about {}.", "Tell me what {} is.", "Can you explain {}?",
    "What do you know about {}?", "Describe {}.", "Explain {} to a child.", "Explain {} briefly.",
    "What does {} mean?", "Do you know what {} is?", "Please explain {}.",
    "Explain {} in one line.",
    "What exactly is {}?",
)  # fmt: skip
ANSWERED = {
    "How many days are in a week": "7", "How many months are in a year": "12",
    "How many hours are in a day": "24", "How many minutes are in an hour": "60",
    "How many seconds are in a minute": "60", "How many days are in a year": "365",
    "How many legs does a spider have": "8", "How many legs does a dog have": "4",
    "How many legs does a bird have": "2", "How many legs does an insect have": "6",
    "How many continents are there": "7", "How many letters are in the alphabet": "26",
    "How many players are in a football team": "11", "How many sides has a triangle": "3",
    "How many sides has a square": "4", "How many eyes do people have": "2",
    "How many fingers are on one hand": "5", "How many weeks are in a year": "52",
    "How many planets are there": "8", "How many colours has a rainbow": "7",
    "Which planet is the largest": "Jupiter", "What is the largest planet": "Jupiter",
    "Which planet do we live on": "Earth", "Which planet is red": "Mars",
    "What is the largest ocean": "the Pacific", "What is the highest mountain": "Mount Everest",
    "What is the longest river": "the Nile", "What is the largest animal": "the blue whale",
    "What is the fastest animal": "the cheetah", "What is the tallest animal": "the giraffe",
    "Who wrote Hamlet": "William Shakespeare", "Who wrote Romeo and Juliet": "William Shakespeare",
    "Who painted the Mona Lisa": "Leonardo da Vinci", "Who discovered gravity": "Isaac Newton",
    "Who wrote Faust": "Goethe", "Who wrote War and Peace": "Leo Tolstoy",
    "Who developed the theory of relativity": "Albert Einstein",
    "Who was the first man on the moon": "Neil Armstrong",
    "Who discovered America": "Christopher Columbus", "What is H2O": "water",
    "What do bees make": "honey", "What do cows drink": "water", "What do pandas eat": "bamboo",
    "What colour is the sky": "blue", "What colour is grass": "green",
    "What colour is milk": "white",
    "What colour is a banana": "yellow", "What colour is the sun": "yellow",
    "What is the first month of the year": "January", "What is the last month": "December",
    "What is the first day of the week": "Monday", "What is the coldest season": "winter",
    "What is the warmest season": "summer", "Which language is spoken in Brazil": "Portuguese",
    "Which language is spoken in Mexico": "Spanish", "At what temperature does water boil": "100",
    "At what temperature does water freeze": "0", "What is the currency of Japan": "the yen",
    "What is the currency of the USA": "the dollar", "What is the currency of Germany": "the euro",
    "What is frozen water": "ice", "What is a young dog called": "a puppy",
    "What is a young cat called": "a kitten", "Where do fish live": "in water",
    "Where does the sun rise": "in the east", "Where does the sun set": "in the west",
    "Where do penguins live": "in the Antarctic", "What do plants need": "light and water",
    "Which animal gives milk": "the cow", "Which animal is the king of the animals": "the lion",
    "Is water wet": "yes", "Is the sun hot": "yes", "Is ice cold": "yes", "Is fire cold": "no",
    "Is the earth flat": "no", "Is a whale a fish": "no", "Can birds fly": "yes",
    "Can fish walk": "no", "Can dogs fly": "no", "Is a cat an animal": "yes",
    "Is the moon made of cheese": "no", "Do cats bark": "no", "Do dogs bark": "yes",
    "Is snow hot": "no", "Is a rose a flower": "yes", "Is a car an animal": "no",
    "Is the sky green": "no", "Is milk white": "yes", "Is Paris in France": "yes",
    "Is Berlin in Spain": "no", "Is Rome in Italy": "yes", "Is Tokyo in China": "no",
}  # fmt: skip
OPPOSITES = (
    "hot cold", "big small", "up down", "good bad", "old new", "long short", "fast slow",
    "day night",
    "light dark", "happy sad", "rich poor", "early late", "left right", "open closed", "high low",
    "hard soft", "full empty", "strong weak", "wet dry", "black white", "love hate", "first last",
    "inside outside", "near far", "clean dirty", "loud quiet", "win lose", "begin end", "buy sell",
    "young old", "thick thin", "sweet sour", "true false", "yes no", "friend enemy", "war peace",
)  # fmt: skip
LISTS = {
    "fruits": "apples pears plums cherries lemons", "animals": "dog cat horse cow lion",
    "vegetables": "carrots onions beans peas cabbage",
    "sports": "football tennis golf rowing skiing",
    "instruments": "piano violin flute drum harp", "planets": "Mercury Venus Earth Mars Jupiter",
    "birds": "crow swan owl duck robin", "trees": "oak pine birch maple willow",
    "drinks": "water tea coffee milk juice", "metals": "iron gold silver copper tin",
    "flowers": "rose tulip lily daisy violet", "seasons": "spring summer autumn winter",
    "rivers": "Nile Danube Rhine Thames Amazon", "numbers": "1 2 3 4 5",
    "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday", "letters": "A B C D E",
    "months": "January February March April May June July", "tools": "hammer saw drill knife axe",
    "clothes": "shirt coat hat shoes socks", "languages": "English French Greek Hindi Russian",
    "colours": "red blue green yellow black", "colors": "red blue green yellow black",
    "countries": "France Spain Italy Japan Peru", "cities": "Paris Rome Tokyo Lima Cairo",
    "capitals": "Paris Rome Tokyo Lima Cairo", "jobs": "baker farmer doctor teacher pilot",
    "programming languages": "Python Java Rust Go Ruby", "names": "Anna Ben Clara David Emma",
    "words": "house tree river bread song", "ideas": "walk read cook paint sing",
}  # fmt: skip
COUNTS = {2: "two", 3: "three", 4: "four", 5: "five"}
THEMES = (
    "the sea", "rain", "cats", "dogs", "winter", "summer", "music", "football", "robots", "trains",
    "coffee", "tea", "the forest", "birds", "snow", "the city", "friendship", "an old house",
    "a dragon", "a king", "a ship", "the desert", "mountains", "a garden", "spring", "autumn",
    "the night", "flowers", "a horse", "bread", "the wind", "a lost key", "computers", "space",
    "time", "a clock", "a bridge", "fish", "chess", "bicycles", "a library", "honey", "a mirror",
    "the market", "clouds", "a lighthouse", "elephants", "a violin", "letters", "a castle",
)  # fmt: skip
OBSCURE = (
    "Who is {}?", "Who is {}?", "Who is the president of {}?", "Where is {}?", "When did {} die?",
    "What is the population of {}?", "How tall is {}?", "What happened in {}?", "When was {} born?",
    "Who invented {}?", "Why is {} famous?", "Who owns {}?", "What is {} worth?", "How old is {}?",
    "Where can I buy {}?", "What is the history of {}?", "How far is it to {}?", "Who founded {}?",
    "How much does {} cost?", "Who leads {}?", "When was {} founded?", "How do I get to {}?",
    "Which team won the {} cup?", "Is {} good?", "Do you know {}?", "How does {} work?",
    "What is the best {}?", "Should I visit {}?", "What is {}?", "Tell me about {}.",
    "Explain {}.", "What do you know about {}?", "Who is the mayor of {}?", "What is {} made of?",
)  # fmt: skip
UNKNOWN_WORDS = (
    "quantum physics", "the stock market", "the Roman empire", "inflation", "chemistry",
    "the world cup", "jazz", "the second world war", "evolution", "blockchain", "Bitcoin", "taxes",
    "marketing", "calculus", "philosophy", "Napoleon", "Einstein", "Mozart", "Amazon", "Google",
    "Microsoft", "New York", "London", "California", "Berlin", "Australia", "Mongolia", "the USA",
    "India", "the prime minister", "the queen", "the pope", "Tesla", "cancer", "malaria",
    "the brain", "DNA", "a black hole", "dinosaurs", "the pyramids", "the Bible", "the law",
    "poker", "golf", "rugby", "cooking", "the guitar", "opera", "Docker", "Kubernetes", "Linux",
    "Windows", "Java", "Rust", "SQL", "vLLM", "SGLang", "LangChain", "DSPy", "the Titanic",
    "a pandemic", "climate change", "the ozone layer", "plastic", "a nuclear reactor", "the heart",
    "psychology", "sociology", "yoga", "tennis", "baseball",
)  # fmt: skip


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
    return pen.one(*EXPLAIN).format(what), EXPLAINED[what]


def answered(pen: Pen) -> tuple[str, str]:
    """A simple question of general knowledge."""
    question = pen.one(*ANSWERED)
    return f"{question}{pen.one('?', '?', '?', '')}", ANSWERED[question]


def opposite(pen: Pen) -> tuple[str, str]:
    word, other = pen.rng.sample(pen.one(*OPPOSITES).split(), 2)
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
    return pen.rng.choice((
        (
            f"{verb} {pen.one('a poem', 'a short poem', 'some lines', 'a verse')} about {it}.",
            f"I sing of {it}, so near and so dear,\nand hope that {it} will always be here.",
        ),
        (
            f"{verb} a haiku about {it}.",
            f"{start}, so still,\na morning without a word,\nthen light.",
        ),
        (
            f"{verb} {pen.one('a story', 'a short story', 'a tale')} about {it}.",
            f"Once there was a child who thought of {it} every day. One morning the child found it,"
            f" and {it} was more wonderful than any dream.",
        ),
        (f"{verb} a joke about {it}.", f"What did {it} say to the cook? Nothing at all."),
        (f"{verb} a {pen.one('sentence', 'line')} about {it}.", f"{start} is on my mind today."),
        (f"{verb} a title for a text about {it}.", f"All about {it}"),
        (f"Do you like {it}?", f"I have no taste, but many people like {it}."),
        (f"What do you think of {it}?", f"I have no opinion of {it}. I am a small program."),
        (f"Say hello to {it}.", f"Hello, {it}!"),
        (f"Let us talk about {it}.", f"Gladly. What would you like to know about {it}?"),
    ))  # fmt: skip


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
    what = pen.one(*UNKNOWN_WORDS) if pen.chance(0.5) else invented(pen)
    return pen.one(*OBSCURE).format(what), UNKNOWN
