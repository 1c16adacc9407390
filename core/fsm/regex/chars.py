"""Sets of characters as ranges of code points, with the classes and the case rules of `re`.

Knows nothing of patterns, bytes or automata. A set is a tuple of half-open ranges `start:end`,
ascending and apart. `\\w`, `\\d` and `\\s` mean what they mean to `re`: ASCII alone under its flag
ASCII, else all of Unicode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeAlias
from unicodedata import category as _category_of

import numpy as np
import numpy.typing as npt

Ranges: TypeAlias = tuple[tuple[int, int], ...]

END = 0x110000
CATEGORIES_END = 0x40000  # no letter, digit or space lies above
CASES_END = 0x20000  # no character with a case lies above
CATEGORIES = {
    **{"Letter": "L", "Mark": "M", "Number": "N", "Punctuation": "P", "Symbol": "S"},
    **{"Separator": "Z", "Other": "C", "Control": "Cc", "Uppercase_Letter": "Lu"},
    **{"Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt", "Modifier_Letter": "Lm"},
    **{"Other_Letter": "Lo", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc"},
    **{"Decimal_Number": "Nd", "Letter_Number": "Nl", "Other_Number": "No"},
    **{"Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps"},
    **{"Close_Punctuation": "Pe", "Other_Punctuation": "Po", "Math_Symbol": "Sm"},
    **{"Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So"},
    **{"Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp"},
}
EVERYTHING: Ranges = ((0, END),)


def single(char: str) -> Ranges:
    """The set of one character."""
    return ((ord(char), ord(char) + 1),)


def union(parts: Iterable[tuple[int, int]]) -> Ranges:
    """The set of all code points that lie in any of these ranges, in any order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(parts):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """Every code point that is not in the set."""
    edges = [0, *(edge for pair in ranges for edge in pair), END]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple((start, end) for start, end in pairs if start < end)


@cache
def category(letter: str, is_ascii: bool) -> Ranges:
    """The set behind the escapes d, w and s, and behind their opposites D, W and S."""
    if letter.isupper():
        return complement(category(letter.lower(), is_ascii))
    test = {"d": str.isdecimal, "w": str.isalnum, "s": str.isspace}[letter]
    end = 0x80 if is_ascii else CATEGORIES_END
    flags = np.fromiter(map(test, map(chr, range(end))), bool, end)
    flags[ord("_")] |= letter == "w"
    if is_ascii and letter == "s":
        flags[0x1C:0x20] = False  # separators that only Unicode calls spaces
    return _ranges(flags)


@cache
def general_category(name: str) -> Ranges:
    """The set of the characters whose general category in Unicode begins so; empty: none."""
    flags = np.fromiter(
        (_category_of(char).startswith(name) for char in map(chr, range(END))), bool
    )
    return _ranges(flags)


def unicode_property(name: str) -> Ranges:
    """The set of a general category of Unicode by its short or long name, with `gc=` or without;
    empty if it is unknown."""
    prefix, found, rest = name.partition("=")
    if found:
        name = rest if prefix in ("gc", "General_Category") else ""
    name = CATEGORIES.get(name, name)
    return general_category(name) if 0 < len(name) < 3 else ()


def fold(ranges: Ranges, is_ascii: bool) -> Ranges:
    """The set, and what differs from one of its characters only by case, as `re` sees it."""
    case_variants = _case_variants(is_ascii)
    extra = [single(other)[0] for char in _cased(ranges, is_ascii) for other in case_variants[char]]
    return union([*ranges, *extra]) if extra else ranges


def _ranges(flags: npt.NDArray[np.bool_]) -> Ranges:
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def _cased(ranges: Ranges, is_ascii: bool) -> Iterator[str]:
    """Characters of the set that have kin: whichever of the two is smaller is walked."""
    case_variants = _case_variants(is_ascii)
    if sum(end - start for start, end in ranges) < len(case_variants):
        yield from (
            c for start, end in ranges for c in map(chr, range(start, end)) if c in case_variants
        )
        return
    for char in case_variants:
        if any(start <= ord(char) < end for start, end in ranges):
            yield char


@cache
def _case_variants(is_ascii: bool) -> dict[str, tuple[str, ...]]:
    """Each character with a case, and all that `re` takes for it when case is ignored.

    `re` compares lower-case letters, and takes two of them for one where they share an upper case.
    """
    every = map(chr, range(0x80 if is_ascii else CASES_END))
    chars = [char for char in every if char.lower() != char or char.upper() != char]
    by_lower: dict[str, list[str]] = defaultdict(list)
    by_upper: dict[str, set[str]] = defaultdict(set)
    for char in chars:
        by_lower[char.lower()[0]].append(char)
        by_upper[char.upper()].add(char.lower()[0])
    lower_forms = {low: lows for lows in by_upper.values() if len(lows) > 1 for low in lows}
    case_variants = {}
    for low, members in by_lower.items():
        variants = tuple(
            c for lower_form in lower_forms.get(low, {low}) for c in by_lower[lower_form]
        )
        if len(variants) > 1:
            case_variants.update(dict.fromkeys(members, variants))
    return case_variants
