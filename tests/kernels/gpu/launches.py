"""What code launches on a device: Triton's kernels and torch's operators, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch.utils._python_dispatch import TorchDispatchMode

from forkroot.kernels.gpu.launch import Launch

ALLOCATIONS = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
VIEWS = {"_unsafe_view", "_reshape_alias", "lift_fresh"}


class _Operators(TorchDispatchMode):
    """Lists torch's operators that run a kernel or copy something."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self._names, self.is_in_kernel = names, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if not (self.is_in_kernel or func.is_view or name in ALLOCATIONS | VIEWS):
            self._names.append(name)
        return func(*args, **(kwargs or {}))


@contextmanager
def launches() -> Iterator[list[str]]:
    """Within this, what is launched goes into the list, in order. What Triton's interpreter does
    to run a kernel is not counted."""
    names: list[str] = []
    operators, call = _Operators(names), Launch.__call__

    def counted(self: Launch, kernel: Any, grid: tuple[int, ...], *args: Any, **rest: Any) -> None:
        if 0 not in grid:
            names.append(kernel.fn.__name__)
        operators.is_in_kernel = True
        try:
            call(self, kernel, grid, *args, **rest)
        finally:
            operators.is_in_kernel = False

    with patch.object(Launch, "__call__", counted), operators:
        yield names
