"""What each tenant may add to a step, so that no tenant's calls wait for long steps of another.

A step takes at most about half as long again as the one that the tenant that wants least would have
alone (with weights: half as long, times the weight of another over its own), or as long as all
tenants need to get as much as that one. A call waits for the end of one step, and then for its own:
beside another tenant that is about twice as long, whatever that one sends. Shares are in seconds,
as estimated, since a step computes for all at once; they hold while another tenant is here or was a
moment ago. A tenant that is alone has whole steps. Limits change the time of an answer only.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from operator import add

from ..common.fair_share import FairShare
from .accounting.step_costs import StepCosts, Work
from .accounting.tenants import Tenants
from .batch import Part
from .pictures.features import Features
from .pictures.tower_shares import TowerShares
from .sequence import Sequence

SECONDS_REMEMBERED = 1.0
AGAIN = 0.5  # of a tenant's own step, by which others may lengthen it
_EXACT = 1.001  # below which a share counts as all that is wanted
_SAMPLED = 4  # steps of one tenant alone, of which one is measured
_EARLY = 64  # steps that are all measured
_SMALLER, _LARGER = 0.8, 1.2
_FEWEST = 8  # prompt tokens in a step, as a step with any costs more than one without
_TYPICAL = 4  # steps that tell what a tenant wants


@dataclass(slots=True)
class _Seen:
    """A tenant that was here last at `time`, and what it wanted of its last steps."""

    weight: float = 1.0
    time: float = 0.0
    works: deque[Work] = field(default_factory=lambda: deque(maxlen=_TYPICAL))

    def seconds(self, costs: StepCosts) -> float:
        """What it typically wants of a step."""
        return sum(map(costs.of, self.works)) / len(self.works)


class StepShares:
    """Limits of the tenants' shares in each step. chunk_tokens: prompt tokens in one at most."""

    def __init__(self, tenants: Tenants, chunk_tokens: int) -> None:
        self._tenants = tenants
        self._chunk_tokens = chunk_tokens
        self._costs = StepCosts()
        self._tower = TowerShares()
        self._chunk_share = FairShare()
        self._seen: dict[str, _Seen] = {}
        self._now = self._last_end = 0.0
        self._num_steps = 0
        self._wanted: dict[str, Work] = {}
        self._first: dict[str, Work] = {}  # of its prompts, what the next sequence wants
        self._limits: dict[str, Work] = {}
        self._saved: dict[str, float] = {}

    @property
    def num_absent(self) -> int:
        """Tenants that were here a moment ago, and may come again."""
        return len(self._seen.keys() - self._tenants.names)

    def prompt_seconds(self, num_tokens: int, num_pairs: int) -> float:
        """Seconds by which so many prompt tokens, which attend to so many others in all, lengthen
        steps that have others to compute as well."""
        work = Work(tokens=num_tokens, pairs=num_pairs)
        return max(0.0, self._costs.of(work) - self._costs.chunk) if num_tokens else 0.0

    def rather_computes(self, num_tokens: int, num_new: int, num_running: int) -> bool:
        """Whether so many prompt tokens take less time than is saved by one more sequence beside so
        many that generates `num_new` tokens: in one step, which has a price of its own, for all."""
        seconds = self.prefill_seconds(num_tokens)
        return seconds is not None and seconds < num_new * self._costs.base / (num_running + 1)

    def prefill_seconds(self, num_tokens: int) -> float | None:
        """Seconds by which so many first tokens of a prompt lengthen steps; None: not known yet."""
        if not self._costs.has_learnt:
            return None
        return self.prompt_seconds(num_tokens, num_tokens * num_tokens // 2)

    def begin(self, now: float, is_alone: bool = True) -> None:
        """A step begins at this second of a monotonic clock. is_alone: none is in flight."""
        self._now = now
        self._num_steps += 1
        self._tower.begin(self._tenants.names)
        here, earliest = self._tenants.names, now - SECONDS_REMEMBERED
        for name in [name for name, it in self._seen.items() if it.time < earliest]:
            if name not in here:
                del self._seen[name]
        if is_alone:
            self._last_end = now

    def end(self, parts: list[Part], now: float, tower_tokens: int = 0) -> None:
        """The step of these parts has ended: it took the time since it began, or since the one
        before it ended. tower_tokens: that the tower computed in it."""
        seconds, self._last_end = now - self._last_end, now
        if tower_tokens:
            own = self._costs.base + self._costs.of(_work_of(parts)) if parts else 0.0
            self._tower.note(tower_tokens, seconds - own)
            return
        if not parts:
            return
        work, is_shared = _work_of(parts), self._tenants.are_several
        is_early = self._num_steps <= _EARLY
        if is_shared or self.num_absent or is_early or self._num_steps % _SAMPLED == 0:
            self._costs.note(work, seconds)
        if not is_shared:
            call = parts[0].sequence.job.call
            self._see(call.owner, call.weight, work)

    def rows(self, running: Iterable[Sequence], ready: list[Sequence]) -> list[Sequence]:
        """Which of the sequences that are ready compute their next token in this step: of a tenant
        that may not have all, those that waited longest. Sets the limits of `chunk_budgets`."""
        self._set_limits(running, ready)
        if not self._limits:
            return ready
        left = {name: limit.rows for name, limit in self._limits.items()}
        chosen = set[Sequence]()
        for sequence in sorted(ready, key=lambda it: it.last_step):
            name = sequence.job.call.owner
            if left.get(name, 1) > 0:
                chosen.add(sequence)
                sequence.last_step = self._num_steps
                if name in left:
                    left[name] -= 1
        return [sequence for sequence in ready if sequence in chosen]

    def plan_features(
        self, features: Features[Sequence], running: list[Sequence], num_tokens: int
    ) -> None:
        """Choose what the tower computes for the next tokens of running sequences, within the
        shares of tenants."""

        def computing() -> set[str]:
            """The tenants with tokens to compute, for which no feature is missing."""
            can_run = (s for s in running if s.num_pending and features.has_next(s))
            return {s.job.call.owner for s in can_run}

        features.plan(num_tokens, lambda name, unit: self.tower_budget(name, unit, computing))

    def tower_budget(self, name: str, unit: int, others: Callable[[], Set[str]]) -> int | None:
        """Tokens that the tower computes for a tenant in this step at most; None: no limit. unit:
        of its next unit. others: tenants with tokens to compute."""
        if not self._tenants.are_several and not self.num_absent:
            return None
        present = others() - {name}
        if present:
            return self._tower.budget(name, unit, *self._tower_share(name, present))
        return unit if self.num_absent else None  # who may come again finds a short step

    def _tower_share(self, name: str, others: Set[str]) -> tuple[float, float]:
        """Seconds by which a tenant may lengthen a step of others, and those that its tokens took
        in the last one."""
        used = self._costs.of(self._limits.get(name, self._wanted.get(name, _NOTHING)))
        shares = []
        for other in others:
            wanted = {other: self._costs.of(self._wanted.get(other, _ROW)), name: 0.0}
            weights = {it: self._tenants[it].weight for it in wanted}
            shares.append(self._bound(other, wanted, weights) - wanted[other])
        return min(shares), used

    def chunk_budgets(self, budget: int) -> dict[str, int]:
        """Prompt tokens of this step for each tenant, at most `budget` in all; empty where one has
        prompts to compute and may have all of it, or none has."""
        wanted = {name: it.tokens for name, it in self._wanted.items() if it.tokens}
        limited = {name: it.tokens for name, it in self._limits.items() if name in wanted}
        self._chunk_share.update({name: self._tenants[name].weight for name in wanted})
        if len(wanted) < 2 and not limited:
            return {}
        return self._chunk_share.divide(budget, wanted | limited)

    def _set_limits(self, running: Iterable[Sequence], ready: list[Sequence]) -> None:
        self._wanted, self._limits = {}, {}
        tenants = self._tenants
        if not tenants.are_several and not self.num_absent:
            return
        self._wanted, self._first = _wanted(running, ready, self._chunk_tokens)
        seconds = {name: self._costs.of(work) for name, work in self._wanted.items()}
        for name, work in self._wanted.items():
            self._see(name, tenants[name].weight, work)
        typical = {name: it.seconds(self._costs) for name, it in self._seen.items()}
        shares = self._divide(typical | seconds)
        over = [name for name in seconds if self._is_over(name, seconds[name], shares[name])]
        for name in over:
            must_run = len(over) == len(seconds)
            share = min(1.0, shares[name] / seconds[name]) if seconds[name] else 1.0
            self._limits[name] = self._limit(name, share, must_run)
        self._saved = {name: it for name, it in self._saved.items() if name in over}

    def _is_over(self, name: str, wanted: float, share: float) -> bool:
        """Whether a tenant wants more than its share, or more than what is known of steps."""
        work, costs = self._wanted[name], self._costs
        is_known = work.rows <= costs.most_rows and work.tokens <= costs.most_tokens
        return wanted > share * _EXACT or (costs.has_learnt and not is_known)

    def _see(self, name: str, weight: float, work: Work) -> None:
        seen = self._seen.setdefault(name, _Seen())
        seen.works.append(work)
        seen.weight, seen.time = weight, self._now

    def _divide(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """Seconds of a step for each tenant, of those that it wants: what others leave is shared by
        weight. The step takes no longer than the bound of any tenant."""
        weights = {name: self._seen[name].weight for name in wanted}
        seconds = min(self._bound(name, wanted, weights) for name in wanted)
        total = sum(weights.values())
        shares = {}
        for name in sorted(wanted, key=lambda it: wanted[it] / weights[it]):
            shares[name] = min(wanted[name], seconds * weights[name] / total)
            seconds -= shares[name]
            total -= weights[name]
        return shares

    def _bound(self, name: str, wanted: Mapping[str, float], weights: Mapping[str, float]) -> float:
        """Seconds that may be added to a step so that it is not too long for this tenant: its own
        and, by weight, as much again; or as many as all need that want the same."""
        others = [weight for other, weight in weights.items() if other != name]
        if not others:
            return wanted[name]
        own, base = weights[name], self._costs.base
        again = AGAIN * (base + wanted[name]) * max(others) / own
        return wanted[name] + max(again, wanted[name] * sum(others) / own)

    def _limit(self, name: str, share: float, must_run: bool) -> Work:
        """This share of what a tenant wants. Where that is too little for prompt tokens at all, it
        is saved for a later step, unless nobody else has something to compute: then a step with
        few tokens would take no less."""
        work, costs = self._wanted[name], self._costs
        is_odd = self._num_steps % 2  # steps of two sizes tell what is of the step, and of its rows
        size = _LARGER if is_odd else _SMALLER
        share *= size
        rows = min(work.rows, max(1 + is_odd, int(work.rows * share)), costs.most_rows)
        prompts = work._replace(rows=0, context=0)
        seconds = share * costs.of(prompts) + self._saved.pop(name, 0.0)
        if must_run:
            seconds = max(seconds, size * (0.5 * costs.base + 2 * costs.chunk))
        tokens = costs.prompt_tokens(seconds, prompts)
        if tokens < (first := self._first.get(name, _NOTHING)).tokens:
            tokens = min(first.tokens, costs.prompt_tokens(seconds, first))
        tokens = min(tokens, costs.most_tokens)
        if tokens < _FEWEST and not must_run:
            self._saved[name] = seconds
            return Work(rows)
        return Work(rows, min(work.tokens, max(tokens, _FEWEST)))


def _work_of(parts: Iterable[Part]) -> Work:
    """What a step of these parts computes."""
    rows = tokens = scored = context = pairs = 0
    for part in parts:
        if part.count == 1 and not part.scored:
            rows += 1
            context += part.start
        else:
            tokens += part.count
            scored += len(part.scored)
            pairs += part.count * (part.start + part.count // 2)
    return Work(rows, tokens, scored, context, pairs)


def _wanted(
    running: Iterable[Sequence], ready: list[Sequence], most: int
) -> tuple[dict[str, Work], dict[str, Work]]:
    """What each tenant would have the next step compute, `most` prompt tokens; and the prompt
    tokens of its first sequence that has some."""
    rows, context = Counter[str](), Counter[str]()
    for sequence in ready:
        rows[sequence.job.call.owner] += 1
        context[sequence.job.call.owner] += sequence.num_allocated
    found = {name: Work(count, context=context[name]) for name, count in rows.items()}
    first: dict[str, Work] = {}
    for sequence in running:
        if sequence.num_unallocated < 2:
            continue
        name = sequence.job.call.owner
        known = found.get(name, _NOTHING)
        count = min(sequence.num_unallocated, most - known.tokens)
        if count > 0:
            work = _prompt(sequence, count)
            first.setdefault(name, work)
            found[name] = Work(*map(add, known, work))
    return found, first


def _prompt(sequence: Sequence, count: int) -> Work:
    """The next tokens of a prompt."""
    start, end = sequence.num_allocated, sequence.num_allocated + count
    scored = min(end, sequence.prompt_len - 1) - max(start, sequence.next_scored)
    return Work(0, count, max(0, scored), pairs=count * (start + count // 2))


_NOTHING, _ROW = Work(), Work(1)
