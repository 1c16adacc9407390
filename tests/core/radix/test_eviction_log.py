"""What a cache reports of its evictions, and that a reader of it is never wrong for long."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from forkroot.core.api.codec import pack, unpack
from forkroot.core.common.digests import CHUNK, DIGEST, digests
from forkroot.core.radix.cache import RadixCache
from forkroot.core.radix.eviction_log import EvictionLog

CAPACITY = 256
PER_CHUNK = CHUNK // 4


def commit(cache: RadixCache, letters: str, namespace: str = "") -> None:
    """Cache a prompt of 16 tokens for each letter, and a few more."""
    ids = np.repeat(np.frombuffer(letters.encode(), np.uint8), PER_CHUNK).astype(np.int32)
    ids = np.append(ids, [1, 2, 3]).astype(np.int32)
    lease = cache.acquire(namespace, ids, len(ids) - 1)
    slots = cache.allocate(len(ids) - lease.length)
    assert slots is not None
    cache.commit(lease, ids, np.concatenate([lease.slots, slots]))
    cache.release(lease)


def key(letters: str) -> bytes:
    ids = np.repeat(np.frombuffer(letters.encode(), np.uint8), PER_CHUNK)
    return digests(ids.astype(np.int32).tobytes())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=6), max_size=25))
def test_who_reads_all_evictions_knows_of_no_prefix_that_is_gone(prompts: list[str]) -> None:
    cache = RadixCache(CAPACITY)
    end = cache.evictions(-1).end
    known: set[bytes] = set()
    for letters in prompts:
        whole = key(letters)
        commit(cache, letters)
        known |= {whole[:size] for size in range(DIGEST, len(whole) + 1, DIGEST)}
        report = cache.evictions(end)
        assert not report.is_gap
        end = report.end
        for it in report.evictions:
            gone = it.digests[: it.remaining + DIGEST]
            known = {prefix for prefix in known if not prefix.startswith(gone)}
        held = {prefix.digests for prefix in cache.prefixes(1000).prefixes}
        assert all(any(leaf.startswith(prefix) for leaf in held) for prefix in known)


def test_nothing_is_recorded_before_somebody_asks_and_what_was_missed_is_a_gap() -> None:
    log = EvictionLog(capacity=2)
    assert log.since(0).is_gap
    for number in range(3):
        log.add("", bytes([number]) * CHUNK, 0, 16)
    assert log.since(0).is_gap
    assert [it.digests for it in log.since(1).evictions] == [
        digests(bytes([number]) * CHUNK) for number in (1, 2)
    ]
    assert log.since(3) == log.since(3)
    assert log.since(4).is_gap


def test_what_loses_less_than_a_chunk_is_not_reported() -> None:
    log = EvictionLog()
    log.add("", b"x" * (CHUNK + 8), CHUNK, 2)
    assert log.end == 0


def test_the_prefixes_used_last_are_reported_first_by_namespace() -> None:
    cache = RadixCache(CAPACITY)
    commit(cache, "ab")
    commit(cache, "aa", "tenant")
    commit(cache, "ac")
    found = [(it.namespace, it.digests) for it in cache.prefixes(2).prefixes]
    assert found == [("", key("ac")), ("tenant", key("aa"))]


def test_reports_cross_a_pipe() -> None:
    cache = RadixCache(CAPACITY)
    cache.evictions(-1)
    for letters in ("aaaaaaaa", "bbbbbbbb"):
        commit(cache, letters)
    for report in (cache.evictions(0), cache.prefixes(5)):
        assert unpack(pack(report)) == report
    assert cache.evictions(0).evictions
