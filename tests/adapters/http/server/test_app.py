"""Admission to the server: which requests pass, how errors are reported, what is counted."""

from __future__ import annotations

import http.client
import json
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    BackendClosed,
    BackendInfo,
    CallFailed,
    DeadlineExceeded,
    EngineDied,
    Overloaded,
)

from ..conftest import Letters, serving

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}


def scripted(script: Any, **fields: Any) -> Runtime:
    limits = fields.pop("limits", Limits())
    return Runtime(ScriptedBackend(script, **fields), Letters(), ("scripted",), limits)


@pytest.fixture(scope="module")
def keyed(runtime: Runtime) -> Iterator[str]:
    settings = Settings(keys=("one", "two"), admin_keys=("root",))
    with serving(runtime, settings) as url:
        yield url


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def ask(url: str, key: str | None = None, **fields: Any) -> httpx.Response:
    headers = {} if key is None else bearer(key)
    return httpx.post(f"{url}/v1/chat/completions", json={**CHAT, **fields}, headers=headers)


@pytest.mark.parametrize("key", [None, "three", "on", "onee", "ONE", "é"])
def test_a_request_without_a_known_key_is_refused(keyed: str, key: str | None) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
    response = httpx.post(f"{keyed}/v1/chat/completions", json=CHAT, headers=headers)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "invalid_api_key"
    assert response.headers["WWW-Authenticate"] == "Bearer"
    needed = "this route needs an API key, sent as 'Authorization: Bearer KEY'"
    message = response.json()["error"]["message"]
    assert message == (needed if key is None else f"invalid API key: {needed}")


@pytest.mark.parametrize("key", ["one", "two", "root"])
def test_every_known_key_is_accepted(keyed: str, key: str) -> None:
    assert ask(keyed, key).status_code == 200


def test_health_needs_no_key(keyed: str) -> None:
    assert httpx.get(f"{keyed}/health").json() == {"status": "ok"}
    assert httpx.get(f"{keyed}/ready").json() == {"status": "ready"}
    assert httpx.get(f"{keyed}/health_generate").status_code == 401


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/metrics"), ("POST", "/flush_cache"), ("POST", "/reset_prefix_cache")],
)
def test_what_concerns_all_needs_the_admin_key(keyed: str, method: str, path: str) -> None:
    def status(**headers: str) -> int:
        return httpx.request(method, keyed + path, headers=headers).status_code

    assert (status(), status(**bearer("one")), status(**bearer("root"))) == (401, 403, 200)


def test_keys_share_no_cached_token(keyed: str) -> None:
    body = {"prompt": [*range(700, 740)], "max_tokens": 1}

    def cached(key: str, **more: Any) -> int:
        response = httpx.post(
            f"{keyed}/v1/completions", json={**body, **more}, headers=bearer(key)
        ).json()
        found: int = response["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert [cached("one"), cached("two"), cached("one"), cached("two")] == [0, 0, 39, 39]
    assert [cached("one", cache_salt="x"), cached("one", cache_salt="x")] == [0, 39]
    assert cached("two", cache_salt="x") == 0


def test_an_operator_may_let_keys_share(runtime: Runtime) -> None:
    with serving(runtime, Settings(keys=("one", "two"), shares_cache=True)) as url:
        body = {"prompt": [*range(800, 840)], "max_tokens": 1}
        for key, wanted in (("one", 0), ("two", 39)):
            response = httpx.post(f"{url}/v1/completions", json=body, headers=bearer(key)).json()
            assert response["usage"]["prompt_tokens_details"]["cached_tokens"] == wanted
        assert httpx.get(f"{url}/metrics", headers=bearer("one")).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("GET", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/v1/models/other", 404, "model_not_found"),
    ],
)
def test_unknown_routes_methods_and_models_are_reported_in_the_same_shape(
    server: str, method: str, path: str, status: int, code: str
) -> None:
    response = httpx.request(method, server + path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.json()["error"]["code"] == code


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
        ({**CHAT, "temperature": "hot"}, "temperature"),
        ({**CHAT, "logit_bias": {"1": "x"}}, "logit_bias.1"),
        ({**CHAT, "stream_options": {"include_usage": "x"}}, "stream_options.include_usage"),
        ({**CHAT, "messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
        ({**CHAT, "priority": 1000}, "priority"),
    ],
)
def test_a_body_of_another_shape_is_refused_by_field(
    server: str, body: dict[str, Any], param: str
) -> None:
    content = json.dumps(body)
    headers = {"Content-Type": "application/json"}
    response = httpx.post(f"{server}/v1/chat/completions", content=content, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert param in response.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[1", b"\xff", b'{"messages": NaN}', b"[" * 99999])
def test_what_is_not_json_is_refused(server: str, content: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    response = httpx.post(f"{server}/v1/chat/completions", content=content, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("has_length", [True, False])
def test_a_large_body_is_refused_before_it_is_read(has_length: bool) -> None:
    with serving(scripted("x", limits=Limits(max_body=1000))) as url:
        parts = [b"x" * 500] * 3
        content: Any = b"".join(parts) if has_length else iter(parts)
        response = httpx.post(f"{url}/v1/chat/completions", content=content)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("the queue is full"), 503, "overloaded"),
        (DeadlineExceeded("too late"), 408, "deadline_exceeded"),
        (CallFailed("a secret of ours"), 500, "internal_error"),
        (BackendClosed("a secret of ours"), 503, "shutting_down"),
        (EngineDied("a secret of ours"), 503, "engine_dead"),
        (EngineDied("a secret of ours", is_replaced=True), 503, "engine_dead"),
        (ZeroDivisionError("a secret of ours"), 500, "internal_error"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_error_of_the_backend_is_reported_without_its_insides(
    error: Exception, status: int, code: str, is_streamed: bool
) -> None:
    with serving(scripted(lambda call: error)) as url:
        response = ask(url, stream=is_streamed)
    assert response.status_code == status
    assert response.json()["error"]["code"] == code
    assert "secret" not in response.text and "Traceback" not in response.text
    assert ("Retry-After" in response.headers) is (status == 503)


def test_no_more_requests_are_at_work_than_are_allowed() -> None:
    runtime = scripted("x", is_held=True, limits=Limits(max_streams=1))
    assert isinstance(runtime.backend, ScriptedBackend)
    with serving(runtime) as url, httpx.Client(base_url=url, timeout=30) as client:
        first = http.client.HTTPConnection(url.removeprefix("http://"))
        headers = {"Content-Type": "application/json"}
        first.request("POST", "/v1/chat/completions", json.dumps(CHAT), headers)
        while not runtime.backend.calls:
            pass
        refused = client.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        runtime.backend.release()
        assert first.getresponse().status == 200
        first.close()
        assert client.get("/ready").status_code == 200


def test_a_router_none_of_whose_replicas_takes_calls_is_not_ready() -> None:
    class Absent(ScriptedBackend):
        is_gone = False

        def info(self) -> BackendInfo:
            if self.is_gone:
                raise BackendClosed("not there")
            return super().info()

    one = Absent("a")
    with Router([one], heartbeat=0.02) as router:
        runtime = Runtime(router, Letters(), ("scripted",))
        with serving(runtime) as url:
            assert httpx.get(f"{url}/ready").status_code == 200
            one.is_gone = True
            end = time.monotonic() + 30
            while (ready := httpx.get(f"{url}/ready")).status_code != 503:
                assert time.monotonic() < end
            assert "no replica takes calls now" in ready.text


def test_a_dead_backend_is_reported_by_health() -> None:
    with serving(scripted(lambda call: BackendClosed("died"))) as url:
        assert httpx.get(f"{url}/health").status_code == 200
        ask(url)
        assert httpx.get(f"{url}/health").status_code == 503
        assert httpx.get(f"{url}/health_generate").status_code == 503


def test_every_answer_bears_an_id_and_the_client_may_choose_it(server: str) -> None:
    path = f"{server}/v1/models"
    assert re.fullmatch("[0-9a-f]{32}", httpx.get(path).headers["X-Request-Id"])
    chosen = httpx.get(path, headers={"X-Request-Id": "my-id:7"})
    assert chosen.headers["X-Request-Id"] == "my-id:7"
    strange = httpx.get(path, headers={"X-Request-Id": "a b;" * 99})
    assert re.fullmatch("[0-9a-f]{32}", strange.headers["X-Request-Id"])
    assert "X-Request-Id" in httpx.get(f"{server}/nothing").headers


@pytest.mark.parametrize("field", ["choices", "guided_choice", "structured_outputs.choice"])
def test_choices_that_are_given_twice_are_refused_by_the_name_of_the_request(
    server: str, field: str
) -> None:
    outer, _, inner = field.partition(".")
    choices = ["a", "b", "a"]
    response = ask(server, **{outer: {inner: choices} if inner else choices}).json()["error"]
    assert response["param"] == field
    assert response["message"].endswith("expected different texts; 'a' is given twice")


def test_every_request_is_one_line_of_json_in_the_log(
    server: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "forkroot.http"):
        response = ask(server)
        while not caplog.records:
            pass
    line = json.loads(caplog.records[-1].getMessage())
    assert line["id"] == response.headers["X-Request-Id"]
    assert (line["method"], line["route"]) == ("POST", "/v1/chat/completions")
    assert (line["status"], line["completion_tokens"]) == (200, 2)
    assert line["seconds"] > 0


def test_metrics_count_what_was_done(runtime: Runtime) -> None:
    with serving(runtime) as url:
        ask(url, stream=True)
        ask(url, temperature=-1)
        page = httpx.get(f"{url}/metrics").text
    figures = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert figures["forkroot_requests_open"] == "0.0"
    route = 'route="/v1/chat/completions"'
    assert figures[f'forkroot_requests_total{{{route},status="200"}}'] == "1.0"
    assert figures[f'forkroot_requests_total{{{route},status="400"}}'] == "1.0"
    assert figures['forkroot_refused_total{reason="invalid_value"}'] == "1.0"
    assert figures["forkroot_time_to_first_token_seconds_count"] == "1.0"
    assert float(figures["forkroot_prompt_tokens_total"]) > 0
    assert float(figures["forkroot_waiting"]) == 0
    assert 0 <= float(figures["forkroot_cache_hit_rate"]) <= 1


@pytest.mark.parametrize("path", ["/flush_cache?timeout=60.0", "/reset_prefix_cache"])
def test_flushing_forgets_what_is_cached(server: str, path: str) -> None:
    """As SGLang's load generator flushes servers of SGLang's and of vLLM's kind."""
    body = {"prompt": [*range(900, 940)], "max_tokens": 1}

    def cached() -> int:
        usage = httpx.post(f"{server}/v1/completions", json=body).json()["usage"]
        found: int = usage["prompt_tokens_details"]["cached_tokens"]
        return found

    cached()
    assert cached() == 39
    response = httpx.post(f"{server}{path}").json()
    assert response["success"] and response["tokens"] >= 40
    assert cached() == 0


def test_deadlines_of_the_server_hold_for_every_request(runtime: Runtime) -> None:
    with serving(replace(runtime, limits=Limits(deadline=1e-6))) as url:
        assert ask(url).status_code == 408


def test_the_server_describes_itself(runtime: Runtime) -> None:
    paths = build_app(runtime).openapi()["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/generate", "/health"} <= set(paths)
    operations = [(path, it) for path, of_path in paths.items() for it in of_path.values()]
    assert [path for path, it in operations if not it.get("description")] == []


def test_what_is_known_of_the_tokenizer_is_reported(runtime: Runtime) -> None:
    settings = Settings(tokenizer_info={"eos_token": "<end>", "chat_template": "{{ x }}"})
    with serving(runtime, settings) as url:
        response = httpx.get(f"{url}/tokenizer_info").json()
    assert response["eos_token"] == "<end>"
    assert response["chat_template"] == "{{ x }}"


def test_a_server_answers_its_own_health_with_a_token(server: str) -> None:
    assert httpx.get(f"{server}/health_generate").json()["tokens"] == 1


def test_a_body_that_is_not_json_is_reported(server: str) -> None:
    headers = {"Content-Type": "application/json"}
    response = httpx.post(f"{server}/v1/chat/completions", content=b"{x", headers=headers)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "invalid_json" and error["param"] is None
    assert "not JSON, at character 1" in error["message"]
