"""The LangChain adapters pass the suite that every adapter passes, wherever the model runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.messages import AIMessage

from forkroot.adapters.langchain import ChatForkroot, Forkroot
from forkroot.adapters.suite import AdapterSuite, Answer
from forkroot.core.api.protocol import Backend, Prompt, Text


def answer_of(message: AIMessage) -> Answer:
    usage = message.usage_metadata
    assert usage is not None
    return Answer(message.text, usage["input_tokens"], usage["input_token_details"]["cache_read"])


class TestChat(AdapterSuite):
    def make(self, backend: Backend) -> ChatForkroot:
        return ChatForkroot(model=backend, temperature=0, max_tokens=self.max_tokens)

    def ask(self, model: ChatForkroot, text: str, **settings: Any) -> Answer:
        return answer_of(model.invoke(text, **settings))

    def stream(self, model: ChatForkroot, text: str, **settings: Any) -> Iterator[str]:
        return (chunk.text for chunk in model.stream(text, **settings))

    def ask_all(self, model: ChatForkroot, texts: Sequence[str]) -> list[Answer]:
        return [answer_of(message) for message in model.batch(list(texts))]

    async def aask(self, model: ChatForkroot, text: str) -> Answer:
        return answer_of(await model.ainvoke(text))


class TestText(AdapterSuite):
    def make(self, backend: Backend) -> Forkroot:
        return Forkroot(model=backend, temperature=0, max_tokens=self.max_tokens)

    def ask(self, model: Forkroot, text: str, **settings: Any) -> Answer:
        return self._answers(model, [text], **settings)[0]

    def stream(self, model: Forkroot, text: str, **settings: Any) -> Iterator[str]:
        return iter(model.stream(text, **settings))

    def ask_all(self, model: Forkroot, texts: Sequence[str]) -> list[Answer]:
        return self._answers(model, list(texts))

    async def aask(self, model: Forkroot, text: str) -> Answer:
        assert await model.ainvoke(text) == model.invoke(text)
        return self.ask(model, text)

    def prompt(self, text: str) -> Prompt:
        return (Text(text),)

    def _answers(self, model: Forkroot, texts: list[str], **settings: Any) -> list[Answer]:
        found = []
        for (generation,) in model.generate(texts, **settings).generations:
            usage = generation.generation_info["usage_metadata"]
            cached = usage["input_token_details"]["cache_read"]
            found.append(Answer(generation.text, usage["input_tokens"], cached))
        return found
