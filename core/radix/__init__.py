"""The radix cache: tokens in, slots out; integers and numpy only.

Entry: `RadixCache`, whose `acquire` gives a `Lease` on the longest cached prefix.
May import `core.api`.
Never knows calls, tensors or what a token means.
"""

from ..api.protocol import NodeView
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
