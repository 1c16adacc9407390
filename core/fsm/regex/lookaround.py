"""Determinizes an automaton with lookaround: an alternating automaton as a deterministic one.

A thread is a position and what must still hold for the text behind it: matches that are wanted and
matches that are not. Each of these is a set of threads itself, so that lookahead may contain
lookahead. What precedes is known at each character: every lookbehind runs along from the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from .limits import Meter
from .nfa import Nfa, Row


class Thread(NamedTuple):
    """A place, with lookahead that began before it and is not decided yet.

    wanted: each must match. unwanted: none may match, all in one.
    """

    nfa_state: int
    wanted: frozenset[Threads] = frozenset()
    unwanted: Threads = frozenset()


Threads: TypeAlias = frozenset[Thread]
Behind: TypeAlias = tuple[frozenset[int], ...]
Verdicts: TypeAlias = tuple[bool, ...]
NONE: Threads = frozenset()


class Looking:
    """As `nfa.Subsets`, for automata with guards. behind: for each lookbehind, the places that the
    last character led to."""

    def __init__(self, nfa: Nfa, members: list[list[int]], meter: Meter) -> None:
        self.nfa = nfa
        self.members = members
        self.sets = [frozenset(classes) for classes in members]
        self.meter = meter
        self.met: Threads = frozenset((Thread(nfa.met),))
        self.states: dict[tuple[Behind, Threads], int] = {}
        self.queue: list[tuple[Behind, Threads]] = []
        self.stepped: dict[tuple[Threads, int, Verdicts], Threads] = {}
        self.known_entries: dict[tuple[Thread, Verdicts], Threads] = {}
        self.next_behind: dict[tuple[Behind, int], Behind] = {}
        self.known_verdicts: dict[Behind, tuple[Verdicts, tuple[frozenset[int], ...]]] = {}
        self.work = 0

    def run(self, start: int) -> tuple[list[Row], list[bool]]:
        """As `Subsets.run`."""
        behind: Behind = tuple(frozenset[int]() for _ in self.nfa.behinds)
        first = self._enter(Thread(start), self._verdicts(behind)[0])
        self.queue = [(behind, NONE), (behind, first)]
        self.states[behind, first] = 1
        rows = [self._row(*state) for state in self.queue]  # grows while it is walked
        return rows, [self._is_match(threads, self.nfa.end) for _, threads in self.queue]

    def _state(self, behind: Behind, threads: Threads) -> int:
        state = self.states.setdefault((behind, threads), len(self.queue))
        if state == len(self.queue):
            self.queue.append((behind, threads))
            self.meter.check_limit(state, self.meter.limits.states, "states")
        return state

    def _row(self, behind: Behind, threads: Threads) -> Row:
        kinds = {self.nfa.kinds[thread.nfa_state] for thread in threads} - {-1}
        classes = sorted({member for kind in kinds for member in self.members[kind]})
        row: Row = {}
        for member in classes:
            after = self._behind_after(behind, member)
            stepped = self._step(threads, member, self._verdicts(after)[0])
            if stepped:
                row[member] = self._state(after, stepped)
        return row

    def _behind_after(self, behind: Behind, member: int) -> Behind:
        """Where the lookbehinds are after a character of a class."""
        if not behind:
            return behind
        found = self.next_behind.get((behind, member))
        if found is None:
            kinds, targets = self.nfa.kinds, self.nfa.targets
            found = tuple(
                frozenset(
                    targets[p]
                    for p in nfa_states
                    if kinds[p] >= 0 and member in self.sets[kinds[p]]
                )
                for nfa_states in self._verdicts(behind)[1]
            )
            self.next_behind[behind, member] = found
            self._spend(len(found))
        return found

    def _verdicts(self, behind: Behind) -> tuple[Verdicts, tuple[frozenset[int], ...]]:
        """Which lookbehinds match what precedes, and the NFA states of each."""
        if not behind:
            return (), ()
        known = self.known_verdicts.get(behind)
        if known is None:
            verdicts: list[bool] = []
            nfa_states: list[frozenset[int]] = []
            for (start, end), next_behind in zip(self.nfa.behinds, behind, strict=True):
                reached = self._reached((start, *next_behind), verdicts)
                verdicts.append(end in reached)
                nfa_states.append(reached)
            known = self.known_verdicts[behind] = tuple(verdicts), tuple(nfa_states)
            self._spend(sum(map(len, nfa_states)))
        return known

    def _reached(self, nfa_states: Iterable[int], verdicts: list[bool]) -> frozenset[int]:
        """The places of a lookbehind that are reached without a character."""
        seen, stack = set[int](), [*nfa_states]
        while stack:
            nfa_state = stack.pop()
            if nfa_state in seen:
                continue
            seen.add(nfa_state)
            guard = self.nfa.guards.get(nfa_state)
            if guard is None:
                stack += self.nfa.empty[nfa_state]
            elif verdicts[guard.number] is guard.is_wanted:
                stack.append(guard.to)
        return frozenset(seen)

    def _enter(self, thread: Thread, verdicts: Verdicts) -> Threads:
        """The threads that a thread becomes without a character."""
        known = self.known_entries.get((thread, verdicts))
        if known is not None:
            return known
        found, seen, stack = set[Thread](), set[Thread](), [thread]
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            if here.nfa_state in self.nfa.guards:
                stack += self._past_guard(here, verdicts)
            elif self.nfa.empty[here.nfa_state]:
                stack += [here._replace(nfa_state=to) for to in self.nfa.empty[here.nfa_state]]
            elif self._is_waiting(here):
                found.add(here)
        self._spend(len(seen))
        self.known_entries[thread, verdicts] = reduced = self._reduced(found)
        return reduced

    def _is_waiting(self, thread: Thread) -> bool:
        """Whether it waits for a character, or is at an end."""
        state = thread.nfa_state
        return self.nfa.kinds[state] >= 0 or state in (self.nfa.end, self.nfa.met)

    def _past_guard(self, thread: Thread, verdicts: Verdicts) -> list[Thread]:
        """The thread behind a guard, if it may go on there."""
        guard = self.nfa.guards[thread.nfa_state]
        after = thread._replace(nfa_state=guard.to)
        if not guard.is_ahead:
            return [after] if verdicts[guard.number] is guard.is_wanted else []
        begun = self._enter(Thread(self.nfa.aheads[guard.number]), verdicts)
        if guard.is_wanted:
            if begun is self.met or begun == self.met:
                return [after]
            return [after._replace(wanted=after.wanted | {begun})] if begun else []
        unwanted = self._reduced(after.unwanted | begun)
        return [] if unwanted == self.met else [after._replace(unwanted=unwanted)]

    def _step(self, threads: Threads, member: int, verdicts: Verdicts) -> Threads:
        """The threads after a character of a class; `verdicts` are of the place behind it."""
        if not threads or threads == self.met:
            return threads
        known = self.stepped.get((threads, member, verdicts))
        if known is None:
            found = set[Thread]()
            for thread in threads:
                after = self._thread_after(thread, member, verdicts)
                if after is not None:
                    found |= self._enter(after, verdicts)
            self._spend(len(threads) + len(found))
            known = self.stepped[threads, member, verdicts] = self._reduced(found)
        return known

    def _thread_after(self, thread: Thread, member: int, verdicts: Verdicts) -> Thread | None:
        nfa_state, kind = thread.nfa_state, self.nfa.kinds[thread.nfa_state]
        if nfa_state != self.nfa.met:
            if kind < 0 or member not in self.sets[kind]:
                return None
            nfa_state = self.nfa.targets[nfa_state]
        if not (thread.wanted or thread.unwanted):
            return Thread(nfa_state)
        wanted = frozenset(self._step(item, member, verdicts) for item in thread.wanted)
        unwanted = self._step(thread.unwanted, member, verdicts)
        if NONE in wanted or unwanted == self.met:
            return None
        return Thread(nfa_state, wanted - {self.met}, unwanted)

    def _reduced(self, threads: Iterable[Thread]) -> Threads:
        """The same without threads that match less than another; `met` where any text will do."""
        by_nfa_state: dict[int, list[Thread]] = {}
        for thread in threads:
            by_nfa_state.setdefault(thread.nfa_state, []).append(thread)
        if Thread(self.nfa.met) in by_nfa_state.get(self.nfa.met, ()):
            return self.met
        kept: list[Thread] = []
        for group in by_nfa_state.values():
            kept += group if len(group) == 1 else _least(group)
        return frozenset(kept)

    def _is_match(self, threads: Threads, end: int) -> bool:
        """Whether one of the threads matches, if nothing follows."""
        return any(
            thread.nfa_state == end
            and all(self._is_match(item, self.nfa.met) for item in thread.wanted)
            and not self._is_match(thread.unwanted, self.nfa.met)
            for thread in threads
        )

    def _spend(self, work: int) -> None:
        self.work += 1 + work
        self.meter.check_limit(self.work, self.meter.limits.work, "places visited")
        if self.work % 64 < 1 + work:
            self.meter.check_time()


def _least(group: list[Thread]) -> list[Thread]:
    """The threads of one place of which no other one wants less."""
    return [
        one
        for one in group
        if not any(
            other is not one and other.wanted <= one.wanted and other.unwanted <= one.unwanted
            for other in group
        )
    ]
