"""All that a runtime asks of constraints, for one tokenizer.

The vocabulary is read when the first constraint comes: runtimes that never see one pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from ..protocol import Choices, Constraint, Grammar, InvalidCall, JsonSchema, Regex
from .cache import GuideCache
from .grammar import GrammarGuide
from .guide import Guide
from .lark import read_lark
from .limits import Limits, TooSlow
from .matcher import Library
from .refusals import FIELD, NotRegular
from .regular import Compiled, RegularGuide, automaton
from .retokenize import Jump, Retokenizer
from .rules import schema_grammar
from .schema import schema_pattern
from .syntaxes import read_grammar
from .tokenizations import TOLERANCE, Tokenizations
from .vocabulary import Vocabulary

QUICK, PATIENT = 0.02, 0.1


class Workshop(Protocol):
    """Where constraints are compiled that take too long in a caller's thread."""

    @property
    def is_running(self) -> bool:
        """Whether it is ready at once."""

    def compiled(self, constraint: Regex | Choices, field: str | None) -> Compiled:
        """As `regular.automaton`, and what ends it takes."""

    def pattern(self, schema: Mapping[str, Any] | bool) -> str:
        """As `schema.schema_pattern`."""


class Constraints:
    """Guides and jumps for a vocabulary.

    token_bytes: [vocabulary]. end_ids: its end tokens. encode: text -> tokens, nothing added.
    workshop: for large constraints; None: all are compiled in the thread that asks.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
        workshop: Workshop | None = None,
    ) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._encode = encode
        self._workshop = workshop
        self.guides = GuideCache(self._compile)

    def guide(self, constraint: Constraint) -> Guide:
        """The guide of a constraint, compiled at most once. Raises InvalidCall and its kin."""
        return self.guides.get(constraint)

    def jump(self, ids: Sequence[int], forced: bytes, can_go_on: bool) -> Jump:
        """What becomes of an answer's tokens `ids` when text is forced upon it."""
        return self._retokenizer.jump(ids, forced, can_go_on)

    def search(self, options: Sequence[str], is_canonical: bool, max_nodes: int) -> Tokenizations:
        """The search for the probabilities of options, over all ways to spell them or only over
        the tokenizer's own."""
        vocabulary, encode = self._vocabulary, self._encode
        return Tokenizations(options, vocabulary, max_nodes, TOLERANCE, encode, is_canonical)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self._token_bytes, self._end_ids)

    @cached_property
    def _library(self) -> Library:
        return Library(self._vocabulary)

    @cached_property
    def _retokenizer(self) -> Retokenizer:
        return Retokenizer(self._encode, self._vocabulary)

    def _compile(self, constraint: Constraint) -> Guide:
        match constraint:
            case Regex() | Choices():
                return self._regular_guide(constraint)
            case JsonSchema(schema):
                return self._schema_guide(schema)
            case Grammar(source, syntax):
                return GrammarGuide(read_grammar(source, syntax), self._library)

    def _schema_guide(self, schema: Mapping[str, Any] | bool) -> Guide:
        """An automaton; a grammar where no pattern says it or the automaton would be too large."""
        pattern = None
        try:
            pattern = self._pattern(schema)
            compiled = self._compiled(Regex(pattern), FIELD)
        except NotRegular:
            compiled = None
        except InvalidCall:
            if pattern is None:
                raise
            compiled = None
        if compiled is None:
            return GrammarGuide(read_lark(schema_grammar(schema), FIELD), self._library, FIELD)
        return RegularGuide(compiled.dfa, self._vocabulary, FIELD, compiled.num_tokens)

    def _regular_guide(self, constraint: Regex | Choices) -> Guide:
        dfa, num_tokens = self._compiled(constraint)
        return RegularGuide(dfa, self._vocabulary, num_tokens=num_tokens)

    def _compiled(self, constraint: Regex | Choices, field: str | None = None) -> Compiled:
        if self._workshop is None:
            return Compiled(automaton(constraint, field))
        try:
            limits = Limits(seconds=self._seconds(self._workshop))
            return Compiled(automaton(constraint, field, limits))
        except TooSlow:
            return self._workshop.compiled(constraint, field)

    def _pattern(self, schema: Mapping[str, Any] | bool) -> str:
        if self._workshop is None:
            return schema_pattern(schema)
        try:
            return schema_pattern(schema, seconds=self._seconds(self._workshop))
        except TooSlow:
            return self._workshop.pattern(schema)

    @staticmethod
    def _seconds(workshop: Workshop) -> float:
        """Processor time after which a workshop is asked instead."""
        return QUICK if workshop.is_running else PATIENT
