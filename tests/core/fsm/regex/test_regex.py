"""A compiled pattern accepts what `re.fullmatch` accepts with the flag ASCII, which `(?u)` takes
back; the rest is refused by name."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import warnings
from itertools import product
from random import Random

import interegular
import numpy as np
import pytest

from forkroot.core.api.protocol import InvalidCall
from forkroot.core.fsm.regex.limits import Limits
from forkroot.core.fsm.regex.regex import compile_regex, from_choices

from .. import patterns

RECORD = (
    r'\{"name": "[\w\d\s]{1,16}", "house": "(Gryffindor|Slytherin)", "born": [0-9]{4},'
    r' "wand": \{"wood": "[\w ]{1,9}", "length": [0-9]{1,2}\.[0-9]{0,2}\}, "alive": (true|false)\}'
)


def compiled(pattern: str) -> re.Pattern[str]:
    """As `re` has it: ASCII unless the pattern asks for Unicode."""
    return re.compile(pattern, 0 if "(?u" in pattern or "(?iu" in pattern else re.ASCII)


def disagreements(num_patterns: int, num_texts: int, seed: int) -> list[tuple[str, str]]:
    random = Random(seed)
    wrong = []
    num_refused = 0
    for _ in range(num_patterns):
        sample = patterns.pattern(random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            oracle = compiled(sample.pattern)
        try:
            dfa = compile_regex(sample.pattern, Limits(work=60_000))
        except InvalidCall as error:
            assert "places visited" in error.allowed
            num_refused += 1
            continue
        for text in patterns.texts(sample, random, num_texts):
            if dfa.matches(text) is not bool(oracle.fullmatch(text)):
                wrong.append((sample.pattern, text))
    assert num_refused <= 0.05 * num_patterns
    return wrong


def test_small_patterns_agree_with_the_automata_of_interegular() -> None:
    random = Random(3)
    for _ in range(60):
        parts = [random.choice(["a", "b", "[ab]", "(a|bb)", "c*", "(ab){1,2}"]) for _ in range(4)]
        pattern = "".join(f"({part})" + random.choice(["", "", "?", "+"]) for part in parts)
        theirs = interegular.parse_pattern(pattern).to_fsm()
        ours = compile_regex(pattern)
        for _ in range(20):
            text = "".join(random.choice("abc") for _ in range(random.randint(0, 8)))
            assert ours.matches(text) is theirs.accepts(text), (pattern, text)


def test_random_patterns_agree_with_re() -> None:
    assert disagreements(300, 8, seed=1) == []


def test_characters_are_known_by_their_names_as_in_re() -> None:
    dfa = compile_regex(r"[\N{GREEK SMALL LETTER ALPHA}-\N{GREEK SMALL LETTER GAMMA}]+\N{EM DASH}")
    assert dfa.matches("αβγ—") and not dfa.matches("δ—")
    for pattern in (r"\N", r"\N{}", r"\N{NO SUCH LETTER}", r"\N{KEYCAP DIGIT ONE}"):
        with pytest.raises(InvalidCall, match="the name of one character of Unicode"):
            compile_regex(pattern)


@pytest.mark.slow
def test_twenty_thousand_random_pairs_agree_with_re() -> None:
    assert disagreements(2500, 10, seed=2) == []


ESCAPES = (r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", r"[^\w-]")


@pytest.mark.parametrize(
    ("escape", "flags"),
    [*product(ESCAPES, ("", "(?u)")), (r"\w", "(?a)"), (r"\D", "(?a)"), (r"[^\w-]", "(?a)")],
)
def test_classes_hold_the_characters_that_re_gives_them(escape: str, flags: str) -> None:
    codes, escape = every_code(), flags + escape
    found = compiled(escape).findall(codes.tobytes().decode("utf-32-le"))  # one character each
    theirs = np.isin(codes, np.frombuffer("".join(found).encode("utf-32-le"), np.uint32))
    dfa = compile_regex(escape)
    ours = dfa.table[dfa.start, dfa.kinds_of(codes)] > 0
    assert np.array_equal(ours, theirs)


@functools.cache
def every_code() -> np.ndarray:
    """The code of every character of Unicode."""
    codes = np.arange(sys.maxunicode + 1, dtype=np.uint32)
    return codes[(codes < 0xD800) | (codes >= 0xE000)]


def test_ignoring_case_takes_for_one_what_re_takes_for_one() -> None:
    cased = [c for c in map(chr, range(0x1E944)) if c.lower() != c or c.upper() != c]
    codes = np.array([ord(char) for char in cased])
    for char in Random(4).sample(cased, 40) + list("sSkKiI\u0130ıſKσςΣµμßẞ"):
        for pattern in (f"(?iu){char}", f"(?i){char}"):
            dfa = compile_regex(pattern)
            oracle = compiled(pattern)
            theirs = [other for other in cased if oracle.fullmatch(other)]
            ours = [cased[i] for i in np.flatnonzero(dfa.table[dfa.start, dfa.kinds_of(codes)])]
            assert ours == theirs, pattern


@pytest.mark.parametrize("pattern", [r"\d{3}-\d{4}", r"\w+", r"[\d\s]+", r"(?i)(?:\w|\s)+"])
def test_classes_are_of_ascii_unless_unicode_is_requested(pattern: str) -> None:
    texts = ["123-4567", "a_1", "1 2\t", "81۵-1߂۵߅", "é", "١", "\u2003", "ſ"]
    ours = [text for text in texts if compile_regex(pattern).matches(text)]
    assert ours == [text for text in texts if text.isascii() and re.fullmatch(pattern, text)]
    wide = "(?iu)" + pattern[4:] if pattern.startswith("(?i)") else f"(?u){pattern}"
    assert [t for t in texts if compile_regex(wide).matches(t)] == [
        t for t in texts if re.fullmatch(pattern, t)
    ]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"(.*)\1", "anything but a group of at most 128 texts: not supported, at position 4"),
        (r"(\d{3})\1", "anything but a group of at most 128 texts: not supported, at position 7"),
        (
            r"(a|b)?\1",
            "a group that is matched before it, once: not supported, at position 6",
        ),
        (
            r"(?:(a|b)|c)\1",
            "a group that is matched before it, once: not supported, at position 11",
        ),
        (
            "(?:a|ab)*+",
            "repeats of more than repeated characters: not supported, at position 8",
        ),
        (
            "(?>a|ab)c",
            "atomic groups of more than repeated characters: not supported, at position 0",
        ),
        ("(?>a*?)b", "lazy repeats in atomic groups: not supported, at position 0"),
        ("(a)?(?(1)b|c)", "conditions: not supported, at position 4"),
        (
            "(?<=a(?=b))b",
            "inside a lookbehind (move it out of the lookbehind): not supported, at position 5",
        ),
        (
            r"(?<=\b)b",
            "inside a lookbehind (move it out of the lookbehind): not supported, at position 4",
        ),
        (
            r"\p{Greek}",
            "Unicode properties that are no general category: not supported, at position 0",
        ),
        ("(?L)a", "the flag L: not supported, at position 0"),
    ],
)
def test_what_no_automaton_can_honour_is_refused_by_name_and_position(
    pattern: str, words: str
) -> None:
    with pytest.raises(InvalidCall, match=re.escape(words)) as caught:
        compile_regex(pattern)
    assert caught.value.field == "regex"


@pytest.mark.parametrize(
    "pattern",
    [
        *("a**", "*a", "(a", "a)", "[a", "[b-a]", r"[\d-x]", "a{2,1}", "(?", "(?q)", r"\x1", r"\8"),
        *(r"\y", "\\", "a(?i)b", "(?-i)a", "(?P<1>a)", r"\u12", r"\U00110000", r"[\8]", "^*"),
        *(r"\777", "(?#a", "(?P<a", "(?i", r"\1", r"(a)\2", r"(a\1)", "(?P=a)"),
        *("(?P<a>b)(?P<a>c)", "a{2}{3}", "a*?+"),
    ],
)
def test_what_re_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(re.error):
        re.compile(pattern)
    with pytest.raises(InvalidCall):
        compile_regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "match", "no_match"),
    [
        ("^a|b$", ["a", "b"], ["ab", "a\n"]),
        ("(^$)|(^[a-z]$)", ["", "q"], ["qq", "\n"]),
        ("(?m)^a$", ["a"], ["a\n"]),
        ("a{", ["a{"], ["a"]),
        ("a{}", ["a{}"], ["a"]),
        ("a{,}", ["", "aa"], ["a{,}"]),
        ("a{x}", ["a{x}"], []),
        ("[]a]", ["]", "a"], ["[]a]"]),
        (r"\0\07\101", ["\0\x07A"], []),
        ("a(?#b)*", ["", "aaa"], ["b"]),
        ("()*", [""], ["a"]),
        ("(?P<year>[0-9]{2})", ["12"], ["1"]),
        ("(?i:a)b", ["Ab", "ab"], ["aB"]),
        ("(?i)a(?-i:b)", ["Ab"], ["AB"]),
        ("[^\ud800]", ["x"], ["xx"]),
    ],
)
def test_readings_that_are_easily_got_wrong(
    pattern: str, match: list[str], no_match: list[str]
) -> None:
    dfa = compile_regex(pattern)
    assert [dfa.matches(text) for text in match] == [True] * len(match)
    assert [dfa.matches(text) for text in no_match] == [False] * len(no_match)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(a|b)*a(a|b){18}", "at most 2000000 places visited; this one has"),
        ("[a-z]{1,100000}", "counts of at most 10000; one has 6 digits"),
        ("[a-z]{1,20000}", "at most 10000 repeats in a count; this one has 20000"),
        ("((a{1,40}){1,40}){1,40}", "at most 2000000 places visited"),
        ("(((((a{99}){99}){99}){99}){99}){99}", "at most 200000 positions"),
        ("(" * 10_000 + "a" + ")" * 10_000, "at most 64 groups inside groups; this one has 65"),
        ("a" * 1_000_001, "at most 1000000 characters; this one has 1000001"),
        (r"a[^\s\S]", "a pattern that matches some text"),
        ("a^b", "a pattern that matches some text"),
        ("a(?=b)", "a pattern that matches some text; the pattern must match the whole text"),
        (r"foo\bbar", "write what a lookahead, lookbehind or \\b expects there into the pattern"),
    ],
)
def test_hostile_patterns_are_refused_with_number_and_cap(pattern: str, words: str) -> None:
    with pytest.raises(InvalidCall, match=re.escape(words)):
        compile_regex(pattern)


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    with pytest.raises(InvalidCall, match=r"compiles in 0\.0 s"):
        compile_regex("[a-z]{1,5000}", Limits(seconds=0.0))


def test_nesting_that_the_callers_stack_has_no_room_for_is_refused() -> None:
    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
        else:
            compile_regex("(" * 64 + "a" + ")" * 64)

    with pytest.raises(InvalidCall, match="fewer groups inside groups"):
        deep(sys.getrecursionlimit() - len(inspect.stack(0)) - 60)


def test_deep_nesting_within_the_cap_compiles() -> None:
    assert compile_regex("(" * 64 + "a" + ")" * 64).matches("a")


@pytest.mark.parametrize(
    ("pattern", "num_states"),
    [
        ("a", 3),
        ("(?:abc|dbc)", 5),
        ("a*x|ba*x", 4),
        ("(ab|cd)*x|q(ab|cd)*x", 6),
        ("aa*|", 2),
        ("(a|b)*a(a|b){5}", 65),
        ("[a-z]{1,100}", 102),
        ("(?:(?:a{3}){2})*", 7),
        (r".*", 2),
        (RECORD, 141),
    ],
)
def test_automata_are_minimal(pattern: str, num_states: int) -> None:
    dfa = compile_regex(pattern)
    assert dfa.num_states == num_states == num_distinguishable(dfa.table, dfa.accepting)


def num_distinguishable(table: np.ndarray, accepting: np.ndarray) -> int:
    """How many states differ, found by refining all of them at once."""
    color = accepting.astype(np.int64)
    count = 0
    while count < (count := len(np.unique(color))):
        signatures = np.column_stack([color, color[table]])
        color = np.unique(signatures, axis=0, return_inverse=True)[1].reshape(-1)
    return count


def test_bytes_lead_through_the_inside_of_a_character() -> None:
    dfa = compile_regex("[é-ü鱼😀]")
    for text in ("é", "ü", "鱼", "😀"):
        state = dfa.start
        for byte in text.encode()[:-1]:
            state = dfa.step(state, byte)
            assert state and not dfa.is_accepting(state)
        assert dfa.is_accepting(dfa.step(state, text.encode()[-1]))
    assert dfa.step(dfa.start, 0xC4) == 0
    assert dfa.run(dfa.start, "鱼".encode()[:1] + b"\x80") == 0


@pytest.mark.parametrize(
    "broken",
    [
        *(b"\x80", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf0\x80\x80\x80"),
        *(b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xe2\x28\xa1", b"\xc3", b"\xff", b"\xf0\x9f"),
    ],
)
def test_what_is_not_utf8_is_never_accepted(broken: bytes) -> None:
    dfa = compile_regex(r"[\s\S]*")
    assert not dfa.is_accepting(dfa.run(dfa.start, broken))


def test_every_character_of_unicode_can_be_read() -> None:
    dfa = compile_regex(r"[\s\S]")
    for code in [*range(0x80, 0x3000, 7), *range(0xD700, 0xD800), *range(0xE000, 0x110000, 997)]:
        assert dfa.matches(chr(code))


def test_choices_are_accepted_as_wholes() -> None:
    options = ("yes", "yes, please", "no", "né", "", "鱼")
    dfa = from_choices(options)
    assert all(dfa.matches(option) for option in options)
    assert not any(dfa.matches(text) for text in ("y", "yes,", "n", "noo", "nè"))


def test_five_thousand_choices_compile() -> None:
    random = Random(5)
    options = tuple("".join(random.choices("abcdefgh ", k=20)) for _ in range(5000))
    dfa = from_choices(options)
    assert all(dfa.matches(option) for option in options[::50])
    assert not dfa.matches(options[0][:-1])


@pytest.mark.parametrize("options", [(), (1,), ("\ud800",)])
def test_choices_that_are_none_are_refused(options: tuple[str, ...]) -> None:
    with pytest.raises(InvalidCall, match="choices"):
        from_choices(options)
