"""The variables of a state: which are set and which are on their way.

It takes no lock and waits for nothing: its stream does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ....core.api.protocol import ProgramError
from ....core.common.suggestions import did_you_mean


class UnsetVariable(ProgramError, KeyError):
    """A variable was read that no primitive of the state sets.

    known: the variables that are set. coming: those that are on their way.
    """

    __module__ = "forkroot"  # as in `core.api.errors`

    def __init__(self, name: str, known: Iterable[str], coming: Iterable[str] = ()) -> None:
        super().__init__(name, tuple(sorted(known)), tuple(sorted(coming)))
        self.name = name

    def __str__(self) -> str:
        known, coming = (", ".join(map(repr, names)) for names in self.args[1:])
        message = f"variable {self.name!r} was never set; set so far: {known or 'none'}"
        message += f"; on their way: {coming}" if coming else ""
        return message + did_you_mean(repr(self.name), map(repr, (*self.args[1], *self.args[2])))


class Variables:
    """Values by name. A name is expected when its primitive is submitted, and set when that ends.

    own: the names that were expected or set here, not inherited by a fork. num_expected: how many
    primitives were submitted that set each.
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.meta: dict[str, Any] = {}
        self.own: dict[str, None] = {}
        self._expected: Counter[str] = Counter()
        self.num_expected: Counter[str] = Counter()

    def expect(self, name: str) -> None:
        """A primitive was submitted that will set `name`."""
        self.own[name] = None
        self._expected[name] += 1
        self.num_expected[name] += 1

    def put(self, name: str | None, value: Any, meta: Any) -> None:
        """The oldest primitive that was to set `name` has ended; None: it sets none."""
        if name is None:
            return
        self.values[name] = value
        self.meta[name] = meta
        self._expected[name] -= 1

    def settle(self, name: str, value: Any, meta: Any) -> None:
        """All primitives that were to set `name` have ended."""
        self.values[name] = value
        self.meta[name] = meta
        self._expected[name] = 0

    def assign(self, name: str, value: Any) -> None:
        """Set `name` by hand, without meta information unless it had some."""
        self.own[name] = None
        self.values[name] = value
        self.meta.setdefault(name, {})

    def expected(self) -> set[str]:
        """Names on their way."""
        return {name for name, count in self._expected.items() if count > 0}

    def is_expected(self, name: str) -> bool:
        """Whether `name` is on its way."""
        return self._expected[name] > 0

    def await_from(self, parent: Variables) -> set[str]:
        """Expect what `parent` expects now; returns these names, for `inherit`."""
        names = parent.expected()
        self._expected.update(names)
        return names

    def inherit(self, names: Iterable[str], parent: Variables) -> None:
        """Start with a parent's values; `names` are those that `await_from` returned."""
        self.values.update(parent.values)
        self.meta.update(parent.meta)
        self._expected.subtract(names)
