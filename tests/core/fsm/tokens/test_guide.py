"""Cursors: forced runs, ends in time, required bytes, copies."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from forkroot.core.api.protocol import CallFailed, Choices, Regex
from forkroot.core.fsm.grammar.explore import explore
from forkroot.core.fsm.grammar.grammar import GrammarGuide
from forkroot.core.fsm.grammar.lark import read_lark
from forkroot.core.fsm.grammar.matcher import Library
from forkroot.core.fsm.regex.dfa import Dfa
from forkroot.core.fsm.regex.regex import compile_regex, from_choices
from forkroot.core.fsm.tokens.finish import ShortestFinish
from forkroot.core.fsm.tokens.regular import RegularCursor, RegularGuide, regular_guide
from forkroot.core.fsm.tokens.vocabulary import NEVER, Vocabulary

from .. import patterns
from .. import vocabularies as tokens

MakeGuide = Callable[[str, Vocabulary], RegularGuide | GrammarGuide]
RECORD = r'(?u)\{"name": "[\w ]{1,16}", "house": "(Gryffindor|Slytherin)", "alive": (true|false)\}'
BYTES = Vocabulary([bytes([byte]) for byte in range(256)] + [b"<end>"], [256])


def guide_of(pattern: str, vocabulary: Vocabulary = BYTES) -> RegularGuide:
    return RegularGuide(compile_regex(pattern), vocabulary)


def test_forced_runs_end_where_a_choice_begins() -> None:
    guide = guide_of(RECORD)
    assert guide.cursor().forced() == b'{"name": "'
    assert guide.cursor(b'{"na').forced() == b'me": "'
    assert guide.cursor(b'{"name": "').forced() == b""
    assert guide.cursor(b'{"name": "x"').forced() == b', "house": "'
    assert guide.cursor(b'{"name": "x", "house": "S').forced() == b'lytherin", "alive": '


@pytest.mark.parametrize("written", [b'{"name": "', b'{"name": "x', b'{"name": "x", "house": "'])
def test_a_token_joins_what_is_written_where_its_rest_may_come_next(written: bytes) -> None:
    vocabulary = tokens.vocabulary(seed=9)
    guide = guide_of(RECORD, vocabulary)
    cursor = guide.cursor(written)
    for size in range(1, len(written)):
        tail = written[-size:]
        rests = [own[size:] for own in vocabulary.token_bytes if own.startswith(tail)]
        expected = any(rest and guide.dfa.run(cursor.state, rest) for rest in rests)
        assert cursor.joins(tail) is expected
        assert cursor.joins(tail) is expected


def test_forced_runs_end_where_the_answer_may_end() -> None:
    guide = guide_of("ab(cd)?")
    assert guide.cursor().forced() == b"ab"
    assert guide.cursor(b"ab").forced() == b""
    assert guide.cursor(b"abc").forced() == b"d"


def test_forced_runs_hold_whole_characters() -> None:
    guide = guide_of("鱼[éè]|😀!")
    assert guide.cursor().forced() == b""
    assert guide.cursor("鱼".encode()[:1]).forced() == "鱼".encode()[1:]
    assert guide.cursor("鱼".encode()).forced() == b""
    assert guide.cursor("😀".encode()[:2]).forced() == "😀!".encode()[2:]


@pytest.mark.parametrize("seed", range(3))
def test_forced_runs_are_the_only_way_and_as_long_as_can_be(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        guide = guide_of(patterns.pattern(random).pattern)
        state = guide.dfa.start
        for _ in range(12):
            data, to = guide.chains.forced(state)
            for byte in data:
                assert not guide.dfa.is_accepting(state)
                assert [b for b in range(256) if guide.dfa.step(state, b)] == [byte]
                state = guide.dfa.step(state, byte)
            assert state == to
            ways = [b for b in range(256) if guide.dfa.step(state, b)]
            is_open = len(ways) != 1 or guide.dfa.is_accepting(state)
            assert is_open or not guide.chains.forced(guide.dfa.step(state, ways[0])).data
            if not ways:
                break
            state = guide.dfa.step(state, random.choice(ways))


def test_a_cursor_knows_where_the_answer_may_and_must_end() -> None:
    cursor = guide_of("ab?").cursor()
    assert (cursor.is_accepting, cursor.is_finished) == (False, False)
    cursor.advance(ord("a"))
    assert (cursor.is_accepting, cursor.is_finished) == (True, False)
    other = cursor.copy()
    other.advance(ord("b"))
    assert (other.is_accepting, other.is_finished) == (True, True)
    cursor.advance(256)
    assert (cursor.is_accepting, cursor.is_finished) == (True, True)


@pytest.mark.parametrize("token", [ord("b"), 256, 257, -1])
def test_a_token_that_is_not_allowed_fails_and_moves_nothing(token: int) -> None:
    cursor = guide_of("ac").cursor()
    with pytest.raises(CallFailed, match=f"token {token} is not allowed"):
        cursor.advance(token)
    assert tokens.tokens_of(cursor.mask(), BYTES) == [ord("a")]


def test_bytes_that_are_not_allowed_make_no_cursor() -> None:
    with pytest.raises(CallFailed, match="does not allow b'ax'"):
        guide_of("ab").cursor(b"ax")
    with pytest.raises(CallFailed, match="does not allow b'ax'"):
        guide_of("ab").cursor(b"a", required=b"x")


def exact_needs(dfa: Dfa, vocabulary: Vocabulary) -> dict[int, int]:
    """The least number of tokens to a match from each state, over all ways there are."""
    ways = {}
    queue = [dfa.start]
    for state in queue:
        if state not in ways:
            after = {dfa.run(state, data) for data in vocabulary.token_bytes if data} - {0}
            ways[state] = after
            queue += after
    needs = {state: 0 if dfa.is_accepting(state) else NEVER for state in ways}
    for _ in range(len(ways)):
        better = {
            s: min([needs[s], *(1 + needs[to] for to in ways[s])], default=NEVER) for s in ways
        }
        if better == needs:
            break
        needs = better
    return needs


ASCII = [bytes([byte]) for byte in range(10, 128)]


def test_the_shortest_finish_is_enough_and_known_wherever_there_is_one() -> None:
    random = Random(7)
    vocabulary = Vocabulary([*ASCII, b"ab", b"cab", b"x ", b"a-b", b"9_", b"12"], [])
    for _ in range(60):
        dfa = compile_regex(patterns.pattern(random).pattern)
        finish = ShortestFinish(dfa, vocabulary)
        for state, least in exact_needs(dfa, vocabulary).items():
            assert least <= finish.tokens(state)
            assert (least == NEVER) is (finish.tokens(state) == NEVER)


def test_the_shortest_finish_of_texts_is_the_least() -> None:
    random = Random(8)
    pieces = {"".join(random.choices("abc", k=random.randint(2, 4))).encode() for _ in range(40)}
    vocabulary = Vocabulary([*ASCII, *sorted(pieces)], [])
    for _ in range(20):
        words = tuple("".join(random.choices("abc", k=random.randint(1, 9))) for _ in range(12))
        dfa = from_choices(words)
        finish = ShortestFinish(dfa, vocabulary)
        for state, least in exact_needs(dfa, vocabulary).items():
            assert finish.tokens(state) == least


def finish_within(cursor: RegularCursor, budget: int, random: Random) -> bytes:
    """Generate at random within a budget; what was written."""
    written = b""
    while budget:
        allowed = tokens.tokens_of(cursor.mask_within(budget), cursor.guide.vocabulary)
        token = random.choice(allowed)
        cursor.advance(token)
        if cursor.has_ended:
            break
        written += cursor.guide.vocabulary.token_bytes[token]
        budget -= 1
    return written


@pytest.mark.parametrize("seed", range(4))
def test_answers_are_finished_within_any_budget_that_allows_it(seed: int) -> None:
    random = Random(seed)
    vocabulary = tokens.vocabulary(seed)
    for pattern in (RECORD, r"(?s).*x.*y", "[éü鱼😀]{3,9}", r"(ab|c)+d", *_random_patterns(random)):
        guide = guide_of(pattern, vocabulary)
        least = guide.cursor().shortest_finish()
        for budget in (least, least + 1, least + random.randint(2, 20)):
            text = finish_within(guide.cursor(), budget, random).decode()
            flags = 0 if pattern.startswith("(?u)") else re.ASCII
            assert re.fullmatch(pattern, text, flags), (pattern, text)


def _random_patterns(random: Random) -> list[str]:
    return [patterns.pattern(random).pattern for _ in range(10)]


def test_a_wide_budget_takes_nothing_away() -> None:
    guide = guide_of(RECORD, tokens.vocabulary(1))
    cursor = guide.cursor(b'{"name": "x')
    assert cursor.mask_within(10_000) is cursor.mask()


def test_where_nothing_fits_the_tokens_that_come_closest_are_left() -> None:
    guide = guide_of("a{3}|b{5}")
    assert tokens.tokens_of(guide.cursor().mask_within(1), BYTES) == [ord("a")]


def grammar_of(source: str, vocabulary: Vocabulary) -> GrammarGuide:
    library = Library(vocabulary)
    return GrammarGuide(explore(read_lark(source), library), library)


@pytest.mark.parametrize(
    ("make", "names"),
    [(guide_of, "names?|x|n"), (grammar_of, 'start: "name" "s"? | "x" | "n"')],
    ids=["pattern", "grammar"],
)
def test_required_bytes_constrain_the_next_tokens(make: MakeGuide, names: str) -> None:
    pieces = [b"n", b"na", b"name", b"names", b"x", b"m", b"e", b"<end>", b"a"]
    vocabulary = Vocabulary(pieces, [7])
    cursor = make(names, vocabulary).cursor(required=b"na")
    assert tokens.tokens_of(cursor.mask(), vocabulary) == [0, 1, 2, 3]
    assert not cursor.is_accepting
    assert cursor.forced() == b"name"
    cursor.advance(0)
    assert cursor.required == b"a" and not cursor.is_accepting
    other = make(names, vocabulary).cursor(required=b"na")
    with pytest.raises(CallFailed):
        other.advance(4)
    other.advance(3)
    assert other.required == b"" and other.is_accepting


@pytest.mark.parametrize("seed", range(3))
def test_required_bytes_are_spelled_within_the_budget(seed: int) -> None:
    random = Random(seed)
    vocabulary = tokens.vocabulary(seed)
    guide = guide_of(RECORD, vocabulary)
    for required in (b'{"na', b'{"name": "J\xc3', '{"name": "Jürgen", "house": "S'.encode()):
        least = guide.cursor(required=required).shortest_finish()
        for budget in (least, least + 1, least + 3, least + 40):
            written = finish_within(guide.cursor(required=required), budget, random)
            assert written.startswith(required)
            assert re.fullmatch(RECORD, written.decode())


def test_regular_guides_are_made_of_patterns_and_of_choices() -> None:
    assert regular_guide(Regex("ab|ac"), BYTES).cursor().forced() == b"a"
    assert regular_guide(Choices(("yes", "no")), BYTES).cursor().forced() == b""
    assert regular_guide(Choices(("yes", "yeah")), BYTES).cursor().forced() == b"ye"


def test_one_choice_is_forced_whole_and_then_finished() -> None:
    guide = RegularGuide(from_choices(("only this",)), BYTES)
    assert guide.cursor().forced() == b"only this"
    assert guide.cursor(b"only this").is_finished


@pytest.mark.parametrize("seed", range(4))
def test_a_cursor_behind_bytes_is_the_one_that_was_made_there(seed: int) -> None:
    random = Random(seed)
    guide = regular_guide(Regex(r"(ab|é|[0-9]{2,4},)*end"), BYTES)
    whole = "".join(random.choices(["ab", "é", "12,", "345,"], k=6)).encode() + b"end"
    for first in range(len(whole)):
        cursor = guide.cursor(whole[:first])
        for last in range(first, len(whole) + 1):
            behind, made = cursor.after(whole[first:last]), guide.cursor(whole[:last])
            assert (behind.state, behind.is_finished) == (made.state, made.is_finished)
        assert cursor.state == guide.cursor(whole[:first]).state
    with pytest.raises(CallFailed):
        guide.cursor(whole).after(b"x")
