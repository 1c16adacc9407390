"""Unmodified programs with `dspy.Image`: where pictures stand in the chat, and what is refused."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import dspy
import pytest

from forkroot.adapters.dspy import LM
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Chat, Image, Message, Text

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("fresh_dspy_cache"),
    pytest.mark.filterwarnings("ignore:.*experimental"),
    pytest.mark.filterwarnings("ignore:Passing OpenAI-style message dictionaries"),
]

BLIND = frozenset({"tokens", "options", "hints", "constraints"})
ANSWERS = {
    "chat": "[[ ## answer ## ]]\ncat\n\n[[ ## completed ## ]]",
    "json": '{"answer": "cat"}',
    "xml": "<answer>cat</answer>",
}
ADAPTERS = {"chat": dspy.ChatAdapter, "json": dspy.JSONAdapter, "xml": dspy.XMLAdapter}


class Look(dspy.Signature):
    """Say what is in the picture."""

    picture: dspy.Image = dspy.InputField()
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


class Compare(dspy.Signature):
    """Say what differs."""

    pictures: list[dspy.Image] = dspy.InputField()
    named: dict[str, dspy.Image] = dspy.InputField()
    answer: str = dspy.OutputField()


def url_of(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def picture(data: bytes) -> dspy.Image:
    return dspy.Image(url_of(data))


def run(program: Any, form: str = "chat", features: Any = None, **inputs: Any) -> ScriptedBackend:
    """The backend that has answered a program in the format of an adapter."""
    settings = {} if features is None else {"features": features}
    backend = ScriptedBackend(ANSWERS[form], **settings)
    with dspy.context(lm=LM(backend, cache=False), adapter=ADAPTERS[form]()):
        assert program(**inputs).answer == "cat"
    return backend


def content_of(backend: ScriptedBackend, index: int = -1) -> tuple[Any, ...]:
    prompt = backend.calls[-1].prompt
    assert isinstance(prompt, Chat)
    return prompt.messages[index].content


@pytest.mark.parametrize("form", ADAPTERS)
def test_a_picture_stands_in_the_place_of_its_field(form: str) -> None:
    backend = run(dspy.Predict(Look), form, picture=picture(b"one"), question="Which animal?")
    before, shown, after = content_of(backend)
    assert before.text in ("[[ ## picture ## ]]\n", "<picture>\n")
    assert shown == Image(b"one")
    assert "question" in after.text and "Which animal?" in after.text


def test_pictures_in_lists_and_mappings_keep_their_order() -> None:
    given = {"pictures": [picture(b"1"), picture(b"2")], "named": {"a": picture(b"3")}}
    backend = run(dspy.Predict(Compare), **given)
    found = [part for part in content_of(backend) if isinstance(part, Image)]
    assert found == [Image(b"1"), Image(b"2"), Image(b"3")]


def test_demonstrations_show_their_pictures_in_the_shared_prefix() -> None:
    program = dspy.Predict(Look)
    program.demos = [
        dspy.Example(picture=picture(data), question="Which?", answer=data.decode())
        for data in (b"one", b"two")
    ]
    backend = run(program, picture=picture(b"three"), question="Which?")
    call = backend.calls[-1]
    roles = [message.role for message in call.prompt.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    shown = [content_of(backend, index)[1] for index in (1, 3, 5)]
    assert shown == [Image(b"one"), Image(b"two"), Image(b"three")]
    assert call.hint.prefix_end == 5  # all but the last message


def test_prefixes_with_different_pictures_have_different_roots() -> None:
    def root(data: bytes) -> str:
        program = dspy.Predict(Look)
        program.demos = [dspy.Example(picture=picture(data), question="Which?", answer="it")]
        return run(program, picture=picture(b"x"), question="?").calls[-1].hint.root

    assert root(b"one") == root(b"one") != root(b"two")


def test_modules_around_a_signature_pass_pictures_on() -> None:
    thought = "[[ ## reasoning ## ]]\nIt has whiskers.\n\n" + ANSWERS["chat"]
    backend = ScriptedBackend(thought)
    with dspy.context(lm=LM(backend, cache=False)):
        found = dspy.ChainOfThought(Look)(picture=picture(b"one"), question="Which?")
        again = asyncio.run(dspy.ChainOfThought(Look).acall(picture=picture(b"1"), question="?"))
    assert (found.answer, again.answer) == ("cat", "cat")
    assert content_of(backend)[1] == Image(b"1")


def test_a_picture_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"from a file")
    backend = run(dspy.Predict(Look), picture=dspy.Image.from_path(str(path)), question="?")
    assert content_of(backend)[1] == Image(b"from a file")


def test_bytes_and_pictures_of_pillow_are_read() -> None:
    pil = pytest.importorskip("PIL.Image", reason="DSPy reads bytes with Pillow")
    drawn = pil.new("RGB", (2, 2), (255, 0, 0))
    shown = content_of(run(dspy.Predict(Look), picture=dspy.Image(drawn), question="?"))[1]
    assert shown.data.startswith(b"\x89PNG")
    again = content_of(run(dspy.Predict(Look), picture=dspy.Image(shown.data), question="?"))[1]
    assert again.data.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "url", ["https://example.org/a.png", "http://127.0.0.1/a.png", "gs://bucket/a.png"]
)
def test_a_url_is_refused_and_not_fetched(url: str) -> None:
    backend = ScriptedBackend(ANSWERS["chat"])
    with dspy.context(lm=LM(backend, cache=False)), pytest.raises(dspy.LMError) as caught:
        dspy.Predict(Look)(picture=dspy.Image(url), question="?")
    assert "nothing is fetched" in str(caught.value)
    assert url in str(caught.value)
    assert backend.calls == []


def test_a_model_without_images_refuses_them_by_a_typed_error() -> None:
    for where in ("tiny", ScriptedBackend(ANSWERS["chat"], features=BLIND)):
        lm = LM(where, cache=False)
        with dspy.context(lm=lm), pytest.raises(dspy.LMUnsupportedFeatureError, match=r"(?i)image"):
            dspy.Predict(Look)(picture=picture(b"one"), question="?")


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({"type": "image_url", "image_url": {"url": "data:image/png;base64,%"}}, "not base64"),
        ({"type": "image_url", "image_url": {"url": "data:image/png,a"}}, "plain base64"),
        ({"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}, "nothing is fetched"),
        ({"type": "image_url", "image_url": {"url": 3}}, r"image_url=3"),
        ({"type": "input_image", "file_id": "f"}, r"image_url=None"),
    ],
)
def test_parts_that_are_no_image_are_named_with_their_place(part: Any, named: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "Look"}, part]}]
    with pytest.raises(dspy.LMError, match=named) as caught:
        LM(ScriptedBackend("fine"), cache=False)(messages=messages)
    assert "messages[0].content[1].image_url" in str(caught.value)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": url_of(b"png")}},
        {"type": "image_url", "image_url": url_of(b"png")},
        {"type": "input_image", "image_url": url_of(b"png")},
    ],
)
def test_parts_of_both_apis_of_openai_are_read(part: dict[str, Any]) -> None:
    backend = ScriptedBackend("fine")
    messages = [{"role": "user", "content": [{"type": "text", "text": "Look"}, part]}]
    assert LM(backend, cache=False)(messages=messages) == ["fine"]
    expected = Message("user", (Text("Look"), Image(b"png")))
    assert backend.calls[-1].prompt.messages == (expected,)  # type: ignore[union-attr]
