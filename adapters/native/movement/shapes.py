"""What a part looks like: a label, an item of a list, a heading, a fence, a whole sentence."""

from __future__ import annotations

import re

from .english import first_verb, word_set
from .parts import PLACEHOLDER, Part

_LABEL = re.compile(
    r"^[\W_]{0,4}?(?P<label>[A-Z][\w/'’&-]*(?: [\w/'’&()-]+){0,4})(?:\s*\([^)]*\))?\**\s*:"
    r"(?:\**)(?=\s|$|\W)"
)
_ITEM = re.compile(
    r"^(?:[-*•–]\s|\(?(?:\d{1,3}|[A-Za-z])[.)]\s|\[\d{1,3}\]\s?"
    r"|(?:Step|Rule|Point) \d+\b|[A-Z]\d{1,2}\b\s*[:.)-])"
)
_MARKED = re.compile(r"^(#{1,6})\s+\S")
_CAPITALS = re.compile(r"^[A-Z][A-Z0-9 /&-]{2,40}:?$")
_FRAMED = re.compile(r"^(?:\*\*[^*]+\*\*|\[[A-Z][^\]]*\]|([=-])\1+ [^=\n]+ \1\1+|<<[^>]+>>):?$")
_PRESENTED = re.compile(r"^(?:Here (?:is|are)|Below|The following|Given)\b")
_ENDED = re.compile(r"(?:[.!?…:;]|```|~~~|\"\"\"|''')[\"'”’»)\]*_`]*$|[\"”’»)\]}>`]$")

# Labels that open a text about the answer; any other labels something of the case at hand.
_GENERAL_LABELS = word_set(
    """
    labels label set categories category list classes tags options values choices rules
    instructions instruction task tasks format requirements constraints guidelines notes note
    hint hints criteria rubric style tone schema example examples steps method scale definitions
    definition role goal reminder remember warning limits form
    """
)
_KINDS_OF_LABELS = word_set(
    """
    output answer response reply allowed possible valid worked important grading severity rating
    scoring general further house editorial our your the of for and
    """
)


def label_of(part: Part) -> str | None:
    """The label that a line begins with, in lower case."""
    found = _LABEL.match(part.text)
    label = found["label"].lower() if found else ""
    if not label or (len(label.split()) > 2 and first_verb(label) is not None):
        return None
    return label if part.starts_line or is_general(label) else None


def is_general(label: str) -> bool:
    """Whether a label opens rules, options, formats and the like."""
    found = set(re.findall(r"[a-z]+", label))
    return bool(found & _GENERAL_LABELS) and found <= _GENERAL_LABELS | _KINDS_OF_LABELS


def is_example(label: str) -> bool:
    """Whether a label opens a demonstration."""
    return "example" in label


def is_open_label(part: Part) -> bool:
    """Whether a part labels what follows it."""
    return part.text.rstrip("*_ ").endswith((":", "："))


def is_item(part: Part) -> bool:
    """Whether a line is an item of a list."""
    return part.starts_line and _ITEM.match(part.text) is not None


def heading_level(part: Part) -> int | None:
    """The level of a heading: 1 for the highest; None for other parts."""
    line = part.text.strip()
    if not part.starts_line:
        return None
    if found := _MARKED.match(line):
        return len(found[1])
    is_framed = _CAPITALS.match(line) is not None or _FRAMED.match(line) is not None
    return 7 if is_framed and "\n" not in line else None


def is_ended(part: Part) -> bool:
    """Whether a text is complete, so that an answer does not go on with it."""
    return _ENDED.search(part.text.rstrip()) is not None


def is_open_text(text: str) -> bool:
    """Whether what follows a text goes on with it: it ends in a label, or in no whole sentence."""
    plain = text.rstrip()
    is_label = plain.rstrip("*_").endswith((":", "："))
    return bool(plain) and (is_label or not _ENDED.search(plain))


def is_bare(part: Part) -> bool:
    """Whether an argument stands by itself: alone, behind a label, in a fence or between tags."""
    text = part.text
    if is_open_label(part) or label_of(part) or heading_level(part) or is_item(part):
        return True
    if re.match(r"^[`~\"'<\-=*#_+\[({“]", text):
        return True
    plain = re.sub(rf"[\W_{PLACEHOLDER}]", "", text)
    return (
        not plain or re.match(r"^(?:Here (?:is|are)|Below|The following|Given)\b", text) is not None
    )
