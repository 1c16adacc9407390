"""What a program knows of its own future, as the hint of a call."""

from __future__ import annotations

from dataclasses import replace

from ....core.api.protocol import ForkHint
from ..language.expressions import (
    Constant,
    Gen,
    Media,
    RoleBegin,
    RoleEnd,
    ScopeBegin,
    ScopeEnd,
    Select,
)
from ..language.outlook import Outlook
from .context import Context, new_root
from .stream import Stream

_WITHOUT_CALL = (Constant, Media, RoleBegin, RoleEnd, ScopeBegin, ScopeEnd)


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


def next_use_of(stream: Stream) -> int | None:
    """When the text of the running call is used again, as far as the queue of its stream tells: by
    the next call that waits there, or never, as the stream takes no further step; None: nobody
    knows."""
    item, is_any = stream.next_of(_WITHOUT_CALL)
    if isinstance(item, Gen | Select):
        return 1
    return None if is_any or not stream.is_closed else 0
