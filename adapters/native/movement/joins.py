"""Which neighbours belong together: labels and what they label, lists, headings, demonstrations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from .parts import PLACEHOLDER, Part
from .shapes import (
    heading_level,
    is_ended,
    is_example,
    is_general,
    is_item,
    is_open_label,
    label_of,
)

Join = tuple[int, str]  # a part that stays right behind the one before it, and why


def joins(parts: Sequence[Part]) -> dict[int, str]:
    """The parts that stay right behind the part before them, each with the reason."""
    found: dict[int, str] = {}
    for place, reason in (
        *_unfinished(parts),
        *_labelled(parts),
        *_listed(parts),
        *_recorded(parts),
        *_lined(parts),
        *_headed(parts),
        *_demonstrated(parts),
    ):
        found.setdefault(place, reason)
    return found


def _unfinished(parts: Sequence[Part]) -> Iterator[Join]:
    """Lines that go on with the line before."""
    for left, right in pairwise(parts):
        is_open = not is_ended(left) and not left.text.endswith(PLACEHOLDER)
        is_line = label_of(left) or is_item(left) or heading_level(left) or right.starts_paragraph
        if right.text[0].islower() or (is_open and not is_line):
            yield right.place, f"{quoted(right)} goes on with {quoted(left)}"


def _labelled(parts: Sequence[Part]) -> Iterator[Join]:
    """What stands behind a label: an argument; or all constant lines of the paragraph."""
    for label in parts:
        body = parts[label.place + 1 :]
        if not is_open_label(label) or not body:
            continue
        reason = f"the label {quoted(label)} stays with its argument"
        yield body[0].place, reason
        if not body[0].is_constant:
            continue
        is_demonstration = is_example(label.text.lower())
        for part in body[1:]:
            is_label = is_open_label(part) or label_of(part) is not None
            if part.starts_paragraph or (is_label and not is_demonstration):
                break
            if part.is_constant:
                yield part.place, reason


def _listed(parts: Sequence[Part]) -> Iterator[Join]:
    """Items of a list, with the line that introduces them and all that is in their lines."""
    for left, right in pairwise(parts):
        reason = f"{quoted(right)} belongs to a list"
        is_inside = _is_in_item(parts, left)
        if is_item(right):
            is_joined = is_inside or not right.starts_paragraph
        else:
            is_indented = not right.starts_paragraph and right.gap.endswith("  ")
            is_joined = is_inside and (not right.starts_line or is_indented)
        if is_joined:
            yield right.place, reason


def _recorded(parts: Sequence[Part]) -> Iterator[Join]:
    """Labelled lines that follow one another are one record."""
    for left, right in pairwise(parts):
        label = label_of(right)
        if label is None or label_of(left) is None or right.starts_paragraph:
            continue
        if is_general(label) and not _is_of_argument(parts, right):
            continue
        yield right.place, f"{quoted(right)} is a field of the same record as {quoted(left)}"


def _lined(parts: Sequence[Part]) -> Iterator[Join]:
    """Adjacent lines that both have arguments."""
    for left, right in pairwise(parts):
        if not (left.is_constant or right.is_constant or right.starts_paragraph):
            yield right.place, f"{quoted(right)} stands right below {quoted(left)}"


def _headed(parts: Sequence[Part]) -> Iterator[Join]:
    """All that stands below a heading, up to the next one that is as high."""
    for head in parts:
        level = heading_level(head)
        if level is None:
            continue
        for part in parts[head.place + 1 :]:
            other = heading_level(part)
            if other is not None and other <= level:
                break
            yield part.place, f"{quoted(part)} stands below the heading {quoted(head)}"


def _demonstrated(parts: Sequence[Part]) -> Iterator[Join]:
    """From the first to the last line of a label that comes again: examples of a format."""
    first: dict[str, int] = {}
    for part in parts:
        label = label_of(part)
        if label is None:
            continue
        name = re.sub(r"\W+(?:\d+|[a-z])$", "", label)
        start = first.setdefault(name, part.place)
        for place in range(start + 1, part.place + 1):
            yield place, f"demonstrations of a format stay together: {name!r} comes again"


def _is_of_argument(parts: Sequence[Part], label: Part) -> bool:
    """Whether what is labelled has an argument."""
    following = parts[label.place : label.place + (2 if is_open_label(label) else 1)]
    return not all(part.is_constant for part in following)


def _is_in_item(parts: Sequence[Part], part: Part) -> bool:
    """Whether the line of a part begins as an item of a list."""
    while not part.starts_line:
        part = parts[part.place - 1]
    return is_item(part)


def quoted(part: Part) -> str:
    """The beginning of a part, for messages."""
    text = " ".join(str(part).split())
    return f'"{text}"' if len(text) <= 40 else f'"{text[:37]}..."'
