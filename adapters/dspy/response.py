"""From what a runtime answers to DSPy's response, whole or as the events of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dspy import lm15

from ...core.api.protocol import Chunk, Completion, Output, TokenLogprob
from ..common.toolreader import (
    ArgumentsPiece,
    CallStart,
    TextPiece,
    ToolReader,
    is_calling,
    json_object,
)

_FINISHES: dict[str, lm15.FinishReason] = {"stop": "stop", "length": "length", "abort": "error"}


@dataclass(slots=True)
class Reading:
    """Reads one answer. model: the request's. names: of tools that may be called; index: which of
    the call's answers it is; the first one bears the prompt's tokens in its usage."""

    model: str
    names: frozenset[str] = frozenset()
    index: int = 0
    has_logprobs: bool = False
    _parts: dict[int, _Part] = field(default_factory=dict)
    _reader: ToolReader = field(init=False)

    def __post_init__(self) -> None:
        self._reader = ToolReader(self.names)

    def response(self, completion: Completion) -> lm15.Response:
        """The whole answer."""
        output = completion.outputs[self.index]
        for _ in self._deltas(output.text, is_last=True):
            pass
        parts: list[Any] = [part.whole() for _, part in sorted(self._parts.items())]
        return lm15.Response(
            id=None,
            model=self.model,
            message=lm15.Message(role="assistant", parts=tuple(parts or [lm15.TextPart("")])),
            finish_reason=self._finish(output),
            usage=self._usage(completion),
            logprobs=_logprobs(output.logprobs) if self.has_logprobs else None,
        )

    def events(self, chunk: Chunk) -> Iterator[lm15.StreamDeltaEvent]:
        """What a chunk of the answer adds; chunks of other answers add nothing."""
        if chunk.index != self.index:
            return
        scores = _logprobs(chunk.logprobs) if self.has_logprobs else ()
        for delta in self._deltas(chunk.text):
            if isinstance(delta, lm15.TextDelta) and scores:
                delta = lm15.TextDelta(delta.text, delta.part_index, scores)
                scores = ()
            yield lm15.StreamDeltaEvent(delta)

    def end(self, completion: Completion) -> Iterator[Any]:
        """The last events: what was held back, and the end with the usage."""
        for delta in self._deltas("", is_last=True):
            yield lm15.StreamDeltaEvent(delta)
        output = completion.outputs[self.index]
        yield lm15.StreamEndEvent(self._finish(output), self._usage(completion))

    def _deltas(self, text: str, is_last: bool = False) -> Iterator[Any]:
        """One text part without tools; otherwise a part for each text and each call."""
        if not self.names:
            if text:
                self._part(0).text += text
                yield lm15.TextDelta(text, 0)
            return
        for piece in self._reader.push(text, is_last):
            match piece:
                case TextPiece():
                    self._part(0).text += piece.text
                    yield lm15.TextDelta(piece.text, 0)
                case CallStart():
                    part = self._part(piece.number + 1)
                    part.name = piece.name
                    yield lm15.ToolCallDelta("", piece.number + 1, part.id, piece.name)
                case ArgumentsPiece():
                    self._part(piece.number + 1).text += piece.text
                    yield lm15.ToolCallDelta(piece.text, piece.number + 1)

    def _part(self, index: int) -> _Part:
        return self._parts.setdefault(index, _Part(f"call_{index}"))

    def _finish(self, output: Output) -> lm15.FinishReason:
        num_calls = sum(bool(part.name) for part in self._parts.values())
        return "tool_call" if is_calling(output, num_calls) else _FINISHES[output.finish_reason]

    def _usage(self, completion: Completion) -> lm15.Usage:
        usage, is_first = completion.usage, self.index == 0
        output = completion.outputs[self.index]
        alone = len(completion.outputs) == 1
        return lm15.Usage(
            input_tokens=usage.prompt_tokens if is_first else 0,
            output_tokens=usage.completion_tokens if alone else len(output.ids),
            cache_read_tokens=usage.cached_tokens if is_first else 0,
        )


@dataclass(slots=True)
class _Part:
    """A part of the answer as it grows. name: of the tool, if it is a call."""

    id: str
    text: str = ""
    name: str = ""

    def whole(self) -> Any:
        if not self.name:
            return lm15.TextPart(self.text)
        return lm15.ToolCallPart(self.id, self.name, json_object(self.text))


def _logprobs(scores: Iterable[TokenLogprob]) -> tuple[lm15.TokenLogprob, ...]:
    """Tokens by their ids: the protocol has no text for each."""
    return tuple(
        lm15.TokenLogprob(
            "",
            score.logprob,
            token_id=score.id,
            top=tuple(lm15.TopLogprob("", value, token_id=token) for token, value in score.top),
        )
        for score in scores
    )
