"""Requests that a router relays as they came: beside the same ones asked directly."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import forkroot
from forkroot.adapters.http.server.keys import name_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.http.wire.relaywire import CLIENT_HEADER, PREFIX
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend

from ....serving import serving
from ..conftest import Letters

pytest.importorskip("httptools")
CHATS = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def replica() -> ScriptedBackend:
    return ScriptedBackend("from the replica")


@pytest.fixture
def replica_url(replica: ScriptedBackend) -> Iterator[str]:
    texts: Any = Letters()
    with serving(Runtime(replica, texts, ("m",)), Settings((), ("boss",))) as url:
        yield url


@pytest.fixture
def router(replica_url: str) -> Iterator[Router]:
    with forkroot.connect([replica_url], api_key="boss") as backend:
        assert isinstance(backend, Router)
        yield backend


@pytest.fixture
def url(router: Router) -> Iterator[str]:
    texts: Any = Letters()
    with serving(Runtime(router, texts, ("m", "alias")), Settings(("one", "two"))) as found:
        yield found


def post(url: str, body: Any, key: str = "one", path: str = CHATS) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(url + path, json=body, headers=headers)


def test_an_answer_is_relayed_as_the_replica_gives_it(url: str) -> None:
    answer = post(url, {"messages": MESSAGES})
    assert answer.json()["choices"][0]["message"]["content"] == "from the replica"
    assert not [name for name in answer.headers if "forkroot" in name]


def test_all_kinds_of_answers_are_those_of_the_replica(
    url: str, replica_url: str, replica: ScriptedBackend
) -> None:
    options = {"include_usage": True}
    for path, body in (
        (CHATS, {"messages": MESSAGES, "max_tokens": 9}),
        (CHATS, {"messages": MESSAGES, "stream": True}),
        (CHATS, {"messages": MESSAGES, "stream": True, "stream_options": options}),
        (CHATS, {"messages": MESSAGES, "model": "m", "n": 2, "colour": "red"}),
        (CHATS, {"messages": MESSAGES, "temperature": "hot"}),
        (CHATS, {"messages": MESSAGES, "temprature": 1}),
        ("/v1/completions", {"prompt": "Hi", "stream": True}),
        ("/v1/completions", {"prompt": "Hi", "max_tokens": -1}),
    ):
        routed, direct = post(url, body, path=path), post(replica_url, body, "boss", path)
        assert routed.status_code == direct.status_code
        assert plain(routed.text) == plain(direct.text)
        for name in ("content-type", "x-ignored-fields"):
            assert routed.headers.get(name) == direct.headers.get(name)


def plain(text: str) -> str:
    """A body without what is new in each."""
    return re.sub(r'"(id|created)": ?("[\w-]+"|\d+)', "", text)


def test_clients_are_kept_apart_and_named_to_the_replica(
    url: str, replica: ScriptedBackend
) -> None:
    for key in ("one", "two"):
        assert post(url, {"messages": MESSAGES, "cache_salt": "salt"}, key).status_code == 200
    one, two = replica.calls
    assert one.tenant != two.tenant
    assert one.namespace != two.namespace
    assert one.namespace == f"{one.tenant}/salt"
    assert post(url, {"messages": MESSAGES}, "three").status_code == 401
    assert len(replica.calls) == 2


def test_a_client_of_a_replica_cannot_claim_to_be_another(replica: ScriptedBackend) -> None:
    texts: Any = Letters()
    with serving(Runtime(replica, texts, ("m",)), Settings(("client",), ("boss",))) as url:
        claim = {"namespace": "x", "tenant": "boss", "weight": 9}
        headers = {"Authorization": "Bearer client", CLIENT_HEADER: json.dumps(claim)}
        body = {"messages": MESSAGES}
        assert httpx.post(url + PREFIX + CHATS, json=body, headers=headers).status_code == 200
        headers[CLIENT_HEADER] = json.dumps({"weight": -1})
        assert httpx.post(url + PREFIX + CHATS, json=body, headers=headers).status_code == 404
        assert httpx.post(url + PREFIX + CHATS, json=body).status_code in (401, 404)
    (call,) = replica.calls
    assert call.tenant != "boss"
    assert call.weight == 1.0
    assert call.namespace == f"{call.tenant}/x/"


def test_tokens_of_relayed_requests_are_counted(url: str, router: Router) -> None:
    """In the log of the router's server, as of any other request."""
    with logged("one", 2) as lines:
        for stream in (False, True):
            post(url, {"messages": MESSAGES, "stream": stream})
    for line in lines:
        assert line["route"] == CHATS
        assert line["prompt_tokens"] == 8  # as the replica counts them
        assert line["status"] == 200
    assert len(lines) == 2


@contextmanager
def logged(client: str, count: int) -> Iterator[list[Any]]:
    """So many lines of the access log about a client; awaited at the end."""
    found = list[Any]()

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line = json.loads(record.getMessage())
            if line["client"] == name_of(client.encode()):
                found.append(line)

    log, keeper = logging.getLogger("forkroot.http"), Keeper()
    level, end = log.level, time.monotonic() + 20
    log.addHandler(keeper)
    log.setLevel(logging.INFO)
    try:
        yield found
        while len(found) < count and time.monotonic() < end:
            time.sleep(0.01)
    finally:
        log.removeHandler(keeper)
        log.setLevel(level)


def test_a_replica_whose_engine_died_has_its_requests_answered_by_another() -> None:
    texts: Any = Letters()
    replicas = [ScriptedBackend("the answer") for _ in range(2)]
    with (
        serving(Runtime(replicas[0], texts, ("m",))) as one,
        serving(Runtime(replicas[1], texts, ("m",))) as two,
        forkroot.connect([one, two], policy="round-robin") as router,
        serving(Runtime(router, texts, ("m",))) as url,
    ):
        replicas[0].close()
        for stream in (False, True) * 3:
            answer = post(url, {"messages": MESSAGES, "stream": stream})
            assert answer.status_code == 200
            assert "the" in answer.text
    assert len(replicas[1].calls) == 6


def test_an_aborted_request_ends_as_it_does_without_a_router(
    url: str, replica: ScriptedBackend
) -> None:
    with held(replica), ThreadPoolExecutor() as pool:
        asked = pool.submit(post, url, {"messages": MESSAGES})
        replica.wait_for(1)
        assert post(url, {"abort_all": True}, path="/abort_request").status_code == 200
        choice = asked.result(10).json()["choices"][0]
    assert choice["finish_reason"] == "abort"


def test_a_client_that_leaves_ends_its_request_on_the_replica(
    url: str, replica: ScriptedBackend
) -> None:
    with held(replica):
        with pytest.raises(httpx.ReadTimeout):
            headers = {"Authorization": "Bearer one"}
            httpx.post(url + CHATS, json={"messages": MESSAGES}, headers=headers, timeout=0.3)
        (reply,) = replica.replies
        assert reply.result(10).outputs[0].finish_reason == "abort"


@contextmanager
def held(replica: ScriptedBackend) -> Iterator[None]:
    """No call ends by itself."""
    replica._is_held = True
    try:
        yield
    finally:
        replica._is_held = False
        replica.release()
