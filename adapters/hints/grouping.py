"""Calls that are to run together, parted by what they share. Knows no backend and no tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...core.api.protocol import Call
from .outline import Outline
from .seen import common_len


@dataclass(frozen=True, slots=True)
class Group:
    """Calls, by their places, that share the first `length` characters of one's outline."""

    members: tuple[int, ...]
    outline: Outline
    length: int


def groups(calls: Sequence[Call], least: int) -> Iterator[Group]:
    """Every call that shares at least `least` characters with another, in the group with which it
    shares the most; a group within a group shares as many more. Shorter beginnings come first."""
    spaces: dict[str, list[int]] = {}
    for index, call in enumerate(calls):
        spaces.setdefault(call.namespace, []).append(index)
    for indices in spaces.values():
        found = sorted(((Outline.of(calls[index].prompt), index) for index in indices), key=_text)
        for ranks, length in _nested([outline.text for outline, _ in found], least):
            members = tuple(sorted(found[rank][1] for rank in ranks))
            yield Group(members, found[ranks[0]][0], length)


def _nested(texts: Sequence[str], least: int) -> Iterator[tuple[list[int], int]]:
    """Ranks of sorted texts that share a beginning, and its length, from the outside inwards."""
    shares = [common_len(texts[rank], texts[rank + 1]) for rank in range(len(texts) - 1)]
    found: list[tuple[list[int], int]] = [([], 0)]
    pending = [(0, len(texts), 0)]
    for start, end, owner in pending:  # texts[start:end] share what their owner does, or more
        if end - start == 1:
            found[owner][0].append(start)
            continue
        length = min(shares[start : end - 1])
        if length - found[owner][1] >= least:
            owner = len(found)
            found.append(([], length))
        borders = [rank + 1 for rank in range(start, end - 1) if shares[rank] == length]
        pending += [(*part, owner) for part in pairwise((start, *borders, end))]
    return ((ranks, length) for ranks, length in found[1:] if ranks)


def _text(item: tuple[Outline, int]) -> str:
    return item[0].text
