"""The embedded model is introduced in one line, once in a process."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forkroot import connect
from forkroot.adapters.connection import introduce
from forkroot.adapters.testing import ScriptedBackend

NOTE = "forkroot: 'tiny', the embedded model, has 3.7 million parameters: it knows"


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    introduce.cache_clear()
    yield
    introduce.cache_clear()


class Terminal(io.StringIO):
    """A stderr that a person reads."""

    def isatty(self) -> bool:
        return True


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = (it for it in caplog.records if it.levelno >= logging.WARNING)
    return [
        text
        for text in (it.getMessage() for it in found)
        if " ".join(text.split()).startswith(NOTE)
    ]


def started(count: int) -> None:
    for _ in range(count):
        connect("tiny", num_slots=2048).close()


def dspy_model(*named: Any) -> Any:
    from forkroot.adapters.dspy import LM

    return LM(*named)


def chat_model(*named: Any) -> Any:
    from forkroot.adapters.langchain import ChatForkroot

    return ChatForkroot(**({"model": named[0]} if named else {}))


def guidance_model(*named: Any) -> Any:
    from forkroot.adapters.guidance import Forkroot

    return Forkroot(*named)


@pytest.mark.parametrize("make", [dspy_model, chat_model, guidance_model])
def test_the_embedded_model_that_answers_because_none_was_named_gives_one_warning(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "forkroot"):
        make("tiny")
        make(ScriptedBackend("a", model="tiny"))
        assert not warnings_of(caplog)
        make()
        make()
    assert len(warnings_of(caplog)) == 1


def test_on_a_terminal_the_embedded_model_says_once_what_it_can_do_and_how_to_get_a_real_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("COLUMNS", "72")
    with caplog.at_level(logging.INFO, "forkroot"):
        started(2)
    (note,) = warnings_of(caplog)
    lines = note.split("\n")
    assert 60 < max(map(len, lines)) <= 72  # wrapped between words, at the width of the terminal
    note = " ".join(lines)
    assert "copies fields out of short texts" in note
    assert note.endswith("in place of 'tiny', such as Qwen/Qwen2.5-0.5B-Instruct")


def test_in_a_pipe_the_embedded_model_gives_no_warning_where_it_was_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with caplog.at_level(logging.INFO, "forkroot"):
        started(1)
    assert not warnings_of(caplog)
    assert any(it.getMessage().startswith(NOTE) for it in caplog.records)
