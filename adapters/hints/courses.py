"""What programs do after each of their calls, learned from runs that have ended.

An adapter says when a run of a program begins and ends and names the sites from which it calls:
programs of one kind call from the same sites again and again. What followed a site says what is
expected to follow it the next time: the rest of a hint (`ForkHint`). A wrong guess costs time only.

It knows neither frameworks nor what texts mean.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from ...core.api.protocol import Call, ForkHint, Reply
from ...core.common.intervals import longest_chain
from .outline import Outline
from .seen import common_len

MOST_KINDS = 1024
MOST_SITES = 1024  # of a kind
MOST_CALLS = 128  # of a run that are learned from
MOST_CHARS = 1 << 20  # of a run's prompts that are compared
NEWEST = 0.25  # weight of a run among those before it, once there are a few
SAME = 0.8  # of a prompt's text that another one begins with, where it uses it again
SELDOM, OFTEN = 0.1, 0.5  # shares of runs that use a text again

Site = tuple[Hashable, int]


@dataclass(slots=True)
class Rest:
    """What followed a site on average, and how often: calls one after another, tokens, steps to
    the next use of its text (where it was used again), and seconds to the next call."""

    num_runs: int = 0
    calls: float = 0.0
    tokens: float = 0.0
    uses: float = 0.0
    steps: float = 1.0
    pause: float = 0.0

    def add(self, calls: int, tokens: int, next_use: int, pause: float) -> None:
        """Count a run."""
        self.num_runs += 1
        weight = max(NEWEST, 1 / self.num_runs)
        self.calls += weight * (calls - self.calls)
        self.tokens += weight * (tokens - self.tokens)
        self.uses += weight * ((next_use > 0) - self.uses)
        self.pause += weight * (pause - self.pause)
        if next_use > 0:
            self.steps += weight * (next_use - self.steps)

    def hint(self, hint: ForkHint) -> ForkHint:
        """A hint with what is expected to follow."""
        next_use = max(1, round(self.steps)) if self.uses >= OFTEN else None
        return replace(
            hint,
            calls_left=round(self.calls),
            tokens_left=round(self.tokens),
            next_use=0 if self.uses <= SELDOM else next_use,
            pause=round(self.pause, 3) if self.pause > 0 else None,
        )


@dataclass(slots=True, eq=False)
class Made:
    """A call of a run. begun, ended: seconds of the clock; it has not ended where these are equal.
    text: of its prompt, where that is compared. guess: what its hint said would follow; None:
    nothing was known. prompt_tokens, cached_tokens: of its prompt, and those that were cached."""

    site: Site
    begun: float
    ended: float
    tokens: int
    text: str = ""
    guess: ForkHint | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class KindReport:
    """What runs of one kind did, and how good the guesses were.

    guesses: calls whose hint said what would follow. wrong: those after which more than one call
      more or less followed, or whose text was used again though it was said not to be, or not
      though it was said to be.
    """

    kind: Hashable
    runs: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    guesses: int = 0
    wrong: int = 0

    def __str__(self) -> str:
        share = self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0
        return (
            f"{_name(self.kind)[:32]:32}  {self.runs:6,} runs  {self.calls:7,} calls  "
            f"{self.cached_tokens:9,} of {self.prompt_tokens:9,} prompt tokens cached "
            f"({share:.0%}), {self.wrong:,} of {self.guesses:,} guesses wrong"
        )


class Courses:
    """Kinds of programs and what their runs did. Every method may be called from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: OrderedDict[Hashable, OrderedDict[Site, Rest]] = OrderedDict()
        self._reports: OrderedDict[Hashable, KindReport] = OrderedDict()

    @property
    def reports(self) -> tuple[KindReport, ...]:
        """What each kind did, the one whose run ended last at the end."""
        with self._lock:
            return tuple(self._reports.values())

    def report(self) -> str:
        """The same as a few lines of text."""
        return "\n".join(map(str, self.reports))

    def begin(self, kind: Hashable = "") -> Course:
        """A run of a program of this kind begins."""
        return Course(self, kind, self._clock)

    def rest(self, kind: Hashable, site: Site) -> Rest | None:
        """What follows a site, a copy; None where no run has come there."""
        with self._lock:
            sites = self._kinds.get(kind)
            found = None if sites is None else sites.get(site)
            return None if found is None else replace(found)

    def learn(self, kind: Hashable, calls: Sequence[Made]) -> None:
        """A run has ended, whose calls these were in the order in which they began."""
        rests = [(it.site, _rest_of(it, calls)) for it in calls]
        with self._lock:
            sites = self._kinds.setdefault(kind, OrderedDict())
            self._kinds.move_to_end(kind)
            for site, rest in rests:
                sites.setdefault(site, Rest()).add(*rest)
                sites.move_to_end(site)
            while len(sites) > MOST_SITES:
                sites.popitem(last=False)
            before = self._reports.pop(kind, KindReport(kind))
            self._reports[kind] = _added(before, calls, [rest for _, rest in rests])
            if len(self._kinds) > MOST_KINDS:
                gone, _ = self._kinds.popitem(last=False)
                self._reports.pop(gone, None)


class Course:
    """One run of a program. name: that its calls bear, beside `title`, that of its kind. clock:
    seconds. Every method may be called from any thread."""

    def __init__(self, courses: Courses, kind: Hashable, clock: Callable[[], float]) -> None:
        self.name, self.title = uuid4().hex, _name(kind)
        self._courses, self._kind, self._clock = courses, kind, clock
        self._lock = threading.Lock()
        self._calls: list[Made] = []
        self._counts = Counter[Hashable]()
        self._num_chars = 0
        self._open: dict[int, list[Made]] = {}  # by the call's prompt, which no hint changes

    def hinted(self, call: Call, label: Hashable = "", known: ForkHint | None = None) -> Call:
        """The call as one of this run, the n-th one from the site of this label. known: what its
        adapter knows of the rest, where nothing is learned yet."""
        text = Outline.of(call.prompt).text
        with self._lock:
            number = self._counts[label]
            self._counts[label] += 1
            made = self._note((label, number), call, text)
        rest = self._courses.rest(self._kind, (label, number))
        own = call.hint or ForkHint("")
        hint = replace(own, program=self.name, kind=self.title or own.kind)
        if rest is not None:
            hint = rest.hint(hint)
        elif known is not None:
            hint = replace(hint, calls_left=known.calls_left, tokens_left=known.tokens_left)
        if made is not None:
            made.guess = None if rest is None else hint
            with self._lock:
                self._open.setdefault(id(call.prompt), []).append(made)
        return replace(call, hint=hint)

    def follow(self, reply: Reply) -> Reply:
        """Note when a call that `hinted` gave ends."""
        with self._lock:
            found = self._open.get(id(reply.call.prompt))
            made = found.pop(0) if found else None
        if made is not None:
            reply.when_done(lambda ended: self._ended(made, ended))
        return reply

    def end(self) -> None:
        """The run has ended."""
        with self._lock:
            calls, self._calls = self._calls, []
        self._courses.learn(self._kind, calls)

    def _note(self, site: Site, call: Call, text: str) -> Made | None:
        if len(self._calls) >= MOST_CALLS:
            return None
        self._num_chars += len(text)
        now, tokens = self._clock(), 0 if call.options else call.sampling.max_tokens or 0
        made = Made(site, now, now, tokens, text if self._num_chars <= MOST_CHARS else "")
        self._calls.append(made)
        return made

    def _ended(self, made: Made, reply: Reply) -> None:
        made.ended = max(self._clock(), made.begun + 1e-9)
        if reply.error() is None:
            usage = reply.result(0).usage
            made.tokens = usage.completion_tokens
            made.prompt_tokens, made.cached_tokens = usage.prompt_tokens, usage.cached_tokens


def _added(
    before: KindReport, calls: Sequence[Made], rests: Sequence[tuple[int, int, int, float]]
) -> KindReport:
    guessed = [(it.guess, rest) for it, rest in zip(calls, rests, strict=True) if it.guess]
    return KindReport(
        before.kind,
        before.runs + 1,
        before.calls + len(calls),
        before.prompt_tokens + sum(it.prompt_tokens for it in calls),
        before.cached_tokens + sum(it.cached_tokens for it in calls),
        before.guesses + len(guessed),
        before.wrong + sum(_is_wrong(guess, rest) for guess, rest in guessed),
    )


def _is_wrong(guess: ForkHint, rest: tuple[int, int, int, float]) -> bool:
    num_calls, _, next_use, _ = rest
    is_used = None if guess.next_use is None else guess.next_use > 0
    return abs((guess.calls_left or 0) - num_calls) > 1 or is_used not in (None, next_use > 0)


def _name(kind: Hashable) -> str:
    return ".".join(map(str, kind)) if isinstance(kind, tuple) else str(kind)


def _rest_of(made: Made, calls: Sequence[Made]) -> tuple[int, int, int, float]:
    """What followed a call: calls one after another, tokens, steps to the next use of its text (0:
    none), and seconds until the next call where nothing else was open."""
    later = [it for it in calls if it.begun > made.ended > made.begun]
    tokens = sum(it.tokens for it in calls if it is not made and it.ended > made.begun)
    users = (it for it in later if _is_used(made, it))
    user = next(users, None)
    between = [] if user is None else [it for it in later if it.ended < user.begun]
    next_use = 0 if user is None else 1 + _num_steps(between)
    is_alone = not any(it.begun < made.ended < it.ended for it in calls)
    pause = later[0].begun - made.ended if later and is_alone else 0.0
    return _num_steps(later), tokens, next_use, pause


def _is_used(made: Made, later: Made) -> bool:
    return bool(made.text) and common_len(made.text, later.text) >= SAME * len(made.text)


def _num_steps(calls: Iterable[Made]) -> int:
    """The most of these calls that were made one after another."""
    return longest_chain((it.begun, it.ended) for it in calls)
