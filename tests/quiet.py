"""What processes print beside their output."""

from __future__ import annotations

import re


def unexpected(stderr: str) -> str:
    """What is left of it without the line that only the first process on a machine says."""
    return re.sub(
        r"^forkroot: compiling .* for this processor, once: about \d+ s\n",
        "",
        stderr,
        flags=re.MULTILINE,
    )
