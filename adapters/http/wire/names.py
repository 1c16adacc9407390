"""New names for requests, answers and calls."""

from __future__ import annotations

import random


def new_name() -> str:
    """32 hexadecimal digits that no other name has. Takes no system call: those give way to other
    threads, and under load each costs a wait."""
    return f"{random.getrandbits(128):032x}"
