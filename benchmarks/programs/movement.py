"""Code movement for prefix sharing: what moves in twenty prompt templates, and what must not.

Each template is compiled with `move=True`. What moved is judged by the annotations by hand in
`templates/`, not by the rules. Prefixes are counted in tokens of the embedded model's vocabulary
and of tekken (131,072 tokens, from the package mistral-common): the constant text in front of the
first argument, of the message that has it. Thousands of orders that must be refused are proposed:
parts dropped, repeated or altered, sentences that refer back moved ahead of what they refer to, and
permutations that the annotations do not allow.

"held_out" has the same figures of twelve templates that were written after the rules; "eager" those
of a reorderer that always moves all constant parts to the front, as the model in the paper tends
to. `--model NAME` lets a backend propose the orders instead of the rules. Prints one JSON row, and
with `--table` the table in docs/compiler.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean
from typing import Any

from forkroot import connect
from forkroot.adapters.native import ModelReorderer
from forkroot.adapters.native.compiler.sharing.moves import Move
from forkroot.adapters.native.movement.checks import Checks
from forkroot.adapters.native.movement.parts import Part, Stretch
from forkroot.adapters.native.movement.rules import (
    Reorderer,
    Rules,
    behind_arguments,
    moved_first,
)
from forkroot.adapters.native.movement.ties import is_constant
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.vocabularies import Words, embedded, tekken

from .proposals import illegal
from .templates.template import Template, load


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a template. before, after: tokens of the constant prefix, by vocabulary.

    is_movable: by hand. is_legal: what moved is allowed by hand.
    """

    name: str
    is_movable: bool
    is_moved: bool
    is_legal: bool
    before: dict[str, int]
    after: dict[str, int]
    reason: str = ""

    @property
    def gain(self) -> dict[str, int]:
        return {name: self.after[name] - self.before[name] for name in self.before}


class Eager:
    """Proposes all constant blocks first, whatever they say."""

    def propose(self, stretch: Stretch) -> Sequence[Part]:
        """The parts with all constant blocks in front."""
        blocks = Checks(stretch).ties.blocks
        return moved_first(blocks, [it for it in behind_arguments(blocks) if is_constant(it)])


def line(template: Template, reorderer: Reorderer, words: dict[str, Words]) -> Line:
    """What the reorderer moves in a template."""
    movement = template.program().compile(move=reorderer).movement
    moves = [] if movement is None else list(movement.moves)
    refusals = [str(move.refusal) for move in moves if move.refusal is not None]
    return Line(
        template.name,
        template.is_movable,
        any(move.is_moved for move in moves),
        all(_is_legal(template, move) for move in moves),
        {name: _tokens(it, (move.prefix_before for move in moves)) for name, it in words.items()},
        {name: _tokens(it, (move.prefix_after for move in moves)) for name, it in words.items()},
        "; ".join(refusals),
    )


def _is_legal(template: Template, move: Move) -> bool:
    return any(message.is_legal(move.after) for message in template.messages)


def _tokens(words: Words, texts: Iterable[str]) -> int:
    return sum(len(words.tokenizer.encode(text)) for text in texts)


def figures(lines: Sequence[Line]) -> dict[str, Any]:
    """How many templates moved, legally, and by how many tokens the prefixes grew."""
    moved = [it for it in lines if it.is_moved]
    names = lines[0].before
    return {
        "templates": len(lines),
        "movable_by_hand": sum(it.is_movable for it in lines),
        "moved": len(moved),
        "moved_legally": sum(it.is_legal for it in moved),
        "mean_tokens_before": _means(lines, lambda it: it.before, names),
        "mean_tokens_gained": _means(lines, lambda it: it.gain, names),
        "mean_tokens_gained_where_moved": _means(moved, lambda it: it.gain, names),
    }


def _means(
    lines: Sequence[Line], of: Callable[[Line], dict[str, int]], names: Iterable[str]
) -> dict[str, float]:
    return {name: round(mean(of(it)[name] for it in lines), 1) if lines else 0.0 for name in names}


def refusals(templates: Sequence[Template], seed: int) -> dict[str, Any]:
    """Illegal orders that were proposed, by kind, and how many of them were accepted."""
    tried, accepted = Counter[str](), Counter[str]()
    checks, stretch = None, None
    for proposal in illegal(templates, seed):
        if proposal.stretch is not stretch or checks is None:
            stretch, checks = proposal.stretch, Checks(proposal.stretch)
        tried[proposal.kind] += 1
        accepted[proposal.kind] += checks.refusal(proposal.order) is None
    return {"tried": dict(tried), "num_tried": tried.total(), "num_accepted": accepted.total()}


def table(lines: Sequence[Line]) -> str:
    """The lines as a table of Markdown."""
    first = next(iter(lines[0].before))
    shown = [
        f"| template | moved | prefix, tokens ({first}) | gained ({', '.join(lines[0].before)}) |"
    ]
    shown.append("|---|---|---|---|")
    for it in lines:
        moved = ("yes" if it.is_legal else "ILLEGALLY") if it.is_moved else "no"
        if it.is_movable and not it.is_moved:
            moved = "no, though it could"
        gains = ", ".join(f"+{gain}" for gain in it.gain.values())
        shown.append(f"| {it.name} | {moved} | {it.before[first]} → {it.after[first]} | {gains} |")
    return "\n".join(shown)


def main() -> None:
    """Print the row, and the table."""
    options = parser(__doc__)
    options.add_argument("--model", help="let this backend propose the orders")
    options.add_argument("--table", action="store_true", help="print the table too")
    chosen = options.parse_args()
    words = {"tiny": embedded(), "tekken": tekken()}
    reorderer: Reorderer = (
        Rules() if chosen.model is None else ModelReorderer(connect(chosen.model))
    )
    shipped, held_out = load("shipped"), load("held_out")
    lines = [line(template, reorderer, words) for template in shipped]
    others = [line(template, reorderer, words) for template in held_out]
    eager = [line(template, Eager(), words) for template in (*shipped, *held_out)]
    found = {
        **figures(lines),
        "illegal": refusals(shipped, chosen.seed),
        "held_out": {**figures(others), "illegal": refusals(held_out, chosen.seed)},
        "eager": figures(eager),
        "lines": [asdict(it) for it in (*lines, *others)],
    }
    report("movement", found, chosen.out, model=chosen.model or "rules", seed=chosen.seed)
    if chosen.table:
        print(table(lines), table(others), sep="\n\n")


if __name__ == "__main__":
    main()
