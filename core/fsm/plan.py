"""What a JSON schema or a grammar is compiled to: an automaton, or a grammar that was explored.

The answer is plain data, and may be found in any process that has the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..api.protocol import Grammar, InvalidCall, JsonSchema, Regex
from .grammar.explore import Known, explore
from .grammar.lark import read_grammar, read_lark
from .grammar.matcher import Library
from .grammar.rules import schema_grammar
from .json_schema.schema import schema_pattern
from .json_schema.shapes import Shapes, unique_shapes
from .json_schema.unfold import MAX_SECONDS
from .regex.dfa import Dfa
from .regex.errors import FIELD, NotRegular
from .regex.limits import Limits, TooSlow
from .tokens.regular import Compiled, automaton


class Unrepeated(NamedTuple):
    """A schema some of whose arrays must not repeat an item. plan: of the rest of it."""

    plan: Compiled | Known
    shapes: Shapes


def plan_of(
    constraint: JsonSchema | Grammar, library: Callable[[], Library], seconds: float | None = None
) -> Compiled | Known | Unrepeated:
    """The automaton of a schema, or what is known of the grammar; with both, where items must
    differ.

    library: gives what compiles grammars. seconds: of processor time that each part of the work may
    take before it raises TooSlow; None: as much as is allowed. Raises InvalidCall.
    """
    if isinstance(constraint, Grammar):
        lark = read_grammar(constraint.source, constraint.syntax)
        return explore(lark, library(), seconds=seconds)
    plan = schema_plan(constraint, seconds)
    made = (
        Compiled(plan)
        if isinstance(plan, Dfa)
        else explore(read_lark(plan, FIELD), library(), FIELD, seconds)
    )
    shapes = unique_shapes(constraint.schema, seconds or MAX_SECONDS)
    return Unrepeated(made, shapes) if shapes else made


def schema_plan(constraint: JsonSchema, seconds: float | None = None) -> Dfa | str:
    """The automaton of a schema; a grammar in Lark where no pattern can express it, or where the
    automaton would be too large. seconds: as in `plan_of`.
    """
    schema, separators = constraint.schema, constraint.separators
    limits = Limits() if seconds is None else Limits(seconds=seconds)
    try:
        pattern = schema_pattern(
            schema, separators=separators, seconds=seconds or MAX_SECONDS, is_tracked=True
        )
    except NotRegular:
        return schema_grammar(schema, separators, seconds or MAX_SECONDS, is_tracked=True)
    try:
        return automaton(Regex(pattern), FIELD, limits)
    except InvalidCall as error:
        if seconds is not None and isinstance(error, TooSlow):
            raise
    return schema_grammar(schema, separators, seconds or MAX_SECONDS, is_tracked=True)
