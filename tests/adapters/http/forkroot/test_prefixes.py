"""Prefixes that are planted, pinned and released by requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.core.api.protocol import Text
from forkroot.core.local import LocalBackend

PROMPT = "Once there was a prefix that many questions have in common."
PLANTED = {"prompt": PROMPT, "root": "r"}


@pytest.fixture
def client(server: str, backend: Any) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server, timeout=30) as client:
        yield client
    backend.check()


def plant(client: httpx.Client, **body: Any) -> Any:
    response = client.post("/v1/prefixes", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def num_pinned(backend: Any) -> int:
    """Tokens of the cache that are held by a pin; no call is open."""
    views = [view for view in backend.snapshot() if view.parent >= 0]
    return sum(len(view.tokens) for view in views if view.lock_count)


def ask(client: httpx.Client, text: str, root: str) -> Any:
    body = {
        "text": text,
        "sampling_params": {"max_new_tokens": 2},
        "forkroot": {"version": 1, "root": root},
    }
    return client.post("/generate", json=body).json()


def test_a_prefix_is_planted_pinned_and_released(client, backend) -> None:
    backend.clear_cache()
    answer = plant(client, model="tiny", **PLANTED)
    count = len(backend.tokenizer.encode_prompt((Text(PROMPT),)))
    assert answer["object"] == "prefix"
    assert (answer["root"], answer["prompt_tokens"], answer["cached_tokens"]) == ("r", count, 0)
    assert num_pinned(backend) == count
    assert ask(client, PROMPT + " What?", "r")["meta_info"]["cached_tokens"] >= count - 1
    assert num_pinned(backend) == count

    response = client.delete(f"/v1/prefixes/{answer['id']}")
    assert response.json() == {"id": answer["id"], "object": "prefix", "deleted": True}
    assert num_pinned(backend) == 0
    assert client.delete(f"/v1/prefixes/{answer['id']}").status_code == 404


def test_flushing_the_cache_forgets_planted_prefixes_too(client, backend) -> None:
    backend.clear_cache()
    answer = plant(client, branches=9, **PLANTED)
    assert client.post("/flush_cache").json()["tokens"] == answer["prompt_tokens"]
    assert backend.clear_cache() == 0
    assert ask(client, PROMPT + " What?", "r")["meta_info"]["cached_tokens"] == 0
    assert client.delete(f"/v1/prefixes/{answer['id']}").status_code == 200


def test_without_a_name_the_root_bears_the_id(client, backend) -> None:
    answer = plant(client, prompt=[1, 2, 3])
    assert answer["root"] == answer["id"]
    assert answer["prompt_tokens"] == 3
    client.delete(f"/v1/prefixes/{answer['id']}")
    assert num_pinned(backend) == 0


def test_branches_are_counted_down(client, backend) -> None:
    plant(client, branches=2, **PLANTED)
    for _ in range(2):
        assert num_pinned(backend) > 0
        ask(client, PROMPT + " Why?", "r")
    assert num_pinned(backend) == 0


def test_messages_are_planted_by_the_template(client, backend) -> None:
    backend.clear_cache()
    messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Hi"}]
    answer = plant(client, messages=messages)
    assert num_pinned(backend) == answer["prompt_tokens"]
    body = {"model": "tiny", "messages": messages, "max_tokens": 2}
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached == usage["prompt_tokens"] - 1 == answer["prompt_tokens"] - 1
    client.delete(f"/v1/prefixes/{answer['id']}")


def test_a_root_that_is_planted_again_replaces_the_first(client, backend) -> None:
    first = plant(client, **PLANTED)
    second = plant(client, prompt=[1, 2, 3], root="r")
    assert num_pinned(backend) == 3
    assert client.delete(f"/v1/prefixes/{first['id']}").status_code == 404
    assert num_pinned(backend) == 3
    assert client.delete(f"/v1/prefixes/{second['id']}").status_code == 200
    assert num_pinned(backend) == 0


def test_a_prefix_is_released_when_its_time_is_over(client, backend) -> None:
    answer = plant(client, ttl=0.05, **PLANTED)
    assert wait_for_none(backend)
    assert client.delete(f"/v1/prefixes/{answer['id']}").status_code == 404


def wait_for_none(backend: Any) -> bool:
    ends_at = time.monotonic() + 5  # half of what the runtime's own time-out takes
    while num_pinned(backend) and time.monotonic() < ends_at:
        time.sleep(0.01)
    return not num_pinned(backend)


def test_a_prefix_belongs_to_the_key_that_planted_it(runtime, backend) -> None:
    app = build_app(runtime, Settings(keys=("one", "two")))
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))

    async def go() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            mine = (await client.post("/v1/prefixes", json=PLANTED, headers=one)).json()
            pinned = num_pinned(backend)
            yours = (await client.post("/v1/prefixes", json=PLANTED, headers=two)).json()
            assert yours["cached_tokens"] == 0
            assert num_pinned(backend) == 2 * pinned
            path = f"/v1/prefixes/{mine['id']}"
            assert (await client.delete(path, headers=two)).status_code == 404
            assert (await client.delete(path)).status_code == 401
            assert num_pinned(backend) == 2 * pinned
            assert (await client.delete(path, headers=one)).status_code == 200
            assert num_pinned(backend) == pinned
            body = {**PLANTED, "ttl": 0.05}
            await client.post("/v1/prefixes", json=body, headers=two)
            assert await asyncio.to_thread(wait_for_none, backend)

    asyncio.run(go())


def test_a_prefix_is_kept_for_its_time_used_or_not(monkeypatch) -> None:
    monkeypatch.setattr("forkroot.adapters.http.forkroot.prefixes.KEEP", 0.05)

    async def go(app: Any, backend: Any) -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            (await client.post("/v1/prefixes", json={**PLANTED, "ttl": 1.0})).raise_for_status()
            await asyncio.sleep(0.7)
            assert num_pinned(backend) > 0
            assert await asyncio.to_thread(wait_for_none, backend)
            (await client.post("/v1/prefixes", json=PLANTED)).raise_for_status()
            assert num_pinned(backend) > 0
            assert await asyncio.to_thread(wait_for_none, backend)

    settings = {"root_timeout": 0.3, "num_slots": 500, "context_len": 128}
    with LocalBackend.from_folder("tiny", **settings) as backend:
        asyncio.run(go(build_app(Runtime(backend, backend.tokenizer, ("tiny",))), backend))
        backend.check()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "messages": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [99999]}, "prompt"),
        ({"prompt": "a " * 3000}, "prompt"),
        ({"messages": []}, "messages"),
        ({"prompt": "a", "root": ""}, "root"),
        ({"prompt": "a", "branches": 0}, "branches"),
        ({"prompt": "a", "ttl": 0}, "ttl"),
        ({"prompt": "a", "ttl": 1e9}, "ttl"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_allowed_is_named(client, backend, body, name) -> None:
    response = client.post("/v1/prefixes", json=body)
    assert response.status_code == 400
    assert name in response.json()["error"]["message"]
    assert num_pinned(backend) == 0


def test_another_model_is_not_found(client) -> None:
    assert client.post("/v1/prefixes", json={"prompt": "a", "model": "b"}).status_code == 404
