"""What is not text is refused on every route, by its field and the position in it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.server.texts import check_body
from forkroot.core.api.protocol import InvalidCall

LONE = "abc\ud800def"
JSON = {"Content-Type": "application/json"}
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
SCHEMA = {"type": "object", "properties": {LONE: {"type": "string"}}}


def tool(**fields: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **fields}}]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": LONE}, "prompt"),
        ("/v1/completions", {"prompt": ["hi", LONE], "stream": True}, "prompt[1]"),
        ("/v1/completions", {"prompt": "hi", "stop": ["a", LONE]}, "stop[1]"),
        ("/v1/completions", {"prompt": "hi", "regex": LONE}, "regex"),
        ("/v1/completions", {"prompt": "hi", "grammar": f'start: "{LONE}"'}, "grammar"),
        ("/v1/completions", {"prompt": "hi", "choices": [LONE]}, "choices[0]"),
        ("/v1/completions", {"prompt": "hi", "json_schema": SCHEMA}, "json_schema.properties"),
        ("/v1/completions", {"prompt": "hi", "guided_regex": LONE}, "guided_regex"),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [{"type": "text", "text": LONE}]}]},
            "messages[0].content[0].text",
        ),
        ("/v1/chat/completions", {**ASK, "tools": tool(name=LONE)}, "tools[0].function.name"),
        (
            "/v1/chat/completions",
            {**ASK, "tools": tool(parameters=SCHEMA)},
            "tools[0].function.parameters.properties",
        ),
        ("/v1/responses", {"input": "hi", "instructions": LONE}, "instructions"),
        ("/tokenize", {"prompt": LONE}, "prompt"),
        ("/v1/prefixes", {"prompt": LONE}, "prompt"),
        ("/generate", {"text": LONE}, "text"),
        ("/generate", {"text": "hi", "rid": LONE}, "rid"),
    ],
)
def test_a_lone_surrogate_is_refused_by_its_field_and_position(
    server: str, path: str, body: dict[str, Any], param: str
) -> None:
    response = httpx.post(server + path, content=json.dumps(body), headers=JSON)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == (param, "invalid_value")
    place = 11 if param == "grammar" else 3
    kind = "keys" if param.endswith("properties") else "text"
    allowed = f"expected {kind} without lone surrogates (there is one at position {place})"
    assert error["message"].endswith(allowed)
    assert "Text(" not in error["message"]


def test_of_a_long_text_only_what_surrounds_it_is_shown() -> None:
    body = json.dumps({"prompt": "x" * 5000 + "\udfff" + "y" * 5000}).encode()
    with pytest.raises(InvalidCall) as caught:
        check_body(body)
    shown = "..." + "x" * 20 + "\\udfff" + "y" * 20 + "..."
    assert f"invalid prompt='{shown}'" in str(caught.value)
    assert "position 5000" in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt": "a\\ud83d\\ude00b"}',
        b'{"prompt": "\\\\ud800"}',
        '{"prompt": "한국 \ud7a3 😀"}'.encode(),
        b'{"prompt": "\\ud55c"}',
        b'{"metadata": {"a": "\\ud800"}}',
        b'{"prompt": "\\ud800"',
        b"\\ud800",
    ],
)
def test_pairs_and_what_only_looks_like_a_surrogate_pass(body: bytes) -> None:
    assert check_body(body) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": ["\\uD800\\ud83d\\ude00"]}',
        b'{"a": ["\\ud83d\\ude00\\ude00"]}',
        b'{"a": ["\\\\ud83d\\ude00"]}',
        b'{"a": ["\xed\xa0\x80"]}',
        b'{"a": [1, {"\\udc00": 1}]}',
    ],
)
def test_a_surrogate_beside_a_pair_or_in_raw_bytes_is_found(body: bytes) -> None:
    with pytest.raises(InvalidCall) as caught:
        check_body(body)
    assert caught.value.field in ("a[0]", "a[1]")
