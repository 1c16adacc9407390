"""The cache's contract, one sentence a test: matching, locking, evicting, sharing, isolation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from forkroot.core.api.batch import Ints
from forkroot.core.radix.cache import Counters, Lease, Match, RadixCache


def _ints(text: str) -> Ints:
    """A token for each letter."""
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32)


def _open(cache: RadixCache, text: str, namespace: str = "") -> Lease:
    """A lease on all of a text, computed where it was not cached."""
    lease = cache.acquire(namespace, _ints(text), len(text))
    slots = cache.allocate(len(text) - lease.length)
    assert slots is not None
    cache.commit(lease, _ints(text), np.concatenate([lease.slots, slots]))
    return lease


def _put(cache: RadixCache, *texts: str, namespace: str = "") -> None:
    """Cache texts one after another, so that the last is the most recently used."""
    for text in texts:
        cache.release(_open(cache, text, namespace))
    cache.check(0)


def _edges(cache: RadixCache) -> dict[str, int]:
    """Edges of the tree and how many leases hold each."""
    views = [view for view in cache.snapshot() if view.tokens]
    return {"".join(map(chr, view.tokens)): view.lock_count for view in views}


# --- matching ---------------------------------------------------------------------------------


def test_a_match_is_the_longest_cached_prefix_within_the_limit() -> None:
    cache = RadixCache(32)
    _put(cache, "abcd", "abxy")
    assert cache.match("", _ints("abcde"), 5).length == 4
    assert cache.match("", _ints("abcde"), 3).length == 3
    assert cache.match("", _ints("abcde"), 0).length == 0
    assert cache.match("", _ints("abx"), 9).length == 3
    assert cache.match("", _ints("b"), 1).length == 0
    assert cache.match("", _ints(""), 0).length == 0


def test_a_match_names_its_node_only_where_it_ends_with_it() -> None:
    cache = RadixCache(32)
    assert cache.match("", _ints("ab"), 2) == Match(0, -1)
    _put(cache, "abcd", "abxy")
    root, shared = cache.snapshot()[:2]
    assert cache.match("", _ints("q"), 1) == Match(0, root.id)
    assert cache.match("", _ints("abz"), 3) == Match(2, shared.id)
    assert cache.match("", _ints("abc"), 3) == Match(3, -1)


def test_a_match_changes_nothing() -> None:
    cache = RadixCache(8)
    _put(cache, "abcd", "xyzw")
    before = cache.snapshot()
    cache.match("", _ints("abq"), 3)
    cache.match("unknown", _ints("abq"), 3)
    assert cache.snapshot() == before
    _put(cache, "1234")
    assert set(_edges(cache)) == {"xyzw", "1234"}


@pytest.mark.parametrize("length", [1, 2, 3, 4, 7, 64, 1000, 4096])
def test_every_length_of_a_common_prefix_is_found(length: int) -> None:
    tokens = np.random.default_rng(length).integers(0, 2**31 - 1, 4096, dtype=np.int32)
    cache = RadixCache(4096)
    slots = cache.allocate(4096)
    assert slots is not None
    lease = cache.acquire("", tokens, 4096)
    cache.commit(lease, tokens, slots)
    other = tokens.copy()
    other[length:] += 1
    assert cache.match("", other, 4096).length == length
    assert cache.match("", tokens, length).length == length


def test_tokens_that_differ_only_in_their_high_bytes_are_different() -> None:
    cache = RadixCache(8)
    lease = cache.acquire("", np.array([1, 2], np.int32), 2)
    slots = cache.allocate(2)
    assert slots is not None
    cache.commit(lease, np.array([1, 2], np.int32), slots)
    assert cache.match("", np.array([1, 2 + (1 << 24)], np.int32), 2).length == 1
    assert cache.match("", np.array([1 << 8, 2], np.int32), 2).length == 0


def test_wider_integers_and_views_match_as_their_tokens_do() -> None:
    cache = RadixCache(8)
    _put(cache, "abcd")
    assert cache.match("", _ints("abcd").astype(np.int64), 4).length == 4
    assert cache.match("", _ints("a-b-c-d")[::2], 4).length == 4


# --- leases -----------------------------------------------------------------------------------


def test_a_lease_covers_the_match_and_its_slots() -> None:
    cache = RadixCache(16)
    _put(cache, "abcd")
    lease = cache.acquire("", _ints("abxy"), 4)
    assert (lease.length, lease.slots.tolist(), lease.namespace) == (2, [0, 1], "")
    assert _edges(cache) == {"ab": 1, "cd": 0}
    assert cache.match("", _ints("ab"), 2) == Match(2, lease.node)


def test_an_empty_lease_is_at_the_root() -> None:
    cache = RadixCache(16)
    lease = cache.acquire("", _ints("abc"), 3)
    assert (lease.length, lease.slots.tolist()) == (0, [])
    assert lease.node == cache.snapshot()[0].id
    assert cache.num_available == 16


def test_the_slots_of_a_lease_cannot_be_overwritten() -> None:
    lease = _open(RadixCache(4), "abc")
    with pytest.raises(ValueError, match="read-only"):
        lease.slots[0] = 3


def test_a_commit_grows_the_lease_token_by_token() -> None:
    cache = RadixCache(16)
    lease = cache.acquire("", _ints("abc"), 3)
    slots = cache.allocate(3)
    assert slots is not None
    for end in (1, 2, 2, 3):
        valid = cache.commit(lease, _ints("abc")[:end], slots[:end])
        assert valid.tolist() == lease.slots.tolist() == [0, 1, 2][:end]
        cache.check(3 - end)
    assert cache.num_locked == 3


def test_a_commit_does_not_keep_the_callers_arrays() -> None:
    cache = RadixCache(16)
    tokens, slots = _ints("abc"), cache.allocate(3)
    assert slots is not None
    lease = cache.acquire("", tokens, 3)
    cache.commit(lease, tokens, slots)
    tokens[:], slots[:] = 0, 9
    again = cache.acquire("", _ints("abc"), 3)
    assert again.slots.tolist() == lease.slots.tolist() == [0, 1, 2]


def test_what_another_sequence_committed_first_is_kept_and_duplicates_become_free() -> None:
    cache = RadixCache(16)
    first, second = (cache.acquire("", _ints("abcd"), 4) for _ in range(2))
    mine, theirs = cache.allocate(4), cache.allocate(5)
    assert mine is not None and theirs is not None
    cache.commit(first, _ints("abcd"), mine)
    cache.check(5)
    valid = cache.commit(second, _ints("abxyz"), theirs)
    assert valid.tolist() == [*mine[:2].tolist(), *theirs[2:].tolist()]
    assert _edges(cache) == {"ab": 2, "cd": 1, "xyz": 1}
    assert (cache.num_cached, cache.num_free, cache.counters.duplicated) == (7, 9, 2)
    cache.check(0)


def test_a_lease_keeps_its_place_when_others_split_its_path() -> None:
    cache = RadixCache(32)
    lease = _open(cache, "abcdef")
    node = lease.node
    _put(cache, "abxx", "abcdyy")
    assert (lease.node, lease.length, lease.slots.tolist()) == (node, 6, [0, 1, 2, 3, 4, 5])
    assert _edges(cache) == {"ab": 1, "cd": 1, "ef": 1, "xx": 0, "yy": 0}
    cache.release(lease)
    assert cache.num_locked == 0


def test_slots_that_are_not_the_leases_own_are_refused() -> None:
    cache = RadixCache(16)
    lease = _open(cache, "ab")
    with pytest.raises(AssertionError, match="not the slots of this lease"):
        cache.commit(lease, _ints("abc"), np.array([1, 0, 5], np.int32))
    with pytest.raises(AssertionError, match="one slot for each token"):
        cache.commit(lease, _ints("abc"), lease.slots)


def test_a_shared_lease_holds_the_path_on_its_own() -> None:
    cache = RadixCache(4)
    lease = _open(cache, "abcd")
    lease_copy = cache.share(lease)
    cache.release(lease)
    assert cache.allocate(1) is None
    assert (lease_copy.length, lease_copy.slots.tolist()) == (4, [0, 1, 2, 3])
    cache.release(lease_copy)
    assert cache.num_available == 4


def test_a_released_lease_can_be_used_for_nothing() -> None:
    cache = RadixCache(4)
    lease = _open(cache, "ab")
    cache.release(lease)
    for use in (cache.release, cache.share, lambda old: cache.commit(old, old.slots, old.slots)):
        with pytest.raises(RuntimeError, match=f"node {lease.node} is released already"):
            use(lease)
    cache.check(0)


# --- eviction ---------------------------------------------------------------------------------


def test_the_least_recently_used_leaf_goes_first() -> None:
    cache = RadixCache(6)
    _put(cache, "aa", "bb", "cc")
    _put(cache, "aa")
    for gone, left in (("bb", {"aa", "cc"}), ("cc", {"aa"}), ("aa", set())):
        assert cache.match("", _ints(gone), 2).length == 2
        assert cache.allocate(2) is not None
        assert set(_edges(cache)) == left


def test_a_use_lasts_until_the_release() -> None:
    cache = RadixCache(4)
    early = _open(cache, "aa")
    _put(cache, "bb")
    cache.release(early)
    assert cache.allocate(2) is not None
    assert set(_edges(cache)) == {"aa"}


def test_leaves_go_before_the_prefix_they_share() -> None:
    cache = RadixCache(8)
    _put(cache, "aabb", "aacc", "dd")
    assert cache.allocate(2) is not None
    assert set(_edges(cache)) == {"aa", "cc", "dd"}
    assert cache.allocate(2) is not None
    assert set(_edges(cache)) == {"aa", "dd"}
    assert cache.allocate(2) is not None
    assert set(_edges(cache)) == {"dd"}


def test_a_long_leaf_loses_only_the_tail_that_is_needed() -> None:
    cache = RadixCache(10)
    _put(cache, "abcdefgh")
    slots = cache.allocate(5)
    assert slots is not None
    assert sorted(slots.tolist()) == [5, 6, 7, 8, 9]
    assert set(_edges(cache)) == {"abcde"}
    cache.check(5)
    assert cache.match("", _ints("abcdefgh"), 8).length == 5


def test_a_very_long_leaf_is_shortened_by_a_64th_at_least() -> None:
    cache = RadixCache(6400)
    slots, tokens = cache.allocate(6400), np.arange(6400, dtype=np.int32)
    assert slots is not None
    lease = cache.acquire("", tokens, 6400)
    cache.commit(lease, tokens, slots)
    cache.release(lease)
    assert cache.allocate(1) is not None
    assert (cache.num_cached, cache.num_free) == (6300, 99)
    cache.check(1)


def test_locked_tokens_are_never_evicted() -> None:
    cache = RadixCache(8)
    lease = _open(cache, "abcd")
    _put(cache, "abxy")
    assert (cache.num_locked, cache.num_available) == (4, 4)
    assert cache.allocate(4) is not None
    assert _edges(cache) == {"ab": 1, "cd": 1}
    assert cache.allocate(1) is None
    cache.check(4)
    assert cache.match("", _ints("abcd"), 4) == Match(4, lease.node)


def test_an_allocation_that_cannot_succeed_evicts_nothing() -> None:
    cache = RadixCache(8)
    lease = _open(cache, "abcd")
    _put(cache, "xy")
    assert cache.allocate(5) is None
    assert _edges(cache) == {"abcd": 1, "xy": 0}
    assert (cache.num_free, lease.length) == (2, 4)


def test_the_whole_pool_serves_running_sequences_when_they_need_it() -> None:
    cache = RadixCache(8)
    _put(cache, "abcd", "abxy")
    slots = cache.allocate(8)
    assert slots is not None
    assert sorted(slots.tolist()) == list(range(8))
    assert cache.snapshot() == ()
    cache.check(8)
    cache.free(slots)
    cache.check(0)


# --- namespaces -------------------------------------------------------------------------------


def test_two_namespaces_share_nothing() -> None:
    cache = RadixCache(16)
    _put(cache, "secret", namespace="one")
    assert cache.match("two", _ints("secret"), 6) == Match(0, -1)
    lease = _open(cache, "secret", namespace="two")
    theirs = cache.acquire("one", _ints("secret"), 6)
    assert not set(lease.slots.tolist()) & set(theirs.slots.tolist())
    assert cache.num_cached == 12


def test_the_namespaces_of_one_tenant_stand_in_one_eviction_order() -> None:
    cache = RadixCache(6)
    for text, namespace in (("aa", "one"), ("aa", "two"), ("bb", "one")):
        lease = cache.acquire(namespace, _ints(text), 2, owner="tenant")
        slots = cache.allocate(2)
        assert slots is not None
        cache.commit(lease, _ints(text), slots)
        cache.release(lease)
    assert cache.allocate(4) is not None
    assert {(view.namespace, view.end) for view in cache.snapshot()} == {("one", 0), ("one", 2)}


def test_a_namespace_without_tokens_and_leases_leaves_nothing_behind() -> None:
    cache = RadixCache(4)
    for number in range(20):
        namespace = f"tenant-{number}"
        lease = cache.acquire(namespace, _ints("ab"), 2)
        assert [view.namespace for view in cache.snapshot()] == [namespace]
        cache.release(lease)
        assert cache.snapshot() == ()
        _put(cache, "ab", namespace=namespace)
        assert cache.clear(namespace) == 2
        assert cache.snapshot() == ()


def test_clearing_drops_what_is_not_locked() -> None:
    cache = RadixCache(32)
    lease = _open(cache, "abcd", namespace="one")
    _put(cache, "abxyz", "q", namespace="one")
    _put(cache, "abcd", namespace="two")
    assert cache.clear("one") == 4
    assert _edges(cache) == {"ab": 1, "cd": 1, "abcd": 0}
    assert cache.clear("nobody") == 0
    assert cache.clear() == 4
    cache.release(lease)
    assert cache.clear() == 4
    assert (cache.num_free, cache.snapshot()) == (32, ())
    cache.check(0)


# --- the rest ---------------------------------------------------------------------------------


def test_a_disabled_cache_remembers_nothing_and_leaves_slots_with_the_caller() -> None:
    cache = RadixCache(8, is_enabled=False)
    lease = cache.acquire("", _ints("abc"), 3)
    slots = cache.allocate(3)
    assert slots is not None
    assert cache.commit(lease, _ints("abc"), slots).tolist() == [0, 1, 2]
    assert (lease.length, lease.node, cache.share(lease).length) == (0, -1, 0)
    assert cache.match("", _ints("abc"), 3) == Match(0, -1)
    cache.check(3)
    cache.free(slots)
    cache.release(lease)
    assert (cache.num_free, cache.num_cached, cache.clear()) == (8, 0, 0)
    with pytest.raises(RuntimeError, match="released already"):
        cache.release(lease)


def test_counters_say_what_happened() -> None:
    cache = RadixCache(8)
    _put(cache, "abcd", "abxy")
    cache.release(cache.acquire("", _ints("abxy"), 99))
    assert cache.counters == Counters(
        acquires=3, requested=12, matched=6, inserted=6, duplicated=0, evicted=0, splits=1
    )
    assert cache.clear() == 6
    assert cache.counters.evicted == 6


def test_a_snapshot_is_a_frozen_picture() -> None:
    cache = RadixCache(16)
    _put(cache, "ab", "abc")
    root, upper, lower = cache.snapshot()
    assert (root.tokens, root.end, root.children) == ((), 0, (upper.id,))
    assert (upper.tokens, upper.parent, upper.children) == ((97, 98), root.id, (lower.id,))
    assert (lower.tokens, lower.end, lower.lock_count) == ((99,), 3, 0)
    assert (upper.hits, lower.hits) == (1, 0)
    with pytest.raises(FrozenInstanceError):
        lower.end = 9  # type: ignore[misc]


def test_both_halves_of_a_split_edge_keep_its_hits() -> None:
    cache = RadixCache(16)
    _put(cache, "abcd", "abcd", "abcd", "abxy")
    hits = {"".join(map(chr, view.tokens)): view.hits for view in cache.snapshot()}
    assert hits == {"": 4, "ab": 3, "cd": 2, "xy": 0}


def test_check_finds_a_leak_and_a_slot_with_two_owners() -> None:
    cache = RadixCache(8)
    _put(cache, "ab")
    assert cache.allocate(3) is not None
    with pytest.raises(AssertionError, match=r"free 3 \+ cached 2 \+ running 0 are 5 slots of 8"):
        cache.check(0)
    cache.check(3)
    lease = cache.acquire("", _ints("cd"), 2)
    cache.commit(lease, _ints("cd"), np.array([0, 1], np.int32))
    with pytest.raises(AssertionError, match="a slot has two owners"):
        cache.check(1)
