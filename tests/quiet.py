"""What processes say beside what is asked of them."""

from __future__ import annotations

from forkroot.core.compiling import TOLD


def unexpected(stderr: str) -> str:
    """What is left of it without the line that only the first process on a machine says."""
    return stderr.replace(f"{TOLD}\n", "")
