"""One run of a program as an engine sees it: its calls, and whether what their hints expected came
true.

How many calls followed one after another is a range where some ran side by side, as which of them
waited for which is not known. A call uses another one's text again if its prompt begins with four
fifths of the other's prompt, and with a quarter of what is behind the root there. Prompts are
compared by samples of their tokens. It knows no kinds, tenants or tokens saved.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

from ...api.batch import Ints
from ...api.protocol import ForkHint
from ...common.intervals import Chains, Steps, steps_of

MOST_CALLS = 64  # of a run that are watched; the guesses of a longer one are not judged
MOST_COMPARED = 16  # earlier calls with which a prompt is compared
SAME, OWN = 0.8, 0.25  # of a prompt, and of what is behind its root
NEAR_CALLS, NEAR_TOKENS = 1, 32
_NUM_SAMPLES, _NUM_LAST = 128, 32  # tokens by which two prompts are compared

Field: TypeAlias = Literal["next_use", "calls_left", "tokens_left"]
Outcome: TypeAlias = Literal["made", "right", "early", "late", "never"]
FIELDS: tuple[Field, ...] = ("next_use", "calls_left", "tokens_left")


@dataclass(slots=True, eq=False)
class WatchedCall:
    """A call of a run. begun, ended: seconds. next_use, calls_left, tokens_left: of its hint;
    None: it has none, or the call failed. num_new: generated tokens.

    cut: how many first tokens of its prompt a later call that uses it begins with, and sample: of
    these; 0: that is not watched. user: when the first such call began.
    """

    begun: float
    ended: float = math.inf
    next_use: int | None = None
    calls_left: int | None = None
    tokens_left: int | None = None
    num_new: int = 0
    cut: int = 0
    sample: int = 0
    user: float | None = None


class ProgramRun:
    """The calls of one run. last: the second of its last beginning or ending. is_long: it has made
    more calls than are watched."""

    def __init__(self) -> None:
        self.num_open = 0
        self.last = -math.inf
        self.is_long = False
        self._calls: list[WatchedCall] = []
        self._unused: deque[WatchedCall] = deque()
        self._is_last = False

    @property
    def num_watched(self) -> int:
        """Calls that are kept here."""
        return len(self._calls)

    @property
    def is_over(self) -> bool:
        """Whether no call is open, and none is to follow."""
        return self.num_open == 0 and self._is_last

    def begin(self, prompt: Ints, now: float) -> WatchedCall | None:
        """A call with this prompt begins; None where it is not watched."""
        self.num_open += 1
        self.last = max(self.last, now)
        self._is_last = False
        if len(self._calls) >= MOST_CALLS:
            self.is_long = True
            self._calls.clear()
            self._unused.clear()
        if self.is_long:
            return None
        self._note_uses(prompt, now)
        call = WatchedCall(now)
        self._calls.append(call)
        return call

    def end(
        self,
        call: WatchedCall | None,
        hint: ForkHint,
        prompt: Ints,
        root_len: int,
        num_new: int,
        now: float,
    ) -> None:
        """A call has ended well, whose hint this was. root_len: tokens of its prompt that are of
        the root which the hint names."""
        self.fail(call, now)
        self._is_last = hint.calls_left == 0
        if call is None:
            return
        call.next_use, call.calls_left = hint.next_use, hint.calls_left
        call.tokens_left, call.num_new = hint.tokens_left, num_new
        if hint.next_use is None or self.is_long:
            return
        length = len(prompt)
        call.cut = max(math.ceil(SAME * length), root_len + math.ceil(OWN * (length - root_len)))
        call.sample = _sampled(prompt, call.cut)
        self._unused.append(call)
        if len(self._unused) > MOST_COMPARED:
            self._unused.popleft().cut = 0

    def fail(self, call: WatchedCall | None, now: float) -> None:
        """A call has ended, and its hint does not count."""
        self.num_open -= 1
        self.last = max(self.last, now)
        if call is not None:
            call.ended = now

    def judge(self) -> Counter[tuple[Field, Outcome]]:
        """How many guesses of each field had which outcome, if no more calls follow."""
        counts = Counter[tuple[Field, Outcome]]()
        chains = Chains([(it.begun, it.ended) for it in self._calls])
        tokens = _Tokens(self._calls)
        for call in self._calls:
            if call.next_use is not None and call.cut:
                counts["next_use", self._use_outcome(call, call.next_use)] += 1
            if call.calls_left is not None:
                steps = chains.after(call.ended)
                counts["calls_left", _outcome(call.calls_left, steps, NEAR_CALLS)] += 1
            if call.tokens_left is not None:
                num = max(0, tokens.after(call.begun) - call.num_new)
                near = NEAR_TOKENS + min(num, call.tokens_left)
                counts["tokens_left", _outcome(call.tokens_left, Steps(num, num), near)] += 1
        return counts

    def _note_uses(self, prompt: Ints, now: float) -> None:
        """Note whose text a prompt that comes now uses again."""
        samples: dict[int, int] = {}
        for call in tuple(self._unused):
            if call.ended >= now or call.cut > len(prompt):
                continue
            if call.cut not in samples:
                samples[call.cut] = _sampled(prompt, call.cut)
            if samples[call.cut] == call.sample:
                call.user = now
                self._unused.remove(call)

    def _use_outcome(self, call: WatchedCall, guess: int) -> Outcome:
        if call.user is None:
            return "right" if guess == 0 else "never"
        if guess == 0:
            return "early"
        between = ((it.begun, it.ended) for it in self._calls if it.begun > call.ended)
        fewest, most = steps_of(it for it in between if it[1] < call.user)
        return _outcome(guess, Steps(fewest + 1, most + 1), 0)


class _Tokens:
    """How many tokens were generated by calls that ended after some second."""

    def __init__(self, calls: Sequence[WatchedCall]) -> None:
        ordered = sorted(calls, key=lambda it: it.ended)
        self._ends = [it.ended for it in ordered]
        self._before = [0, *accumulate(it.num_new for it in ordered)]

    def after(self, begin: float) -> int:
        """Of the calls that ended later than this second."""
        return self._before[-1] - self._before[bisect_right(self._ends, begin)]


def _outcome(guess: int, actual: Steps, near: int) -> Outcome:
    if actual.fewest - near <= guess <= actual.most + near:
        return "right"
    return "early" if actual.most < guess else "late"


def _sampled(prompt: Ints, length: int) -> int:
    """A hash of some of the first tokens, and of the last ones of these."""
    spread = prompt[: length : max(1, length // _NUM_SAMPLES)]
    return hash((length, spread.tobytes(), prompt[max(0, length - _NUM_LAST) : length].tobytes()))
