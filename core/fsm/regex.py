"""A regular expression, or a list of texts, as an automaton.

The syntax and the meaning of single characters are read by `syntax`; the structure is parsed by
interegular; the automaton is our own. It accepts exactly the texts that `re.fullmatch` accepts.
"""

from __future__ import annotations

from itertools import pairwise

from . import chars
from .dfa import Dfa, assemble
from .limits import Limits, Meter
from .minimal import minimize
from .nfa import Builder, Row, determinize
from .partition import cut
from .syntax import FIRST_MARK, read_syntax


def compile_regex(pattern: str, limits: Limits | None = None, field: str = "regex") -> Dfa:
    """The automaton of a pattern, in the syntax of `re` for text.

    `\\w`, `\\d` and `\\s` are those of Unicode unless the pattern says `(?a)`; `.` is no newline
    unless it says `(?s)`. Raises InvalidCall for `field`: what no automaton can honour is refused
    by name and position, and what exceeds a limit with both numbers.
    """
    import interegular

    meter = Meter(field, pattern, limits or Limits())
    skeleton = read_syntax(pattern, meter)
    kinds: dict[chars.Ranges, int] = {}
    spelled = [
        tuple(kinds.setdefault(ranges, len(kinds)) for ranges in atom) for atom in skeleton.atoms
    ]
    partition, members = cut(list(kinds), meter)
    builder = Builder(lambda mark: spelled[ord(mark) - FIRST_MARK], meter)
    try:
        start = builder.build(interegular.parse_pattern(skeleton.text))
    except RecursionError:
        raise meter.refuse("fewer groups inside groups, for callers this deep in calls") from None
    rows, accepting = determinize(builder.nfa, start, members, meter)
    rows, accepting, start = minimize(rows, accepting, 1, meter)
    if not start:
        raise meter.refuse("patterns that some text matches")
    return assemble(rows, accepting, start, partition, meter)


def from_choices(
    options: tuple[str, ...], limits: Limits | None = None, field: str = "choices"
) -> Dfa:
    """The automaton of a finite list of texts. Raises InvalidCall for `field`."""
    meter = Meter(field, options, limits or Limits())
    if not options or not all(isinstance(option, str) for option in options):
        raise meter.refuse("a tuple of at least one text")
    meter.hold(sum(map(len, options)), meter.limits.length, "characters in all")
    alphabet = sorted({char for option in options for char in option})
    if any("\ud800" <= char <= "\udfff" for char in alphabet):
        raise meter.refuse("texts without surrogates")
    partition, members = cut([chars.single(char) for char in alphabet], meter)
    kinds = {char: member[0] for char, member in zip(alphabet, members, strict=True)}
    rows, accepting = _trie(sorted(set(options)), kinds, meter)
    rows, accepting, start = minimize(rows, accepting, 1, meter)
    return assemble(rows, accepting, start, partition, meter)


def _trie(options: list[str], kinds: dict[str, int], meter: Meter) -> tuple[list[Row], list[bool]]:
    """States of a tree of texts, which come in order; 0 is dead, 1 the root."""
    rows: list[Row] = [{}, {}]
    ends = set()
    path = [1]
    for before, option in pairwise(["", *options]):
        shared = 0
        for old, new in zip(before, option, strict=False):
            if old != new:
                break
            shared += 1
        del path[shared + 1 :]
        for char in option[shared:]:
            rows[path[-1]][kinds[char]] = len(rows)
            path.append(len(rows))
            rows.append({})
        ends.add(path[-1])
        meter.hold(len(rows), 8 * meter.limits.states, "states")
    return [dict(sorted(row.items())) for row in rows], [s in ends for s in range(len(rows))]
