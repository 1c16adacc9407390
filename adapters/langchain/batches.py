"""A chat model whose `batch` is one submission, by the base class's own rules.

The base class runs each input by itself: callbacks, tracing, cache, errors and limits of each are
its business. Here only the calls at the bottom of these runs wait for each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import get_config_list

from .hints.call_context import CallContext, batch_of, use_context

PATIENCE = 2.0  # seconds that the calls of a batch wait for those that are to come
MOST_THREADS = 256

Configs = RunnableConfig | list[RunnableConfig] | None


class BatchedChatModel(BaseChatModel):
    """The public methods of a chat model, each of which notes where in a program it is called."""

    def invoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """As the base class."""
        with use_context(self._context(config)):
            return super().invoke(input, config, stop=stop, **kwargs)

    async def ainvoke(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """As the base class."""
        with use_context(self._context(config)):
            return await super().ainvoke(input, config, stop=stop, **kwargs)

    def stream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessageChunk]:
        """As the base class."""
        context = self._context(config)
        chunks = super().stream(input, config, stop=stop, **kwargs)
        try:
            while True:
                with use_context(context):  # not while the caller has the chunk
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                yield chunk
        finally:
            cast(Any, chunks).close()

    async def astream(
        self,
        input: LanguageModelInput,
        config: RunnableConfig | None = None,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessageChunk]:
        """As the base class."""
        context = self._context(config)
        chunks = super().astream(input, config, stop=stop, **kwargs)
        try:
            while True:
                with use_context(context):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk
        finally:
            await cast(Any, chunks).aclose()

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: Configs = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """As the base class, with the calls of all inputs in one submission; where the config
        bounds `max_concurrency`, of so many."""
        if not inputs:
            return []
        configs, num_threads = _concurrent_configs(config, len(inputs), MOST_THREADS)
        with batch_of(self._num_expected(num_threads), PATIENCE):
            return super().batch(inputs, configs, return_exceptions=return_exceptions, **kwargs)

    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: Configs = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        """As `batch`, for tasks."""
        if not inputs:
            return []
        configs, num_tasks = _concurrent_configs(config, len(inputs), len(inputs))
        with batch_of(self._num_expected(num_tasks), PATIENCE):
            found = super().abatch(inputs, configs, return_exceptions=return_exceptions, **kwargs)
            return await found

    def _context(self, config: RunnableConfig | None) -> CallContext:
        return CallContext.of_config(config, self.metadata)

    def _num_expected(self, num_concurrent: int) -> int:
        """How many calls are batched: one with a rate limiter, which delays each call."""
        return num_concurrent if self.rate_limiter is None else 1


def _concurrent_configs(
    config: Configs, num_inputs: int, most: int
) -> tuple[list[RunnableConfig], int]:
    """The config of each input, and how many inputs run at a time."""
    configs = get_config_list(config, num_inputs)
    limit = configs[0].get("max_concurrency")
    number = min(num_inputs, most if limit is None else max(1, limit))
    return [{**configs[0], "max_concurrency": number}, *configs[1:]], number
