"""General chat turns: what users say, in several wordings, and the reply.

`turns.txt` holds one block a topic: the wordings, separated by bars, then the reply behind `>`.
"""

import re
from dataclasses import dataclass

from .data import blocks_of
from .facts import is_held_out

UNKNOWN = "I do not know that. I am a very small model."


@dataclass(frozen=True, slots=True)
class Topic:
    """What a user may say, and what is replied to each wording of it."""

    wordings: tuple[str, ...]
    reply: str

    def side(self, held_out: bool) -> tuple[str, ...]:
        """The wordings that are used in training, or those kept for exams; the first three, which
        are the usual ones, are for training.
        """
        usual = set(map(spoken, self.wordings[:3]))
        return tuple(
            said
            for said in self.wordings
            if (spoken(said) not in usual and is_held_out(spoken(said))) == held_out
        )


def spoken(text: str) -> str:
    """The text without case and punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def topics(blocks: list[str]) -> tuple[Topic, ...]:
    found = list[Topic]()
    for block in blocks:
        said, _, reply = block.partition("\n> ")
        wordings = tuple(wording.strip() for wording in said.replace("\n", " ").split("|"))
        found.append(Topic(wordings, reply.replace("\n  ", " ").replace("\n> ", "\n")))
    return tuple(found)


TOPICS = topics(blocks_of(__file__))
HELD_OUT = frozenset(spoken(said) for topic in TOPICS for said in topic.side(True))
