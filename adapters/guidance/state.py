"""The state of a program, with what our runtime adds to it."""

from __future__ import annotations

from copy import copy
from typing import Any

from guidance._ast import GrammarNode
from guidance.models._engine._state import EngineState

from ...core.api.protocol import Usage


class ForkrootState(EngineState):
    """As Guidance's.

    node: the grammar that is running; None between grammars. used: prompt tokens of all grammars
    so far, how many of them were cached, and the tokens that were written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node: GrammarNode | None = None
        self.used = Usage()

    def __deepcopy__(self, memo: dict[int, Any]) -> ForkrootState:
        """A state that goes its own way. What no run changes in place is shared: captured values,
        the grammar, and usage."""
        other = copy(self)
        other.captures = {
            name: list(value) if isinstance(value, list) else value
            for name, value in self.captures.items()
        }
        other.images, other.audio = list(self.images), list(self.audio)
        other.videos = list(self.videos)
        memo[id(self)] = other
        return other
