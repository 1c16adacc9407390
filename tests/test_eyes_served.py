"""Pictures end to end over HTTP, with a model that sees: every client gets the answers of a program
in the server's own process."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

import forkroot
from forkroot import connect, function, gen, image
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.api.protocol import Backend, Chat, Image, Message, Sampling, Text
from forkroot.core.model.hub.folders import model_folder

from .serving import serving

pytest.importorskip("PIL", reason="pictures are decoded with Pillow")
pytest.importorskip("transformers", reason="the tower runs by transformers")

PICTURES = Path(forkroot.__file__).parent / "examples" / "pictures"
PICTURE = (PICTURES / "two.png").read_bytes()
ENCODED = base64.b64encode(PICTURE).decode()
URL = f"data:image/png;base64,{ENCODED}"
QUESTIONS = ("Describe the picture.", "How many shapes are there?")


class Served(NamedTuple):
    """A server of "tiny-vision", and its backend."""

    url: str
    backend: Backend


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        folder = model_folder("tiny-vision")
    with (
        connect(str(folder), num_slots=4000) as backend,
        serving(Runtime(backend, backend.tokenizer, ("tiny-vision",))) as url,
    ):
        yield Served(url, backend)


@pytest.fixture(scope="module")
def answers(served: Served) -> list[str]:
    """What the model says in its own process: a chat of one picture and one question."""
    found = []
    for question in QUESTIONS:
        chat = Chat((Message("user", (Image(PICTURE), Text(question))),))
        call = forkroot.Call(chat, Sampling(max_tokens=16, temperature=0.0))
        found.append(served.backend.submit(call).result(60).outputs[0].text)
    assert len(set(found)) == 2 and all(found)
    return found


def test_openai_shows_a_picture_by_its_data_url(served: Served, answers: list[str]) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0)
    shown = {"type": "image_url", "image_url": {"url": URL}}
    for question, answer in zip(QUESTIONS, answers, strict=True):
        content = [shown, {"type": "text", "text": question}]
        done = client.chat.completions.create(
            model="tiny-vision",
            messages=[{"role": "user", "content": content}],
            max_tokens=16,
            temperature=0,
        )
        assert done.choices[0].message.content == answer
        assert done.usage.prompt_tokens > 64
    content = [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": QUESTIONS[0]},
    ]
    done = client.responses.create(
        model="tiny-vision",
        input=[{"role": "user", "content": content}],
        max_output_tokens=16,
        temperature=0,
    )
    assert done.output_text == answers[0]


@pytest.mark.parametrize("data", [URL, ENCODED, [ENCODED]])
def test_generate_takes_image_data(served: Served, data: Any) -> None:
    text = f"<image>\nQuestion: {QUESTIONS[1]}\nAnswer:"
    sampling = {"max_new_tokens": 4, "temperature": 0}
    body = {"text": text, "image_data": data, "sampling_params": sampling}
    first = httpx.post(f"{served.url}/generate", json=body, timeout=60).json()
    served.backend.reset_counters()
    again = httpx.post(f"{served.url}/generate", json=body, timeout=60).json()
    prompt = (Image(PICTURE), Text(f"\nQuestion: {QUESTIONS[1]}\nAnswer:"))
    call = forkroot.Call(prompt, Sampling(max_tokens=4, temperature=0.0))
    assert first["text"] == again["text"] == served.backend.submit(call).result(60).outputs[0].text
    assert first["text"].strip().isdigit()
    assert again["meta_info"]["cached_tokens"] >= 64
    assert served.backend.info().counters["pictures_encoded"] == 0


def test_a_program_shows_pictures_to_a_server(served: Served) -> None:
    @function
    def ask(s: Any, picture: bytes) -> None:
        s += image(picture) + f"\nQuestion: {QUESTIONS[1]}\nAnswer:"
        s += gen("count", max_tokens=4, temperature=0)

    with connect(served.url) as remote:
        assert "images" in remote.info().features
        assert (
            ask.run(PICTURE, backend=remote)["count"]
            == (ask.run(PICTURE, backend=served.backend)["count"])
        )


def test_langchain_shows_a_picture_to_a_server(served: Served, answers: list[str]) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    from forkroot.adapters.langchain import ChatForkroot

    block = {"type": "image", "base64": ENCODED, "mime_type": "image/png"}
    with connect(served.url) as remote:
        model = ChatForkroot(model=remote, temperature=0, max_tokens=16)
        asked = [
            [messages.HumanMessage([block, {"type": "text", "text": question}])]
            for question in QUESTIONS
        ]
        assert [it.content for it in model.batch(asked)] == answers


def test_dspy_shows_a_picture_to_a_server(served: Served) -> None:
    dspy = pytest.importorskip("dspy")
    from forkroot.adapters.dspy import LM

    class Look(dspy.Signature):  # type: ignore[misc, name-defined]
        """Describe the picture."""

        picture: dspy.Image = dspy.InputField()
        answer: str = dspy.OutputField()

    shown = dspy.Image(URL)
    found = []
    with connect(served.url) as remote:
        for backend in (remote, served.backend):
            lm = LM(backend, cache=False, temperature=0, max_tokens=100)
            with dspy.context(lm=lm):
                found.append(dspy.Predict(Look)(picture=shown).answer)
    assert found[0] == found[1]
    assert served.backend.info().counters["pictures_shared"] > 0
