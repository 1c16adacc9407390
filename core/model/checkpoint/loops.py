"""Compiled loops of a checkpoint on a CPU: which it needs, compiled before it is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ....kernels.cpu.decoder.required_loops import LoopRequirements, required_loops
from ....kernels.cpu.jit import precompile
from ....kernels.cpu.jit.jit import can_compile
from ....kernels.cpu.jit.loops import listen
from ...common import compiling
from ..config import ModelConfig
from .load import Described


def load_compiler(device: str) -> None:
    """Load what any model on a CPU uses to compile, which takes a moment; nothing on a GPU."""
    if device == "cpu":
        can_compile()


@contextlib.contextmanager
def precompiled(
    described: Described, dtype: str, device: str, attention: str, num_ranks: int
) -> Iterator[None]:
    """Compile the loops that a checkpoint needs and the cache lacks, show how far that is, and show
    it also for those that are compiled meanwhile. The arguments as in EngineConfig, resolved."""
    if device != "cpu":
        yield
        return
    is_own = isinstance(described, ModelConfig)
    has_experts = isinstance(described, ModelConfig) and described.num_experts > 0
    requirements = LoopRequirements(
        dtype=dtype,
        stored=described.dtype,
        dim=described.head_dim,
        is_own=is_own,
        is_fused=is_own and not has_experts and num_ranks == 1,
        is_read_in_place=attention in ("auto", "cpu", "deterministic"),
    )
    plan = precompile.plan(required_loops(requirements))
    with compiling.shown(listen, plan.seconds(), plan.num_workers):
        precompile.run(plan)
        yield
