"""What a JSON schema or a grammar is compiled to: an automaton, or a grammar that was explored.

The answer is plain data, and may be found in any process that has the vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ..api.protocol import Grammar, InvalidCall, JsonSchema, Regex, UnsupportedCall
from .grammar.explore import Known, explore
from .grammar.lark import read_grammar, written_lark
from .grammar.matcher import Library
from .grammar.rules import document_grammar
from .json_schema.schema import document_pattern
from .json_schema.shapes import Shapes, unique_shapes
from .json_schema.unfold import MAX_SECONDS, Document
from .regex.dfa import Dfa
from .regex.errors import FIELD, NotRegular
from .regex.errors import shown as shown_pointer
from .regex.limits import Limits, TooSlow
from .tokens.regular import Compiled, automaton

MAX_LOGGED = 8
_log = logging.getLogger("forkroot.constraints")
MAX_PATTERN = 60_000  # characters; a grammar is compiled in less time than a longer pattern


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
    document = Document(constraint.schema, seconds or MAX_SECONDS, not constraint.strict)
    plan = _schema_plan(document, constraint.separators, seconds)
    made = (
        Compiled(plan)
        if isinstance(plan, Dfa)
        else explore(written_lark(plan, FIELD), library(), FIELD, seconds)
    )
    shapes = unique_shapes(document)
    if document.unavailable:
        shown = ", ".join(islice(map(shown_pointer, document.unavailable), MAX_LOGGED))
        _log.warning("json_schema: left out what needs documents that are not here: %s", shown)
    return Unrepeated(made, shapes) if shapes else made


def _schema_plan(
    document: Document, separators: tuple[str, str], seconds: float | None
) -> Dfa | str:
    """The automaton of a schema; a grammar in Lark where no pattern can express it, or where the
    automaton would be large. seconds: as in `plan_of`.
    """
    limits = Limits() if seconds is None else Limits(seconds=seconds)
    try:
        pattern = document_pattern(document, separators, is_tracked=True)
    except NotRegular:
        return document_grammar(document, separators, is_tracked=True)
    if len(pattern) > MAX_PATTERN:
        with suppress(UnsupportedCall):
            return document_grammar(document, separators, is_tracked=True)
    try:
        return automaton(Regex(pattern), FIELD, limits)
    except InvalidCall as error:
        if seconds is not None and isinstance(error, TooSlow):
            raise
    return document_grammar(document, separators, is_tracked=True)
