"""The state of a program, with what our runtime adds to it."""

from __future__ import annotations

from guidance._ast import GrammarNode
from guidance.models._engine._state import EngineState

from ...core.protocol import Usage


class ForkrootState(EngineState):
    """As Guidance's.

    node: the grammar that is running; None between grammars. used: prompt tokens of all grammars
    so far, how many of them were cached, and the tokens that were written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node: GrammarNode | None = None
        self.used = Usage()
