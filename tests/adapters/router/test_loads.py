"""Loads, rendezvous hashing and digests."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.adapters.router.loads import Loads, bits_of
from forkroot.adapters.router.rendezvous import Rendezvous
from forkroot.core.common.digests import CHUNK, DIGEST, digests

INDICES = st.integers(0, 9)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("elud"), INDICES, st.integers(0, 3)), max_size=60))
def test_the_least_loaded_of_any_set_is_found(steps: list[tuple[str, int, int]]) -> None:
    loads, model = Loads(), dict[int, int]()
    for action, index, amount in steps:
        bit = 1 << index
        if action == "e" and bit not in model:
            loads.enter(bit, amount)
            model[bit] = amount
        elif action == "l":
            loads.leave(bit)
            model.pop(bit, None)
        elif action in "ud" and bit in model:
            by = amount if action == "u" else -min(amount, model[bit])
            loads.change(bit, by)
            model[bit] += by
    for among in (0b1111111111, 0b1010101010, 0b11, 0):
        known = {bit: load for bit, load in model.items() if bit & among}
        low = min(known.values(), default=0)
        assert loads.least(among) == (sum(b for b, load in known.items() if load == low), low)
        assert loads.up_to(1, among) == sum(b for b, load in known.items() if load <= 1)
    assert loads.total == sum(model.values())


def test_a_set_is_the_sum_of_its_bits() -> None:
    assert bits_of(0b10110) == [2, 4, 16]


def rendezvous(names: list[str]) -> Rendezvous:
    found = Rendezvous()
    for index, name in enumerate(names):
        found.enter(index, name)
    return found


def test_two_routers_choose_the_same_replica_in_whatever_order_they_know_them() -> None:
    names = [f"http://{letter}:30000" for letter in "abcdefgh"]
    one, other = rendezvous(names), rendezvous(names[::-1])
    chosen = set()
    for number in range(200):
        key = b"root %d" % number
        name = names[one.best(key, 255).bit_length() - 1]
        assert name == names[::-1][other.best(key, 255).bit_length() - 1]
        chosen.add(name)
    assert chosen == set(names)


def test_a_replica_that_goes_moves_only_what_it_had() -> None:
    one = rendezvous(list("abcdefgh"))
    for number in range(100):
        key = b"root %d" % number
        before, after = one.best(key, 255), one.best(key, 254)
        assert after == before or before == 1


@given(st.binary(max_size=300), st.binary(max_size=200), st.binary(max_size=200))
def test_digests_agree_on_the_whole_chunks_that_two_keys_share(
    shared: bytes, one: bytes, other: bytes
) -> None:
    first, second = digests(shared + one), digests(shared + other)
    assert len(first) == len(shared + one) // CHUNK * DIGEST
    end = len(shared) // CHUNK * DIGEST
    assert first[:end] == second[:end]
    whole = min(len(shared + one), len(shared + other)) // CHUNK * CHUNK
    if (shared + one)[:whole] != (shared + other)[:whole]:
        assert first[: whole // CHUNK * DIGEST] != second[: whole // CHUNK * DIGEST]
