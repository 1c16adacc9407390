"""All that a runtime needs of constraints, for one tokenizer.

The vocabulary is read when the first constraint comes: runtimes that never see one pay nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import Any, Protocol

from ..api.dialects import ignored, log_ignored
from ..api.protocol import Call, Choices, Constraint, Grammar, InvalidCall, JsonSchema, Regex
from .cache import MOST_BYTES, GuideCache, GuideRequest, Later
from .distinct import DistinctGuide
from .forget import forget_compiled
from .grammar.explore import Known
from .grammar.grammar import GrammarGuide
from .grammar.matcher import Library
from .guide import Cursor, Guide
from .json_schema.jsontext import room_left
from .plan import Unrepeated, plan_of
from .regex.errors import FIELD, refuse
from .regex.limits import Limits, TooSlow
from .tokens.regular import Compiled, RegularGuide, automaton
from .tokens.retokenize import JumpForward, Retokenizer
from .tokens.tokenizations import TOLERANCE, Tokenizations
from .tokens.vocabulary import Vocabulary

QUICK, BUSY, PATIENT = 0.005, 0.02, 0.1
PATTERN_RATE = 150_000  # characters in a second, about
CHOICES_RATE = 500_000
SCHEMA_RATE = 100_000
GRAMMAR_RATE = 100_000


class CompilePool(Protocol):
    """Compiles constraints that take too long in a caller's thread."""

    @property
    def is_running(self) -> bool:
        """Whether it was started."""

    @property
    def is_busy(self) -> bool:
        """Whether something else is being compiled."""

    def compiled(
        self, constraint: Regex | Choices, field: str | None = None, tenant: str = ""
    ) -> Compiled:
        """As `regular.automaton`, and what ends it takes."""

    def plan(
        self, constraint: JsonSchema | Grammar, tenant: str = ""
    ) -> Compiled | Known | Unrepeated:
        """As `plan_of`, and what ends an automaton takes."""


class Constraints:
    """Guides and jump-forward for a vocabulary.

    token_bytes: [vocabulary]. end_ids: its end tokens. encode: text -> tokens, nothing added.
    compile_pool: for large constraints; None: all are compiled in the caller's thread.
    later: where they wait for the pool, by tenant; None: in the caller's thread.
    kept_bytes: memory for guides.
    kind: "auto", or the path of a factory ("module:Factory") whose result is tried first for each
      guide. Raises InvalidCall where that makes nothing.
    """

    def __init__(
        self,
        token_bytes: Sequence[bytes],
        end_ids: Collection[int],
        encode: Callable[[str], Sequence[int]],
        compile_pool: CompilePool | None = None,
        kind: str = "auto",
        later: Later | None = None,
        kept_bytes: int = MOST_BYTES,
    ) -> None:
        self._token_bytes = token_bytes
        self._end_ids = [token for token in end_ids if token < len(token_bytes)]
        self._encode = encode
        self._compile_pool = compile_pool
        self._brought = _brought(kind, token_bytes, end_ids, encode)
        self._last_tenant = ""
        if compile_pool is None or later is None:
            self.guides = GuideCache(self._compile, max_bytes=kept_bytes)
        else:
            self.guides = GuideCache(
                self._compile_in_child,
                max_bytes=kept_bytes,
                compile_here=self._compile_here,
                later=later,
            )

    def guide(self, constraint: Constraint, tenant: str = "") -> Guide:
        """The guide of a constraint, compiled at most once for a tenant. Raises InvalidCall or a
        subclass."""
        return self.guides.get(constraint, tenant)

    def request(self, call: Call) -> GuideRequest | None:
        """The guide of a call's constraint, or that it is being compiled; None: it has none. Raises
        InvalidCall for a schema that is not JSON."""
        if call.constraint is None:
            return None
        return self.guides.request(call.constraint, call.owner, call.weight)

    def jump_forward(self, ids: Sequence[int], forced: bytes, after: Cursor) -> JumpForward:
        """What becomes of an answer's tokens `ids` when text is forced upon it. after: a cursor
        behind this text."""
        return self._retokenizer.jump_forward(ids, forced, not after.is_finished, after.joins)

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

    def _compile(self, constraint: Constraint, tenant: str) -> Guide:
        guide = self._compile_here(constraint, tenant)
        return self._compile_in_child(constraint, tenant) if guide is None else guide

    def _compile_in_child(self, constraint: Constraint, tenant: str) -> Guide:
        """The guide of a constraint, compiled by the pool."""
        pool = self._compile_pool
        assert pool is not None
        if isinstance(constraint, JsonSchema | Grammar):
            return self._guide(constraint, pool.plan(constraint, tenant))
        return self._guide(constraint, pool.compiled(constraint, None, tenant))

    def _compile_here(self, constraint: Constraint, tenant: str) -> Guide | None:
        """The guide of a constraint; None where that takes too long for the caller's thread."""
        if self._brought is not None and (guide := self._brought(constraint)) is not None:
            return guide
        if isinstance(constraint, JsonSchema):
            _check_keywords(constraint)
        if tenant != self._last_tenant:
            self._last_tenant = tenant
            forget_compiled(self._vocabulary)
        made = self._made_quickly(constraint)
        return None if made is None else self._guide(constraint, made)

    def _guide(self, constraint: Constraint, made: Compiled | Known | Unrepeated) -> Guide:
        fields = {JsonSchema: FIELD, Grammar: "grammar"}
        field = fields.get(type(constraint), "constraint")
        if isinstance(made, Unrepeated):
            return DistinctGuide(self._guide_of(made.plan, field), made.shapes)
        return self._guide_of(made, field)

    def _guide_of(self, made: Compiled | Known, field: str) -> RegularGuide | GrammarGuide:
        if isinstance(made, Known):
            return GrammarGuide(made, self._library, field)
        return RegularGuide(made.dfa, self._vocabulary, field, made.num_tokens)

    def _made_quickly(self, constraint: Constraint) -> Compiled | Known | Unrepeated | None:
        """What a constraint is compiled to; None where there is a pool and it takes too long."""
        pool = self._compile_pool
        if pool is None:
            return self._made_here(constraint, None)
        seconds = _seconds(pool)
        if _cost(constraint, seconds) <= seconds:
            with suppress(TooSlow):
                return self._made_here(constraint, seconds)
        return None

    def _made_here(
        self, constraint: Constraint, seconds: float | None
    ) -> Compiled | Known | Unrepeated:
        if isinstance(constraint, JsonSchema | Grammar):
            return plan_of(constraint, lambda: self._library, seconds)
        limits = None if seconds is None else Limits(seconds=seconds)
        return Compiled(automaton(constraint, limits=limits))


def _check_keywords(constraint: JsonSchema) -> None:
    """Log keywords and formats that are not known, and so restrict nothing. Raises InvalidCall for
    them where the schema is to be read strictly."""
    if constraint.strict and (found := ignored(constraint.schema, 1)):
        expected = f"keywords and formats that are known, as strict=True demands{found[0].hint}"
        raise refuse(found[0].pointer, expected)
    log_ignored(constraint.schema, "json_schema")


def _seconds(pool: CompilePool) -> float:
    """Processor time that a constraint may take in the caller's thread before the pool compiles it
    instead: this thread blocks the engine's for as long."""
    if not pool.is_running:
        return PATIENT
    return BUSY if pool.is_busy else QUICK


def _cost(constraint: Constraint, seconds: float) -> float:
    """Seconds that it takes, about, to read a constraint; of a large schema more than `seconds`."""
    match constraint:
        case Regex(pattern=pattern):
            return len(pattern) / PATTERN_RATE
        case Choices(options=options):
            return sum(map(len, options)) / CHOICES_RATE
        case Grammar(source=source):
            return len(source) / GRAMMAR_RATE
        case JsonSchema(schema=schema):
            room = int(seconds * SCHEMA_RATE)
            return (room - room_left(schema, room)) / SCHEMA_RATE


def _brought(kind: str, *given: Any) -> Callable[[Constraint], Guide | None] | None:
    """What the factory makes that is in this place; None for "auto"."""
    if kind == "auto":
        return None
    try:
        made: Callable[[Constraint], Guide | None] = EntryPoint("constraint", kind, "").load()(
            *given
        )
    except Exception as error:
        allowed = f"a factory of constraint that works here ({error!r})"
        raise InvalidCall("constraint", kind, allowed) from error
    return made
