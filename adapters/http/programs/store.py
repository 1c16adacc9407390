"""The programs that a server keeps: by tenant, namespace and digest, those used last.

Each tenant has a number and a size of its own, whatever others keep. Nothing tells whether another
tenant, or another namespace, has a program. It is used in one thread.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from ....core.api.protocol import CallTooLarge, Shown

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Key:
    """Whose program it is, and which. namespace: a part of the tenant's own."""

    tenant: str
    namespace: str
    digest: str


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    program: T
    size: int


class ProgramStore(Generic[T]):
    """Programs, the least recently used forgotten where a tenant has too many.

    most, most_bytes: of one tenant. most_tenants: that are known; the one that used its programs
      longest ago is forgotten.
    """

    def __init__(self, most: int, most_bytes: int, most_tenants: int = 4096) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._most_tenants = most_tenants
        self._of: OrderedDict[str, OrderedDict[Key, _Entry[T]]] = OrderedDict()

    def get(self, key: Key) -> T | None:
        """The program, which is now the last used; None: it is not kept."""
        programs = self._of.get(key.tenant)
        found = None if programs is None else programs.get(key)
        if programs is None or found is None:
            return None
        programs.move_to_end(key)
        self._of.move_to_end(key.tenant)
        return found.program

    def put(self, key: Key, program: T, size: int) -> None:
        """Keep a program of so many bytes. Raises CallTooLarge where it is larger than all that a
        tenant may have."""
        if size > self._most_bytes:
            shown, allowed = Shown(f"{size} bytes"), f"at most {self._most_bytes} bytes"
            raise CallTooLarge("program", shown, f"{allowed} (of this server)")
        programs = self._of.setdefault(key.tenant, OrderedDict())
        programs[key] = _Entry(program, size)
        programs.move_to_end(key)
        self._of.move_to_end(key.tenant)
        while len(programs) > self._most or self.num_bytes(key.tenant) > self._most_bytes:
            programs.popitem(last=False)
        while len(self._of) > self._most_tenants:
            self._of.popitem(last=False)

    def remove(self, key: Key) -> bool:
        """Forget a program; whether it was kept."""
        programs = self._of.get(key.tenant, OrderedDict[Key, _Entry[T]]())
        return programs.pop(key, None) is not None

    def num_bytes(self, tenant: str) -> int:
        """The bytes of the programs of a tenant."""
        return sum(it.size for it in self._of.get(tenant, {}).values())

    def check(self) -> None:
        """Raise AssertionError where a bound does not hold; for tests."""
        assert len(self._of) <= self._most_tenants
        for tenant, programs in self._of.items():
            assert len(programs) <= self._most
            assert self.num_bytes(tenant) <= self._most_bytes
            assert all(key.tenant == tenant for key in programs)
