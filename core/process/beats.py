"""How far each rank of a model is, by what it says again and again, and which of them hangs.

Knows nothing of processes: what else tells of life is given (`core.process.watch.Watched`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

_NUM_MISSED = 3  # looks without a word, after which a rank says nothing any more
_FAR = 10


class Beat(NamedTuple):
    """What a rank says: batches that it has begun and done, sums and the like that have ended, and
    whether it waits for other ranks now (rank 0: or for the device)."""

    num_begun: int = 0
    num_done: int = 0
    num_met: int = 0
    is_waiting: bool = False


class Signs(Protocol):
    """As `core.process.watch.Watched`."""

    quiet: float

    def look(
        self, seconds: float, progress: object, is_excused: bool = False, is_heard: bool = False
    ) -> None:
        """As `Watched.look`."""


class Pulse:
    """What is known of one of the ranks after the first. hear: in any thread."""

    def __init__(self, rank: int, signs: Signs) -> None:
        self.rank = rank
        self.signs = signs
        self.beat = Beat()
        self.is_heard = False  # since the last look
        self._num_beats = self._num_seen = self._num_missed = 0

    def hear(self, beat: Beat) -> None:
        """It says this."""
        self.beat = beat
        self._num_beats += 1

    def note(self) -> None:
        """Look whether it has said anything."""
        self.is_heard = self._num_beats > self._num_seen
        self._num_seen = self._num_beats
        self._num_missed = 0 if self.is_heard else self._num_missed + 1

    @property
    def is_there(self) -> bool:
        """Whether it still says something."""
        return self._num_missed < _NUM_MISSED

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for other ranks, and still says so."""
        return self.beat.is_waiting and self.is_there


class Vigil:
    """Looks after ranks. patience: seconds without a sign of life after which one hangs. is_far:
    a device computes, which nobody can look into: then ten times as long for one that still says
    that it is there."""

    def __init__(self, pulses: Sequence[Pulse], patience: float, is_far: bool) -> None:
        self._pulses = pulses
        self._patience = patience
        self._is_far = is_far
        self._first = Beat()  # of rank 0, at the last look
        self._stuck = 0.0  # seconds for which rank 0 has waited for what nobody does

    def look(self, seconds: float, first: Beat) -> str | None:
        """After so many seconds of looking: in words, which rank hangs. first: how far rank 0 is.

        A rank that has done all batches is asked for nothing. One that waits for others is excused
        while one of these does not wait: that one is slow, or hangs itself.
        """
        for pulse in self._pulses:
            pulse.note()
        busy = [pulse for pulse in self._pulses if pulse.beat.num_done < first.num_begun]
        is_away = first.num_done < first.num_begun
        is_one_at_work = is_away and not first.is_waiting
        is_one_at_work |= any(not pulse.is_waiting for pulse in busy)
        for pulse in self._pulses:
            is_excused = pulse not in busy or (pulse.is_waiting and is_one_at_work)
            pulse.signs.look(seconds, pulse.beat, is_excused, pulse.is_heard)
            if pulse.signs.quiet >= self._limit(pulse.is_there):
                told = f"no sign of life for {pulse.signs.quiet:.1f} s"
                return f"rank {pulse.rank} of the model hangs: {told}"
        is_stuck = is_away and first.is_waiting and not busy and first == self._first
        self._stuck = self._stuck + seconds if is_stuck else 0.0
        self._first = first
        if self._stuck >= self._limit(is_there=True):
            return f"rank 0 of the model has waited {self._stuck:.1f} s for what no rank does"
        return None

    def _limit(self, is_there: bool) -> float:
        return self._patience * (_FAR if self._is_far and is_there else 1)
