"""A regular expression, or a list of texts, as an automaton.

The automaton accepts exactly the texts that `re.fullmatch` accepts.
"""

from __future__ import annotations

from ...api.protocol import InvalidCall
from . import chars
from .dfa import Dfa, assemble
from .limits import Limits, Meter
from .lookaround import Looking
from .minimal import minimize
from .nfa import Builder, Row, Subsets
from .partition import Partition, cut
from .syntax import read_syntax
from .tree import Tree, trimmed

_OUTSIDE = (
    "; the pattern must match the whole text, so nothing is before or behind it: write what a"
    " lookahead, lookbehind or \\b expects there into the pattern itself"
)


class EmptyPattern(InvalidCall):
    """A pattern that no text matches."""


def compile_regex(
    pattern: str, limits: Limits | None = None, field: str = "regex", has_nets: bool = False
) -> Dfa:
    """The automaton of a pattern, in the syntax of `re` for text.

    `\\w`, `\\d` and `\\s` are those of ASCII unless the pattern has `(?u)`; `.` is not a newline
    unless it has `(?s)`. has_nets: as in `read_syntax`. Raises InvalidCall for `field`: what no
    automaton can honour is refused by name and position, and what exceeds a limit with both
    numbers.
    """
    meter = Meter(field, pattern, limits or Limits())
    try:
        return assemble(*automaton_of(trimmed(read_syntax(pattern, meter, has_nets)), meter), meter)
    except RecursionError:
        raise meter.refuse("fewer groups inside groups, for callers this deep in calls") from None


def automaton_of(tree: Tree, meter: Meter) -> tuple[list[Row], list[bool], int, Partition]:
    """The smallest automaton of a tree: rows (class -> state, 0 is dead), which states accept, the
    first one, and the classes. Raises InvalidCall; also where no text matches."""
    kinds: dict[chars.Ranges, int] = {}
    builder = Builder(lambda ranges: kinds.setdefault(ranges, len(kinds)), meter)
    start = builder.build(tree)
    partition, members = cut(list(kinds), meter)
    automaton: Looking | Subsets = (Looking if builder.nfa.guards else Subsets)(
        builder.nfa, members, meter
    )
    rows, accepting = automaton.run(start)
    rows, accepting, start = minimize(rows, accepting, 1, meter)
    if not start:
        hint = _OUTSIDE if builder.nfa.guards else ""
        raise meter.refuse(f"a pattern that matches some text{hint}", EmptyPattern)
    return rows, accepting, start, partition


def from_choices(
    options: tuple[str, ...], limits: Limits | None = None, field: str = "choices"
) -> Dfa:
    """The automaton of a finite list of texts. Raises InvalidCall for `field`."""
    meter = Meter(field, options, limits or Limits())
    if not options or not all(isinstance(option, str) for option in options):
        raise meter.refuse("a tuple of at least one text")
    meter.check_limit(sum(map(len, options)), meter.limits.length, "characters in all")
    alphabet = sorted({char for option in options for char in option})
    if any("\ud800" <= char <= "\udfff" for char in alphabet):
        raise meter.refuse("texts without surrogates")
    partition, members = cut([chars.single(char) for char in alphabet], meter)
    kinds = {char: member[0] for char, member in zip(alphabet, members, strict=True)}
    rows, accepting = _trie(sorted(set(options)), kinds, meter)
    rows, accepting, start = minimize(rows, accepting, 1, meter)
    return assemble(rows, accepting, start, partition, meter)


def _trie(options: list[str], kinds: dict[str, int], meter: Meter) -> tuple[list[Row], list[bool]]:
    """States of a tree of texts; 0 is dead, 1 the root."""
    rows: list[Row] = [{}, {}]
    ends = set()
    for option in options:
        state = 1
        for char in option:
            after = rows[state].setdefault(kinds[char], len(rows))
            if after == len(rows):
                rows.append({})
            state = after
        ends.add(state)
        meter.check_limit(len(rows), 8 * meter.limits.states, "states")
    return [dict(sorted(row.items())) for row in rows], [s in ends for s in range(len(rows))]
