"""Gives Guidance's nodes their meaning: its own interpreter of engines, and tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy, deepcopy
from typing import Any

from guidance._ast import GrammarNode, ImageBlob, RuleNode, ToolCallNode
from guidance._tools import Tool
from guidance.models._base._model import _event_queues
from guidance.models._engine import EngineInterpreter
from guidance.models._engine._interpreter import (
    partial_decode,
    recode_special_tokens,
    text_to_grammar,
)
from guidance.trace import OutputAttr, TextOutput

from ...core.api.protocol import UnsupportedCall
from .calling import Result, called, check_whole, limit_of, opening_of, rest_of, result_of
from .engine import ForkrootEngine, ForkrootState
from .grammars import led_by
from .loop import Capture
from .writer import KIND


class ForkrootInterpreter(EngineInterpreter):
    """Runs nodes on one state."""

    engine: ForkrootEngine

    def __init__(self, engine: ForkrootEngine) -> None:
        super().__init__(engine)
        self.state: ForkrootState = ForkrootState()

    def __deepcopy__(self, memo: dict[int, Any]) -> ForkrootInterpreter:
        """An interpreter with a state of its own; all else is shared."""
        other = copy(self)
        other.state = deepcopy(self.state, memo)
        memo[id(self)] = other
        return other

    def grammar(self, node: GrammarNode, **kwargs: Any) -> Iterator[OutputAttr]:
        """Any node that is a grammar. Raises the typed errors of calls."""
        if not self.engine.shows_tokens and self.step_config is None:
            yield from self._run(node, kwargs.get("sampling_params") or {})
            return
        self.state.node = node
        try:
            yield from super().grammar(node, **kwargs)
        finally:
            self.state.node = None

    def _run(self, node: GrammarNode, params: Any) -> Iterator[OutputAttr]:
        """A grammar whose single tokens are not inspected: text that is forced at its beginning
        becomes a part of the prompt; generated text comes out at once, unless it is streamed."""
        state, tokenizer = self.state, self.engine.tokenizer
        lead, rest = led_by(node, tokenizer, state.prompt)
        if lead:
            state.prompt += lead
            yield TextOutput(value=lead, is_input=True)
        if rest.is_null:
            return
        is_watched = bool(_event_queues.get())
        unread, unshown, captures = b"", "", list[Capture]()
        for part in self.engine.run(state, rest, params, is_watched, _kind_of(node)):
            data = unread + recode_special_tokens(tokenizer, part.data)
            text, unread = partial_decode(data)
            state.prompt += text
            unshown += text
            captures += part.captures
            if is_watched:
                yield from self._shown(unshown, captures)
                unshown, captures = "", []
        yield from self._shown(unshown, captures)
        if unread:
            raise RuntimeError(f"the text ends within a character: {unread!r}")

    def _shown(self, text: str, captures: list[Capture]) -> Iterator[OutputAttr]:
        if text:
            yield TextOutput(value=text, is_generated=True)
        for capture in captures:
            name, value, logprob, is_appended = capture
            yield self.state.apply_capture(name, value, logprob, is_append=is_appended)

    def tool_call(self, node: ToolCallNode, **kwargs: Any) -> Iterator[OutputAttr]:
        """Let the model call one tool, or write text; a call is answered in the text. Raises the
        typed errors of calls."""
        start = len(self.state.prompt)
        yield from self.run(opening_of(node), **kwargs)
        tool = called(node, self.state.prompt[start:])
        if tool is not None:
            yield from self._finish(tool, **kwargs)
        result = result_of(node, self.state.prompt[start:])
        if result is not None:
            text = self._rendered(result)
            yield from self.run(text_to_grammar(self.engine.tokenizer, text), **kwargs)

    def image_blob(self, node: ImageBlob, **kwargs: Any) -> Iterator[OutputAttr]:
        """Raises UnsupportedCall."""
        raise UnsupportedCall("image", "an image", "programs of text, so far")

    def _finish(self, tool: Tool, **kwargs: Any) -> Iterator[OutputAttr]:
        """Let the model write the rest of a call, as far as the context holds it."""
        begin = len(self.state.prompt)
        context_len = self.engine.connection.backend.info().context_len
        limit = limit_of(self._num_tokens(self.state.prompt), context_len)
        yield from self.run(rest_of(tool, limit), **kwargs)
        rest = self.state.prompt[begin:]
        check_whole(tool, rest, self._num_tokens(rest), limit)

    def _num_tokens(self, text: str) -> int:
        return len(self.engine.tokenizer.encode(text.encode()))

    def _rendered(self, result: Result) -> str:
        """A tool's answer as the model reads it: a message of its own in a chat."""
        if self.state.active_role is None:
            return f"\n<tool_result={result.tool}>{result.text}</tool_result>"
        role = self.state.active_role
        message = self.get_role_start("tool") + result.text + self.get_role_end("tool")
        return self.get_role_end(role) + message + self.get_role_start(role)


def _kind_of(node: GrammarNode) -> str:
    """Guidance names a rule after the function that makes it; one that captures is a `gen`."""
    if isinstance(node, RuleNode) and node.capture is None and node.name:
        return f"{KIND}.{node.name}"
    return KIND
