"""Orders of prompts that must be refused: parts lost, torn apart, or in an order that says another
thing by the judgment by hand."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations

from forkroot.adapters.native.movement.cuts import cut
from forkroot.adapters.native.movement.parts import Part, Piece, Placeholder, Stretch, shown

from .templates.template import Message, Template, names_of

NUM_SHUFFLES = 200  # of a prompt with more than six parts
INTRUDERS = (
    "Summarise the text above in one sentence.",
    "Base the answer on this text only.",
    "Translate it into French before you do anything else.",
    "Explain why they are wrong.",
    "Apply the preceding rules to the case.",
    "List its three main points.",
    "Do the same in German.",
    "Then shorten the result to ten words.",
    "Finally, check the spelling.",
    "Compare these with one another.",
    "Correct the errors in that.",
    "If so, give a reason.",
    'Otherwise, write "none".',
    "Answer the previous question again.",
    "Now write the answer.",
    "Keep to what was said earlier.",
    "Use the latter as the title.",
    "Also name her employer.",
    "Quote the part mentioned before.",
    "Repeat the aforementioned figures.",
    "Bob takes two of the apples.",
    "Explain how such a thing could happen.",
    "Write down what you have just read.",
    "Check each of them against the law.",
    "Both are to be graded.",
    "Explain why.",
    "Hence the sum is odd.",
    "Do so in verse.",
    "The foregoing is confidential.",
    "Say what is wrong here.",
)
LATER_INTRUDERS = (  # written after the rules
    "Put the former in italics.",
    "Explain what is meant by that phrase.",
    "Include the figure just given.",
    "Rewrite its opening.",
    "The answer given by the pupil is wrong.",
    "His motives are unclear.",
    "Three of them survived.",
    "Only the last one counts.",
    "That is all the evidence.",
    "Make the second one longer.",
    "Swap the two sentences you just quoted.",
    "As a consequence, prices fall.",
    "Meanwhile, the harbour stays closed.",
    "In this case the claim fails.",
    "The same applies to sheep.",
    "Who is she?",
    "End of the transcript.",
    "P.S. Bring a coat.",
    "Nor may animals enter.",
    "Unlike the first plan, the second is cheap.",
    "The said company is dissolved.",
    "Correct this, please.",
    "Complete the sentence just begun.",
    "Continue from where the text stops.",
    "Use the same units.",
    "Prove the converse.",
)
LAST_INTRUDERS = (  # written after six of the sentences above had been accepted, and mended
    "Turn what he says into indirect speech.",
    "List the points on which both agree.",
    "Give a second example.",
    "Add a further reason.",
    "Show a different way.",
    "Now for something else: name a bird.",
    "Keep going.",
    "Use a longer version.",
    "Ask one more question.",
    "Sort the rest by size.",
    "Explain the joke to her.",
    "It follows that the sum is odd.",
    "Only then write the answer.",
    "In return, offer a refund.",
    "Say more.",
    "Prices rose thereafter.",
    "She laughed.",
)
FINAL_INTRUDERS = (  # written last, after ten of those had been; five of these were accepted
    "Explain the last three words in simple terms.",
    "Write down whatever remains.",
    "Defend the view just described.",
    "Say whether they were right.",
    "Name the thief in the story told above.",
    "Let me give you the next clue.",
    "The third line is a lie.",
    "Nobody believed him.",
    "Read on, and then decide.",
    "Before that, name the author.",
    "Note how this differs from prose.",
    "Undo the change.",
    "Either is fine.",
    "Quote two of those lines.",
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """An order of the parts of a stretch that must be refused. kind: what is wrong with it."""

    template: str
    kind: str
    stretch: Stretch
    order: tuple[Part, ...]


def illegal(templates: Sequence[Template], seed: int) -> Iterator[Proposal]:
    """Proposals of all kinds for each prompt of the templates."""
    source = random.Random(seed)
    for template in templates:
        for message, stretch in stretches(template):
            yield from _with_other_parts(template.name, stretch, source)
            yield from _judged_illegal(template.name, message, stretch, source)
            yield from _with_intruders(template.name, message)


def stretches(template: Template) -> Iterator[tuple[Message, Stretch]]:
    """The prompts of a template that have arguments, as the compiler cuts them."""
    for message in template.messages:
        stretch = cut(pieces_of(message.text), is_answered=message.answer is not None)
        if not all(part.is_constant for part in stretch.parts):
            yield message, stretch


def pieces_of(text: str) -> tuple[Piece, ...]:
    """Texts and placeholders of a text with {names}."""
    found: list[Piece] = []
    for literal, name, _, _ in string.Formatter().parse(text):
        if literal and found and isinstance(found[-1], str):
            found[-1] += literal  # a doubled brace ends a literal
        elif literal:
            found.append(literal)
        if name:
            found.append(Placeholder(name, len(found)))
    return tuple(found)


def _with_other_parts(name: str, stretch: Stretch, source: random.Random) -> Iterator[Proposal]:
    """Parts dropped, repeated, altered, or with the arguments of another."""
    parts = stretch.parts
    for part in parts:
        rest = [other for other in parts if other is not part]
        yield Proposal(name, "dropped", stretch, tuple(rest))
        rest.insert(source.randrange(len(parts)), part)
        rest.insert(source.randrange(len(parts)), part)
        yield Proposal(name, "duplicated", stretch, tuple(rest))
        for kind, altered in _altered(part, source):
            order = tuple(altered if other is part else other for other in parts)
            yield Proposal(name, kind, stretch, order)
    placeholders = [
        piece for part in parts for piece in part.pieces if isinstance(piece, Placeholder)
    ]
    for one, two in pairwise(placeholders):
        swapped = {one: two, two: one}
        order = tuple(
            replace(part, pieces=tuple(swapped.get(it, it) for it in part.pieces))  # type: ignore[call-overload]
            for part in parts
        )
        yield Proposal(name, "arguments swapped", stretch, order)


def _altered(part: Part, source: random.Random) -> Iterator[tuple[str, Part]]:
    text = next((piece for piece in part.pieces if isinstance(piece, str)), None)
    if text is not None:
        words = text.split(" ")
        words[source.randrange(len(words))] = "never"
        pieces = tuple(" ".join(words) if it is text else it for it in part.pieces)
        if pieces != part.pieces:
            yield "altered", replace(part, pieces=pieces)
    if not part.is_constant:
        renamed = [
            Placeholder("other", 99) if isinstance(it, Placeholder) else it for it in part.pieces
        ]
        yield "argument renamed", replace(part, pieces=tuple(renamed))
        kept = tuple(it for it in part.pieces if isinstance(it, str))
        yield "argument lost", replace(part, pieces=kept)


def _judged_illegal(
    name: str, message: Message, stretch: Stretch, source: random.Random
) -> Iterator[Proposal]:
    """Permutations that the judgment by hand does not allow."""
    for order in dict.fromkeys(_permutations(stretch.parts, source)):
        if not message.is_legal(shown(stretch.pieces(order))):
            yield Proposal(name, "permutation", stretch, order)


def _permutations(parts: Sequence[Part], source: random.Random) -> Iterator[tuple[Part, ...]]:
    """All, or of many parts: single moves, swaps, constants first, and random ones."""
    if len(parts) <= 6:
        yield from permutations(parts)
        return
    for start in range(len(parts)):
        for end in range(len(parts)):
            moved = [part for part in parts if part is not parts[start]]
            moved.insert(end, parts[start])
            yield tuple(moved)
    yield tuple(reversed(parts))
    yield tuple(sorted(parts, key=lambda part: not part.is_constant))
    for size in range(2, len(parts)):
        for start in range(1, len(parts) - size + 1):
            block = parts[start : start + size]
            yield (*block, *parts[:start], *parts[start + size :])
    for _ in range(NUM_SHUFFLES):
        yield tuple(source.sample(list(parts), len(parts)))


def _with_intruders(name: str, message: Message) -> Iterator[Proposal]:
    """A sentence that refers to what stands before it, right behind the arguments; and then moved
    ahead of them, alone and with all constant parts."""
    last = max(index for index, text in enumerate(message.texts) if names_of(text))
    before = "".join(message.texts[: last + 1]).rstrip()
    behind = "".join(message.texts[last + 1 :])
    for text in (*INTRUDERS, *LATER_INTRUDERS, *LAST_INTRUDERS, *FINAL_INTRUDERS):
        pieces = pieces_of(f"{before}\n\n{text}\n\n{behind}")
        parts = (stretch := cut(pieces, message.answer is not None)).parts
        intruder = next((part for part in parts if shown(part.pieces) == text), None)
        if intruder is None:
            continue
        first = next(part.place for part in parts if not part.is_constant)
        for place in range(first + 1):
            rest = [part for part in parts if part is not intruder]
            yield Proposal(name, "anaphora", stretch, (*rest[:place], intruder, *rest[place:]))
        order = tuple(sorted(parts, key=lambda part: not part.is_constant))
        yield Proposal(name, "anaphora", stretch, order)
