"""Who names no model is told once that the embedded one answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forkroot.adapters.connection import unnamed
from forkroot.adapters.testing import ScriptedBackend

TOLD = "forkroot: no model was named: 'tiny' answers, a toy in the box"


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    unnamed.cache_clear()
    yield
    unnamed.cache_clear()


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
def test_a_model_that_nobody_named_is_told_once(
    make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "forkroot"):
        make("tiny")
        make(ScriptedBackend("a", model="tiny"))
        assert TOLD not in caplog.text
        make()
        make()
    assert caplog.text.count(TOLD) == 1
