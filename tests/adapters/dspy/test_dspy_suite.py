"""The DSPy adapter passes the suite of all adapters, wherever the model runs."""

# ruff: noqa: E402
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

dspy = pytest.importorskip("dspy")

from dspy import lm15
from dspy.utils.exceptions import LMError

from forkroot.adapters.dspy import LM
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.suite import AdapterSuite, Answer
from forkroot.core.api.protocol import Backend
from forkroot.core.local import LocalBackend

from ..conftest import serving


class Ask(dspy.Module):  # type: ignore[misc]
    """The smallest program: it asks one thing."""

    def __init__(self, suite: TestDspy, model: LM) -> None:
        super().__init__()
        self.suite, self.model = suite, model

    def forward(self, text: str) -> Any:
        return dspy.Prediction(answer=self.suite.ask(self.model, text))


class TestDspy(AdapterSuite):
    """An LM that is called directly, by DSPy's own requests."""

    bad_settings_error = ValueError
    closed_error = LMError

    def make(self, backend: Backend) -> LM:
        return LM(backend, temperature=0, max_tokens=self.max_tokens, cache=False, num_retries=0)

    def request(self, model: LM, text: str, **settings: Any) -> lm15.Request:
        config = lm15.Config(**{"max_tokens": self.max_tokens, "temperature": 0, **settings})
        return lm15.Request(model.model, messages=(lm15.Message.user(text),), config=config)

    def ask(self, model: LM, text: str, **settings: Any) -> Answer:
        found = model(self.request(model, text, **settings))
        usage = found.usage
        return Answer(found.text or "", usage.input_tokens, usage.cache_read_tokens)

    def stream(self, model: LM, text: str, **settings: Any) -> Iterator[str]:
        for event in model.engine.stream(self.request(model, text, **settings)):
            if event.type == "delta":
                yield event.delta.text

    def ask_all(self, model: LM, texts: Sequence[str]) -> list[Answer]:
        pairs = [(Ask(self, model), {"text": text}) for text in texts]
        parallel = dspy.Parallel(num_threads=8, disable_progress_bar=True, max_errors=1)
        return [found.answer for found in parallel(pairs)]

    async def aask(self, model: LM, text: str) -> Answer:
        found = await model.acall(self.request(model, text))
        usage = found.usage
        return Answer(found.text or "", usage.input_tokens, usage.cache_read_tokens)


def test_a_key_reaches_the_server_and_no_file(local: LocalBackend) -> None:
    with serving(Runtime(local, local.tokenizer, ("tiny",)), Settings(keys=("secret",))) as url:
        lm = LM(url, api_key="secret", temperature=0, cache=False)
        assert lm("What is the capital of France?")
        assert "secret" not in str(lm.engine.dump_state())
        lm.runtime.connection().backend.close()
