"""When the first call of each program came, by tenant, in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

MOST_PROGRAMS = 4096


class FirstCalls:
    """Of too many programs, the tenant that has most forgets the one that called longest ago."""

    def __init__(self) -> None:
        self._tenants: dict[str, OrderedDict[tuple[str, str], int]] = {}
        self._num_programs = 0

    def __len__(self) -> int:
        return self._num_programs

    def first(self, tenant: str, program: tuple[str, str], arrival: int) -> int:
        """Note a call of this program (namespace and name); when its first call came."""
        programs = self._tenants.setdefault(tenant, OrderedDict())
        earlier = programs.get(program)
        if earlier is None:
            self._num_programs += 1
        programs[program] = first = arrival if earlier is None else min(earlier, arrival)
        programs.move_to_end(program)
        if self._num_programs > MOST_PROGRAMS:
            self._forget_one()
        return first

    def _forget_one(self) -> None:
        tenant, programs = max(self._tenants.items(), key=lambda it: len(it[1]))
        programs.popitem(last=False)
        if not programs:
            del self._tenants[tenant]
        self._num_programs -= 1
