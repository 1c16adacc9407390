"""Whole models of published shapes, with weights that mean nothing: decode steps and prefills
beside their floors, with graphs and without, and how much of the time the device has nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from statistics import median
from typing import Any

from forkroot.benchmarks.gpu.gpu_batches import Sequences
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_idle import idle
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.checkpoint.dummy import DummyWeights
from forkroot.core.model.checkpoint.load import describe
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.sizes import DTYPE_BYTES, Sizes

BATCHES = {"llama-3.1-8b": (1, 32, 128, 256), "llama-2-7b": (1, 32, 128)}
PREFILLS = (1024, 4096)
# graphs, as a CPU can try them
_REPEATING = {"attention": "triton", "sampling": "triton", "recorder": lambda run: run}


def cases(bench: Bench) -> Cases:
    """Each model is loaded once; its pool is made anew for each way to run it."""
    names = list(BATCHES)[: 1 if bench.is_tiny else None]
    for name in names:
        loaded = LoadedModel(bench, name)
        graphs = {"graphs": True} | ({} if bench.is_cuda else _REPEATING)
        yield from _decodes(loaded, graphs)
        for length in (24,) if bench.is_tiny else PREFILLS:
            yield Case(f"{name} prefill {length}", _prefill(loaded, graphs, length), 3)
        yield from _decodes(loaded, {"graphs": False})
        if bench.is_cuda and find_spec("flashinfer") is not None:
            yield from _decodes(loaded, {"graphs": False, "attention": "flashinfer"})
        loaded.close()
    for name in names:
        for batch in (2,) if bench.is_tiny else (32, 128):
            yield Case(f"{name} engine {batch}", _idle(bench, name, batch), 12)


def _idle(bench: Bench, name: str, batch: int) -> Callable[[], Figures]:
    def run() -> Figures:
        context = 24 if bench.is_tiny else 1024
        floor = step_floor(bench, describe(bench.shape(name)), batch, context)
        return idle(bench, name, batch, context, floor)

    return run


@dataclass
class LoadedModel:
    """A model that is loaded when it is needed, and its runner of one kind at a time."""

    bench: Bench
    name: str
    model: Llama | None = None
    runner: ModelRunner | None = None
    way: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def sequences(self) -> Sequences:
        """Those whose keys and values the runner's pool holds."""
        if self.bench.is_tiny:
            return Sequences(3, 24, 4, 500)
        return Sequences(max(BATCHES[self.name]), 1024, 40, 32_000)

    def running(self, way: dict[str, Any]) -> ModelRunner:
        """The runner of this kind, over a pool that holds all sequences."""
        if self.runner is None or self.way != way:
            self._drop_runner()
            started, sequences = time.perf_counter(), self.sequences
            num_slots = max(sequences.num_slots, 0 if self.bench.is_tiny else max(PREFILLS))
            runner = ModelRunner(self._loaded(), num_slots, max_running=sequences.num, **way)
            for batch in sequences.prompts(8):
                runner.run(batch)
            self.bench.wait()
            self.runner, self.way = runner, way
            self.seconds["pool"] = round(time.perf_counter() - started, 2)
        return self.runner

    def close(self) -> None:
        """Give all memory back."""
        self._drop_runner()
        self.model = None
        self.bench.forget()

    def _drop_runner(self) -> None:
        if self.runner is not None:
            self.runner.close()
        self.runner = None
        self.bench.forget()

    def _loaded(self) -> Llama:
        if self.model is None:
            bench, started = self.bench, time.perf_counter()
            context_len = 64 if bench.is_tiny else 8192
            sizes = replace(bench.sizes(self.name), context_len=context_len)
            weights = DummyWeights(sizes, bench.dtype, bench.device)
            self.model = Llama(sizes, weights, bench.device)
            bench.wait()
            self.seconds["load"] = round(time.perf_counter() - started, 2)
        return self.model


def _decodes(loaded: LoadedModel, way: dict[str, Any]) -> Cases:
    of = "graphs" if way["graphs"] else way.get("attention", "no graphs")
    for batch in (1, 3) if loaded.bench.is_tiny else BATCHES[loaded.name]:
        yield Case(f"{loaded.name} decode {batch} {of}", _decode(loaded, way, batch), 4)


def _decode(loaded: LoadedModel, way: dict[str, Any], batch: int) -> Callable[[], Figures]:
    """Steps of the runner, from a batch of integers to tokens on the host."""

    def run() -> Figures:
        runner, sequences = loaded.running(way), loaded.sequences
        times = []
        for index in range(sequences.room):
            step = sequences.step(index, batch)
            started = time.perf_counter()
            tokens = runner.run(step).tokens
            times.append(time.perf_counter() - started)
            assert len(tokens) == batch and (tokens >= 0).all(), "a step gave no tokens"
        skipped = len(times) // 4  # graphs are captured, kernels compiled
        context = sequences.context + (skipped + len(times)) // 2
        model = loaded.model
        assert model is not None
        floor = step_floor(loaded.bench, model.config, batch, context)
        return _step_figures(times[skipped:], floor) | {"seconds": dict(loaded.seconds)}

    return run


def _prefill(loaded: LoadedModel, way: dict[str, Any], length: int) -> Callable[[], Figures]:
    """One prompt of this length in one step."""

    def run() -> Figures:
        runner, times = loaded.running(way), []
        sequences = Sequences(1, length, 1, loaded.sequences.vocabulary_size)
        for _ in range(2 if loaded.bench.is_tiny else 8):
            (batch,) = sequences.prompts(1)
            started = time.perf_counter()
            runner.run(batch)
            times.append(time.perf_counter() - started)
        model = loaded.model
        assert model is not None
        products = prefill_products(model.config, length)
        figures = _step_figures(times[1:], loaded.bench.floor(products=products))
        share = products / (figures["ms"] / 1000) / loaded.bench.rate
        return figures | {"share_of_product_rate": round(share, 3)}

    return run


def _step_figures(times: list[float], floor: float) -> Figures:
    middle = median(times)
    return {
        "ms": round(middle * 1000, 3),
        "floor_ms": round(floor * 1000, 3),
        "over_floor": round(middle / floor, 3),
        "least_ms": round(min(times) * 1000, 3),
    }


def step_floor(bench: Bench, sizes: Sizes, batch: int, context: int) -> float:
    """Seconds that a decode step needs for its bytes: the weights, of the embedding only the rows
    that are looked up, and the keys and values of all sequences."""
    width = DTYPE_BYTES[bench.dtype_name]
    embedding = sizes.vocabulary_size * _hidden(sizes)
    weights = (sizes.num_parameters() - embedding) * width
    cached = batch * context * sizes.kv_bytes_per_token(bench.dtype_name)
    return bench.floor(weights + cached)


def prefill_products(sizes: Any, length: int) -> float:
    """Products and sums of a prompt: its layers' matrices and attention, and one row of logits."""
    head = sizes.vocabulary_size * _hidden(sizes)
    layers = sizes.num_parameters() - 2 * head
    attention = 4 * sizes.num_layers * sizes.num_heads * sizes.head_dim * length**2 / 2
    return 2.0 * layers * length + attention + 2 * head


def _hidden(sizes: Any) -> int:
    return int(sizes.hidden_size)
