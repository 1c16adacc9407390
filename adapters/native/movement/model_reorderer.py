"""The reorderer that asks a model, as the paper asks one: which parts may come first?

The model, of any backend, chooses one of the orders that move constant blocks ahead of the
arguments. It knows more of language than the rules and is wrong more often: the checks decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from ....core.api.protocol import Backend, Call, Choices, InvalidCall, Sampling, Text
from .checks import Checks
from .parts import Part, Stretch
from .rules import behind_arguments, moved_first
from .ties import is_constant

MAX_ORDERS = 64
_SLACK = 16  # tokens beside the order that an API may need
_TASK = """\
The parts of a prompt are numbered. Names in braces are arguments, which differ in each run; parts
without them are the same in each run. Write an order of the parts in which as many parts without
arguments as possible come first, while the prompt keeps its meaning: a part with "above", "this" or
"it" stays behind what it refers to, an instruction may come ahead of the text that it is about, and
the label at the end stays there.

"""
_EXAMPLES = (
    (
        ("Here is a question {question}.", "Please act as a math expert and solve the question."),
        "2 1",
    ),
    (("Text: {text}", "Translate the text above into French.", "French:"), "1 2 3"),
    (
        ("Review: {review}", "Name the product.", "Use one word.", "Product:"),
        "2 3 1 4",
    ),
    (
        ("You are {name}, a {job}.", "Stay in character.", "User: {message}"),
        "1 2 3",
    ),
    (
        ("Letter: {letter}", "What does the writer want?", "Answer it politely.", "Answer:"),
        "2 1 3 4",
    ),
)


class ModelReorderer:
    """Asks a backend for the order. Where it fails, its error is raised.

    examples: as many of the five worked examples are shown first.
    """

    def __init__(self, backend: Backend, examples: int = len(_EXAMPLES)) -> None:
        if not callable(getattr(backend, "submit", None)):
            raise InvalidCall("backend", backend, "a backend, such as connect(...) gives")
        if type(examples) is not int or not 0 <= examples <= len(_EXAMPLES):
            raise InvalidCall("examples", examples, f"a number from 0 to {len(_EXAMPLES)}")
        self._backend, self._examples = backend, _EXAMPLES[:examples]

    def propose(self, stretch: Stretch) -> Sequence[Part]:
        """The order that the model chose."""
        blocks = Checks(stretch).ties.blocks
        orders = {_numbers(order, blocks): order for order in _orders(blocks)}
        if len(orders) < 2:
            return stretch.parts
        options = tuple(orders)
        sampling = Sampling(max_tokens=max(map(len, options)) + _SLACK, temperature=0)
        prompt = (Text(self._prompt([" ".join(map(str, block)) for block in blocks])),)
        call = Call(prompt, sampling, constraint=Choices(options))
        answer = self._backend.submit(call).result().text
        return orders.get(answer, stretch.parts)

    def _prompt(self, blocks: Sequence[str]) -> str:
        shown = [_numbered(parts) + f"Order: {order}\n" for parts, order in self._examples]
        return _TASK + "\n".join((*shown, _numbered(blocks) + "Order: "))


def _orders(blocks: Sequence[Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
    """The orders to choose from: their own, and those with constant blocks in front."""
    movable = [block for block in behind_arguments(blocks) if is_constant(block)]
    yield moved_first(blocks, ())
    left = MAX_ORDERS - 1
    for num in range(len(movable), 0, -1):
        for moved in combinations(movable, num):
            if left == 0:
                return
            left -= 1
            yield moved_first(blocks, moved)


def _numbers(order: Sequence[Part], blocks: Sequence[Sequence[Part]]) -> str:
    """An order as the numbers of its blocks."""
    number = {block[0].place: str(index) for index, block in enumerate(blocks, 1)}
    return " ".join(number[part.place] for part in order if part.place in number)


def _numbered(parts: Sequence[str]) -> str:
    lines = (f"{number}: {' '.join(part.split())}" for number, part in enumerate(parts, 1))
    return "Parts:\n" + "\n".join(lines) + "\n"
