"""Gives Guidance's nodes their meaning: its own interpreter of engines, and tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from guidance._ast import GrammarNode, ImageBlob, ToolCallNode
from guidance._tools import Tool
from guidance.models._engine import EngineInterpreter
from guidance.models._engine._interpreter import text_to_grammar
from guidance.trace import OutputAttr

from ...core.protocol import UnsupportedCall
from .calling import Result, called, check_whole, limit_of, opening_of, rest_of, result_of
from .engine import ForkrootEngine
from .state import ForkrootState


class ForkrootInterpreter(EngineInterpreter):
    """Runs nodes on one state."""

    engine: ForkrootEngine

    def __init__(self, engine: ForkrootEngine) -> None:
        super().__init__(engine)
        self.state: ForkrootState = ForkrootState()

    def grammar(self, node: GrammarNode, **kwargs: Any) -> Iterator[OutputAttr]:
        """Any node that is a grammar. Raises the typed errors of calls."""
        self.state.node = node
        try:
            yield from super().grammar(node, **kwargs)
        finally:
            self.state.node = None

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
            text = self._told(result)
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

    def _told(self, result: Result) -> str:
        """A tool's answer as the model reads it: a message of its own in a chat."""
        if self.state.active_role is None:
            return f"\n<tool_result={result.tool}>{result.text}</tool_result>"
        role = self.state.active_role
        message = self.get_role_start("tool") + result.text + self.get_role_end("tool")
        return self.get_role_end(role) + message + self.get_role_start(role)
