"""What the stages of `gpu` share: the device, its memory, its two ceilings, clocks, and measures of
errors.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from forkroot.core.api.config import EngineConfig
from forkroot.core.model.checkpoint.dummy import SHAPES
from forkroot.core.model.config import ModelConfig
from forkroot.kernels.devices import why_no_gpu

Figures = dict[str, Any]
Action = Callable[[], object]
Mark: TypeAlias = "torch.cuda.Event | float"
BARS = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}
LONGEST_TIMING = 0.25  # seconds
MOST_SETS = 32
TINY_MEMORY = 8 << 30  # bytes that a CPU pretends to have free
PACKAGES = ("triton", "transformers", "numpy", "flashinfer-python", "vllm")


class Case(NamedTuple):
    """One measurement of a stage. seconds: about what it takes on an H200, loading included."""

    name: str
    run: Callable[[], Figures]
    seconds: float = 2.0


Cases = Iterator[Case]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where things are measured, and how large.

    until: when the stage's time is over (Unix). kind: the dtype of what is measured on a GPU, where
      a stage has but one.
    bandwidth: bytes a second, read and written, of a large copy. rate: products and sums a second
      of a large matrix product in bfloat16; both measured when this was made.
    """

    device: torch.device
    is_tiny: bool
    seed: int
    until: float = math.inf
    kind: torch.dtype = torch.bfloat16
    bandwidth: float = 1.0
    rate: float = 1.0

    @classmethod
    def here(cls, is_tiny: bool, seed: int, until: float = math.inf) -> Bench:
        """On this machine's first GPU, or on its CPU."""
        torch.manual_seed(seed)
        device = torch.device("cuda" if has_gpu() else "cpu")
        bench = cls(device, is_tiny, seed, until)
        rate = product_rate(bench, torch.bfloat16)
        return replace(bench, bandwidth=copy_rate(bench), rate=rate)

    @property
    def is_cuda(self) -> bool:
        """Whether this is a GPU; else all is only tried."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, keys and values."""
        return self.kind if self.is_cuda else torch.float32

    @property
    def dtype_name(self) -> str:
        """As settings have it."""
        return str(self.dtype).removeprefix("torch.")

    def cache_bytes(self) -> int:
        """Of the device's last cache, which repeated runs over one buffer would measure."""
        if not self.is_cuda:
            return 0
        return int(torch.cuda.get_device_properties(self.device).L2_cache_size)

    def num_sets(self, size: int) -> int:
        """Over how many sets of `size` bytes to rotate, so that none is found in a cache."""
        return max(1, min(MOST_SETS, -(-3 * self.cache_bytes() // max(size, 1))))

    def floor(self, size: float = 0.0, products: float = 0.0) -> float:
        """The fewest seconds for so many bytes moved, and products and sums made."""
        return max(size / self.bandwidth, products / self.rate)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Fresh random numbers."""
        return torch.randn(shape, device=self.device).to(dtype or self.dtype)

    def wait(self) -> None:
        """Until the device has nothing more to do."""
        if self.is_cuda:
            torch.cuda.synchronize()

    def free(self) -> int:
        """Bytes of the device's memory that are free, after what can be given back was."""
        self.forget()
        return int(torch.cuda.mem_get_info(self.device)[0]) if self.is_cuda else TINY_MEMORY

    def mark(self) -> Mark:
        """A point in the device's work so far; on a CPU, which has no queue, in time."""
        if not self.is_cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, first: Mark, last: Mark) -> float:
        """Seconds of the device between two marks that it has passed."""
        if isinstance(first, float) or isinstance(last, float):
            return float(last) - float(first)  # type: ignore[arg-type]
        return first.elapsed_time(last) / 1000

    def forget(self) -> None:
        """Give free memory back to the device."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()

    def is_sound(self) -> bool:
        """Whether the device still takes work; gives its free memory back."""
        try:
            self.wait()
            self.forget()
        except RuntimeError:
            return False
        return True

    def about(self) -> Figures:
        """The device and what drives it."""
        figures: Figures = {
            "name": "CPU, Triton interpreted",
            "copy_GB_s": round(self.bandwidth / 1e9, 1),
            "bfloat16_TFLOP_s": round(self.rate / 1e12, 3),
            **{name: _version(name) for name in PACKAGES},
        }
        if self.is_cuda:
            found = torch.cuda.get_device_properties(self.device)
            figures |= {
                "name": found.name,
                "memory_GiB": round(found.total_memory / 2**30, 1),
                "free_GiB": round(self.free() / 2**30, 1),
                "processors": found.multi_processor_count,
                "cache_MiB": round(self.cache_bytes() / 2**20, 1),
                "cuda": torch.version.cuda,
            }
        return figures

    def engine(self, **settings: Any) -> dict[str, Any]:
        """Settings of an engine here; those that this version does not have are left out."""
        known = {item.name for item in fields(EngineConfig)}
        wanted = {"device": self.device.type, "dtype": self.dtype_name, **settings}
        return {name: value for name, value in wanted.items() if name in known}

    def shape(self, name: str) -> str:
        """A published model's name, or a small one's where all is only tried."""
        return "dummy:56m" if self.is_tiny else f"dummy:{name}"

    def sizes(self, name: str) -> ModelConfig:
        """A published shape, or a small one where cases are only tried."""
        config = SHAPES[name]
        if not self.is_tiny:
            return config
        kv_heads = 4 if config.num_kv_heads == config.num_heads else 2
        return replace(
            config,
            vocabulary_size=500,
            num_layers=2,
            hidden_size=64,
            ffn_size=96,
            num_heads=4,
            num_kv_heads=kv_heads,
            head_dim=16,
            windows=(None, None),
        )

    def timed(self, actions: Sequence[Action]) -> tuple[float, str]:
        """Seconds that one of these takes, the median of many rounds, and by which clock.

        On a GPU all are captured and replayed as one graph, so that a launch's cost on the host is
        not counted; as they are, between events, where they cannot be captured.
        """
        if not self.is_cuda:
            return _by_wall(actions, 1), "wall"
        for action in actions:
            action()
        try:
            return _by_events([_captured(actions).replay]) / len(actions), "graph"
        except RuntimeError:
            torch.cuda.synchronize()
            return _by_events(actions), "events"


def has_gpu() -> bool:
    """Whether there is one; else Triton's kernels are to be interpreted."""
    return torch.cuda.is_available()


def missing_gpu() -> str:
    """Why torch sees no GPU; empty where it sees one."""
    return "" if has_gpu() else why_no_gpu()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _captured(actions: Sequence[Action]) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for action in actions:
            action()
    return graph


def _by_wall(actions: Sequence[Action], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for action in actions:
            action()
        times.append((time.perf_counter() - started) / len(actions))
    return median(times)


def _by_events(actions: Sequence[Action]) -> float:
    """Median seconds of an action on the device."""
    pairs = []
    actions[0]()
    torch.cuda.synchronize()
    started = time.perf_counter()
    while len(pairs) < 5 or (len(pairs) < 200 and time.perf_counter() - started < LONGEST_TIMING):
        for action in actions:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            action()
            last.record()
            pairs.append((first, last))
        torch.cuda.synchronize()
    return median(first.elapsed_time(last) for first, last in pairs) / 1000


def copy_rate(bench: Bench) -> float:
    """Bytes a second, read and written, of a large copy on the device."""
    size = 1 << 20 if bench.is_tiny else 1 << 30
    source = torch.randint(0, 255, (size,), dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    seconds, _ = bench.timed([lambda: target.copy_(source)])
    return 2 * size / seconds


def product_rate(bench: Bench, dtype: torch.dtype, size: int = 0) -> float:
    """Products and sums a second of a large square matrix product of random numbers."""
    size = size or (128 if bench.is_tiny else 8192)
    x, y = (bench.normal(size, size, dtype=dtype) for _ in range(2))
    out = torch.empty_like(x)
    seconds, _ = bench.timed([lambda: torch.mm(x, y, out=out)])
    return 2 * size**3 / seconds


def distance(found: Tensor, wanted: Tensor) -> float:
    """Length of the difference, relative to what was wanted; NaN stays NaN."""
    found, wanted = found.double(), wanted.double().to(found.device)
    return float((found - wanted).norm() / wanted.norm())


def verdict(error: float, dtype: torch.dtype) -> Figures:
    """An error and whether it is within the bar of its dtype; NaN is not."""
    return {"error": float(f"{error:.2e}"), "is_right": bool(error <= BARS[dtype])}


def beside(seconds: float, clock: str, floor: float) -> Figures:
    """A time beside its floor."""
    return {
        "us": round(seconds * 1e6, 2),
        "floor_us": round(floor * 1e6, 2),
        "over_floor": round(seconds / floor, 3) if floor else None,
        "clock": clock,
    }


def poison(*shapes: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Leave NaN in memory that is likely to be handed out next for tensors of these shapes, so that
    what a kernel does not write is visible."""
    held = [torch.full(shape, torch.nan, dtype=dtype, device=device) for shape in shapes]
    del held
