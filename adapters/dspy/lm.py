"""`LM`: the object that a DSPy program is configured with, in place of `dspy.LM`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dspy
from dspy import lm15

from ...core.api.protocol import Backend, InvalidCall
from ..connection import unnamed
from .engine import AsyncEngine, Engine
from .errors import PROVIDER, raise_as_dspy
from .hints.running import running
from .messages import is_refusal, readable
from .options import check_keywords, check_values, found, moved
from .runtime import Runtime
from .watcher import watch

_OWN = ("hints", "constrain", "timeout", "settings", "api_key", "where")


class LM(dspy.LM):  # type: ignore[misc]
    """A model on our runtime, with the prefixes of its calls shared and its answers parseable.

    where: a backend, a checkpoint folder, "tiny" for the embedded model, or the URL of a server;
      `model` is taken for it where it is not given, as `dspy.LM` has it; else "tiny" is, with a
    warning. temperature, max_tokens: as in `dspy.LM`; without them the model's own distribution,
      and as many tokens as the context holds. hints: calls declare what they share. constrain:
      answers are held to the format and the types of their signature. timeout: seconds after which
      a call ends in `LMTimeoutError`. settings: of the runtime, where it is started here
      (`EngineConfig`).
      api_key: of the server behind a URL.
    Other keywords are those of `dspy.LM`, and beside them ours, which are the defaults of all its
    calls, as in a call itself: see `options.Options`. Those that no call could have are refused.
    `n` answers of one call come from one fork. Raises `dspy.LMError`: LMConfigurationError for an
    unknown model, LMInvalidRequestError for a keyword.
    """

    def __init__(
        self,
        where: Backend | str | Path | None = None,
        *,
        hints: bool = True,
        constrain: bool = True,
        timeout: float | None = None,
        settings: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        model: str | None = None,
        engine: Any = None,
        async_engine: Any = None,
        **keywords: Any,
    ) -> None:
        source = where if where is not None else model or ("tiny" if engine else unnamed())
        with raise_as_dspy(str(source) if isinstance(source, str | Path) else "forkroot"):
            keywords = moved(keywords)
            check_keywords(keywords, _OWN)  # before a model is loaded
            check_values(keywords)
            for name, value in (("hints", hints), ("constrain", constrain)):
                if not isinstance(value, bool):
                    raise InvalidCall(name, value, "True or False")
            if engine is None:
                options = {"hints": hints, "constrain": constrain, "timeout": timeout}
                engine = Engine(source, settings=settings, api_key=api_key, **options)
                async_engine = AsyncEngine(engine.runtime)
                model = model if where is not None and model else engine.runtime.name()
            super().__init__(model, engine=engine, async_engine=async_engine, **keywords)
        watch()

    @property
    def runtime(self) -> Runtime:
        """Where its requests go."""
        runtime: Runtime = self.engine.runtime
        return runtime

    @property
    def namespace(self) -> str:
        """Of its calls, where they name none."""
        with raise_as_dspy(self.model):
            return found({"metadata": self.kwargs.get("metadata")}).namespace

    @property
    def supports_decision_requests(self) -> bool:
        """False; `Judge` does. DSPy reads it before each prompt is written: the last moment to
        install our watcher, should `dspy.configure(callbacks=...)` have removed it."""
        watch()
        return False

    def __call__(self, prompt: Any = None, *, messages: Any = None, **keywords: Any) -> Any:
        """As `dspy.LM`."""
        with self._prepared(prompt, messages, keywords) as given:
            return super().__call__(prompt, **given)

    async def acall(self, prompt: Any = None, *, messages: Any = None, **keywords: Any) -> Any:
        """As `dspy.LM`."""
        with self._prepared(prompt, messages, keywords) as given:
            return await super().acall(prompt, **given)

    def copy(self, **keywords: Any) -> LM:
        """As `dspy.LM`, with more keywords."""
        with raise_as_dspy(self.model):
            keywords = moved(keywords, self.kwargs.get("metadata"))
            check_keywords({name: it for name, it in keywords.items() if not hasattr(self, name)})
            check_values(keywords)
        copied: LM = super().copy(**keywords)
        return copied

    @contextmanager
    def _prepared(
        self, prompt: Any, messages: Any, keywords: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        """A call of the LM runs inside: with the messages as DSPy can read them, and the keywords
        with ours where DSPy's cache sees them; a request has its own already."""
        with raise_as_dspy(self.model):
            if not (isinstance(prompt, lm15.Request) or "request" in keywords):
                if messages:
                    messages = readable(messages)
                elif not isinstance(prompt, str):
                    allowed = "a text, or messages=[...] in its place"
                    raise InvalidCall("prompt", prompt, allowed)
                if not self.runtime.constrain:
                    keywords = {"constrain": False, **keywords}
            check_keywords(keywords)
            keywords = moved(keywords, self.kwargs.get("metadata"))
        n = keywords.get("n", self.kwargs.get("n"))
        num_answers = n if isinstance(n, int) and n > 1 else 1
        with running(num_answers, messages), self._blaming(keywords):
            yield {"messages": messages, **keywords}

    @contextmanager
    def _blaming(self, keywords: Mapping[str, Any]) -> Iterator[None]:
        """A bare error of DSPy's, raised with the keyword and the value that it is about, where
        there are such."""
        try:
            yield
        except (TypeError, ValueError) as error:
            if type(error) in (TypeError, ValueError):
                with raise_as_dspy(self.model):
                    check_values(keywords)
                    if is_refusal(error):
                        raise lm15.InvalidRequestError(str(error), provider=PROVIDER) from error
            raise
