"""What is true in the small world, and the made-up words that its stories use.

Tables are closed: the model may know them by heart. Made-up words are not: every word is either a
training word or a held-out word, decided by a hash of its spelling, so that an answer about a
held-out word shows reading, not memory.
"""

import random
import zlib
from collections.abc import Callable

from .data import table_of

_DATA = table_of(__file__)
CAPITALS: dict[str, str] = _DATA["capitals"]
EUROPE = frozenset(_DATA["europe"])
COLOURS: dict[str, str] = _DATA["colours"]
SOUNDS: dict[str, str] = _DATA["sounds"]
JOBS: list[str] = _DATA["jobs"]
HOUSES: list[str] = _DATA["houses"]
FRUITS: list[str] = _DATA["fruits"]
HELLO = {
    language: dict(zip(_DATA["meanings"], words.split(), strict=True))
    for language, words in _DATA["hello"].items()
}
TIPS: dict[str, list[tuple[str, str]]] = {
    topic: list(tips.items()) for topic, tips in _DATA["tips"].items()
}

CONSONANTS, VOWELS, ENDS = "BDFGHJKLMNPRSTVWZ", "aeiou", "bdfgklmnprstvxz"
SCRIPTS: dict[str, list[str]] = _DATA["scripts"]


def _syllables(seed: int, count: int) -> list[str]:
    """`count` distinct consonant-vowel-consonant syllables, the same for every caller."""
    every = [a + b + c for a in CONSONANTS.lower() for b in VOWELS for c in ENDS]
    return random.Random(seed).sample(every, count)


HEADS = tuple(s.capitalize() for s in _syllables(1, 96))
TAILS = tuple(_syllables(2, 96))
NAMES: list[str] = _DATA["names"]
TOWNS: list[str] = _DATA["towns"]
TOWN_ENDS: list[str] = _DATA["town_ends"]
HELD_OUT_ONE_IN = 8


def is_held_out(text: str) -> bool:
    """Whether a spelling, of a made-up word or a whole prompt, is kept out of training."""
    return zlib.crc32(text.encode()) % HELD_OUT_ONE_IN == 0


class Words:
    """Made-up words for one document, all of one side of the split, no two of which start alike.

    held_out: draw only words that training text never holds, instead of only words that it may.
    """

    def __init__(self, rng: random.Random, held_out: bool) -> None:
        self.held_out = held_out
        self._rng, self._starts = rng, set[str]()

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
            if is_held_out(text) == self.held_out:
                return text

    def _is_other(self) -> bool:
        """Whether a training word should be unlike those of the exams, to widen what is copied."""
        return not self.held_out and self._rng.random() < 0.12

    def free_word(self) -> str:
        """Some letters that can be spoken, such as Kalimon."""
        pairs = self._rng.choices([c + v for c in "bcdfghjklmnpqrstvwyz" for v in VOWELS], k=3)
        return "".join(pairs).capitalize() + self._rng.choice(("", "n", "s", "r", "l"))

    def _fresh(self, draw: Callable[[], str], start_len: int) -> str:
        while True:
            word = draw()
            if is_held_out(word) == self.held_out and word[:start_len] not in self._starts:
                self._starts.add(word[:start_len])
                return word
