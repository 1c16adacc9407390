"""Images and videos as `data:` URLs: their bytes, or an error that says what is wrong and where."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkroot.adapters.common.data_urls import data_of
from forkroot.core.api.protocol import InvalidCall, UnsupportedCall


@given(st.binary(min_size=1), st.sampled_from(["image/png", "", "video/mp4;codecs=avc1"]))
def test_the_bytes_come_back(data: bytes, kind: str) -> None:
    assert data_of(f"data:{kind};base64,{base64.b64encode(data).decode()}", "image") == data


@pytest.mark.parametrize(
    ("url", "error", "text"),
    [
        ("https://example.org/a.png", UnsupportedCall, "nothing is fetched"),
        ("file:///etc/passwd", UnsupportedCall, "nothing is fetched"),
        ("", UnsupportedCall, "an image as a data:"),
        ("data:image/png,abc", UnsupportedCall, "an image as a data:"),
        ("data:image/png;base64,a", InvalidCall, "base64 behind the comma"),
        ("data:image/png;base64,é", InvalidCall, "base64 behind the comma"),
        ("data:image/png;base64,", InvalidCall, "not nothing"),
        (None, InvalidCall, "image=None"),
        (b"png", InvalidCall, "image="),
    ],
)
def test_what_is_none_is_refused(url: object, error: type[InvalidCall], text: str) -> None:
    with pytest.raises(InvalidCall, match=text) as caught:
        data_of(url, "image")
    assert type(caught.value) is error
    assert caught.value.field == "image"


def test_an_error_does_not_repeat_a_whole_image() -> None:
    with pytest.raises(InvalidCall) as caught:
        data_of("data:image/png;base64,?" + "A" * 100_000, "image")
    assert len(str(caught.value)) < 300
