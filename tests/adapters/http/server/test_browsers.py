"""Pages of other sites cannot use a server without keys through somebody's browser."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import InvalidCall

from ..conftest import Letters, serving

EVIL = "http://evil.example:30000"
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}


def url_of(settings: Settings) -> Iterator[str]:
    with serving(Runtime(ScriptedBackend("x"), Letters(), ("m",)), settings) as url:
        yield url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    yield from url_of(Settings(allowed_hosts=("0.0.0.0", "gpu.example")))


@pytest.fixture(scope="module")
def shared() -> Iterator[str]:
    """A server whose operator allows pages of two origins."""
    yield from url_of(Settings(cors_origins=("https://a.site", "http://localhost:3000")))


@pytest.fixture(scope="module")
def keyed() -> Iterator[str]:
    yield from url_of(Settings(keys=("k",), cors_origins=("https://a.site",)))


@pytest.mark.parametrize("path", ["/live", "/health", "/v1/models", "/", "/docs", "/none"])
@pytest.mark.parametrize("host", ["evil.example:30000", "127.0.0.1.evil.example", "localhost.evil"])
def test_a_name_that_leads_here_is_not_answered(url: str, path: str, host: str) -> None:
    response = httpx.get(f"{url}{path}", headers={"Host": host})
    assert response.status_code == 421
    assert response.json()["error"]["code"] == "host_not_allowed"
    assert "--allowed-host" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1:30000", "192.168.1.5", "[::1]:30000", "::1", "localhost", "LOCALHOST:1"),
        *("localhost.", "a.localhost:80", "gpu.example:30000", socket.gethostname()),
    ],
)
def test_addresses_and_own_names_are_answered(url: str, host: str) -> None:
    assert httpx.get(f"{url}/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/flush_cache", "/v1/chat/completions", "/abort_request"])
@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "https://a.site"])
def test_pages_of_other_sites_change_nothing(url: str, path: str, origin: str) -> None:
    response = httpx.post(f"{url}{path}", json=CHAT, headers={"Origin": origin})
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "origin_not_allowed"
    assert "access-control-allow-origin" not in response.headers


def test_a_page_of_the_server_itself_may_use_it(url: str) -> None:
    for origin in (url, url.replace("http:", "https:")):
        response = httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers={"Origin": origin})
        assert response.status_code == 200
        assert "access-control-allow-origin" not in response.headers


def test_a_name_that_leads_here_is_no_origin_of_its_own(url: str) -> None:
    headers = {"Host": "evil.example:30000", "Origin": EVIL}
    assert httpx.post(f"{url}/flush_cache", headers=headers).status_code == 421


def test_other_origins_are_allowed_where_that_is_asked_for(shared: str) -> None:
    headers = {"Origin": "https://a.site"}
    response = httpx.post(f"{shared}/v1/chat/completions", json=CHAT, headers=headers)
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == "https://a.site"
    refused = httpx.post(f"{shared}/v1/chat/completions", json=CHAT, headers={"Origin": EVIL})
    assert refused.status_code == 403


def preflight(url: str, origin: str) -> httpx.Response:
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "X-A"}
    return httpx.options(f"{url}/v1/chat/completions", headers={"Origin": origin, **asked})


def test_a_preflight_is_answered_for_allowed_origins_only(shared: str, keyed: str) -> None:
    for server in (shared, keyed):
        response = preflight(server, "https://a.site")
        assert response.status_code == 200
        assert response.headers["Access-Control-Allow-Origin"] == "https://a.site"
        assert "access-control-allow-origin" not in preflight(server, EVIL).headers


def test_with_keys_hosts_and_origins_are_left_to_the_keys(keyed: str) -> None:
    key = {"Authorization": "Bearer k"}
    for headers in ({"Host": "any.name"}, {"Origin": EVIL}):
        response = httpx.post(f"{keyed}/v1/chat/completions", json=CHAT, headers=headers | key)
        assert response.status_code == 200
        assert "access-control-allow-origin" not in response.headers
        refused = httpx.post(f"{keyed}/v1/chat/completions", json=CHAT, headers=headers)
        assert refused.status_code == 401


def test_every_name_and_origin_can_be_allowed() -> None:
    for url in url_of(Settings(allowed_hosts=("*",), cors_origins=("*",))):
        headers = {"Host": "any.name", "Origin": EVIL}
        response = httpx.get(f"{url}/health", headers=headers)
        assert response.status_code == 200
        assert response.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("origin", ["a.site", "https://a.site/", "", "https://"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(InvalidCall, match="cors_origin"):
        Settings(cors_origins=(origin,))
