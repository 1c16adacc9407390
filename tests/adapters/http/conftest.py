"""One model for all tests of the server: in this process, and behind a server on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.core.api.protocol import Backend, Call, Sampling, Tokens
from forkroot.core.local import LocalBackend

from ...serving import serving


@pytest.fixture(scope="session")
def backend() -> Iterator[LocalBackend]:
    """The embedded model in this process."""
    with LocalBackend.from_folder("tiny", dtype="float32", num_slots=20_000) as backend:
        yield backend


@pytest.fixture(scope="session")
def runtime(backend: LocalBackend) -> Runtime:
    """That model, as a server sees it."""
    return Runtime(backend, backend.tokenizer, ("tiny", "alias"))


@pytest.fixture(scope="session")
def server(runtime: Runtime) -> Iterator[str]:
    """The URL of a server of that model which everybody may ask."""
    with serving(runtime) as url:
        yield url


class Letters:
    """A tokenizer of bytes, as the scripted backend has it."""

    start_ids: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.token_bytes = [bytes([value]) for value in range(256)]

    def encode(self, text: str, most: int | None = None) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Any) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def encode_prompt(self, prompt: Any, most: int | None = None) -> list[int]:
        return [0]


def model_logprobs(backend: Backend, ids: list[int], start: int) -> list[float]:
    """Log-probabilities of these tokens from position `start`, each written again by itself."""
    calls = [
        Call(
            (Tokens(tuple(ids[:place])),),
            Sampling(max_tokens=1, temperature=0, logprobs=0, logit_bias={ids[place]: 100}),
        )
        for place in range(start, len(ids))
    ]
    outputs = [reply.result(30).outputs[0] for reply in map(backend.submit, calls)]
    assert [output.ids[0] for output in outputs] == ids[start:]
    return [output.logprobs[0].logprob for output in outputs]
