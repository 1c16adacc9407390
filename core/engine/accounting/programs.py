"""Counts what programs use and the guesses of their hints, by tenant and kind, in bounded memory.

Of too many kinds of a tenant those used longest ago are counted under "", so that its sums stay.
Runs are watched to judge guesses; of too many calls that are watched, those of the tenant that has
most go first: a tenant that floods it loses its own figures. It knows neither sequences nor caches.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from ...api.batch import Ints
from ...api.program_report import NUM_KINDS, KindUsage, ProgramReport, kind_of, ordered
from ...api.protocol import Call, ForkHint, Usage
from .guesses import Field, Outcome, ProgramRun, WatchedCall
from .kinds import Kind, Seconds, Sums

MOST_TENANTS = 256
MOST_KINDS = 128  # of a tenant
MOST_WATCHED = 1 << 15  # runs that are not over, and their calls
SETTLED = 60.0  # seconds without a call after which a run is over


@dataclass(slots=True, eq=False)
class _Run:
    """A run, its kind, and how its guesses were judged; None: they were not, as it goes on."""

    kind: Kind
    calls: ProgramRun = field(default_factory=ProgramRun)
    judged: Counter[tuple[Field, Outcome]] | None = None

    def judge(self) -> None:
        """It is over, as far as is known."""
        if self.judged is None:
            self.judged = self.calls.judge()
            self.kind.guesses.update(self.judged)
            self.kind.sums.open_programs -= 1

    def reopen(self) -> None:
        """It calls again."""
        if self.judged is not None:
            self.kind.guesses.subtract(self.judged)
            self.kind.sums.open_programs += 1
            self.judged = None


class _Tenant:
    """The kinds and the runs of one tenant, those used last at the end. num_watched: its runs, and
    the calls of these that are watched."""

    def __init__(self) -> None:
        self.kinds: OrderedDict[str, Kind] = OrderedDict()
        self.runs: OrderedDict[tuple[str, str], _Run] = OrderedDict()
        self.num_watched = 0
        self.others = Kind()

    def kind(self, name: str) -> Kind:
        """The kind of this name."""
        if not name:
            return self.others
        kind = self.kinds.get(name)
        if kind is None:
            kind = self.kinds[name] = Kind()
            if len(self.kinds) > MOST_KINDS:
                self.kinds.popitem(last=False)[1].join(self.others)
        self.kinds.move_to_end(name)
        return kind

    def run(self, key: tuple[str, str], kind: Kind) -> _Run:
        """The run of this name, which calls now; a new one counts for this kind."""
        run = self.runs.get(key)
        if run is None:
            run = self.runs[key] = _Run(kind)
            self.num_watched += 1
            kind.sums.programs += 1
            kind.sums.open_programs += 1
        self.runs.move_to_end(key)
        run.reopen()
        return run

    def settle(self, now: float) -> None:
        """Forget the runs that are over by now."""
        over = []
        for key, run in self.runs.items():
            if run.calls.last > now - SETTLED:
                break
            if run.calls.num_open == 0:
                over.append(key)
        for key in over:
            self._forget(key)

    def drop_oldest(self) -> None:
        """Forget the run that called longest ago; if it goes on, its guesses are not judged."""
        key, run = next(iter(self.runs.items()))
        if not run.calls.is_over and run.judged is None:
            run.judged = Counter()
            run.kind.sums.open_programs -= 1
        self._forget(key)

    def judge(self) -> None:
        """Judge the guesses of runs that are over, as far as is known."""
        for run in self.runs.values():
            if run.calls.is_over:
                run.judge()

    def _forget(self, key: tuple[str, str]) -> None:
        run = self.runs.pop(key)
        run.judge()
        self.num_watched -= 1 + run.calls.num_watched


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that has not ended. run: its program's; None: it names none, or is sent ahead."""

    kind: Kind
    hint: ForkHint
    prompt: Ints
    is_ahead: bool
    run: _Run | None
    watched: WatchedCall | None


class ProgramCounts:
    """What programs use, by tenant and kind. Not for several threads at a time."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._open: dict[Hashable, _Open] = {}

    def begin(self, key: Hashable, call: Call, prompt: Ints, now: float) -> None:
        """A call with this prompt begins; `key` is its name until it ends. Calls without a hint are
        not counted."""
        hint = call.hint
        if hint is None:
            return
        tenant = self._tenant(call.owner)
        kind = tenant.kind(kind_of(hint.kind))
        is_ahead = call.sampling.max_tokens == 0 and not call.options
        run = watched = None
        if hint.program is not None and not is_ahead:
            tenant.settle(now)
            run = tenant.run((call.namespace, hint.program), kind)
            before = run.calls.num_watched
            watched = run.calls.begin(prompt, now)
            tenant.num_watched += run.calls.num_watched - before
            if tenant.num_watched > MOST_WATCHED // MOST_TENANTS:
                self._limit()
        self._open[key] = _Open(kind, hint, prompt, is_ahead, run, watched)

    def end(self, key: Hashable, usage: Usage, root_len: int, now: float) -> None:
        """A call has ended well. root_len: tokens of the root that its hint names. Nothing for one
        that is not counted."""
        call = self._open.pop(key, None)
        if call is None:
            return
        if call.is_ahead:
            call.kind.sums.add_ahead(usage)
            return
        call.kind.sums.add(usage)
        counted = call.kind if call.run is None else call.run.kind  # that of a run's first call
        counted.add_guesses(call.hint)
        if call.run is not None:
            num_new, root_len = usage.completion_tokens, min(root_len, len(call.prompt))
            call.run.calls.end(call.watched, call.hint, call.prompt, root_len, num_new, now)

    def fail(self, key: Hashable, now: float) -> None:
        """A call has ended in an error."""
        call = self._open.pop(key, None)
        if call is None:
            return
        call.kind.sums.failed_calls += 1
        if call.run is not None:
            call.run.calls.fail(call.watched, now)

    def report(
        self, seconds: Seconds, now: float, tenant: str | None = None, most: int = NUM_KINDS
    ) -> ProgramReport:
        """What all kinds have used. seconds: in which so many prompt tokens are computed, that
        attend to so many others in all. tenant: of this one only."""
        names = [name for name in self._tenants if tenant in (None, name)]
        found: list[KindUsage] = []
        for name in names:
            it = self._tenants[name]
            it.settle(now)
            it.judge()
            kinds = [*it.kinds.items()]
            if it.others.sums != _NOTHING:
                kinds.append(("", it.others))
            found += [kind.usage(title, name, seconds) for title, kind in kinds]
        return ordered(found, most)

    def _tenant(self, name: str) -> _Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = self._tenants[name] = _Tenant()
            if len(self._tenants) > MOST_TENANTS:
                self._tenants.popitem(last=False)
        self._tenants.move_to_end(name)
        return tenant

    def _limit(self) -> None:
        """Watch no more calls than are allowed."""
        while sum(it.num_watched for it in self._tenants.values()) > MOST_WATCHED:
            largest = max(self._tenants.values(), key=lambda it: it.num_watched)
            largest.drop_oldest()


_NOTHING = Sums()
