"""Keys are tenants: each has its own share, requests and constraints, also in a shared cache."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest

from forkroot.adapters.connection import connect
from forkroot.adapters.http.server.errors import Refused
from forkroot.adapters.http.server.keys import Client, Keys
from forkroot.adapters.http.server.metrics import Metrics
from forkroot.adapters.http.server.rate_limits import RateLimits, Rates
from forkroot.adapters.http.server.request_registry import RequestContext, RequestRegistry
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.http.server.settings import Settings, key_weights
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, InvalidCall, Overloaded, Text

from ..conftest import Letters, serving

CALL = Call((Text("Hi"),))


def client(settings: Settings, key: str) -> Client:
    return Keys(settings).client("/v1/completions", f"Bearer {key}")


@pytest.fixture
def registry() -> RequestRegistry:
    backend = ScriptedBackend("ok")
    return RequestRegistry(backend, Metrics(backend))


def test_keys_that_share_the_cache_are_tenants_of_their_own() -> None:
    settings = Settings(keys=("one", "two"), shares_cache=True, weights={"two": 4.0})
    one, two = client(settings, "one"), client(settings, "two")
    assert one.namespace == two.namespace == ""
    assert one.tenant != two.tenant
    assert (one.weight, two.weight) == (1.0, 4.0)


def test_a_key_ends_no_request_of_another_in_a_shared_cache(registry: RequestRegistry) -> None:
    settings = Settings(keys=("one", "two"), shares_cache=True)
    victim = RequestContext("victim", client(settings, "one"))
    registry.open.add(victim)
    registry.current.set(RequestContext("stranger", client(settings, "two")))
    registry.abort(None)
    registry.abort("victim")
    assert not victim.is_disconnected
    registry.current.set(RequestContext("own", client(settings, "one")))
    registry.abort(None)
    assert victim.is_disconnected


def test_a_client_chooses_neither_its_tenant_nor_its_weight(registry: RequestRegistry) -> None:
    settings = Settings(keys=("one",), admin_keys=("root",), weights={"one": 2})
    chosen = replace(CALL, tenant="another", weight=100.0)
    registry.current.set(RequestContext("id", client(settings, "one")))
    call = registry.submit(chosen).call
    assert (call.tenant, call.weight) == (client(settings, "one").tenant, 2)
    registry.current.set(RequestContext("id", client(settings, "root")))
    call = registry.submit(chosen).call
    assert (call.tenant, call.weight) == ("another", 100.0)


@pytest.mark.parametrize("given", ["one=0", "one=many", "two=1", "one"])
def test_weights_that_are_not_allowed_are_refused(given: str) -> None:
    with pytest.raises(InvalidCall, match="key_weight"):
        Settings(keys=("one",), weights=key_weights([given]))


def test_a_key_that_uses_too_much_waits_and_others_do_not() -> None:
    now = [100.0]
    limits = RateLimits(Rates(requests=2, tokens=60), clock=lambda: now[0])
    limits.admit("one")
    limits.admit("one")
    with pytest.raises(Refused) as refused:
        limits.admit("one")
    assert (refused.value.fault.status, refused.value.fault.retry_after) == (429, 30)
    limits.admit("two")
    now[0] += 30
    limits.admit("one")
    limits.take_tokens("two", 90)  # as much as it wants at a time, but it owes then
    with pytest.raises(Refused) as refused:
        limits.admit("two")
    assert refused.value.fault.retry_after == 31
    limits.take_tokens("two", -80)  # fewer were used than held
    limits.admit("two")


def test_too_many_requests_of_a_key_are_refused_with_the_time_to_wait(runtime: Runtime) -> None:
    settings = Settings(keys=("one", "two"), admin_keys=("root",), rates=Rates(requests=1))
    with serving(runtime, settings) as url:
        body = {"prompt": [1, 2], "max_tokens": 1}

        def post(key: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {key}"}
            return httpx.post(f"{url}/v1/completions", json=body, headers=headers)

        found = [post(key) for key in ("one", "one", "two", "root", "root")]
        assert [it.status_code for it in found] == [200, 429, 200, 200, 200]
        assert found[1].json()["error"]["code"] == "rate_limit_exceeded"
        assert 1 <= int(found[1].headers["Retry-After"]) <= 60
        with connect(url, api_key="one") as remote, pytest.raises(Overloaded):
            remote.submit(CALL).result(20)


def test_one_key_leaves_a_part_of_the_open_requests_to_others() -> None:
    backend = ScriptedBackend("ok", is_held=True)
    runtime = Runtime(backend, Letters(), ("scripted",), Limits(max_streams=8))

    def post(key: str) -> int:
        headers = {"Authorization": f"Bearer {key}"}
        body = {"prompt": "a", "max_tokens": 1}
        return httpx.post(
            f"{url}/v1/completions", json=body, headers=headers, timeout=30
        ).status_code

    with serving(runtime, Settings(keys=("one", "two"))) as url, ThreadPoolExecutor(8) as threads:
        held = [threads.submit(post, "one") for _ in range(7)]
        while len(backend.calls) < 7:
            time.sleep(0.005)
        assert post("one") == 503
        held.append(threads.submit(post, "two"))
        while len(backend.calls) < 8:
            time.sleep(0.005)
        assert post("two") == 503  # as many as are allowed of all
        backend.release()
        assert [it.result() for it in held] == [200] * 8
