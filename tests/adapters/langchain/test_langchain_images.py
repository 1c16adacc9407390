"""Images and videos in the messages of LangChain, in the blocks of every provider."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from forkroot.adapters.langchain import ChatForkroot
from forkroot.adapters.testing import ALL_FEATURES, ScriptedBackend
from forkroot.core.api.protocol import Image, InvalidCall, Text, UnsupportedCall, Video

PNG = base64.b64encode(b"\x89PNG").decode()
MP4 = base64.b64encode(b"mp4").decode()
PNG_URL, MP4_URL = f"data:image/png;base64,{PNG}", f"data:video/mp4;base64,{MP4}"


def shown(*blocks: Any) -> tuple[Any, ...]:
    """What the model is shown of a user's message."""
    backend = ScriptedBackend("yes")
    ChatForkroot(model=backend).invoke([HumanMessage(list(blocks))])
    return backend.calls[0].prompt.messages[-1].content  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": PNG_URL, "detail": "low"}},
        {"type": "image_url", "image_url": PNG_URL},
        {"type": "input_image", "image_url": PNG_URL},
        {"type": "image", "base64": PNG, "mime_type": "image/png"},
        {"type": "image", "url": PNG_URL},
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            "cache_control": {"type": "ephemeral"},
        },
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG"}}},
        {"type": "media", "mime_type": "image/png", "data": b"\x89PNG"},
    ],
)
def test_images_of_every_provider_are_read(block: dict[str, Any]) -> None:
    assert shown("Look: ", block, "?") == (Text("Look: "), Image(b"\x89PNG"), Text("?"))


@pytest.mark.parametrize(
    ("block", "num_frames"),
    [
        ({"type": "video", "base64": MP4, "mime_type": "video/mp4"}, 32),
        ({"type": "video", "base64": MP4, "extras": {"num_frames": 4}}, 4),
        ({"type": "video", "url": MP4_URL, "num_frames": 2}, 2),
        ({"type": "video", "source_type": "base64", "data": MP4, "mime_type": "video/mp4"}, 32),
        ({"type": "video_url", "video_url": {"url": MP4_URL}}, 32),
        ({"type": "video_url", "video_url": {"url": MP4_URL, "num_frames": 4}}, 4),
        ({"type": "video_url", "video_url": MP4_URL, "num_frames": 16}, 16),
    ],
)
def test_videos_are_read_with_their_number_of_frames(
    block: dict[str, Any], num_frames: int
) -> None:
    assert shown("Look: ", block) == (Text("Look: "), Video(b"mp4", num_frames))


def test_several_images_keep_their_places() -> None:
    first, second = ({"type": "image_url", "image_url": {"url": PNG_URL}} for _ in range(2))
    found = shown(first, "and", second, {"type": "text", "text": "differ"})
    assert found == (Image(b"\x89PNG"), Text("and"), Image(b"\x89PNG"), Text("differ"))


@pytest.mark.parametrize(
    ("block", "error", "text"),
    [
        ({"type": "image", "url": "https://a.b/c.png"}, UnsupportedCall, "nothing is fetched"),
        (
            {"type": "video", "url": "https://a.b/c.mp4"},
            UnsupportedCall,
            r"messages\[0\]\.content\[1\]\.video_url=.*nothing is fetched",
        ),
        ({"type": "image_url", "image_url": {"url": "data:;base64,?"}}, InvalidCall, "base64"),
        ({"type": "image", "file_id": "f"}, InvalidCall, "content blocks"),
        ({"type": "image", "source": {"type": "file"}}, InvalidCall, "media_type"),
        ({"type": "video", "file_id": "f"}, InvalidCall, r"content\[1\]\.video_url=None"),
        ({"type": "video_url", "video_url": MP4_URL, "num_frames": 0}, InvalidCall, "num_frames=0"),
        ({"type": "video", "url": MP4_URL, "num_frames": "8"}, InvalidCall, "num_frames='8'"),
    ],
)
def test_what_is_no_image_is_refused_by_a_typed_error(
    block: dict[str, Any], error: type[InvalidCall], text: str
) -> None:
    with pytest.raises(error, match=text):
        shown("Look: ", block)


def test_an_error_does_not_repeat_a_whole_image() -> None:
    with pytest.raises(InvalidCall) as caught:
        shown({"type": "image", "source": {"type": "base64", "data": "A" * 100_000}})
    assert len(str(caught.value)) < 400


def test_a_model_without_images_refuses_them_by_a_typed_error() -> None:
    message = HumanMessage([{"type": "image_url", "image_url": {"url": PNG_URL}}])
    blind = ScriptedBackend("yes", features=ALL_FEATURES - {"images"})
    for model in ("tiny", blind):
        with pytest.raises(UnsupportedCall, match=r"(?i)image"):
            ChatForkroot(model=model).invoke([message])


def test_the_results_of_tools_may_be_images() -> None:
    backend = ScriptedBackend("yes")
    call = {"type": "tool_call", "id": "1", "name": "draw", "args": {}}
    picture = {"type": "image", "base64": PNG, "mime_type": "image/png"}
    messages = [
        HumanMessage("Draw."),
        AIMessage([], tool_calls=[call]),
        ToolMessage([picture], tool_call_id="1", name="draw"),
    ]
    ChatForkroot(model=backend).invoke(messages)
    answer = backend.calls[-1].prompt.messages[-1]  # type: ignore[union-attr]
    assert (answer.role, answer.content) == ("tool", (Image(b"\x89PNG"),))


def test_the_profile_says_what_a_backend_sees() -> None:
    sees = ChatForkroot(model=ScriptedBackend("yes")).profile or {}
    assert (sees["image_inputs"], sees["image_url_inputs"]) == (True, False)
    assert (sees["image_tool_message"], sees["video_inputs"]) == (True, True)
    blind = ScriptedBackend("yes", features=frozenset({"videos"}))
    profile = ChatForkroot(model=blind).profile or {}
    assert (profile["image_inputs"], profile["video_inputs"]) == (False, True)
    assert "image_inputs" not in (ChatForkroot(model="tiny").profile or {})


def test_a_refused_call_is_not_an_error_of_a_callback(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(UnsupportedCall):
        shown({"type": "image", "url": "https://a.b/c.png"})
    assert caplog.messages == []
