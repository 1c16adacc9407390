"""Guidance's model passes the suite of all adapters, on every kind of backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from forkroot.adapters.suite import AdapterSuite, Answer
from forkroot.core.api.protocol import Backend, Prompt, Text

guidance = pytest.importorskip("guidance")


class TestGuidance(AdapterSuite):
    """A `gen` after a text, whose last token is a special one: nothing is healed."""

    bad_settings: Mapping[str, Any] = {"top_k": 0}
    closed_error = None  # a model needs the tokenizer of a real checkpoint
    can_leave = False  # Guidance runs a stream to its end, in a thread of its own

    def make(self, backend: Backend) -> Any:
        from forkroot.adapters.guidance import Forkroot

        return Forkroot(backend, tokenizer="models/tiny", echo=False)

    def prompt(self, text: str) -> Prompt:
        return (Text(_opened(text)),)

    def ask(self, model: Any, text: str, **settings: Any) -> Answer:
        start = model + _opened(text)
        max_tokens = settings.pop("max_tokens", self.max_tokens)
        program = start.with_sampling_params(settings) + guidance.gen(
            "answer", max_tokens=max_tokens
        )
        used = program.used
        return Answer(program["answer"], used.prompt_tokens, used.cached_tokens)

    def stream(self, model: Any, text: str, **settings: Any) -> Iterator[str]:
        start = model + _opened(text)
        shown = len(str(start))
        max_tokens = settings.get("max_tokens", self.max_tokens)
        for part in start.stream() + guidance.gen("answer", max_tokens=max_tokens):
            yield str(part)[shown:]
            shown = len(str(part))

    def ask_all(self, model: Any, texts: Sequence[str]) -> list[Answer]:
        with ThreadPoolExecutor(len(texts)) as pool:
            return list(pool.map(lambda text: self.ask(model, text), texts))


def _opened(text: str) -> str:
    """A chat up to a special token, with which Guidance never joins what comes next."""
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>"
