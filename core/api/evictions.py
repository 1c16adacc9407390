"""What an engine reports of its cache to a router: which prefixes it has forgotten, or still holds.

Prefixes are digests of tokens (`core.common.digests`), so no report holds a prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

NUM_PREFIXES = 1000  # of a report of what is cached


@dataclass(frozen=True, slots=True)
class Eviction:
    """Of the prefix with these digests only the first `remaining` bytes of them are still cached.
    tokens: how many were forgotten."""

    namespace: str
    digests: bytes
    remaining: int
    tokens: int


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """What a cache has forgotten since a reader last asked.

    life: of which cache; another one holds nothing that this one held. end: number of the newest
      eviction, to ask after the next time.
    is_gap: evictions were lost, or not recorded yet, and none are given: read `prefixes`.
    """

    life: str
    end: int
    evictions: tuple[Eviction, ...] = ()
    is_gap: bool = False


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix that is cached."""

    namespace: str
    digests: bytes


@dataclass(frozen=True, slots=True)
class PrefixReport:
    """The most recently used prefixes of a cache, newest first, after its eviction `end`."""

    life: str
    end: int
    prefixes: tuple[Prefix, ...] = ()
