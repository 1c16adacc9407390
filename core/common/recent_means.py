"""Means of values by key, in which each value counts less with every one that follows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class RecentMeans(Generic[K]):
    """weight: of the newest value. start: the mean of a key without values. most: keys that are
    remembered, those that got a value last."""

    def __init__(self, weight: float, start: float, most: int = 1024) -> None:
        self._weight, self._start, self._most = weight, start, most
        self._means: OrderedDict[K, float] = OrderedDict()

    def __getitem__(self, key: K) -> float:
        return self._means.get(key, self._start)

    def __len__(self) -> int:
        return len(self._means)

    def add(self, key: K, value: float, first: float | None = None) -> None:
        """Count a value. first: the mean before, where it is the first one; None: `start`."""
        known = self._means.get(key, self._start if first is None else first)
        self._means[key] = known + self._weight * (value - known)
        self._means.move_to_end(key)
        if len(self._means) > self._most:
            self._means.popitem(last=False)
