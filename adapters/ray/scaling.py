"""How many replicas a load needs. Plain numbers in, a number out; it knows no cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.api.protocol import InvalidCall


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between how many replicas there are, and when that number changes.

    busy: open calls of each replica above which there are too few. Below a `slack` of that, with
      one replica less, there are too many. patience_up, patience_down: seconds for which that must
      hold before something is done. Raises InvalidCall.
    """

    least: int
    most: int
    busy: float = 32.0
    slack: float = 0.5
    patience_up: float = 5.0
    patience_down: float = 60.0

    def __post_init__(self) -> None:
        for name, number in (("min_replicas", self.least), ("max_replicas", self.most)):
            if type(number) is not int or number < 1:
                raise InvalidCall(name, number, "an integer >= 1")
        if self.least > self.most:
            raise InvalidCall("min_replicas", self.least, f"at most max_replicas={self.most}")
        for name, value in (("busy", self.busy), ("slack", self.slack)):
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InvalidCall(name, value, "a number > 0")


@dataclass(slots=True)
class Scaler:
    """Decides when a replica is started or ended: one at a time, and only after the load was high,
    or low, without a break. Between the two bounds nothing changes (hysteresis)."""

    bounds: Bounds
    _high_since: float | None = field(default=None, init=False)
    _low_since: float | None = field(default=None, init=False)

    def wanted(self, now: float, num_replicas: int, num_open: float) -> int:
        """How many replicas there should be. num_open: calls running or waiting on all of them."""
        bounds = self.bounds
        if num_replicas < bounds.least:
            return bounds.least
        if num_replicas > bounds.most:
            return bounds.most
        is_high = num_open > bounds.busy * num_replicas
        is_low = num_open <= bounds.busy * bounds.slack * (num_replicas - 1)
        self._high_since = _since(self._high_since, is_high and num_replicas < bounds.most, now)
        self._low_since = _since(self._low_since, is_low and num_replicas > bounds.least, now)
        if self._high_since is not None and now - self._high_since >= bounds.patience_up:
            self._high_since = None
            return num_replicas + 1
        if self._low_since is not None and now - self._low_since >= bounds.patience_down:
            self._low_since = None
            return num_replicas - 1
        return num_replicas


def _since(before: float | None, holds: bool, now: float) -> float | None:
    """Since when something holds without a break; None: it does not."""
    if not holds:
        return None
    return now if before is None else before
