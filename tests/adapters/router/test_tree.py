"""The meta-tree beside a model that keeps every prefix by itself."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.adapters.router.tree import Held, MetaTree
from forkroot.core.common.digests import DIGEST

KEYS = st.lists(st.sampled_from("ab"), min_size=0, max_size=7).map(
    lambda letters: b"".join(letter.encode() * DIGEST for letter in letters)
)
SPACES = st.sampled_from(["", "tenant"])
BITS = st.sampled_from([1, 2, 1 << 300])
EVERYONE = 1 | 2 | 1 << 300
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SPACES, KEYS, BITS),
        st.tuples(st.just("drop"), SPACES, KEYS, BITS, st.integers(0, 7)),
        st.tuples(st.just("sweep"), BITS, st.integers(1, 5)),
        st.tuples(st.just("oldest"), BITS, st.integers(1, 30)),
    ),
    max_size=40,
)


class Model:
    """Holders of every prefix. drops_below: what is dropped takes all that goes on from it along;
    the tree may keep such a continuation, which is then found only once its beginning is added
    again."""

    def __init__(self, drops_below: bool) -> None:
        self._drops_below = drops_below
        self.holders: dict[tuple[str, bytes], int] = defaultdict(int)

    def add(self, space: str, key: bytes, bit: int) -> None:
        for end in range(DIGEST, len(key) + 1, DIGEST):
            self.holders[space, key[:end]] |= bit

    def drop(self, space: str, key: bytes, remaining: int, bit: int) -> None:
        for end in range(remaining + DIGEST, len(key) + 1, DIGEST):
            self.holders[space, key[:end]] &= ~bit
        if self._drops_below:
            for known, prefix in list(self.holders):
                first = key[: remaining + DIGEST]
                if known == space and len(key) > remaining and prefix.startswith(first):
                    self.holders[known, prefix] &= ~bit

    def forget(self, bit: int) -> None:
        for entry in self.holders:
            self.holders[entry] &= ~bit

    def length(self, space: str, key: bytes, bit: int) -> int:
        """How much of a key one replica holds."""
        end = 0
        while end < len(key) and self.holders[space, key[: end + DIGEST]] & bit:
            end += DIGEST
        return end


def length(held: list[Held], bit: int) -> int:
    return next((it.length for it in held if it.holders & bit), 0)


@settings(max_examples=120, deadline=None)
@given(STEPS, SPACES, KEYS)
def test_the_tree_finds_what_a_model_of_all_prefixes_finds(
    steps: list[tuple], space: str, key: bytes
) -> None:
    tree, least, most = MetaTree(), Model(True), Model(False)
    for name, *args in steps:
        if name == "add":
            for one in (tree, least, most):
                one.add(*args)
        elif name == "drop":
            where, prefix, bit, remaining = args
            for one in (tree, least, most):
                one.drop(where, prefix, remaining * DIGEST, bit)
        elif name == "sweep":
            while not tree.sweep(*args):
                tree.check()
            for one in (least, most):
                one.forget(args[0])
        else:  # some are forgotten, and no others come
            tree.forget_oldest(args[0], args[1], 3)
            least = Model(True)
        tree.check()
    held = tree.find(space, key, EVERYONE)
    assert [it.length for it in held] == sorted({it.length for it in held}, reverse=True)
    for bit in (1, 2, 1 << 300):
        found = length(held, bit)
        assert least.length(space, key, bit) <= found <= most.length(space, key, bit)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(SPACES, KEYS, BITS), max_size=60))
def test_memory_is_bounded_and_the_newest_prefix_stays(
    entries: list[tuple[str, bytes, int]],
) -> None:
    tree = MetaTree(max_bytes=4000)
    for space, key, bit in entries:
        tree.add(space, key, bit)
        tree.check()
        assert tree.num_bytes <= 4000
        assert length(tree.find(space, key, EVERYONE), bit) == len(key)


def test_replicas_that_are_not_asked_for_are_not_found() -> None:
    tree = MetaTree()
    tree.add("", b"a" * 16, 1)
    tree.add("", b"a" * 8 + b"b" * 8, 2)
    assert tree.find("", b"a" * 16, 1 | 2) == [Held(16, 1), Held(8, 3)]
    assert tree.find("", b"a" * 16, 2) == [Held(8, 2)]
    assert tree.find("", b"a" * 16, 4) == []


def test_namespaces_share_no_prefix() -> None:
    tree = MetaTree()
    tree.add("one", b"a" * 16, 1)
    assert tree.find("two", b"a" * 16, 1) == []


def test_a_sweep_goes_on_where_it_stopped_while_the_tree_changes() -> None:
    tree = MetaTree()
    for letter in b"abcdefgh":
        tree.add("", bytes([letter]) * 16, 1)
    assert not tree.sweep(1, 3)
    tree.add("", b"a" * 16, 2)
    tree.add("", b"d" * 24, 2)
    while not tree.sweep(1, 3):
        tree.check()
    assert {key for _, key, _ in tree.entries()} == {b"a" * 16, b"d" * 16, b"d" * 24}
    assert all(holders == 2 for _, _, holders in tree.entries())


def test_a_prefix_may_be_dropped_before_what_goes_on_from_it() -> None:
    tree = MetaTree(1 << 20)
    one, two = b"a" * DIGEST + b"b" * DIGEST, b"a" * DIGEST + b"c" * DIGEST
    tree.add("", one, 1)
    tree.add("", two, 1)
    for key in (one[:DIGEST], one, two):
        tree.drop("", key, 0, 1)
        tree.check()
    assert tree.num_nodes == 0
