"""The error of a graph that is not one."""

from __future__ import annotations

from .....core.api.protocol import InvalidCall


class InvalidGraph(InvalidCall):
    """A graph, or its JSON, has a value that is not allowed. field: where it is, such as
    `nodes[3].stream`."""

    __module__ = "forkroot"  # as in `core.api.errors`
