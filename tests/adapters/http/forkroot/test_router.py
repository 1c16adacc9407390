"""A router behind the server, and servers behind a router."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import forkroot
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.evictions import Eviction, EvictionReport, Prefix, PrefixReport

from ....serving import serving
from ..conftest import Letters

EVICTED = Eviction("admin/tenant", b"12345678", 0, 16)


class Caching(ScriptedBackend):
    """A replica that reports."""

    def evictions(self, after: int = -1) -> EvictionReport:
        return EvictionReport("a life", 2, (EVICTED, Eviction("other", b"87654321", 0, 9)))

    def prefixes(self, count: int = 1000) -> PrefixReport:
        return PrefixReport("a life", 2, (Prefix("admin/", b"12345678"),))


@pytest.fixture
def replica() -> Caching:
    return Caching("from the replica")


@pytest.fixture
def keyed(replica: Caching) -> Iterator[str]:
    texts: Any = Letters()
    settings = Settings(("client",), ("boss",))
    with serving(Runtime(replica, texts, ("m",)), settings) as url:
        yield url


def test_an_admin_reads_the_reports_of_its_own_part_of_the_cache(keyed: str) -> None:
    with RemoteBackend(keyed, "boss") as remote:
        report = remote.evictions(0)
        assert report.evictions == (Eviction("tenant", b"12345678", 0, 16),)
        assert (report.life, report.end) == ("a life", 2)
        assert remote.prefixes().prefixes == (Prefix("", b"12345678"),)
    with RemoteBackend(keyed, "client") as remote, pytest.raises(forkroot.InvalidCall):
        remote.evictions(0)


def test_a_backend_that_does_not_report_says_so() -> None:
    texts: Any = Letters()
    with serving(Runtime(ScriptedBackend("x"), texts, ("m",))) as url:
        assert httpx.get(f"{url}/v1/forkroot/evictions").status_code == 404


def test_a_router_over_servers_is_served_and_keeps_the_clients_apart(
    keyed: str, replica: Caching
) -> None:
    texts: Any = Letters()
    backend = forkroot.connect([keyed], api_key="boss")
    assert isinstance(backend, Router)
    settings = Settings(("one", "two"))
    with serving(Runtime(backend, texts, ("routed",)), settings) as url, backend:
        for key in ("one", "two"):
            body = {"model": "routed", "messages": [{"role": "user", "content": "Hi"}]}
            headers = {"Authorization": f"Bearer {key}"}
            answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)
            found = answer.json()["choices"][0]["message"]["content"]
            assert found == "from the replica"
        one, two = replica.calls
        assert one.tenant != two.tenant
        assert one.namespace != two.namespace


def test_connect_refuses_what_makes_no_router() -> None:
    for given, message in (
        ({"model": []}, "at least one URL"),
        ({"replicas": 0}, "replicas=0"),
        ({"replicas": 2, "policy": "best"}, "policy='best'"),
        ({"model": "http://127.0.0.1:1", "replicas": 2}, "a list of their URLs"),
    ):
        with pytest.raises(forkroot.InvalidCall, match=message):
            forkroot.connect(**given)
