"""What each pass is worth for a program, in tokens and calls."""

from __future__ import annotations

from dataclasses import dataclass

from .graph.nodes import CALLS, Fork
from .passes.lengths import calling_branches
from .passes.memory import Peak
from .plan import Plan


@dataclass(frozen=True, slots=True)
class Worth:
    """One pass. text: what it does for this program. amount: of it, in `unit`."""

    name: str
    is_on: bool
    text: str
    amount: float
    unit: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """The worth of all passes; as text, a table. is_counted: tokens of texts were counted by a
    backend, not estimated from characters."""

    program: str
    worths: tuple[Worth, ...]
    is_counted: bool

    def __getitem__(self, name: str) -> Worth:
        return next(worth for worth in self.worths if worth.name == name)

    def __str__(self) -> str:
        lines = [f"{self.program}: what the passes are worth"]
        for worth in self.worths:
            lines.append(f"  {worth.name:<9}{'on ' if worth.is_on else 'off'}  {worth.text}")
        if not self.is_counted:
            lines.append("  (tokens of texts are estimated; a backend counts them)")
        return "\n".join(lines)


def explained(plan: Plan, peak: Peak, prefix_tokens: int, capacity: int | None) -> Explanation:
    """The worth of the passes of a plan. peak: of its memory. prefix_tokens: of its constant
    prefix. capacity: tokens that a backend has room for; None: not known, and nothing counted."""
    found = (
        _fold(plan),
        _dead(plan),
        _ahead(plan),
        Worth("prefixes", True, _prefix_text(prefix_tokens), prefix_tokens, "tokens"),
        _hints(plan),
        _priority(plan),
        _memory(peak, capacity),
    )
    worths = tuple(
        Worth(it.name, it.name in plan.passes, it.text, it.amount, it.unit) for it in found
    )
    return Explanation(plan.source.name, worths, capacity is not None)


def _fold(plan: Plan) -> Worth:
    folding = plan.folding
    text = f"{folding.num_merged} of {len(folding.graph.nodes) + folding.num_merged} nodes merged"
    if folding.num_known:
        text += f", {folding.num_known} variables known"
    return Worth("fold", True, text, folding.num_merged, "nodes")


def _dead(plan: Plan) -> Worth:
    if plan.source.outputs is None:
        return Worth("dead", True, "no call left out: outputs are not given", 0, "calls")
    names = ", ".join(plan.source.outputs)
    text = f"{plan.num_dead} calls left out, which {names} does not need"
    return Worth("dead", True, text, plan.num_dead, "calls")


def _ahead(plan: Plan) -> Worth:
    before, after = plan.lengths.waiting_calls, plan.lengths.calls
    text = f"{_num(before, 'call')} one after the other become {after}"
    if before == after:
        text = f"{_num(after, 'call')} one after the other, and no read that waits"
    return Worth("ahead", True, text, before - after, "calls")


def _prefix_text(tokens: int) -> str:
    if not tokens:
        return "runs begin with no constant"
    return f"{tokens} tokens that each run begins with are computed once"


def _hints(plan: Plan) -> Worth:
    forks = {at: it.num for at, it in enumerate(plan.graph.nodes) if isinstance(it, Fork)}
    calling = calling_branches(plan.graph)
    num = sum(forks.values())
    idle = sum(forks[at] - calling[at] for at in calling)
    text = f"{_num(len(forks), 'fork')} of {_num(num, 'branch', 'branches')} announced"
    text += f", {idle} of them without a call" if idle else ", each with a call"
    return Worth("hints", True, text if forks else "no forks", idle, "branches")


def _priority(plan: Plan) -> Worth:
    slack = [value for value in plan.lengths.slack.values() if value > 0]
    num = sum(isinstance(node, CALLS) for node in plan.graph.nodes)
    text = f"{len(slack)} of {_num(num, 'call')} can wait"
    if slack:
        text += f", up to {round(max(slack))} tokens of {round(plan.lengths.tokens)}"
    return Worth("priority", True, text, len(slack), "calls")


def _memory(peak: Peak, capacity: int | None) -> Worth:
    total = peak.shared + peak.own
    text = f"a run holds at most {total} tokens, {peak.shared} of them shared, without arguments"
    if capacity is not None:
        text += f"; {peak.num_programs(capacity)} runs fit {capacity}"
    return Worth("memory", True, text, total, "tokens")


def _num(num: int, one: str, many: str = "") -> str:
    return f"{num} {one if num == 1 else many or one + 's'}"
