"""Keys are tenants: each has its own share, requests and constraints, also in a shared cache."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forkroot.adapters.http.server.keys import Client, Keys
from forkroot.adapters.http.server.metrics import Metrics
from forkroot.adapters.http.server.request_registry import RequestContext, RequestRegistry
from forkroot.adapters.http.server.settings import Settings, key_weights
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, InvalidCall, Text

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
