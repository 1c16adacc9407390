"""The radix cache: `RadixCache` is its face, tokens in and slots out, integers only."""

from ..protocol import NodeView
from .cache import Counters, Lease, Match, RadixCache
from .pages import Ints, SlotPool

__all__ = ["Counters", "Ints", "Lease", "Match", "NodeView", "RadixCache", "SlotPool"]
