"""The paper's workloads through the engine, with cache, hints, order and jumps on and off.

Every way has an engine of its own, all over one model's weights; each workload is run on each in
turn, from an empty cache, so that the ratios are of one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from forkroot.benchmarks.common import shapes, workloads
from forkroot.benchmarks.common.checkpoints import words
from forkroot.benchmarks.common.programs import Driver, Maker, Workload
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_engine import CHUNK, TOO_LARGE, engine_model
from forkroot.benchmarks.gpu.gpu_loaded import LoadedModel, slots_that_fit
from forkroot.benchmarks.peers.serving import measure
from forkroot.core.local import LocalBackend
from forkroot.core.model.checkpoint.memory import Load
from forkroot.core.model.hub.folders import EMBEDDED, model_folder
from forkroot.core.text.tokenizer import Tokenizer

MODEL = "llama-3.1-8b"
WORDS, CONTEXT, RUNNING = range(300, 4000), 4096, 256
ENGINES: Mapping[str, dict[str, Any]] = {
    "all": {},
    "fcfs": {"order": "fcfs", "jumps": False},
    "nothing": {"cache": False, "hints": False, "jumps": False},
}


class Way(NamedTuple):
    """On which engine, and whether the programs give hints."""

    engine: str
    hints: bool = True


WAYS = {
    "all": Way("all"),
    "no hints": Way("all", hints=False),
    "first come": Way("fcfs"),
    "nothing": Way("nothing", hints=False),
}
JUMPING = {"jumps": Way("all"), "no jumps": Way("fcfs")}
MADE = (
    workloads.mmlu,
    workloads.react,
    workloads.tree_of_thought,
    workloads.skeleton_of_thought,
    workloads.judge,
    workloads.rag,
    workloads.in_batch,
    workloads.hellaswag,
    workloads.shared_prefixes,
    workloads.chat,
    workloads.generative_agents,
    workloads.nothing_shared,
    workloads.multi_chain,
    workloads.gsm8k,
    workloads.city,
    workloads.long_chat,
)


def cases(bench: Bench) -> Cases:
    """One for each workload; the ones that share most come first."""
    engines = Engines(bench)
    share, size = (0.01, 0.02) if bench.is_tiny else (0.25, 0.5)
    for make in MADE[: 2 if bench.is_tiny else None]:
        workload = make(Maker(WORDS, share, bench.seed, size))
        yield Case(workload.name, _run(engines, workload, WAYS), 6)
    vocabulary = words(Tokenizer.from_folder(model_folder(EMBEDDED)))
    for name in ("regex",) if bench.is_tiny else ("regex", "schema"):
        scale = 0.05 if bench.is_tiny else 2.0
        workload = shapes.SHAPES[name].workload(vocabulary, bench.seed, scale)
        yield Case(workload.name, _run(engines, workload, JUMPING), 5)
    engines.close()


@dataclass
class Engines:
    """Those of ENGINES, each made when it is needed, over one model."""

    bench: Bench
    made: dict[str, LocalBackend] = field(default_factory=dict)
    model: LoadedModel | None = None
    num_slots: int = 0

    def __getitem__(self, name: str) -> LocalBackend:
        if name not in self.made:
            model = self._loaded()
            sizes = {"num_slots": self.num_slots, "context_len": model.sizes.context_len}
            sizes |= {"max_running": RUNNING, "chunk_tokens": CHUNK}
            self.made[name] = model.backend(**sizes, **ENGINES[name])
            if self.bench.is_cuda:
                _warm(self.made[name])
        return self.made[name]

    def about(self) -> Figures:
        """Of the model and the pools."""
        return {"num_slots": self.num_slots} | self._loaded().about()

    def close(self) -> None:
        """End all of them."""
        for backend in self.made.values():
            backend.close()
        if self.model is not None:
            self.model.close()

    def _loaded(self) -> LoadedModel:
        """The model, whole if a quarter of the pools that are wanted fits beside it."""
        if self.model is None:
            bench, num = self.bench, len(ENGINES)
            wanted = 16_384 if bench.is_tiny else 65_536
            loads = Load(CHUNK, num * RUNNING)  # each has graphs of its own
            sizes = bench.sizes(MODEL)
            fitting = slots_that_fit(sizes, bench.dtype_name, bench.free(), loads) // num
            self.num_slots = wanted if fitting < wanted // 4 else min(wanted, fitting)
            self.model = engine_model(bench, MODEL, CONTEXT, num * self.num_slots, loads)
            if self.model is None:
                raise MemoryError(TOO_LARGE)
        return self.model


def _warm(backend: LocalBackend) -> None:
    """Chunks, steps of several sizes and shared roots: what compiles or captures does so now."""
    for make in (workloads.in_batch, workloads.react, workloads.nothing_shared):
        workload = make(Maker(WORDS, 0.1, 99, 0.1))
        Driver(backend.submit).run(workload.programs(hints=True), workload.width)


def _run(engines: Engines, workload: Workload, ways: dict[str, Way]) -> Callable[[], Figures]:
    def run() -> Figures:
        figures: Figures = {}
        for name, way in ways.items():
            backend = engines[way.engine]
            backend.clear_cache()
            found = measure(backend, workload, workload.width, hints=way.hints, is_streamed=True)
            backend.check()
            kept = ("programs_per_second", "tokens_per_second", "cached_share", "first_token_ms")
            figures[name] = {key: found[key] for key in kept if key in found}
        rates = {name: figures[name]["programs_per_second"] for name in ways}
        *others, base = ways
        ratios = {name: round(rates[name] / rates[base], 2) for name in others}
        return {"programs": len(workload.bodies), "ratio": ratios} | engines.about() | figures

    return run
