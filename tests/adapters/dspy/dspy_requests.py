"""How the tests of the DSPy adapter ask a scripted backend."""

from __future__ import annotations

from typing import Any

from dspy import lm15

from forkroot.adapters.dspy import LM
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Call


def request(text: str = "Hello", **config: Any) -> lm15.Request:
    message = lm15.Message.user(text)
    return lm15.Request(
        model="forkroot/scripted", messages=(message,), config=lm15.Config(**config)
    )


def lm_of(backend: ScriptedBackend, **settings: Any) -> LM:
    return LM(backend, **{"cache": False, "num_retries": 0, **settings})


def last_call(backend: ScriptedBackend) -> Call:
    return [call for call in backend.calls if call.sampling.max_tokens != 0][-1]
