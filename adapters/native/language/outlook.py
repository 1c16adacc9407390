"""What is known of a program's calls behind one of them, before the program runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outlook:
    """What goes with a call as its hint; the numbers are those of `ForkHint`, and steps are calls
    that come one after another.

    root: the fork whose root the call's prompt begins with, as its position in the graph; None: of
    none that is announced. is_first: it names the root that the run was announced with, if it was:
    what the runs of a batch have in common.
    """

    calls_left: int
    tokens_left: int
    next_use: int | None
    root: int | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class RootOutlook:
    """What goes with the root of a fork when it is sent ahead.

    num_calls: calls that name it. num_others: the same without the first call, which may name the
    root of a batch instead.
    """

    outlook: Outlook
    num_calls: int
    num_others: int
