"""`Forkroot`: an LLM of LangChain, text in and text out, on our runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import Any, TypeAlias

from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.llms import BaseLLM
from langchain_core.outputs import Generation, GenerationChunk, LLMResult
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict

from ...core.api.protocol import (
    Chunk,
    Completion,
    ForkrootError,
    Text,
    Usage,
)
from ..common.surrogates import check_texts
from ..common.tools import ToolFormat
from .answers import openai_logprobs, token_usage, usage_of
from .errors import as_langchain
from .hints.call_context import KEY, CallContext
from .model_request import ModelRequest
from .settings import OPTIONS, Settings, Stop, check_options
from .toolbox import CONSTRAINTS, toolbox_of

KNOWN = (*OPTIONS, *CONSTRAINTS, "response_format")
Configs: TypeAlias = RunnableConfig | list[RunnableConfig] | None
_Found: TypeAlias = tuple[Completion, list[Chunk]]


class Forkroot(Settings, BaseLLM):
    """An LLM of LangChain whose calls share what they have in common.

        llm = Forkroot(model="tiny", temperature=0, max_tokens=8, stop=["."])
        llm.invoke("The capital of France is")

    The fields are those of `Settings`. A call, and `bind`, also know `regex`, `choices`, `grammar`
    and `response_format`. All prompts of a `batch` are one submission;
    `config["metadata"]["forkroot"]` may hint as for `ChatForkroot`.
    """

    model_config = ConfigDict(extra="forbid")

    @property
    def _llm_type(self) -> str:
        return "forkroot"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = "forkroot"
        params["ls_model_name"] = self._name(kwargs)
        return params

    def batch(
        self, inputs: list[LanguageModelInput], config: Configs = None, **kwargs: Any
    ) -> list[str]:
        """As the base class: one submission, unless the configs set different options.
        Where one input fails and exceptions are wanted, each is run by itself, and has its own."""
        alone = partial(Runnable.batch, self, inputs, config, **kwargs)
        if not _have_equal_options(config):
            return alone()
        found = super().batch(inputs, config, **kwargs)
        return alone() if _have_one_error(found) else found

    async def abatch(
        self, inputs: list[LanguageModelInput], config: Configs = None, **kwargs: Any
    ) -> list[str]:
        """As `batch`, for tasks."""
        alone = partial(Runnable.abatch, self, inputs, config, **kwargs)
        if not _have_equal_options(config):
            return await alone()
        found = await super().abatch(inputs, config, **kwargs)
        return await alone() if _have_one_error(found) else found

    def _generate(
        self, prompts: list[str], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> LLMResult:
        requests = self._requests(prompts, stop, kwargs, run_manager)
        if len(requests) == 1:
            return self._result([requests[0].completion()], kwargs)
        requests = _submitted(requests)
        try:
            found = [request.completion() for request in requests]
        finally:
            _cancel(requests)
        return self._result(found, kwargs)

    async def _agenerate(
        self, prompts: list[str], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> LLMResult:
        requests = await asyncio.to_thread(self._requests, prompts, stop, kwargs, run_manager)
        if len(requests) == 1:
            return self._result([await requests[0].acompletion()], kwargs)
        requests = await asyncio.to_thread(_submitted, requests)
        try:
            found = [await request.acompletion() for request in requests]
        finally:
            _cancel(requests)
        return self._result(found, kwargs)

    def _stream(
        self, prompt: str, stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[GenerationChunk]:
        (request,) = self._requests([prompt], stop, kwargs, run_manager, is_streamed=True)
        with closing(request.answer()) as answer:
            for item in answer:
                chunk = self._chunk(item, kwargs)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self, prompt: str, stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[GenerationChunk]:
        (request,) = await asyncio.to_thread(
            self._requests, [prompt], stop, kwargs, run_manager, is_streamed=True
        )
        async with aclosing(request.aanswer()) as answer:
            async for item in answer:
                chunk = self._chunk(item, kwargs)
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _requests(
        self,
        prompts: Sequence[str],
        stop: Sequence[str] | None,
        options: Mapping[str, Any],
        run_manager: Any,
        is_streamed: bool = False,
    ) -> list[ModelRequest]:
        """The requests, with their runtime. Raises InvalidCall as LangChain's users catch it."""
        connection = self.connection(options.get("model"))
        context = CallContext.of_run(run_manager)
        try:
            check_options(options, KNOWN)
            constraint = toolbox_of(options, ToolFormat()).constraint
            call = self._new_call((), constraint, stop, options, is_streamed)
            call = context.with_options(call)
            check_texts(prompts, "prompts")
            calls = [replace(call, prompt=(Text(prompt),)) for prompt in prompts]
            calls = [context.with_rest(it) for it in calls]
            return [ModelRequest(connection, it, context, self.max_retries) for it in calls]
        except ForkrootError as error:
            raise as_langchain(error) from error

    def _result(self, found: Sequence[_Found], options: Mapping[str, Any]) -> LLMResult:
        generations = [[*_generations(*item)] for item in found]
        usage = reduce(add, [completion.usage for completion, _ in found], Usage())
        llm_output = {"model_name": self._name(options), "token_usage": token_usage(usage)}
        return LLMResult(generations=generations, llm_output=llm_output)

    def _chunk(self, item: Chunk | Completion, options: Mapping[str, Any]) -> GenerationChunk:
        """A piece of an answer, or its end."""
        if isinstance(item, Chunk):
            content = openai_logprobs(item.logprobs, [item])
            return GenerationChunk(
                text=item.text,
                generation_info={"logprobs": {"content": content}} if content else None,
            )
        info = {
            "finish_reason": item.outputs[0].finish_reason if item.outputs else "abort",
            "model_name": self._name(options),
            "usage_metadata": usage_of(item.usage),
        }
        return GenerationChunk(text="", generation_info=info)


def _generations(completion: Completion, chunks: Sequence[Chunk]) -> Iterator[Generation]:
    """One for each output; the usage of all with the first."""
    for index, output in enumerate(completion.outputs):
        info: dict[str, Any] = {"finish_reason": output.finish_reason}
        if index == 0:
            info["usage_metadata"] = usage_of(completion.usage)
        if output.logprobs:
            info["logprobs"] = {"content": openai_logprobs(output.logprobs, chunks, index)}
        yield Generation(text=output.text, generation_info=info)


def _submitted(requests: Sequence[ModelRequest]) -> list[ModelRequest]:
    """The requests, submitted together."""
    prefixes = requests[0].connection.prefixes
    replies = prefixes.submit_all([request.call for request in requests])
    return [replace(it, reply=reply) for it, reply in zip(requests, replies, strict=True)]


def _cancel(requests: Sequence[ModelRequest]) -> None:
    for request in requests:
        if request.reply is not None:
            request.reply.cancel()


def _have_equal_options(config: Configs) -> bool:
    """Whether one run manager may speak for all calls of a batch: LangChain hands on but one."""
    if not isinstance(config, Sequence):
        return True
    options = [(one.get("metadata") or {}).get(KEY) for one in config]
    return all(one == options[0] for one in options)


def _have_one_error(found: Sequence[object]) -> bool:
    """Whether several inputs of a batch failed because one did: the base class gives its error to
    all of them."""
    error = found[0] if len(found) > 1 else None
    return isinstance(error, Exception) and all(it is error for it in found)
