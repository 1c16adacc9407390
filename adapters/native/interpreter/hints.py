"""What a program knows of its own future, as the hint of a call."""

from __future__ import annotations

from dataclasses import replace

from ....core.api.protocol import ForkHint
from ..language.outlook import Outlook
from .context import Context, new_root


def root_of(num: int, context: Context) -> ForkHint:
    """A hint for `num` calls of a run that share a new, unnamed prefix."""
    return replace(new_root(num), program=context.program)


def with_outlook(root: ForkHint, outlook: Outlook, program: str) -> ForkHint:
    """The hint that names a root, with what is known of the calls behind."""
    return replace(
        root,
        program=program,
        calls_left=outlook.calls_left,
        tokens_left=outlook.tokens_left,
        next_use=outlook.next_use,
    )
