"""Answers of the protocol as LangChain's messages: whole, and in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import InputTokenDetails, UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from ...core.api.protocol import Chunk, Completion, Output, TokenLogprob, Usage
from ..common.toolreader import ArgumentsPiece, CallStart, Piece, TextPiece, ToolReader, is_calling
from .toolbox import Toolbox


def usage_of(usage: Usage) -> UsageMetadata:
    """Tokens as LangChain counts them."""
    return UsageMetadata(
        input_tokens=usage.prompt_tokens,
        output_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        input_token_details=InputTokenDetails(cache_read=usage.cached_tokens),
    )


def token_usage(usage: Usage) -> dict[str, Any]:
    """Tokens as `LLMResult.llm_output` holds them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def result_of(
    completion: Completion, chunks: Sequence[Chunk], toolbox: Toolbox, model: str
) -> ChatResult:
    """A whole answer: one generation for each output, usage with the first. chunks: of the answer,
    where log-probabilities were requested."""
    generations = []
    for index, output in enumerate(completion.outputs):
        message = _message(output, toolbox)
        if index == 0:
            message.usage_metadata = usage_of(completion.usage)
        num_calls = len(message.tool_calls) + len(message.invalid_tool_calls)
        info: dict[str, Any] = {"finish_reason": finish_reason(output, num_calls)}
        if output.logprobs:
            info["logprobs"] = {"content": openai_logprobs(output.logprobs, chunks, index)}
        message.response_metadata = {"model_name": model, "model_provider": "forkroot", **info}
        generations.append(ChatGeneration(message=message, generation_info=info))
    llm_output = {"model_name": model, "token_usage": token_usage(completion.usage)}
    return ChatResult(generations=generations, llm_output=llm_output)


def finish_reason(output: Output, num_calls: int) -> str:
    """Why an answer ended, in the words that LangChain's users know."""
    return "tool_calls" if is_calling(output, num_calls) else output.finish_reason


def openai_logprobs(
    logprobs: Sequence[TokenLogprob], chunks: Sequence[Chunk], index: int = 0
) -> list[dict[str, Any]]:
    """Log-probabilities of tokens in OpenAI's shape. The text of a token is given if a chunk of
    the answer held that token alone."""
    texts, position = dict[int, str](), 0
    for chunk in chunks:
        if chunk.index == index:
            if len(chunk.ids) == 1:
                texts[position] = chunk.text
            position += len(chunk.ids)
    return [
        {
            **_token(it.id, it.logprob, texts.get(position)),
            "top_logprobs": [
                _token(*candidate, texts.get(position) if candidate[0] == it.id else None)
                for candidate in it.top
            ],
        }
        for position, it in enumerate(logprobs)
    ]


def _token(token: int, logprob: float, text: str | None) -> dict[str, Any]:
    data = None if text is None else [*text.encode()]
    name = f"token_id:{token}" if text is None else text
    return {"token": name, "token_id": token, "bytes": data, "logprob": logprob}


def _message(output: Output, toolbox: Toolbox) -> AIMessage:
    if not toolbox.callable:
        return AIMessage(content=output.text)
    text, calls = "", []
    for piece in ToolReader(toolbox.callable).push(output.text, is_last=True):
        match piece:
            case TextPiece(text=new_text):
                text += new_text
            case CallStart(name=name):
                calls.append([name, ""])
            case ArgumentsPiece(number=number, text=argued):
                calls[number][1] += argued
    message = AIMessage(content=text)
    for name, arguments in calls:
        try:
            call = tool_call(name=name, args=json.loads(arguments), id=_call_id())
            message.tool_calls.append(call)
        except ValueError as error:
            found = invalid_tool_call(name=name, args=arguments, id=_call_id(), error=str(error))
            message.invalid_tool_calls.append(found)
    return message


def _call_id() -> str:
    return f"call_{uuid4().hex[:24]}"


class MessageStream:
    """Turns one answer's chunks into LangChain's. Mutable: it reads as they come."""

    def __init__(self, toolbox: Toolbox, model: str) -> None:
        self._reader = ToolReader(toolbox.callable) if toolbox.callable else None
        self._model = model

    def read(self, item: Chunk | Completion) -> Iterator[ChatGenerationChunk]:
        """The messages of a chunk, or of the end."""
        return self._end(item) if isinstance(item, Completion) else self._chunk(item)

    def _chunk(self, chunk: Chunk) -> Iterator[ChatGenerationChunk]:
        info = {}
        if chunk.logprobs:
            info["logprobs"] = {"content": openai_logprobs(chunk.logprobs, [chunk])}
        for piece in self._pieces(chunk.text):
            yield _generation(_message_chunk(piece), info)
            info = {}
        if info:
            yield _generation(AIMessageChunk(content=""), info)

    def _end(self, completion: Completion) -> Iterator[ChatGenerationChunk]:
        """The rest of the text, why the answer ended, and its usage."""
        output = completion.outputs[0] if completion.outputs else Output("", (), "abort")
        for piece in self._pieces("", is_last=True):
            yield _generation(_message_chunk(piece), {})
        num_calls = self._reader.num_calls if self._reader else 0
        info = {"finish_reason": finish_reason(output, num_calls), "model_name": self._model}
        last = AIMessageChunk(
            content="",
            usage_metadata=usage_of(completion.usage),
            response_metadata={"model_provider": "forkroot"},
            chunk_position="last",
        )
        yield _generation(last, info)

    def _pieces(self, text: str, is_last: bool = False) -> Sequence[Piece]:
        if self._reader is not None:
            return self._reader.push(text, is_last)
        return [TextPiece(text)] if text else []


def _message_chunk(piece: Piece) -> AIMessageChunk:
    match piece:
        case TextPiece(text=text):
            return AIMessageChunk(content=text)
        case CallStart(number=number, name=name):
            call = tool_call_chunk(name=name, args="", id=_call_id(), index=number)
        case ArgumentsPiece(number=number, text=text):
            call = tool_call_chunk(args=text, index=number)
    return AIMessageChunk(content="", tool_call_chunks=[call])


def _generation(message: AIMessageChunk, info: dict[str, Any]) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=message, generation_info=info or None)
