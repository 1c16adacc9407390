"""Every kernel for GPUs, compiled for several of them (sm_80 to sm_90) on a machine without one,
through its production launcher and in the shapes of published models: registers, spilled bytes and
shared memory of each. The script fails where a kernel spills, or wants more shared memory than the
target gives to a program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.kernels.interface import Past

with needs("triton"):
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from forkroot.kernels.gpu.activation import silu_mul
    from forkroot.kernels.gpu.attention.attention import GpuAttention
    from forkroot.kernels.gpu.attention.kv_write import write
    from forkroot.kernels.gpu.experts import fused_moe
    from forkroot.kernels.gpu.launch import only_compiling
    from forkroot.kernels.gpu.masks import mask
    from forkroot.kernels.gpu.norms import rms_norm
    from forkroot.kernels.gpu.rotary import apply_rotary, rotate_and_write
    from forkroot.kernels.gpu.rows import GpuRows
    from forkroot.kernels.gpu.sampler import sample_tokens


class Shape(NamedTuple):
    """Of a model: what its kernels are specialised for."""

    hidden: int
    heads: int
    kv_heads: int
    dim: int
    ffn: int
    vocabulary: int
    experts: int = 0


SHAPES = {
    "llama-2-7b": Shape(4096, 32, 32, 128, 11008, 32_000),
    "llama-3.1-8b": Shape(4096, 32, 8, 128, 14336, 128_256),
    "llama-3.1-405b": Shape(16384, 128, 8, 128, 53248, 128_256),
    "mixtral-8x7b": Shape(4096, 32, 8, 128, 14336, 32_000, 8),
    "qwen2.5-0.5b": Shape(896, 14, 2, 64, 4864, 151_936),
    "llama-3.2-1b": Shape(2048, 32, 8, 64, 8192, 128_256),
    "phi-2": Shape(2560, 32, 32, 80, 10240, 51_200),
    "phi-3-mini": Shape(3072, 32, 32, 96, 8192, 32_064),
    "gemma-2-9b": Shape(3584, 16, 8, 256, 14336, 256_000),
}
TARGETS = {80: 163, 86: 99, 89: 99, 90: 227}  # KiB of shared memory that a program may use
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
TOKENS = 8


class Target:
    """A driver of Triton's that names a target and can run nothing."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_target(self) -> GPUTarget:
        """Its compute capability."""
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        """One of its own, because Triton keeps compiled kernels by device."""
        return self._capability

    def get_current_stream(self, device: int) -> int:
        """None is needed."""
        return device

    def get_active_torch_device(self) -> torch.device:
        """Where tensors are that are only looked at."""
        return torch.device("cpu")


def attention(shape: Shape, dtype: torch.dtype, window: int | None, softcap: float | None) -> None:
    """Single tokens, a chunk, and a shared root."""
    table = np.arange(12 * 900, dtype=np.int32).reshape(12, 900)
    table[:, :700] = table[0, :700]
    lens = np.array([1] * 11 + [64], np.int32)
    past = Past(table, np.arange(12, dtype=np.int32), np.full(12, 800, np.int32), lens)
    q = torch.empty(75, shape.heads, shape.dim, dtype=dtype)
    kv = torch.empty(2, shape.kv_heads, 64, shape.dim, dtype=dtype)
    given = GpuAttention(q.device, shape.kv_heads, dtype, shape.heads // shape.kv_heads)
    given.attend(q, kv, given.plan(past, window), 0.1, softcap)


def decode(shape: Shape, dtype: torch.dtype) -> None:
    """Single tokens whose keys are not in the pool yet, without and with a norm of heads."""
    one = np.ones(1, np.int32)
    past = Past(np.zeros((1, 4), np.int32), one - 1, one, one)
    group = shape.heads // shape.kv_heads
    given, gpu_rows = GpuAttention(torch.device("cpu"), shape.kv_heads, dtype, group), GpuRows()
    qkv = torch.empty(1, shape.heads + 2 * shape.kv_heads, shape.dim, dtype=dtype)
    kv = torch.empty(2, shape.kv_heads, 64, shape.dim, dtype=dtype)
    cos_sin = torch.empty(1, 1, shape.dim // 2, dtype=torch.complex64)
    weight = torch.empty(shape.heads + shape.kv_heads, shape.dim, dtype=dtype)
    for norm in (None, gpu_rows.norm(weight, 1e-5)):
        given.attend_new(qkv, norm, cos_sin, kv, torch.zeros(1).long(), given.plan(past), 0.1)


def rows(shape: Shape, dtype: torch.dtype) -> None:
    """Norms, turns, gates and writes."""
    x, weight = (torch.empty(*n, shape.hidden, dtype=dtype) for n in ((TOKENS,), ()))
    rms_norm(x, weight, 1e-5)
    qkv = torch.empty(TOKENS, shape.heads + 2 * shape.kv_heads, shape.dim, dtype=dtype)
    cos_sin = torch.empty(TOKENS, 1, shape.dim // 2, dtype=torch.complex64)
    apply_rotary(qkv, cos_sin)
    kv, pool = qkv[:, shape.heads :], torch.empty(2, shape.kv_heads, 64, shape.dim, dtype=dtype)
    slots = torch.arange(TOKENS)
    write(pool, slots, kv)
    head_weight = torch.empty(shape.heads + shape.kv_heads, shape.dim, dtype=dtype)
    for norm in (None, (head_weight, 1e-5)):
        rotate_and_write(qkv, norm, cos_sin, pool, slots)
    silu_mul(torch.empty(TOKENS, 2 * shape.ffn, dtype=dtype))


def logits(shape: Shape) -> None:
    """Masks and sampling."""
    x = torch.empty(TOKENS, shape.vocabulary)
    words = torch.empty(TOKENS, -(-shape.vocabulary // 32), dtype=torch.int32)
    mask(x, torch.arange(TOKENS), words)
    ones, numbers = torch.ones(TOKENS), torch.zeros(TOKENS, dtype=torch.float64)
    sample_tokens(x, ones, ones.int(), ones, ones, numbers)


def experts(shape: Shape, dtype: torch.dtype, num_tokens: int) -> None:
    """A mixture, from its router logits on."""
    x = torch.empty(num_tokens, shape.hidden, dtype=dtype)
    w1 = torch.empty(shape.experts, 2 * shape.ffn, shape.hidden, dtype=dtype)
    w2 = torch.empty(shape.experts, shape.hidden, shape.ffn, dtype=dtype)
    fused_moe(x, w1, w2, torch.empty(num_tokens, shape.experts, dtype=dtype), 2, x)


def launches() -> Iterator[tuple[str, Callable[[], None]]]:
    """Everything that the shapes launch, by name."""
    for name, shape in SHAPES.items():
        yield f"{name} logits", partial(logits, shape)
        for dtype in DTYPES:
            of = f"{name} {str(dtype).removeprefix('torch.')}"
            yield f"{of} attention", partial(attention, shape, dtype, None, None)
            yield f"{of} windows", partial(attention, shape, dtype, 256, 30.0)
            yield f"{of} decode", partial(decode, shape, dtype)
            yield f"{of} rows", partial(rows, shape, dtype)
            for count in (TOKENS, 512) if shape.experts else ():
                yield f"{of} {count} experts", partial(experts, shape, dtype, count)


def resources(cubin: bytes) -> dict[str, int]:
    """Registers, and bytes on the stack or in local memory: those that were spilled."""
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        output = subprocess.run(
            [tool, "-res-usage", path], capture_output=True, text=True, check=True
        )
    found = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", output.stdout))
    return {"registers": int(found["REG"]), "spilled": int(found["STACK"]) + int(found["LOCAL"])}


def measure(target: int, only: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What the compiler made, for a target, of every kernel with one of `only` in its name."""
    driver.set_active(Target(target))
    figures: dict[str, dict[str, Any]] = {}
    for name, launch in launches():
        with only_compiling(TARGETS[target] * 1024) as compiled:
            if any(it in name for it in only):
                launch()
        for number, kernel in enumerate(dict.fromkeys(compiled)):
            facts = {"shared": kernel.metadata.shared, "warps": kernel.metadata.num_warps}
            of_kernel = {**resources(kernel.asm["cubin"]), **facts}
            figures[f"sm_{target} {name}: {number} {kernel.name}"] = of_kernel
    return figures


def too_large(target: int, figures: dict[str, dict[str, Any]]) -> list[str]:
    """Kernels that spill, or do not fit into the shared memory of the target."""
    memory = TARGETS[target] * 1024
    return [name for name, it in figures.items() if it["spilled"] or it["shared"] > memory]


def main() -> None:
    """Compile and print the row."""
    options = parser(__doc__)
    options.add_argument("--only", nargs="+", default=[""], help="names that have one of these")
    options.add_argument("--targets", nargs="+", type=int, choices=TARGETS, default=list(TARGETS))
    args = options.parse_args()
    if os.environ.get("TRITON_INTERPRET") == "1":
        sys.exit("TRITON_INTERPRET=1 compiles nothing: unset it")
    figures: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    for target in args.targets:
        found = measure(target, args.only)
        faults += too_large(target, found)
        figures |= found
    report("compiled", {"kernels": figures, "triton": triton.__version__}, args.out)
    if faults or not figures:
        sys.exit("\n".join(["too large:", *faults]) if faults else f"no kernel has {args.only}")


if __name__ == "__main__":
    main()
