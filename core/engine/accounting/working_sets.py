"""The working sets of programs: what those that have begun need when they call again.

Between two calls of a program nothing locks its text, and whatever is admitted meanwhile may evict
it. More programs in turn than the pool can hold would evict one another's texts before each call.
So what a call left is not available to programs that began after its own, until that calls again
and runs, or is late. Nothing is locked: what runs gets the memory that it needs, and where nothing
of a tenant runs, its next call is admitted all the same: that of a program that has not begun only
where none that has is due about now. Programs wait only for those of their own tenant. It knows
neither sequences nor caches.

Texts get longer from call to call. Programs that began together and fit then would not fit later,
and would evict one another. So a program that has not begun also waits until there is room for what
the others and itself are expected to add.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeAlias, TypeVar

from ...api.batch import Ints
from ...api.protocol import Call, ForkHint
from ...common.prefixes import common_prefix_len
from ...common.recent_means import RecentMeans

LONG = 0.5  # seconds of a pause: what is held for longer ones is pinned
LATE = 0.25  # seconds by which a program's next call may be late
SOON = 0.05  # at most around a program's next call, while an engine rather idles; after its last
NEWEST = 0.25  # weight of the newest program in what those of its kind add
MOST_OWNERS = 1024  # whose programs are remembered
MOST_KINDS = 256  # of an owner: of which is known what their programs add
MOST_PROGRAMS = 128  # of an owner: a count of their texts takes 4 microseconds for each
MOST_TEXTS = 16  # of a program
Key: TypeAlias = tuple[str | None, str, str]
T = TypeVar("T")
Count: TypeAlias = Callable[[T, set[Any]], int]


@dataclass(slots=True, eq=False)
class _Text(Generic[T]):
    """What an ended call left: its tokens, and their lease, which is released. It counts until
    `expires`, or until the call that uses it has started."""

    tokens: Ints
    lease: T
    expires: float


@dataclass(slots=True, eq=False)
class _Program(Generic[T]):
    """number: how many programs began before it. size: slots of its texts, as of the last count.
    first, longest: tokens of its first prompt, and of its longest text, roots left out.
    num_running: its calls that run. is_over: it has said so."""

    owner: str
    number: int
    kind: str | None
    first: int | None = None
    longest: int = 0
    size: int = 0
    num_running: int = 0
    is_over: bool = False
    texts: list[_Text[T]] = field(default_factory=list)


class WorkingSets(Generic[T]):
    """The programs that have begun.

    count_idle: slots that the text of a lease takes when it is used again, without those that are
      locked, and those in a set, which gets these.
    hints: whether hints are followed.
    """

    def __init__(self, count_idle: Count[T], hints: bool) -> None:
        self._count_idle = count_idle
        self._hints = hints
        self._is_counted = False
        self._numbers = count()
        self._added: OrderedDict[str, RecentMeans[str]] = OrderedDict()  # by owner, by kind
        self._to_add: dict[str, int] = {}  # by programs that are not over, by owner, once summed
        self._now = 0.0
        self._programs: OrderedDict[str, OrderedDict[Key, _Program[T]]] = OrderedDict()
        self._expected: dict[str, dict[_Program[T], None]] = {}  # those with texts, by owner
        self._users: dict[Hashable, tuple[_Program[T], _Text[T]]] = {}  # of calls that wait
        self._next_expiry = math.inf  # nothing expires before

    def arrive(self, user: Hashable, call: Call, tokens: Ints) -> None:
        """A call waits, known as `user`, and is not late: of the texts that its program left, it
        uses the one that begins most like it."""
        program = self._program(call)
        if program is None or not program.texts:
            return
        free = [it for it in program.texts if it.expires < math.inf]
        found = max(free, key=lambda it: common_prefix_len(it.tokens, tokens), default=None)
        if found is not None:
            found.expires = math.inf
            self._users[user] = program, found

    def begin(self, user: Hashable, call: Call, num_tokens: int, is_root: bool = False) -> None:
        """A call with these many tokens starts, and locks what it uses; its program has begun.
        is_root: it computes a root only. The name of a program that is over may be used again."""
        self.leave(user)
        self.note_locks()
        self._to_add.clear()
        key, owner = self._key(call), call.owner
        if key is None:
            return
        programs = self._programs.setdefault(owner, OrderedDict())
        self._programs.move_to_end(owner)
        program = programs.get(key)
        if program is None or (program.is_over and not program.num_running and not program.texts):
            kind = None if call.hint is None else call.hint.kind
            program = programs[key] = _Program(owner, next(self._numbers), kind)
        program.num_running += 1
        if not is_root:
            program.first = num_tokens if program.first is None else program.first
            program.longest = max(program.longest, num_tokens)
        programs.move_to_end(key)
        if len(programs) > MOST_PROGRAMS:
            self._forget([programs.popitem(last=False)[1]])
        if len(self._programs) > MOST_OWNERS:
            self._forget(self._programs.popitem(last=False)[1].values())

    def leave(self, user: Hashable) -> None:
        """A call does not wait any more."""
        found = self._users.pop(user, None)
        if found is not None:
            self._remove(*found)

    def stop(self, call: Call) -> None:
        """A call that runs ends, or is to wait again."""
        program = self._program(call)
        if program is not None:
            program.num_running = max(0, program.num_running - 1)
            self._to_add.clear()

    def end(self, call: Call, tokens: Ints, lease: T) -> None:
        """A call has ended, and left these tokens under this lease, which is released."""
        hint, program = call.hint, self._program(call)
        if hint is None or program is None:
            return
        program.longest = max(program.longest, len(tokens))
        self._to_add.clear()
        pause = hint.pause or 0.0
        if not goes_on(hint):
            if hint.calls_left == 0 and not program.num_running:
                self._end_program(program)
        elif pause < LONG:
            self._expect(program, _Text(tokens.copy(), lease, self._now + pause + LATE))

    def is_in_progress(self, call: Call) -> bool:
        """Whether the program of a call has begun, and is remembered."""
        return self._program(call) is not None

    def reserved(self, call: Call) -> int:
        """Slots that are not available to a call: of programs that began before its own, and where
        that has not begun, those that all are expected to add."""
        expected = self._expected.get(call.owner, ())
        if expected and not self._is_counted:
            self._count_all()
        program = self._program(call)
        if program is not None:
            return sum(it.size for it in expected if it.number < program.number)
        return sum(it.size for it in expected) + self._tokens_to_come(call)

    def leases_of(self, owner: str) -> list[T]:
        """Leases of what an owner's programs use again, of the last one to begin first."""
        expected = sorted(self._expected.get(owner, ()), key=lambda it: -it.number)
        return [text.lease for it in expected for text in it.texts]

    def idles_until(self, call: Call, seconds_around: float) -> float | None:
        """Until when a call had better wait even if nothing runs: its program has not begun, and
        others are due about now, whose texts it might evict. seconds_around: before and after.
        None: it need not wait."""
        if self._key(call) is None or self._program(call) is not None:
            return None
        texts = (text for it in self._expected.get(call.owner, ()) for text in it.texts)
        dues = (it.expires - LATE for it in texts)
        ends = (due + seconds_around for due in dues if abs(due - self._now) <= seconds_around)
        return max(ends, default=None)

    def _tokens_to_come(self, call: Call) -> int:
        """Slots that the program of a call that has not begun, and those that have, will add."""
        if self._key(call) is None or call.hint is None:
            return 0
        owner = call.owner
        if owner not in self._to_add:
            begun = self._programs.get(owner, OrderedDict[Key, _Program[T]]())
            open_ones = (it for it in begun.values() if it.texts or it.num_running)
            self._to_add[owner] = sum(map(self._left_to_add, open_ones))
        return self._added_by(owner, call.hint.kind) + self._to_add[owner]

    def _left_to_add(self, program: _Program[T]) -> int:
        whole = self._added_by(program.owner, program.kind)
        return max(0, whole - (program.longest - (program.first or 0)))

    def _added_by(self, owner: str, kind: str | None) -> int:
        """Tokens that a program of this kind adds; 0 where that is not known."""
        known = self._added.get(owner)
        return 0 if known is None or kind is None else int(known[kind])

    def note_time(self, now: float) -> None:
        """Calls that end from now on end at this second."""
        self._now = now

    def expire(self, now: float) -> bool:
        """Wait no longer for calls that are late; whether there are any."""
        self._now = now
        if now < self._next_expiry:
            return False
        every = [it for programs in self._expected.values() for it in programs]
        late = [(it, text) for it in every for text in it.texts if text.expires <= now]
        for found in late:
            self._remove(*found)
        expiries = (text.expires for it in every for text in it.texts)
        self._next_expiry = min(expiries, default=math.inf)
        return bool(late)

    def note_locks(self) -> None:
        """Other slots are locked than before."""
        self._is_counted = False

    def clear(self) -> None:
        """Forget all, because the cache is emptied."""
        self._programs.clear()
        self._to_add.clear()
        self._expected.clear()
        self._users.clear()

    def _program(self, call: Call) -> _Program[T] | None:
        key, known = self._key(call), self._programs.get(call.owner)
        return None if key is None or known is None else known.get(key)

    def _key(self, call: Call) -> Key | None:
        hint = call.hint
        if not self._hints or hint is None or hint.program is None:
            return None
        return call.tenant, call.namespace, hint.program

    def _expect(self, program: _Program[T], text: _Text[T]) -> None:
        """The program uses this text again."""
        program.texts.append(text)
        self._expected.setdefault(program.owner, {})[program] = None
        self._next_expiry = min(self._next_expiry, text.expires)
        if len(program.texts) > MOST_TEXTS:
            self._remove(program, program.texts[0])

    def _end_program(self, program: _Program[T]) -> None:
        """It is over, unless some of its branches are about to call."""
        if program.kind is not None and program.first is not None and not program.is_over:
            added = program.longest - program.first
            means = self._added.setdefault(
                program.owner, RecentMeans[str](NEWEST, start=0.0, most=MOST_KINDS)
            )
            means.add(program.kind, added, first=added)
            self._added.move_to_end(program.owner)
            if len(self._added) > MOST_OWNERS:
                self._added.popitem(last=False)
        program.is_over = True
        for text in program.texts:
            if text.expires < math.inf:
                text.expires = min(text.expires, self._now + SOON)
                self._next_expiry = min(self._next_expiry, text.expires)

    def _forget(self, programs: Iterable[_Program[T]]) -> None:
        for program in programs:
            for text in list(program.texts):
                self._remove(program, text)

    def _remove(self, program: _Program[T], text: _Text[T]) -> None:
        if text not in program.texts:
            return
        program.texts.remove(text)
        self._to_add.clear()
        if not program.texts:
            expected = self._expected[program.owner]
            del expected[program]
            if not expected:
                del self._expected[program.owner]

    def _count_all(self) -> None:
        """Count slots that several programs use for the one that began first."""
        self._is_counted, seen = True, set[Any]()
        for programs in self._expected.values():
            for program in sorted(programs, key=lambda it: it.number):
                program.size = sum(self._count_idle(it.lease, seen) for it in program.texts)


def goes_on(hint: ForkHint) -> bool:
    """Whether a program calls again, with the text of the call that bears this hint."""
    return hint.next_use != 0 and (hint.next_use or hint.calls_left or 0) > 0
