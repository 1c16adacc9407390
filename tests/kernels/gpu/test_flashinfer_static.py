"""Recorded decode steps by FlashInfer: planned before each repeat, in the same memory; on a double
where there is no GPU, and in CUDA graphs where there is one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from forkroot.kernels.gpu.attention.flashinfer import FlashInferAttention
from forkroot.kernels.interface import Past, StaticAttention, StepShape
from forkroot.kernels.reference import attend

from .closeness import is_close
from .test_attention import NUM_SLOTS, forest

HEADS, KV_HEADS, DIM, DTYPE = 8, 2, 64, torch.float16
STEPS = {
    "own": (0, [100, 37, 5, 0], [1] * 4),
    "one": (0, [60], [1]),
    "a root": (800, [3, 40, 0, 9, 1], [1] * 5),
    "nobody": (0, [], []),
    "a root of all": (800, [3, 40, 0, 9, 1, 7, 5, 2], [1] * 8),
}


def make(device: torch.device, library: Any, num_slots: int = NUM_SLOTS - 1) -> FlashInferAttention:
    sizes = HEADS, KV_HEADS, DIM
    attention = FlashInferAttention(device, *sizes, DTYPE, library, num_slots=num_slots)
    attention.reserve(8, 1500)
    return attention


def recorded(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """As `CudaRecorder`: what runs once before, then is repeated."""
    if device.type == "cpu":
        run()
        return run
    aside = torch.cuda.Stream(device)
    with torch.cuda.stream(aside):
        run()
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=aside):
        run()
    return graph.replay


class Layers:
    """Recorded steps of 8 tokens, with layers of some windows."""

    def __init__(self, attention: FlashInferAttention, windows: tuple[int | None, ...]) -> None:
        self.attention, self.windows = attention, windows
        rng = np.random.default_rng(1)
        self.kv = torch.from_numpy(rng.standard_normal((2, KV_HEADS, NUM_SLOTS, DIM), np.float32))
        self.q = torch.from_numpy(rng.standard_normal((8, HEADS, DIM), np.float32)).to(DTYPE)
        self.kv = self.kv.to(DTYPE)
        self.steps: dict[StepShape, Any] = {}

    def record(self, shape: StepShape, device: torch.device) -> None:
        statics = [self.attention.static(shape, window) for window in self.windows]
        assert None not in statics
        ends = np.cumsum([0, *(static.num_numbers for static in statics)]).tolist()
        numbers = torch.zeros(ends[-1], dtype=torch.int32, device=device)
        spans = list(itertools.pairwise(ends))
        plans = [it.plan(numbers[slice(*span)]) for it, span in zip(statics, spans, strict=True)]
        q, kv, outs = self.q.to(device), self.kv.to(device), [torch.zeros(0)] * len(plans)

        def run() -> None:
            for i, plan in enumerate(plans):
                outs[i] = self.attention.attend(q, kv, plan, 0.125)

        def write(past: Past) -> None:
            filled = np.zeros(ends[-1], np.int32)
            for static, span in zip(statics, spans, strict=True):
                static.write(static.items(past), filled[slice(*span)])
            numbers.copy_(torch.from_numpy(filled))

        write(past_of("nobody"))
        self.steps[shape] = write, recorded(run, device), outs

    def repeat(self, shape: StepShape, past: Past) -> list[Tensor]:
        write, replay, outs = self.steps[shape]
        write(past)
        replay()
        return outs


def past_of(step: str) -> Past:
    return forest(np.random.default_rng(len(step)), *STEPS[step])


@pytest.mark.parametrize("windows", [(None,), (24,), (None, 24)], ids=str)
def test_recorded_steps_are_the_oracles(windows, library, device) -> None:
    attention = make(device, library)
    layers = Layers(attention, windows)
    for has_roots in (True, False):
        layers.record(StepShape(8, has_roots), device)
    for step in ("own", "a root", "one", "a root of all", "own"):
        past = past_of(step)
        probe = attention.static(StepShape(8, True), windows[0])
        has_roots = probe.items(past).has_roots
        assert has_roots is ("root" in step and windows[0] is None)
        for shape in {StepShape(8, True), StepShape(8, has_roots)}:
            outs = layers.repeat(shape, past)
            for out, window in zip(outs, windows, strict=True):
                count = len(past.rows)
                wanted = attend(layers.q[:count], layers.kv, past, 0.125, window)
                assert is_close(out[:count], wanted, DTYPE), (step, shape)


def test_wrappers_are_planned_before_a_step_and_never_within_it(
    library, device, monkeypatch
) -> None:
    planned: list[str] = []
    for name in ("BatchDecodeWithPagedKVCacheWrapper", "BatchPrefillWithPagedKVCacheWrapper"):
        kind = getattr(library, name)

        def plan(self: Any, *args: Any, plan: Any = kind.plan, name: str = name, **rest: Any):
            planned.append(name[5:11])
            return plan(self, *args, **rest)

        monkeypatch.setattr(kind, "plan", plan)
    layers = Layers(make(device, library), (None, 24))
    layers.record(StepShape(8, True), device)
    assert planned == ["Decode", "Prefil", "Decode"]  # before the first run of each window
    write, replay, _ = layers.steps[StepShape(8, True)]
    for _ in range(2):
        planned.clear()
        write(past_of("a root"))
        assert planned == ["Decode", "Prefil", "Decode"]
        replay()
        assert len(planned) == 3


def test_only_decode_steps_whose_lists_have_room_are_recorded(library, device) -> None:
    attention = make(device, library)
    assert isinstance(attention, StaticAttention)
    assert attention.static(StepShape(16, True, True)) is None
    assert make(device, library, num_slots=0).static(StepShape(8)) is None
    attention.reserve(2, 100)
    rows, lens = np.arange(2, dtype=np.int32), np.ones(2, np.int32)
    table = np.tile(np.arange(150, dtype=np.int32), (2, 1))
    fitting, larger = (Past(table, rows, start * lens, lens) for start in (99, 120))
    assert attention.static(StepShape(2)).items(fitting) is not None
    assert attention.static(StepShape(2)).items(larger) is None
    assert attention.static(StepShape(2), 60).items(larger) is not None  # lists what is in it


def test_recorded_and_other_steps_take_turns(library, device) -> None:
    attention = make(device, library)
    layers = Layers(attention, (None,))
    layers.record(StepShape(8, True), device)
    for step in ("a root", "own", "a root"):
        past = past_of(step)
        q, kv = layers.q[: len(past.rows)], layers.kv
        wanted = attend(q, kv, past, 0.125)
        plan = attention.plan(past)
        assert is_close(attention.attend(q.to(device), kv.to(device), plan, 0.125), wanted, DTYPE)
        (out,) = layers.repeat(StepShape(8, True), past)
        assert is_close(out[: len(q)], wanted, DTYPE)
