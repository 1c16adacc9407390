"""Messages and parts as DSPy's programs write them: each ends in an answer, or in an error of
DSPy's that says which one cannot be sent."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import dspy
import pytest

from forkroot.adapters.dspy import LM
from forkroot.adapters.testing import ScriptedBackend, prompt_text

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("fresh_dspy_cache"),
    pytest.mark.filterwarnings("ignore:.*experimental"),
    pytest.mark.filterwarnings("ignore:Passing OpenAI-style message dictionaries"),
]

LETTER = "data:text/plain;base64," + base64.b64encode(b"Dear Ann").decode()
PDF = "data:application/pdf;base64,aGk="


def text_sent(parts: list[Any], role: str = "user") -> str:
    """What the model is shown of these parts."""
    backend = ScriptedBackend("fine")
    messages = [{"role": "user", "content": "First"}, {"role": role, "content": parts}]
    assert LM(backend, cache=False)(messages=messages) == ["fine"]
    return prompt_text(backend.calls[-1].prompt.messages[-1].content)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        ({"type": "text", "text": "Hi"}, "Hi"),
        ({"text": "Hi"}, "Hi"),
        ({"type": None, "text": "Hi"}, "Hi"),
        ({"type": "input_text", "text": "Hi"}, "Hi"),
        ({"type": "refusal", "refusal": "No"}, "No"),
        ({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}, "Hi"),
        ({"type": "file", "file": {"file_data": LETTER}}, "Dear Ann"),
        ({"type": "file", "file": {"file_data": LETTER, "filename": "a.txt"}}, "a.txt\nDear Ann"),
        ({"type": "file", "file": {"file_data": "data:text/csv,a"}}, "a"),
        ({"type": "document", "source": {"type": "text", "data": "Blue."}}, "Blue."),
        (
            {"type": "document", "title": "Sky", "source": {"type": "text", "data": "Blue."}},
            "Sky\nBlue.",
        ),
    ],
)
def test_what_is_text_in_other_words_is_read_as_text(part: dict[str, Any], shown: str) -> None:
    assert text_sent([part]) == shown


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ({}, r"messages\[1\]\.content\[0\]\.type=None"),
        ({"type": "txt", "text": "Hi"}, r"type='txt'.*did you mean text"),
        ({"type": 3, "text": "Hi"}, r"\.type=3"),
        ({"type": "video_url", "video_url": {"url": "a"}}, r"type='video_url'"),
        ({"type": "text"}, r"\.text=None"),
        ({"type": "text", "text": 3}, r"\.text=3"),
        ("Hi", r"content\[0\]='Hi'"),
        (None, r"content\[0\]=None"),
        ({"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}}, "a.pdf"),
        ({"type": "file", "file": {"file_id": "file-1"}}, "file-1"),
        ({"type": "file", "file": {"filename": "b.txt"}}, "b.txt"),
        ({"type": "file", "file": {}}, r"\.file=None"),
        ({"type": "file"}, r"\.file=None"),
        ({"type": "file", "file": {"file_data": "data:text/plain;base64,%"}}, "file_data"),
        ({"type": "document", "source": {"type": "base64", "data": "aGk="}}, r"\.source="),
        ({"type": "image_url"}, "image_url"),
        ({"type": "image_url", "image_url": "https://example.org/a.png"}, "image"),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, "audio"),
    ],
)
def test_what_cannot_be_sent_is_named_with_its_place(part: Any, named: str) -> None:
    with pytest.raises(dspy.LMError, match=named):
        text_sent([part])


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ("Hi", r"messages\[0\]='Hi'"),
        ({"role": "user"}, r"messages\[0\]\.content=None"),
        ({"role": "user", "content": []}, r"messages\[0\]\.content=\[\]"),
        ({"role": "user", "content": {"type": "text", "text": "Hi"}}, r"messages\[0\]\.content="),
        ({"content": "Hi"}, "role"),
        ({"role": "critic", "content": "Hi"}, "critic"),
        ({"role": "tool", "content": "Hi"}, "tool_call_id"),
        ({"role": "system", "content": "Hi"}, "at least one message"),
    ],
)
def test_messages_that_are_none_are_refused_by_a_typed_error(message: Any, named: str) -> None:
    lm = LM(ScriptedBackend("fine"), cache=False)
    with pytest.raises(dspy.LMError, match=named):
        lm(messages=[message])
    with pytest.raises(dspy.LMError, match=named):
        asyncio.run(lm.acall(messages=[message]))


@pytest.mark.parametrize("arguments", [{}, {"messages": []}, {"prompt": 3}, {"messages": "Hi"}])
def test_a_call_without_a_prompt_is_refused_by_a_typed_error(arguments: dict[str, Any]) -> None:
    with pytest.raises(dspy.LMError, match=r"prompt|messages"):
        LM(ScriptedBackend("fine"), cache=False)(**arguments)


def test_messages_with_calls_of_tools_need_no_content() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "2", "tool_call_id": "1", "name": "add"},
    ]
    assert LM(ScriptedBackend("fine"), cache=False)(messages=messages) == ["fine"]


def test_documents_and_files_of_signatures_are_read() -> None:
    from dspy.experimental import Document

    class Ask(dspy.Signature):
        """Answer."""

        letter: dspy.File = dspy.InputField()
        docs: list[Document] = dspy.InputField()
        answer: str = dspy.OutputField()

    backend = ScriptedBackend("[[ ## answer ## ]]\nfine\n\n[[ ## completed ## ]]")
    with dspy.context(lm=LM(backend, cache=False)):
        found = dspy.Predict(Ask)(
            letter=dspy.File(file_data=LETTER, filename="a.txt"),
            docs=[Document(data="The sky is blue.", title="Sky")],
        )
    assert found.answer == "fine"
    shown = prompt_text(backend.calls[-1].prompt)
    assert "a.txt\nDear Ann" in shown
    assert "Sky\nThe sky is blue." in shown


def test_messages_that_dspy_can_read_are_passed_on_as_they_are() -> None:
    lm = LM(ScriptedBackend("fine"), cache=False)
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    lm(messages=messages)
    assert lm.history[-1]["messages"] == messages
