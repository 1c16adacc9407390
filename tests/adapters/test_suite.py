"""The suite that adapters pass, proved on the plainest of them: the backend itself, and our own
language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import forkroot
from forkroot.adapters.connection import Connection, shared
from forkroot.adapters.suite import AdapterSuite, Answer
from forkroot.core.api.protocol import Backend, Call, Completion, Sampling


def answer_of(found: Completion) -> Answer:
    return Answer(found.text, found.usage.prompt_tokens, found.usage.cached_tokens)


class TestTheBackend(AdapterSuite):
    """Calls made by hand, sent through the prefixes of a shared connection."""

    def make(self, backend: Backend) -> Connection:
        return shared(backend)

    def call(self, text: str, stream: bool = False, **settings: Any) -> Call:
        sampling = Sampling(**{"max_tokens": self.max_tokens, "temperature": 0, **settings})
        return Call(self.prompt(text), sampling, stream=stream)

    def ask(self, model: Connection, text: str, **settings: Any) -> Answer:
        return answer_of(model.prefixes.submit(self.call(text, **settings)).result(60))

    def stream(self, model: Connection, text: str, **settings: Any) -> Iterator[str]:
        reply = model.prefixes.submit(self.call(text, stream=True, **settings))
        try:
            for chunk in reply:
                yield chunk.text
        finally:
            reply.cancel()

    def ask_all(self, model: Connection, texts: Sequence[str]) -> list[Answer]:
        replies = model.prefixes.submit_all([self.call(text) for text in texts])
        return [answer_of(reply.result(60)) for reply in replies]

    async def aask(self, model: Connection, text: str) -> Answer:
        return answer_of(await model.prefixes.submit(self.call(text)))


@forkroot.function
def answer(s: Any, text: str, max_tokens: int) -> None:
    s += forkroot.user(text)
    s += forkroot.assistant(forkroot.gen("answer", max_tokens=max_tokens))


@dataclass(frozen=True, slots=True)
class Language:
    """What programs of the native language are run on."""

    backend: Backend


class TestTheNativeLanguage(AdapterSuite):
    """A program of one `gen`, run alone, in a batch and as a stream. A run is never left."""

    can_leave = False

    def make(self, backend: Backend) -> Language:
        return Language(backend)

    def settings(self, model: Language, **settings: Any) -> dict[str, Any]:
        return {"backend": model.backend, "temperature": 0, **settings}

    def ask(self, model: Language, text: str, **settings: Any) -> Answer:
        max_tokens = settings.pop("max_tokens", self.max_tokens)
        state = answer.run(text, max_tokens, **self.settings(model, **settings))
        return self.answer_of(state)

    def stream(self, model: Language, text: str, **settings: Any) -> Iterator[str]:
        max_tokens = settings.pop("max_tokens", self.max_tokens)
        state = answer.run(text, max_tokens, stream=True, **self.settings(model))
        return state.text_iter("answer")

    def ask_all(self, model: Language, texts: Sequence[str]) -> list[Answer]:
        inputs = [{"text": text, "max_tokens": self.max_tokens} for text in texts]
        return [self.answer_of(s) for s in answer.run_batch(inputs, **self.settings(model))]

    def answer_of(self, state: Any) -> Answer:
        usage = state.get_meta_info("answer")
        return Answer(state["answer"], usage["prompt_tokens"], usage["cached_tokens"])
