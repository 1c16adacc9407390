"""A draining server: new requests are refused, open ones end, and readiness is false meanwhile."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from forkroot.__main__ import main
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.http.drain import drain, set_draining
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import BackendClosed, Call, InvalidCall, Text

from .conftest import Letters, serving

CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "temperature": 0}
KEYS = Settings(keys=("one",), admin_keys=("root",))


@pytest.fixture
def held() -> ScriptedBackend:
    return ScriptedBackend("answer", is_held=True)


@pytest.fixture
def url(held: ScriptedBackend) -> Iterator[str]:
    with serving(Runtime(held, Letters(), ("scripted",)), KEYS) as url:
        yield url


def open_request(url: str, backend: ScriptedBackend) -> http.client.HTTPConnection:
    """A connection whose request is at work."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    headers = {"Content-Type": "application/json", "Authorization": "Bearer one"}
    connection.request("POST", "/v1/chat/completions", json.dumps(CHAT), headers)
    backend.wait_for(1)
    return connection


def ask(url: str) -> httpx.Response:
    headers = {"Authorization": "Bearer one"}
    return httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers)


def draining(url: str) -> float:
    page = httpx.get(f"{url}/metrics", headers={"Authorization": "Bearer root"}).text
    return next(float(it.split()[1]) for it in page.splitlines() if it.startswith("forkroot_drain"))


def test_a_draining_server_refuses_new_requests_and_ends_open_ones(
    url: str, held: ScriptedBackend
) -> None:
    connection = open_request(url, held)
    assert (httpx.get(f"{url}/ready").status_code, draining(url)) == (200, 0)
    assert set_draining(url, "root", True) == 1
    ready = httpx.get(f"{url}/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
    assert httpx.get(f"{url}/health").status_code == 200
    refused = ask(url)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
    assert refused.json()["error"]["code"] == "draining"
    assert draining(url) == 1
    held.release()
    response = connection.getresponse()
    assert response.status == 200
    assert json.load(response)["choices"][0]["message"]["content"] == "answer"
    connection.close()
    assert drain(url, "root", 5) == 0
    assert len(held.calls) == 1


def test_a_drained_server_can_take_requests_again(url: str, held: ScriptedBackend) -> None:
    set_draining(url, "root", True)
    assert ask(url).status_code == 503
    set_draining(url, "root", False)
    assert httpx.get(f"{url}/ready").status_code == 200
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, url)
        held.wait_for(1)
        held.release()
        assert answer.result(30).status_code == 200


def test_a_call_of_the_protocol_is_refused_as_by_a_closed_backend(url: str) -> None:
    set_draining(url, "root", True)
    with RemoteBackend(url, "one") as remote, pytest.raises(BackendClosed, match="is draining"):
        remote.submit(Call((Text("Hello"),))).result(30)


@pytest.mark.parametrize("key", [None, "one", "other"])
def test_only_an_admin_may_drain_a_server_with_keys(url: str, key: str | None) -> None:
    with pytest.raises(InvalidCall, match=r"admin_key=None: expected an admin key"):
        set_draining(url, key, True)
    assert httpx.get(f"{url}/ready").status_code == 200


def test_the_command_waits_for_open_requests(
    url: str,
    held: ScriptedBackend,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORKROOT_ADMIN_KEYS", "root another")
    connection = open_request(url, held)
    assert main(["drain", url]) == 1
    assert capsys.readouterr().err == "open requests: 1\n"
    held.release()
    assert main(["drain", url, "--wait", "10"]) == 0
    assert httpx.get(f"{url}/ready").status_code == 503
    assert main(["drain", url, "--resume"]) == 0
    assert httpx.get(f"{url}/ready").status_code == 200
    connection.close()


@pytest.mark.parametrize(
    ("url", "error"), [("http://127.0.0.1:9", BackendClosed), ("tiny", InvalidCall)]
)
def test_what_cannot_be_drained_is_named(url: str, error: type[Exception]) -> None:
    with pytest.raises(error, match=url):
        set_draining(url, None, True)
