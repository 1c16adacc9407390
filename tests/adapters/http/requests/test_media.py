"""Pictures and clips in requests become segments; models that take none refuse them as before."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call, Chat, Image, Text, Video

from ....serving import serving
from ..conftest import Letters

PICTURE, CLIP = b"\x89PNG picture", b"\0\0\0\x18ftyp clip"
URL = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
CLIP_URL = "data:video/mp4;base64," + base64.b64encode(CLIP).decode()


@pytest.fixture(scope="module")
def backend() -> ScriptedBackend:
    return ScriptedBackend("a cat")


@pytest.fixture(scope="module")
def client(backend: ScriptedBackend) -> Iterator[httpx.Client]:
    runtime = Runtime(backend, Letters(), ("eyes",))
    settings = Settings(media_hosts=("a.site",))
    with serving(runtime, settings) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def blind() -> Iterator[httpx.Client]:
    backend = ScriptedBackend("text", features=frozenset({"tokens"}))
    with (
        serving(Runtime(backend, Letters(), ("blind",))) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        yield client


def chat(*parts: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts)}], **fields}


def contents(call: Call) -> list[Any]:
    assert isinstance(call.prompt, Chat)
    return [it.content for it in call.prompt.messages]


def image_url(url: Any = URL, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **fields}}


TEXT = {"type": "text", "text": "What is this?"}


@pytest.mark.parametrize(
    "part",
    [
        image_url(),
        image_url(detail="low"),
        {"type": "image_url", "image_url": URL},
        {"type": "input_image", "image_url": URL, "detail": "auto"},
    ],
)
def test_a_chat_takes_pictures_as_data_urls(client: Any, backend: Any, part: Any) -> None:
    done = client.post("/v1/chat/completions", json=chat("See: ", part, TEXT, "!"))
    assert done.status_code == 200, done.text
    assert contents(backend.calls[-1]) == [
        (Text("See: "), Image(PICTURE), Text("What is this?!")),
    ]


def test_a_chat_takes_clips_and_how_many_frames_are_shown(client: Any, backend: Any) -> None:
    parts = [
        {"type": "video_url", "video_url": {"url": CLIP_URL}},
        {"type": "video_url", "video_url": {"url": CLIP_URL, "num_frames": 8}},
    ]
    assert client.post("/v1/chat/completions", json=chat(*parts)).status_code == 200
    assert contents(backend.calls[-1]) == [(Video(CLIP, 32), Video(CLIP, 8))]


def test_pictures_of_megabytes_pass(client: Any, backend: Any) -> None:
    large = b"\x89PNG" + bytes(9 << 20)
    url = "data:image/png;base64," + base64.b64encode(large).decode()
    assert client.post("/v1/chat/completions", json=chat(image_url(url))).status_code == 200
    assert contents(backend.calls[-1]) == [(Image(large),)]


def test_responses_take_pictures_in_messages_and_in_outputs_of_calls(
    client: Any, backend: Any
) -> None:
    picture = {"type": "input_image", "image_url": URL}
    body = {
        "instructions": "Look.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}, picture]},
            {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": [picture]},
        ],
    }
    assert client.post("/v1/responses", json=body).status_code == 200
    system, user, _, tool = contents(backend.calls[-1])
    assert (system, user) == ((Text("Look."),), (Text("Hi"), Image(PICTURE)))
    assert tool == (Image(PICTURE),)


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"type": "image_url"}, ".image_url"),
        (image_url(None), ".image_url"),
        (image_url("data:image/png;base64,a*"), ".image_url.url"),
        (image_url("data:text/html;base64,aGk="), ".image_url.url"),
        (image_url(CLIP_URL), ".image_url.url"),
        (image_url("a.png"), ".image_url.url"),
        (image_url("/etc/passwd"), ".image_url.url"),
        (image_url("file:///etc/passwd"), ".image_url.url"),
        (image_url("http://b.site/a.png"), ".image_url.url"),
        (image_url("http://127.0.0.1/a.png"), ".image_url.url"),
        (image_url(detail="huge"), ".detail"),
        ({"type": "video_url", "video_url": {"url": CLIP_URL, "num_frames": 0}}, ".num_frames"),
        ({"type": "video_url", "video_url": {"url": URL}}, ".video_url.url"),
        ({"type": "input_audio"}, ".type"),
    ],
)
def test_other_parts_are_refused_by_their_place(client: Any, part: Any, field: str) -> None:
    done = client.post("/v1/chat/completions", json=chat(TEXT, part))
    assert done.status_code == 400
    assert done.json()["error"]["param"].startswith("messages[0].content[1]")
    assert done.json()["error"]["param"].endswith(field)
    assert len(done.text) < 800
    item = {"role": "user", "content": [TEXT, part]}
    done = client.post("/v1/responses", json={"input": [item]})
    assert done.status_code == 400
    assert done.json()["error"]["param"].startswith("input[0].content[1]")


def test_a_model_of_text_refuses_pictures_as_before(blind: Any) -> None:
    for url in (URL, "http://a.site/a.png"):
        done = blind.post("/v1/chat/completions", json=chat(TEXT, image_url(url)))
        assert done.status_code == 400
        assert done.json()["error"]["param"] == "messages[0].content[1].type"
        assert "text (this model reads nothing else)" in done.text
    item = {"role": "user", "content": [{"type": "input_image", "image_url": URL}]}
    done = blind.post("/v1/responses", json={"input": [item]})
    assert (done.status_code, done.json()["error"]["param"]) == (400, "input[0].content[0].type")
    done = blind.post("/generate", json={"text": "a", "image_data": URL})
    assert (done.status_code, done.json()["error"]["param"]) == (400, "image_data")
    assert blind.get("/get_model_info").json()["has_image_understanding"] is False


@pytest.mark.parametrize(
    ("body", "prompts"),
    [
        ({"text": "a", "image_data": URL}, [(Image(PICTURE), Text("a"))]),
        ({"text": "a", "image_data": URL.partition(",")[2]}, [(Image(PICTURE), Text("a"))]),
        ({"text": "a<image>b", "image_data": [URL]}, [(Text("a"), Image(PICTURE), Text("b"))]),
        (
            {"text": "a<|vision_start|><|image_pad|><|vision_end|>", "image_data": URL},
            [(Text("a"), Image(PICTURE))],
        ),
        (
            {"text": "<image>, <video>?", "image_data": [URL], "video_data": CLIP_URL},
            [(Image(PICTURE), Text(", "), Video(CLIP, 32), Text("?"))],
        ),
        (
            {"text": ["a", "b"], "image_data": [[URL, URL], None]},
            [(Image(PICTURE), Image(PICTURE), Text("a")), None],
        ),
    ],
)
def test_sglangs_route_takes_image_data(client: Any, backend: Any, body: Any, prompts: Any) -> None:
    num = len(backend.calls)
    done = client.post("/generate", json={**body, "sampling_params": {"max_new_tokens": 4}})
    assert done.status_code == 200, done.text
    found = [it.prompt for it in backend.calls[num:]]
    assert [p if w else None for p, w in zip(found, prompts, strict=True)] == prompts
    assert client.get("/get_model_info").json()["has_image_understanding"] is True


@pytest.mark.parametrize(
    "body",
    [
        {"text": "a", "image_data": "/etc/passwd.png"},
        {"text": "a", "image_data": "file:///etc/passwd"},
        {"text": "a", "image_data": "http://b.site/a.png"},
        {"text": "a", "image_data": 3},
        {"text": "a", "image_data": {"url": URL}},
        {"text": "<image><image>", "image_data": URL},
        {"text": ["a", "b"], "image_data": [URL, URL, URL]},
    ],
)
def test_sglangs_route_refuses_paths_and_other_hosts(client: Any, body: Any) -> None:
    done = client.post("/generate", json=body)
    assert (done.status_code, done.json()["error"]["param"]) == (400, "image_data")


def test_pictures_of_allowed_hosts_are_fetched_once_each() -> None:
    asked: list[tuple[str, str, str]] = []

    class Scripted:
        async def fetch(self, url: str, kind: str, field: str) -> bytes:
            asked.append((url, kind, field))
            return PICTURE

    backend = ScriptedBackend("ok")
    runtime = replace(Runtime(backend, Letters(), ("eyes",)), fetcher=Scripted())
    with serving(runtime) as url, httpx.Client(base_url=url, timeout=30) as client:
        part = image_url("https://a.site/a.png")
        assert client.post("/v1/chat/completions", json=chat(part, part)).status_code == 200
        many = [image_url(f"https://a.site/{index}.png") for index in range(33)]
        done = client.post("/v1/chat/completions", json=chat(*many))
        body = {"text": "a", "image_data": "https://a.site/b.png"}
        assert client.post("/generate", json=body).status_code == 200
    assert contents(backend.calls[0]) == [(Image(PICTURE), Image(PICTURE))]
    assert asked == [
        ("https://a.site/a.png", "image", "messages[0].content[1].image_url.url"),
        ("https://a.site/b.png", "image", "image_data"),
    ]
    assert (done.status_code, "at most 32" in done.text) == (400, True)
