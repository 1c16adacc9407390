"""All that a runtime asks of constraints, for one tokenizer.

The vocabulary is read when the first constraint comes: runtimes that never see one pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

from ..protocol import Choices, Constraint, JsonSchema, Regex, UnsupportedCall
from .cache import GuideCache
from .guide import Guide
from .regular import regular_guide
from .retokenize import Jump, Retokenizer
from .schema import schema_pattern
from .vocabulary import Vocabulary


class Constraints:
    """Guides and jumps for a vocabulary.

    token_bytes: [vocabulary]. end_ids: its end tokens. encode: text -> tokens, nothing added.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
    ) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._encode = encode
        self.guides = GuideCache(self._compile)

    def guide(self, constraint: Constraint) -> Guide:
        """The guide of a constraint, compiled at most once. Raises InvalidCall and its kin."""
        return self.guides.get(constraint)

    def jump(self, ids: Sequence[int], forced: bytes, can_go_on: bool) -> Jump:
        """What becomes of an answer's tokens `ids` when text is forced upon it."""
        return self._retokenizer.jump(ids, forced, can_go_on)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self._token_bytes, self._end_ids)

    @cached_property
    def _retokenizer(self) -> Retokenizer:
        return Retokenizer(self._encode, self._vocabulary)

    def _compile(self, constraint: Constraint) -> Guide:
        match constraint:
            case Regex() | Choices():
                return regular_guide(constraint, self._vocabulary)
            case JsonSchema(schema):
                return regular_guide(Regex(schema_pattern(schema)), self._vocabulary)
        allowed = "a Regex, Choices or JsonSchema (grammars are not supported by this runtime)"
        raise UnsupportedCall("constraint", type(constraint).__name__, allowed)
