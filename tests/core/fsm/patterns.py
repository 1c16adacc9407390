"""Random patterns of `re` and texts that they match, or nearly match."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

LETTERS = "abcxyzABK019_ -\n\té\u0130ıſßΣσςK٣\u2028鱼😀\U0010ffff"
CLASSES = (
    *(r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", ".", "[^a]", "[a-c]", "[^\\d\\n]", "[\\w.-]"),
    *("[]a]", "[^]b-x]", "[é-ü]", "[ -~]", "[^ -\uffff]", r"[\x00-\x7f]", r"[\u0100-\u2fff]"),
    *("[-a]", "[a-]", r"[\]\\]", r"[\b0-9]", "[a-cé😀]", "[Σa-k]"),
)
ESCAPES = {".": r"\.", "-": r"\-", "\n": r"\n", "\t": r"\t", "é": r"\xe9", "鱼": r"\u9c7c"}
REPEATS = ("*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "*?", "??", "{0,2}?", "{0}")
FLAGS = ("(?i)", "(?s)", "(?a)", "(?ia)", "(?is)", "", "", "", "", "")


class Sample(NamedTuple):
    """A piece of pattern, and a way to draw a text that it often matches."""

    pattern: str
    draw: Callable[[Random], str]


def pattern(random: Random) -> Sample:
    """A whole pattern with flags and anchors."""
    body = _alternatives(random, 2)
    start, end = random.choice([("", ""), ("^", "$"), (r"\A", r"\Z"), ("", ""), ("", "$")])
    if "|" in body.pattern and (start or end):
        body = Sample(f"(?:{body.pattern})", body.draw)
    return Sample(f"{random.choice(FLAGS)}{start}{body.pattern}{end}", body.draw)


def texts(sample: Sample, random: Random, count: int) -> list[str]:
    """Texts drawn from a sample, some of them changed in one place."""
    return [
        _changed(sample.draw(random), random) if random.random() < 0.5 else sample.draw(random)
        for _ in range(count)
    ]


def _changed(text: str, random: Random) -> str:
    place = random.randint(0, len(text))
    cut = random.choice([0, 0, 1])
    swapped = text[place : place + 1].swapcase() if random.random() < 0.4 else ""
    put = swapped or random.choice(["", random.choice(LETTERS)])
    return text[:place] + put + text[place + cut :]


def _alternatives(random: Random, depth: int) -> Sample:
    options = [_sequence(random, depth) for _ in range(random.choice([1, 1, 1, 2, 3]))]
    return Sample("|".join(o.pattern for o in options), lambda r: r.choice(options).draw(r))


def _sequence(random: Random, depth: int) -> Sample:
    parts = [_piece(random, depth) for _ in range(random.randint(0 if depth < 2 else 1, 4))]
    return Sample("".join(p.pattern for p in parts), lambda r: "".join(p.draw(r) for p in parts))


def _piece(random: Random, depth: int) -> Sample:
    base = _group(random, depth) if depth and random.random() < 0.3 else _char(random)
    if random.random() < 0.65:
        return base
    repeat = random.choice(REPEATS)
    low, high = {"*": (0, 3), "+": (1, 3), "?": (0, 1)}.get(repeat[0], (0, 3))
    return Sample(
        base.pattern + repeat, lambda r: "".join(base.draw(r) for _ in range(r.randint(low, high)))
    )


def _group(random: Random, depth: int) -> Sample:
    inner = _alternatives(random, depth - 1)
    opening = random.choice(["(", "(?:", "(?i:", "(?s:", "(?-i:", "(?#note)(", "(?a:"])
    return Sample(f"{opening}{inner.pattern})", inner.draw)


def _char(random: Random) -> Sample:
    if random.random() < 0.4:
        return Sample(random.choice(CLASSES), lambda r: r.choice(LETTERS))
    letter = random.choice(LETTERS)
    shown = ESCAPES.get(letter, letter) if random.random() < 0.5 else letter
    return Sample(shown, lambda r: letter)
