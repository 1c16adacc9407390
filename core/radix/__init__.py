"""The radix cache: `RadixCache` is its face, tokens in and slots out, integers only."""

from .cache import Counters, Lease, Match, RadixCache
from .node import NodeView
from .pages import Ints, SlotPool

__all__ = ["Counters", "Ints", "Lease", "Match", "NodeView", "RadixCache", "SlotPool"]
