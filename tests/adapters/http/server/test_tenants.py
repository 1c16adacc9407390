"""Keys are tenants: each has its own share, requests and constraints, also in a shared cache."""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from forkroot.adapters.connection import connect
from forkroot.adapters.http.key_file import read_keys
from forkroot.adapters.http.options import access_settings, add_serve_options
from forkroot.adapters.http.server.admission import share_of
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


def test_a_file_of_keys_gives_each_its_weight_and_rates(tmp_path: Path) -> None:
    path, parser = tmp_path / "keys.json", argparse.ArgumentParser()
    path.write_text(
        '{"one": {"weight": 2, "requests_per_minute": 1}, "two": {"requests_per_minute": null},'
        ' "three": {}, "root": {"admin": true}}'
    )
    add_serve_options(parser, "a model")
    given = ["tiny", "--keys-file", str(path), "--api-key", "four", "--requests-per-minute", "2"]
    settings = access_settings(parser.parse_args([*given, "--key-weight", "three=3"]))
    assert (settings.keys, settings.admin_keys) == (("four", "one", "two", "three"), ("root",))
    assert [client(settings, it).weight for it in settings.keys] == [1, 2, 1, 3]
    limits = RateLimits(settings.rates, lambda: 0.0, Keys(settings).rates)
    for key, num_allowed in {"one": 1, "two": 9, "three": 2, "four": 2}.items():
        tenant = client(settings, key).tenant
        for _ in range(num_allowed):
            limits.admit(tenant)
        if key != "two":
            with pytest.raises(Refused):
                limits.admit(tenant)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("[1]", "keys_file"),
        ("{", "keys_file"),
        ('{"secret": 1}', "keys_file"),
        ('{"secret": {"wieght": 1}}', "keys_file"),
        ('{"secret": {"admin": true, "weight": 1}}', "keys_file"),
        ('{"secret": {"admin": 1}}', "admin"),
        ('{"secret": {"tokens_per_minute": 0}}', "tokens_per_minute"),
        ('{"secret": {"weight": "2"}}', "key_weight"),
        ('{" secret": {}}', "api_key"),
    ],
)
def test_a_file_of_keys_that_is_wrong_is_refused_and_no_key_is_shown(
    tmp_path: Path, text: str, field: str
) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(InvalidCall, match=field) as refused:
        read_keys(tmp_path / "keys.json", Rates()).added_to(Settings())
    assert "secret" not in str(refused.value)


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
            remote.submit(CALL).result(60)


def test_clients_share_the_open_requests_by_weight_where_most_are_in_use() -> None:
    settings = Settings(keys=("one", "two", "three"), weights={"two": 2.0})
    one, two, three = (client(settings, key) for key in settings.keys)
    assert share_of(one, [one] * 14, 16) == (14, 14)  # alone, but never all
    assert share_of(three, [one] * 14, 16) == (0, 8)
    assert share_of(one, [one] * 7 + [two] * 7, 16) == (7, 5)
    assert share_of(two, [one] * 7 + [two] * 7, 16) == (7, 10)
    assert share_of(three, [one] * 7 + [two] * 7, 16) == (0, 4)
    assert share_of(one, [two] * 900, 1) == (0, 1)


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
