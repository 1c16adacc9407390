"""The radix cache: `RadixCache` is its face, tokens in and slots out, integers only."""

from ..protocol import NodeView
from .cache import Counters, Lease, Match, RadixCache
from .host import HostTier
from .logprobs import Logprobs
from .pages import Ints, SlotPool

__all__ = [
    "Counters",
    "HostTier",
    "Ints",
    "Lease",
    "Logprobs",
    "Match",
    "NodeView",
    "RadixCache",
    "SlotPool",
]
