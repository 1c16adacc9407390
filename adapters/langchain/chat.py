"""`ChatForkroot`: a chat model of LangChain on our runtime.

The base class runs each input of a batch by itself: callbacks, tracing, cache, errors and limits of
each are its business. Here only the calls at the bottom of these runs wait for each other.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from typing import Any, cast

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import get_config_list
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, PrivateAttr

from ...core.api.protocol import ForkrootError, UnsupportedCall
from ..common.tools import ToolFormat
from ..connection import Connection
from .answers import MessageStream, result_of
from .errors import as_langchain
from .hints.call_context import CallContext, batch_of, context_of, use_context
from .messages import chat_of, has_calls
from .model_request import ModelRequest
from .settings import OPTIONS, Settings, Stop, check_options, num_tokens
from .structured import structured
from .toolbox import CONSTRAINTS, Toolbox, choice_of, shown_tools, spec_of, specs_of, toolbox_of

_TOOL_OPTIONS = ("tools", "tool_choice", "parallel_tool_calls", "strict", "response_format")
KNOWN = (*OPTIONS, *CONSTRAINTS, *_TOOL_OPTIONS)
PATIENCE = 2.0  # seconds that the calls of a batch wait for those that are to come
MOST_THREADS = 256
Configs = RunnableConfig | list[RunnableConfig] | None


class ChatForkroot(Settings, BaseChatModel):
    """A chat model of LangChain whose calls share what they have in common.

        model = ChatForkroot(model="tiny", temperature=0)
        model.invoke("What is the capital of France?").content

    The fields are those of `Settings`. A call, and `bind`, also know `tools`, `tool_choice`,
    `parallel_tool_calls`, `response_format`, `regex`, `choices` and `grammar`. Tool calls and
    structured answers are held to their schemas while they are written (`strict=False`: tool calls
    of a free answer are not). What the calls of a `batch`, of `.map()` or of the branches of a
    `RunnableParallel` share is computed once; `config["metadata"]["forkroot"]` may set more
    (root, prefix_end, branches, namespace, priority).
    """

    model_config = ConfigDict(extra="forbid")

    _forms: dict[str, ToolFormat] = PrivateAttr(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "forkroot-chat"

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop or self.stop, **kwargs)
        params["ls_provider"] = "forkroot"
        return params

    def _resolve_model_profile(self) -> ModelProfile:
        """What agents and their middleware read of a model before they call it; of the context and
        of images, what is known without starting an engine or calling a server."""
        found = ModelProfile(
            text_inputs=True,
            text_outputs=True,
            tool_calling=True,
            tool_choice=True,
            tool_call_streaming=True,
            structured_output=True,
            temperature=True,
        )
        size = self.context_len()
        if size:
            found["max_input_tokens"] = found["max_output_tokens"] = size - 1
        features = self.features()
        if features is not None:
            found["image_inputs"] = found["image_tool_message"] = "images" in features
            found["video_inputs"] = "videos" in features
            found["image_url_inputs"] = False  # nothing is fetched
        return found

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """A model that may call these tools, given in any form that LangChain knows.

        tool_choice: "auto" (or None), "none", "any" (or "required", True), or one tool's name.
        strict: False leaves the calls of an answer that may be without any to the model.
        parallel_tool_calls: False allows one call at most.
        Raises InvalidCall, which is a ValueError.
        """
        shown = shown_tools(tools)
        choice_of(tool_choice, [spec_of(tool, index).name for index, tool in enumerate(shown)])
        return self.bind(tools=shown, tool_choice=tool_choice, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        include_raw: bool = False,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """A model whose answers are instances of `schema`, valid because it can write no others.
        Without a schema, with "json_mode" only, they are JSON objects of any kind.

        method: "function_calling" (the default: the model is shown the schema as a tool),
        "json_schema" or "json_mode" (it is shown nothing: the prompt should say what is wanted).
        strict: taken, and always so. include_raw: as in LangChain.
        """
        return structured(self, schema, include_raw=include_raw, **kwargs)

    def get_num_tokens_from_messages(
        self, messages: list[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Tokens of the prompt that a call with these messages and tools would have."""
        connection, specs = self.connection(), specs_of(tools or ())
        is_needed = bool(specs) or has_calls(messages)
        form = self._form(connection, self.model) if is_needed else ToolFormat()
        return num_tokens(connection.backend, chat_of(messages, specs, form))

    # --- calls, each of which notes where in a program it is made -----------------------------

    def invoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """As the base class."""
        with use_context(self._context(config)):
            return super().invoke(input, config, **kwargs)

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """As the base class."""
        with use_context(self._context(config)):
            return await super().ainvoke(input, config, **kwargs)

    def stream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Iterator[AIMessageChunk]:
        """As the base class."""
        context = self._context(config)
        with closing(cast(Any, super().stream(input, config, **kwargs))) as chunks:
            while True:
                with use_context(context):  # not while the caller has the chunk
                    chunk = next(chunks, None)
                if chunk is None:
                    return
                yield chunk

    async def astream(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncIterator[AIMessageChunk]:
        """As the base class."""
        context = self._context(config)
        async with aclosing(cast(Any, super().astream(input, config, **kwargs))) as chunks:
            while True:
                with use_context(context):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    return
                yield chunk

    def batch(
        self, inputs: list[LanguageModelInput], config: Configs = None, **kwargs: Any
    ) -> list[AIMessage]:
        """As the base class, with the calls of all inputs in one submission; where the config
        bounds `max_concurrency`, of so many."""
        if not inputs:
            return []
        with self._batched(config, len(inputs), MOST_THREADS) as configs:
            return super().batch(inputs, configs, **kwargs)

    async def abatch(
        self, inputs: list[LanguageModelInput], config: Configs = None, **kwargs: Any
    ) -> list[AIMessage]:
        """As `batch`, for tasks."""
        if not inputs:
            return []
        with self._batched(config, len(inputs), len(inputs)) as configs:
            return await super().abatch(inputs, configs, **kwargs)

    def _generate(
        self, messages: list[BaseMessage], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        request, toolbox = self._request(messages, stop, kwargs, run_manager)
        return result_of(*request.completion(), toolbox, self._name(kwargs))

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        request, toolbox = await to_thread(self._request, messages, stop, kwargs, run_manager)
        return result_of(*await request.acompletion(), toolbox, self._name(kwargs))

    def _stream(
        self, messages: list[BaseMessage], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        request, toolbox = self._request(messages, stop, kwargs, run_manager, is_streamed=True)
        message_stream = MessageStream(toolbox, self._name(kwargs))
        with closing(request.answer()) as answer:
            for item in answer:
                yield from message_stream.read(item)

    async def _astream(
        self, messages: list[BaseMessage], stop: Stop = None, run_manager: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        request, toolbox = await to_thread(
            self._request, messages, stop, kwargs, run_manager, is_streamed=True
        )
        message_stream = MessageStream(toolbox, self._name(kwargs))
        async with aclosing(request.aanswer()) as answer:
            async for item in answer:
                for chunk in message_stream.read(item):
                    yield chunk

    # --- from messages to a call -------------------------------------------------------------

    def _request(
        self,
        messages: Sequence[BaseMessage],
        stop: Sequence[str] | None,
        options: Mapping[str, Any],
        run_manager: Any,
        is_streamed: bool = False,
    ) -> tuple[ModelRequest, Toolbox]:
        """The request, with its runtime. Asks the model how it writes tool calls, where they are
        wanted: tasks call it in a thread. Raises InvalidCall as LangChain's users catch it."""
        context, connection = context_of(run_manager), self.connection(options.get("model"))
        try:
            check_options(options, KNOWN)
            is_needed = bool(options.get("tools")) or has_calls(messages)
            form = self._form(connection, self._name(options)) if is_needed else ToolFormat()
            toolbox = toolbox_of(options, form)
            chat = chat_of(messages, toolbox.tools, form)
            call = self._new_call(chat, toolbox.constraint, stop, options, is_streamed)
            call, retries = context.with_hint(call), self.max_retries
            request = ModelRequest(connection, call, context, retries, schemas=toolbox.schemas)
            return request, toolbox
        except ForkrootError as error:
            raise as_langchain(error) from error

    def _context(self, config: RunnableConfig | None) -> CallContext:
        return CallContext.of_config(config, self.metadata)

    @contextmanager
    def _batched(
        self, config: Configs, num_inputs: int, most: int
    ) -> Iterator[list[RunnableConfig]]:
        """The config of each input. The calls of as many inputs as run at a time are batched: of
        one with a rate limiter, which delays each call."""
        configs = get_config_list(config, num_inputs)
        limit = configs[0].get("max_concurrency")
        number = min(num_inputs, most if limit is None else max(1, limit))
        with batch_of(number if self.rate_limiter is None else 1, PATIENCE):
            yield [{**configs[0], "max_concurrency": number}, *configs[1:]]

    def _form(self, connection: Connection, name: str) -> ToolFormat:
        """How this model writes tool calls; the model is queried once."""
        if name not in self._forms:
            try:
                completion = connection.backend.submit(ToolFormat.question()).result()
                self._forms[name] = ToolFormat.of_answer(completion)
            except UnsupportedCall:  # it scores no options
                self._forms[name] = ToolFormat()
        return self._forms[name]
