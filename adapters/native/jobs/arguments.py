"""The arguments that a program takes, by the parameters of its graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....core.api.protocol import InvalidCall
from ....core.common.suggestions import did_you_mean
from ..compiler.graph.blocks import Parameter


def checker(parameters: Sequence[Parameter]) -> Callable[[Mapping[str, Any]], None]:
    """What raises InvalidCall for arguments that are not a program's."""
    known = {it.name for it in parameters if not it.is_fixed}
    required = [it.name for it in parameters if it.is_required]
    listed = ", ".join(it.name for it in parameters if not it.is_fixed) or "no arguments"

    def check(arguments: Mapping[str, Any]) -> None:
        for name, value in arguments.items():
            if name not in known:
                raise InvalidCall(name, value, f"{listed}{did_you_mean(name, known)}")
        for name in required:
            if name not in arguments:
                raise InvalidCall(name, None, f"a value: the program takes {listed}")

    return check
