"""Programs in few calls: the same texts, captures and usage as in Guidance's own loop."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import copy
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from forkroot.core.api.protocol import Call
from forkroot.core.local import LocalBackend

guidance = pytest.importorskip("guidance")

from guidance import gen, regex, select  # noqa: E402
from guidance import json as gen_json  # noqa: E402

from forkroot.adapters.guidance.grammar.patterns import pattern_of, pattern_until  # noqa: E402
from forkroot.adapters.guidance.grammar.plan import Route  # noqa: E402
from forkroot.core.fsm.json_schema.patterns.intervals import Interval  # noqa: E402
from forkroot.core.fsm.json_schema.patterns.multiples import multiple_pattern  # noqa: E402

PAIR = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}
LIST = {"type": "array", "items": PAIR, "minItems": 2, "maxItems": 3}
AGES = {
    "type": "object",
    "properties": {name: {"type": "integer", "minimum": 0, "maximum": 20} for name in "abcde"},
    "required": list("abcde"),
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def lm(local: LocalBackend) -> Any:
    from forkroot.adapters.guidance import Forkroot

    return Forkroot(local, tokenizer="models/tiny", echo=False)


@pytest.fixture
def shown(lm: Any) -> Any:
    """The same model in Guidance's own loop, which asks for logits."""
    model = lm.copy()
    engine = copy(lm.engine)
    engine.get_logits = partial(lm.engine.get_logits.__func__, engine)
    model._interpreter.engine = engine
    return model


@pytest.fixture
def calls(lm: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """The calls that programs make."""
    prefixes, found = lm.engine.connection.prefixes, list[Call]()
    submit = prefixes.submit

    def noted(call: Call) -> Any:
        found.append(call)
        return submit(call)

    monkeypatch.setattr(prefixes, "submit", noted)
    return found


def a_list() -> Any:
    return "On: " + gen_json("a", schema=LIST, max_tokens=50)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "a stop that ends it": lambda: "The capital of France is" + gen("a", max_tokens=9, stop="."),
    "a stop within a token": lambda: "She said:" + gen("a", max_tokens=9, stop="\n"),
    "a stop that a limit precedes": lambda: "Count: 1," + gen("a", max_tokens=3, stop="q"),
    "a stop and text": lambda: (
        "Name:" + gen("a", max_tokens=5, stop="\n") + "\nAge:" + gen("b", max_tokens=3)
    ),
    "a stop of two lines": lambda: "A list:" + gen("a", max_tokens=9, stop="\n\n"),
    "no stop": lambda: "Once upon" + gen("a", max_tokens=9),
    "a limit within a character": lambda: "Janet’s ducks lay eggs" + gen("a", max_tokens=7),
    "a limit behind a pattern": lambda: "It is" + gen("n", regex="[0-9]+") + gen("a", max_tokens=4),
    "a pattern without a limit": lambda: "A word:" + gen("a", regex=" [a-z]{3,5}"),
    "an open pattern with a limit": lambda: "Words:" + gen("a", regex="[a-z ]+", max_tokens=6),
    "words of any script": lambda: "Ⴆ:" + gen("a", regex=r"\w{1,3}"),
    "options that begin others": lambda: (
        "It is " + select(["bad", "bad I think", "baad"], name="a")
    ),
    "a list": a_list,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_texts_and_captures_are_those_of_guidances_own_loop(
    lm: Any, shown: Any, program: Callable[[], Any]
) -> None:
    mine, other = lm + program(), shown + program()
    assert str(mine) == str(other)
    assert [mine.get(name) for name in "abn"] == [other.get(name) for name in "abn"]


def test_forced_text_between_sampled_pieces_takes_no_more_tokens_than_in_guidances_own_loop(
    lm: Any, shown: Any
) -> None:
    mine, other = (lm + a_list())._get_usage(), (shown + a_list())._get_usage()
    assert 0 < mine.output_tokens <= other.output_tokens


# A list is not among these: its forced text has the canonical tokens (docs/guidance.md).
COUNTED = {name: program for name, program in PROGRAMS.items() if program is not a_list}


@pytest.mark.parametrize("program", COUNTED.values(), ids=COUNTED)
def test_usage_is_counted_as_in_guidances_own_loop(
    lm: Any, shown: Any, program: Callable[[], Any]
) -> None:
    mine, other = (lm + program())._get_usage(), (shown + program())._get_usage()
    assert mine.output_tokens == other.output_tokens
    assert mine.ff_tokens == other.ff_tokens
    assert mine.input_tokens == other.input_tokens


def test_a_text_up_to_its_stop_is_one_call_though_its_prompt_is_healed(
    lm: Any, calls: list[Call]
) -> None:
    lm += "Country: Japan\nCapital:" + gen("city", max_tokens=8, stop="\n")
    assert len(calls) == 1


def test_an_object_of_bounded_integers_is_one_call(lm: Any, calls: list[Call]) -> None:
    lm += "Ages: " + gen_json("ages", schema=AGES)
    assert len(calls) == 1
    assert all(0 <= age <= 20 for age in json.loads(lm["ages"]).values())


def test_texts_alone_are_not_a_call(lm: Any, calls: list[Call]) -> None:
    with guidance.user():
        lm += "Hello" + " there"
    assert str(lm + "") == "<|im_start|>user\nHello there<|im_end|>\n"
    assert not calls


def test_free_text_after_a_pattern_goes_on(lm: Any) -> None:
    lm += "In the year" + gen("year", regex=" [0-9]{2}") + gen("rest", max_tokens=4)
    assert lm["rest"]


def test_a_text_that_spells_a_special_token_stays_text(lm: Any, shown: Any) -> None:
    program = "<|im_start|>user\nHi<|im_end|>" + gen("a", max_tokens=4)
    assert str(lm + program) == str(shown + program)


def test_an_override_of_the_engines_logits_is_called(
    lm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    logits_of = lm.engine.get_logits

    def noted(token_ids: list[int], **kwargs: Any) -> Any:
        seen.append(list(token_ids))
        return logits_of(token_ids=token_ids, **kwargs)

    monkeypatch.setattr(lm.engine, "get_logits", noted)
    lm + "pi = " + gen(regex="[0-9]")
    assert seen


def test_a_copy_does_not_change_what_was_captured(lm: Any) -> None:
    first = lm.set("items", ["x"])
    second = first + "y" + gen("items", list_append=True, stop=".", max_tokens=2)
    assert first["items"] == ["x"]
    assert len(second["items"]) == 2


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 20), (-5, 5), (7, 1234), (-120, -9)])
def test_integers_between_bounds_are_all_that_match(low: int, high: int) -> None:
    found = multiple_pattern(Interval(Decimal(low), Decimal(high)), Fraction(1))
    assert found is not None
    pattern = re.compile(found)
    found = [number for number in range(-2000, 2000) if pattern.fullmatch(str(number))]
    assert found == list(range(low, high + 1))
    assert not pattern.fullmatch("007")


def test_patterns_of_nodes_match_their_texts() -> None:
    node = "a+" + select(["x", regex("[0-9]{2}")]) + guidance.optional("?")
    pattern = pattern_of([node])
    assert pattern is not None
    texts = ["a+x", "a+42?", "a+x??", "a+4", "aax"]
    assert [bool(re.fullmatch(pattern, text)) for text in texts] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("schema", "is_open"),
    [
        *(({"type": "integer"}, True), ({"type": "integer", "minimum": 0, "maximum": 150}, True)),
        *(({"type": "integer", "minimum": 3, "maximum": 7}, False), ({"enum": [1, 12]}, True)),
        *(({"enum": [1, 2]}, False), ({"enum": ["1 | 2", "12"]}, False), (PAIR, False)),
        *(({"type": ["integer", "null"]}, True), ({"type": ["string", "null"]}, False)),
        *(({"$ref": "#/$defs/a", "$defs": {"a": {"type": "number"}}}, True), (LIST, False)),
    ],
)
def test_a_number_that_may_go_on_is_open(schema: dict[str, Any], is_open: bool) -> None:
    step, _ = Route(gen_json(schema=schema)).leg(0)
    assert step is not None and step.is_open is is_open
    followed, _ = Route(gen_json(schema=schema) + "!").leg(0)
    assert followed is not None and not followed.is_open


@pytest.mark.parametrize("pattern", [r"\w+", "(?i)abc", r"[a-z&&[^b]]", "x{500}", r"\p{L}"])
def test_patterns_that_may_mean_another_are_left_to_grammars(pattern: str) -> None:
    assert pattern_of([regex(pattern)]) is None


def test_text_up_to_a_stop_has_a_pattern_where_the_stop_is_one_character() -> None:
    pattern = pattern_until("\n")
    assert pattern is not None
    assert re.fullmatch(pattern, "one line\n")
    assert not re.fullmatch(pattern, "one\nline\n")
    assert pattern_until("\n\n") is None


@guidance.guidance(stateless=True)
def capital(lm: Any, country: str) -> Any:
    return lm + f"The capital of {country} is" + gen("city", max_tokens=3)


def test_calls_bear_the_name_of_the_function_that_made_the_grammar(
    lm: Any, calls: list[Call]
) -> None:
    lm + capital("France")
    lm + ("Once upon" + gen("a", max_tokens=3))
    kinds = [None if call.hint is None else call.hint.kind for call in calls]
    assert set(kinds) == {"guidance.capital", "guidance"}
    assert kinds[0] == "guidance.capital"
