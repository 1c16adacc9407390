"""What a model makes of pictures and clips: how they stand in prompts, and the tower's input.

Importing the package loads no torch.
"""

from __future__ import annotations

from pathlib import Path

from ...api.media import MediaProcessor


def load(folder: str | Path) -> MediaProcessor | None:
    """The processor of a checkpoint; None for models that take text alone. Raises InvalidModel for
    settings that are not supported."""
    from .families import processor_of

    return processor_of(folder)
