"""What builders of workloads draw from: the sets at hand, and texts written from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from forkroot.core.model.config import ModelConfig
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer
from forkroot.models.training.world.document import Document, Pen
from forkroot.models.training.world.facts import Words

from ..figure import Settings

LONGEST = 4096


@dataclass(slots=True)
class Texts:
    """Draws texts of lengths that fit a model's context. num: scales how many items there are."""

    settings: Settings
    tokenizer: Tokenizer
    context_len: int
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.settings.seed)

    @classmethod
    def of(cls, settings: Settings) -> Texts:
        """For the model of these settings."""
        folder = model_folder(settings.model)
        context = ModelConfig.from_folder(folder).context_len
        return cls(settings, Tokenizer.from_folder(folder), min(LONGEST, context))

    def num(self, smallest: int, quick: int, full: int) -> int:
        """How many items, by the mode."""
        return self.settings.num(smallest, quick, full)

    def fit(self, shots: Sequence[str], longest: int) -> str:
        """As many of the shots as leave room for `longest` tokens."""
        kept, room = "", self.context_len - longest
        for shot in shots:
            if len(self.tokenizer.encode(kept + shot)) > room:
                break
            kept += shot
        return kept

    def size(self, text: str) -> int:
        """Tokens of a text."""
        return len(self.tokenizer.encode(text))

    def cut(self, text: str, length: int) -> str:
        """The beginning of a text, of about so many tokens."""
        return self.tokenizer.decode(self.tokenizer.encode(text)[:length])

    def documents(self, task: Callable[[Pen], Document], count: int) -> list[Document]:
        """Texts of a task of the made-up world, with words that the model has not seen."""
        return [task(Pen(self.rng, Words(self.rng, True))) for _ in range(count)]

    def exams(self, task: Callable[[Pen], Document], count: int) -> list[tuple[str, str]]:
        """The last question of texts of a task, with the texts before it, and its answer."""
        return [document.exams[-1] for document in self.documents(task, count)]
