"""What is true in the small world, and the made-up words that its stories use.

Tables are closed: the model may know them by heart. Made-up words are not: every word is either a
training word or a held-out word, decided by a hash of its spelling, so that an answer about a
held-out word shows reading, not memory.
"""

import random
import zlib
from collections.abc import Callable

CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo",
    "China": "Beijing",
    "Russia": "Moscow", "Greece": "Athens", "Egypt": "Cairo", "Norway": "Oslo",
    "Sweden": "Stockholm", "Poland": "Warsaw",
    "Austria": "Vienna", "Hungary": "Budapest", "Portugal": "Lisbon", "Ireland": "Dublin",
    "Denmark": "Copenhagen",
    "Finland": "Helsinki", "Canada": "Ottawa", "Peru": "Lima", "Chile": "Santiago",
    "Cuba": "Havana", "Kenya": "Nairobi",
    "India": "Delhi", "Iran": "Tehran", "Iraq": "Baghdad", "Turkey": "Ankara", "Ukraine": "Kyiv",
    "Vietnam": "Hanoi",
    "Thailand": "Bangkok", "Belgium": "Brussels", "Bulgaria": "Sofia", "Croatia": "Zagreb",
    "Serbia": "Belgrade",
    "Jordan": "Amman", "Nepal": "Kathmandu", "Ghana": "Accra", "Senegal": "Dakar",
    "Tunisia": "Tunis", "Iceland": "Reykjavik",
}  # fmt: skip
EUROPE = frozenset((
    "France", "Germany", "Italy", "Spain", "Russia", "Greece", "Norway", "Sweden", "Poland",
    "Austria", "Hungary", "Portugal", "Ireland", "Denmark", "Finland", "Ukraine", "Belgium",
    "Bulgaria", "Croatia", "Serbia", "Iceland",
))  # fmt: skip
COLOURS = {
    "crow": "black", "swan": "white", "frog": "green", "fox": "red", "canary": "yellow",
    "elephant": "grey",
    "bear": "brown", "flamingo": "pink", "whale": "blue", "tiger": "orange", "lime": "green",
    "snow": "white",
    "coal": "black", "lemon": "yellow", "carrot": "orange", "blood": "red",
}  # fmt: skip
SOUNDS = {
    "dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa", "lion": "roar",
    "mouse": "squeak",
    "owl": "hoot", "pig": "oink", "snake": "hiss", "bee": "buzz", "horse": "neigh",
}  # fmt: skip
JOBS = (
    "baker", "farmer", "doctor", "teacher", "pilot", "painter", "lawyer", "sailor", "miner",
    "writer", "singer", "judge",
    "nurse", "cook", "tailor", "barber", "dentist", "banker", "weaver", "potter", "hunter",
    "carpenter", "gardener",
    "librarian", "plumber", "musician", "engineer", "chemist", "florist", "jeweller",
)  # fmt: skip
HOUSES = ("Ember", "Tide", "Gale", "Stone", "Thorn", "Frost")
FRUITS = ("apples", "pears", "plums", "coins", "books", "cards", "shells", "pens", "cups", "nuts")
MEANINGS = ("hello", "thanks", "water", "world", "yes", "no")
HELLO = {
    language: dict(zip(MEANINGS, words.split(), strict=True))
    for language, words in {
        "Russian": "привет спасибо вода мир да нет",
        "Greek": "γεια ευχαριστώ νερό κόσμος ναι όχι",
        "Japanese": "こんにちは ありがとう 水 世界 はい いいえ",
        "Arabic": "مرحبا شكرا ماء عالم نعم لا",
        "Korean": "안녕 고마워 물 세계 네 아니요",
        "Hindi": "नमस्ते धन्यवाद पानी दुनिया हाँ नहीं",
        "Chinese": "你好 谢谢 水 世界 是 不是",
        "French": "bonjour merci eau monde oui non",
        "Emoji": "👋 🙏 💧 🌍 👍 👎",
    }.items()
}
TIPS = {
    "staying healthy": (
        (
            "Eat greens",
            "Put vegetables on every plate. They give you vitamins and keep your heart strong.",
        ),
        (
            "Sleep enough",
            "Go to bed at the same time each night. Rest lets your body repair itself.",
        ),
        (
            "Walk daily",
            "Take a walk after lunch. Half an hour of steps keeps your legs and lungs fit.",
        ),
        ("Drink water", "Keep a glass of water near you. It clears your head and helps your skin."),
        ("See friends", "Meet a friend every week. Good company lowers stress."),
    ),
    "saving money": (
        (
            "Set a budget",
            "Write down what you earn and what you spend. A plan shows where the money goes.",
        ),
        ("Cook at home", "Make your own meals. A home dinner costs a third of a meal out."),
        ("Buy used", "Look for used books and clothes. They work as well and cost half as much."),
        ("Cancel extras", "Stop the services that you never use. Small fees add up over a year."),
        ("Save first", "Move some money away on payday. What you do not see you do not spend."),
    ),
    "learning a language": (
        ("Speak daily", "Talk aloud for ten minutes each day. Your mouth must learn the sounds."),
        (
            "Read stories",
            "Pick short stories with simple words. You learn grammar without noticing it.",
        ),
        ("Use cards", "Write new words on small cards. Look at them again the next day."),
        ("Hear songs", "Play songs and sing along. Rhythm helps you remember words."),
        ("Make mistakes", "Do not fear mistakes. Every error shows you what to learn next."),
    ),
    "growing tomatoes": (
        (
            "Find sun",
            "Choose the brightest place in the garden. Tomatoes need six hours of sun a day.",
        ),
        ("Water deeply", "Water the roots slowly every morning. Deep water makes deep roots."),
        ("Tie the stems", "Tie each stem to a stick. The fruit is heavy and the stem can break."),
        ("Feed the soil", "Mix old leaves into the soil. Rich soil gives sweet fruit."),
        ("Pick often", "Pick the ripe fruit every few days. The plant then makes more."),
    ),
    "writing essays": (
        ("Plan first", "List your points before you write. A plan keeps the essay in order."),
        ("Cite facts", "Give a number or a source for each claim. Facts make readers trust you."),
        ("Stay calm", "Choose plain words and a quiet tone. Shouting does not persuade anyone."),
        ("Cut words", "Read it again and cut what you can. Short sentences are clear sentences."),
        ("End well", "Close with one sentence that sums up. Readers remember the end."),
    ),
    "sleeping well": (
        ("Dim the lights", "Turn the lights down in the evening. Darkness tells the body to rest."),
        ("Skip coffee", "Drink no coffee after noon. It stays in the blood for hours."),
        ("Cool the room", "Open a window before bed. A cool room brings deeper sleep."),
        ("Hide screens", "Leave the phone in another room. Its light keeps you awake."),
        ("Keep hours", "Get up at the same time every day. The body likes a steady clock."),
    ),
    "hosting a party": (
        ("Invite early", "Send the invitations two weeks ahead. Guests need time to plan."),
        (
            "Plan the food",
            "Serve dishes that can be made the day before. Then you can enjoy the evening.",
        ),
        ("Choose music", "Make a list of cheerful songs. Music fills the quiet moments."),
        ("Greet guests", "Meet each guest at the door. A warm welcome sets the mood."),
        ("Offer water", "Put jugs of water on the table. Dancing makes people thirsty."),
    ),
    "passing exams": (
        (
            "Start early",
            "Begin a month before the exam. Small steps are easier than one night of panic.",
        ),
        ("Take breaks", "Rest five minutes every hour. A tired mind learns nothing."),
        ("Teach others", "Explain the subject to a friend. Teaching shows what you do not know."),
        (
            "Solve old papers",
            "Work through the papers of past years. The questions are often alike.",
        ),
        ("Eat breakfast", "Have a good breakfast on the day. The brain needs fuel."),
    ),
    "caring for a dog": (
        ("Walk it twice", "Take the dog out in the morning and at night. Exercise keeps it calm."),
        ("Brush its coat", "Brush the coat once a week. It keeps the hair clean and soft."),
        ("Train gently", "Reward good behaviour with a treat. Dogs learn fast from praise."),
        ("Visit the vet", "See the vet once a year. Early checks prevent illness."),
        ("Give it toys", "Leave a few toys on the floor. A bored dog eats shoes."),
    ),
    "packing for a trip": (
        ("Make a list", "Write a list and tick things off. Nothing important stays at home."),
        ("Roll clothes", "Roll the shirts instead of folding them. They take less room."),
        ("Pack layers", "Bring several thin layers. The weather can change in an hour."),
        ("Carry papers", "Keep tickets and papers in one pocket. You will need them at the gate."),
        ("Leave space", "Leave a corner of the bag empty. You will bring something back."),
    ),
}

CONSONANTS, VOWELS, ENDS = "BDFGHJKLMNPRSTVWZ", "aeiou", "bdfgklmnprstvxz"
SCRIPTS: dict[str, tuple[str, ...]] = {
    "Cyrillic": ("бвгджзклмнпрст", "аеиоуя", "бвгджзклмнпрст", "аеиоуя"),
    "Greek": ("βγδζθκλμνπρστφ", "αεηιουω", "βγδζθκλμνπρστφ", "αεηιουω"),
    "Kana": (
        "あいうえおかきくけこさしすせそ",
        "たちつてとなにぬねのはひふへほ",
        "まみむめもやゆよらりるれろわん",
    ),
    "Arabic": ("بتثجحخدذر", "زسشصضطظعغ", "فقكلمنهوي", "بتثجحخدذر"),
    "Han": ("东西南北中上下左右", "山水火木金土天地人", "门桥路城村江河湖海"),
    "Emoji": ("🍎🍋🍇🍉🍒🥝🍑", "🐶🐱🐭🐰🦊🐻🐼", "🚗🚕🚌🚲🚀🚁🚢"),
}


def _syllables(seed: int, count: int) -> list[str]:
    """`count` distinct consonant-vowel-consonant syllables, the same for every caller."""
    every = [a + b + c for a in CONSONANTS.lower() for b in VOWELS for c in ENDS]
    return random.Random(seed).sample(every, count)


HEADS = tuple(s.capitalize() for s in _syllables(1, 96))
TAILS = tuple(_syllables(2, 96))
NAMES = (
    "Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Ida", "Jack", "Kate",
    "Leo", "Maria", "Nora", "Oscar", "Paul", "Rosa", "Sam", "Tom", "Vera", "Alice", "Bob", "Carol",
    "Eve", "Harry", "John", "Mary", "Peter", "Lucy", "Max", "Olga", "Yuki", "Omar", "Lena", "Hugo",
    "Zoe",
)  # fmt: skip
TOWNS = (
    "London", "Boston", "Chicago", "Milan", "Munich", "Lyon", "Porto", "Geneva", "Osaka", "Mumbai",
    "Sydney", "Toronto", "Dallas", "Seattle", "Glasgow", "Hamburg", "Naples", "Seville", "Kyoto",
)  # fmt: skip
TOWN_ENDS = ("ton", "burg", "ford", "mere", "dale", "port")
HELD_OUT_ONE_IN = 8


def is_held_out(text: str) -> bool:
    """Whether a spelling, of a made-up word or a whole prompt, is kept out of training."""
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


class Words:
    """Made-up words for one document, all of one side of the split, no two of which start alike.

    held_out: draw only words that training text never holds, instead of only words that it may.
    """

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self._rng, self._held_out, self._starts = rng, held_out, set[str]()

    @property
    def held_out(self) -> bool:
        """Whether these are the words of exams."""
        return self._held_out

    def name(self) -> str:
        """A person's name of two syllables, such as Zorvek; in training at times another one."""
        if self._is_other():
            return self._fresh(
                lambda: self._rng.choice((self._rng.choice(NAMES), self.free_word())), 3
            )
        return self._fresh(lambda: self._rng.choice(HEADS) + self._rng.choice(TAILS), 3)

    def town(self) -> str:
        """A town's name such as Tamlinford: a word, which decides the side, and an ending."""
        if self._is_other():
            return self._fresh(lambda: self._rng.choice(TOWNS), 3)
        return self.name() + self._rng.choice(TOWN_ENDS)

    def foreign(self) -> str:
        """A word of fixed length in one of six other scripts."""
        script = SCRIPTS[self._rng.choice(tuple(SCRIPTS))]
        return self._fresh(lambda: "".join(map(self._rng.choice, script)), 1)

    def any(self) -> str:
        """A word for copying: a name, a town or, two times in five, a word in another script."""
        return self._rng.choice((self.name, self.name, self.town, self.foreign, self.foreign))()

    def drawn(self, draw: Callable[[], str]) -> str:
        """What `draw` gives on this side of the split: a function's name, a number, a word in a
        script that is not one of the six.
        """
        while True:
            text = draw()
            if is_held_out(text) == self._held_out:
                return text

    def _is_other(self) -> bool:
        """Whether a training word should be unlike those of the exams, to widen what is copied."""
        return not self._held_out and self._rng.random() < 0.12

    def free_word(self) -> str:
        """Some letters that can be spoken, such as Kalimon."""
        pairs = self._rng.choices([c + v for c in "bcdfghjklmnpqrstvwyz" for v in VOWELS], k=3)
        return "".join(pairs).capitalize() + self._rng.choice(("", "n", "s", "r", "l"))

    def _fresh(self, draw: Callable[[], str], start_len: int) -> str:
        while True:
            word = draw()
            if is_held_out(word) == self._held_out and word[:start_len] not in self._starts:
                self._starts.add(word[:start_len])
                return word
