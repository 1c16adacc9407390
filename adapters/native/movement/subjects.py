"""Whether a constant part can be read ahead of the arguments: it gives an instruction, and speaks
of nothing that they introduce."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .english import KNOWN, STEPS, first_verb, is_english, is_imperative, is_rule, words
from .parts import PLACEHOLDER, Part
from .shapes import heading_level, is_bare, is_general, is_open_label, label_of

_NAME = re.compile(r"\b[A-Z][\w-]*")
_SCENE = re.compile(
    r"^\W*(?:You are|You're|Act as|Imagine|Suppose|Assume|Pretend|Let|Define|Call|Denote|Given that"
    r"|Consider an?)\b|\b(?:call it|called|denoted|referred to as|hereafter|known as)\b"
)
_GREETING = re.compile(r"^(?:Dear|Hi|Hello|Hey|Good (?:morning|afternoon|evening|day))\b")


def why_not_first(part: Part, before: Sequence[Part]) -> str | None:
    """Why a constant part cannot stand ahead of those before it that have arguments, or None."""
    arguments = [other for other in before if not other.is_constant]
    if not is_english(part.text):
        return "it is not in English, which is all that the checks know"
    if (name := _shared_name(part, arguments)) is not None:
        return f"it speaks of {name!r}, which is introduced before"
    label = label_of(part)
    if label is not None and is_general(label):
        return None
    if label is not None and not is_open_label(part):
        return f"the label {label!r} is of the case at hand"
    if heading_level(part) is not None:
        heading = " ".join(words(part.text))
        return None if _names_instructions(heading) else "its heading is of the case at hand"
    tells = [other for other in arguments if not is_bare(other)]
    if is_imperative(part.text):
        is_step = first_verb(part.text) in STEPS
        return "it may be a step that follows on from the one before" if tells and is_step else None
    if tells:
        return "it may go on with what is told before"
    if is_rule(part.text) or _is_whole_question(part.text):
        return None
    return "it is not recognised as an instruction"


def opens_scene(part: Part) -> bool:
    """Whether what follows depends on a part with arguments: it names things, or greets."""
    colon = part.text.find(":")
    is_labelled = 0 <= colon < part.text.find(PLACEHOLDER)
    return bool(_GREETING.match(part.text) or (_SCENE.search(part.text) and not is_labelled))


def _names_instructions(heading: str) -> bool:
    return any(is_general(word) for word in heading.split()) or first_verb(heading) is not None


def _is_whole_question(text: str) -> bool:
    """Whether a question names what it is about."""
    found = words(text)
    return text.rstrip().endswith("?") and len(found) > 4 and "the" in found


def _shared_name(part: Part, arguments: Sequence[Part]) -> str | None:
    """A name in a part that one with arguments has too, other than in its label."""
    names = _names(part.text)
    for other in arguments:
        text = other.text
        if label_of(other) is not None or is_bare(other):
            text = text.partition(":")[2]
        shared = [name for name in names if name in _names(text)]
        if shared:
            return shared[0]
    return None


def _names(text: str) -> list[str]:
    """Capitalised words that are none because a sentence begins."""
    found = []
    for hit in _NAME.finditer(text):
        is_start = re.search(r"(?:^|[.!?:]\s|\n)[\W_]*$", text[: hit.start()]) is not None
        word = hit[0]
        if not (is_start and word.lower() in KNOWN) and word != "I":
            found.append(word)
    return found
