"""A constraint is compiled once, however many ask for it, and the cache stays small."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forkroot.core.api.protocol import (
    BackendClosed,
    CallFailed,
    Choices,
    Constraint,
    Grammar,
    InvalidCall,
    JsonSchema,
    Overloaded,
    Regex,
)
from forkroot.core.fsm.cache import MEASURED, GuideCache, cache_key
from forkroot.core.fsm.tokens.regular import RegularGuide, regular_guide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

BYTES = Vocabulary([bytes([byte]) for byte in range(256)], [])


class Compiler:
    """Counts, and can be held up."""

    def __init__(self) -> None:
        self.count = 0
        self.may_go = threading.Event()
        self.may_go.set()

    def __call__(self, constraint: Constraint, tenant: str = "") -> RegularGuide:
        self.count += 1
        assert self.may_go.wait(60)
        assert isinstance(constraint, Regex | Choices)
        return regular_guide(constraint, BYTES)


def test_a_burst_of_equal_calls_compiles_once() -> None:
    compiler = Compiler()
    compiler.may_go.clear()
    cache = GuideCache(compiler)
    with ThreadPoolExecutor(100) as pool:
        futures = [pool.submit(cache.get, Regex("a{1,9}")) for _ in range(100)]
        compiler.may_go.set()
        guides = {id(future.result()) for future in futures}
    assert (len(guides), compiler.count) == (1, 1)
    assert (cache.num_compiled, cache.num_hits) == (1, 99)


def test_errors_are_kept_too_and_raised_afresh() -> None:
    compiler = Compiler()
    cache = GuideCache(compiler)
    caught = []
    for _ in range(3):
        with pytest.raises(InvalidCall, match="conditions") as info:
            cache.get(Regex("(a)?(?(1)b|c)"))
        caught.append(info.value)
    assert compiler.count == 1
    assert len({id(error) for error in caught}) == 3
    assert caught[0].field == "regex"


def test_the_guides_used_longest_ago_are_forgotten() -> None:
    compiler = Compiler()
    cache = GuideCache(compiler, max_guides=2)
    for pattern in ("a", "b", "a", "c", "a"):
        cache.get(Regex(pattern))
    assert (len(cache), compiler.count) == (2, 3)
    cache.get(Regex("b"))
    assert compiler.count == 4


def test_memory_is_bounded_but_the_last_guide_stays() -> None:
    cache = GuideCache(Compiler(), max_bytes=1)
    for pattern in ("a", "b", "c"):
        cache.get(Regex(pattern))
        assert len(cache) == 1


def test_few_guides_are_measured_for_each_new_one_and_what_has_grown_is_noticed() -> None:
    class Measured:
        num_bytes_now, count = 1, 0

        @property
        def num_bytes(self) -> int:
            Measured.count += 1
            return self.num_bytes_now

    guides: list[Any] = []

    def compile(constraint: Constraint, tenant: str) -> Any:
        guides.append(Measured())
        return guides[-1]

    cache = GuideCache(compile, max_guides=200, max_bytes=1000)
    for index in range(150):
        cache.get(Regex(f"a{index}"))
    assert len(cache) == 150
    assert Measured.count <= 150 * (1 + MEASURED)
    for guide in guides:
        guide.num_bytes_now = 100
    for index in range(150):
        cache.get(Regex(f"b{index}"))
    assert len(cache) <= 150 + 8  # 8 of the large ones are left


@pytest.mark.parametrize("error", [MemoryError, CallFailed, Overloaded, BackendClosed])
def test_an_error_that_is_not_of_a_constraint_is_not_cached(error: type[Exception]) -> None:
    outcomes: list[BaseException | None] = [error("not now"), None]

    def compile(constraint: Constraint, tenant: str) -> RegularGuide:
        if (error := outcomes.pop(0)) is not None:
            raise error
        return regular_guide(Regex("a"), BYTES)

    cache = GuideCache(compile)
    with pytest.raises(error):
        cache.get(Regex("a"))
    assert cache.get(Regex("a")).cursor().forced() == b"a"


def test_constraints_are_distinguished() -> None:
    keys = [
        cache_key(constraint)
        for constraint in (
            *(Regex("a"), Choices(("a",)), Choices(("a", "b")), Grammar("a"), Grammar("a", "gbnf")),
            *(JsonSchema({"a": 1, "b": 2}), JsonSchema({"b": 2, "a": 1}), JsonSchema(True)),
            JsonSchema(True, (", ", ": ")),
        )
    ]
    assert len(set(keys)) == len(keys)
    assert cache_key(JsonSchema({"a": [1]})) == cache_key(JsonSchema({"a": [1]}))


def test_a_schema_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidCall, match="json_schema"):
        cache_key(JsonSchema({"a": {1, 2}}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {f"property {i}": {"type": "string"} for i in range(160_000)}},
        {"const": "a" * 8_000_000},
        {"enum": list(range(1_200_000))},
    ],
    ids=["many properties", "a long text", "many values"],
)
def test_a_schema_of_megabytes_is_refused_before_it_is_written(schema, monkeypatch) -> None:
    monkeypatch.setattr("json.dumps", lambda _: pytest.fail("it was written"))
    with pytest.raises(InvalidCall, match="at most 4000000 characters") as caught:
        cache_key(JsonSchema(schema))
    assert len(str(caught.value)) < 300


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {"type": "array"}
    schema["items"] = schema
    with pytest.raises(InvalidCall, match="json_schema"):
        cache_key(JsonSchema(schema))


def test_the_same_list_in_itself_many_times_is_refused() -> None:
    shared: list[Any] = ["a" * 100]
    for _ in range(60):
        shared = [shared, shared]
    with pytest.raises(InvalidCall, match="at most 4000000 characters"):
        cache_key(JsonSchema({"const": shared}))
