"""Connections in small pools: none serves many calls, and those that are there are used again."""

from __future__ import annotations

import asyncio

import httpx

from forkroot.adapters.http.client import Pools, RemoteBackend
from forkroot.core.api.protocol import Call, Sampling, Text


def test_pools_are_filled_before_more_are_made_and_used_again() -> None:
    pools = Pools(httpx.URL("http://localhost"), {}, httpx.Timeout(5))
    taken = [pools.taken() for _ in range(100)]
    first = {id(pool): pool.num_open for pool in taken}
    assert max(first.values()) < 20
    assert sum(first.values()) == 100
    for pool in taken:
        pool.num_open -= 1
    assert {id(pools.taken()) for _ in range(100)} == set(first)
    asyncio.run(pools.close())


def test_many_calls_at_once_are_answered_each_by_its_own(server: str) -> None:
    calls = [Call((Text(f"{i} and"),), Sampling(max_tokens=2, temperature=0)) for i in range(120)]
    with RemoteBackend(server) as backend:
        alone = [backend.submit(call).result(60).outputs[0].ids for call in calls[:10]]
        replies = [backend.submit(call) for call in calls]
        assert [reply.result(60).outputs[0].ids for reply in replies[:10]] == alone
        assert all(reply.result(60).outputs[0].ids for reply in replies)
