"""Models of published shapes with weights that mean nothing, by as many of their layers as fit into
the device's free memory; and what runs them: runners, and engines that share a model's weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from forkroot.benchmarks.gpu.gpu_bench import Bench, Figures
from forkroot.core.api.config import EngineConfig
from forkroot.core.local import LocalBackend, fitted
from forkroot.core.model.arch.llama import Llama
from forkroot.core.model.arch.mixtral import Mixtral
from forkroot.core.model.checkpoint.dummy import DummyWeights
from forkroot.core.model.checkpoint.memory import Load, working_bytes
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.hub.folders import EMBEDDED, model_folder
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.runner.host import Host
from forkroot.core.model.runner.runner import ModelRunner
from forkroot.core.model.sizes import DTYPE_BYTES
from forkroot.core.text.tokenizer import Tokenizer
from forkroot.kernels.devices import backend_for

SHARE = 0.95  # of the free memory that is planned with
SPARE = 1 << 30  # bytes: what weights take while they are made
TINY_VOCABULARY = 4200  # the embedded tokenizer's, and some more
# Recorded steps as a CPU can try them.
INTERPRETED: Mapping[str, Any] = MappingProxyType(
    {"attention": "triton", "sampling": "triton", "recorder": lambda run: run}
)


def shortened(sizes: ModelConfig, num_layers: int) -> ModelConfig:
    """The same model with fewer layers."""
    return replace(sizes, num_layers=num_layers, windows=sizes.windows[:num_layers])


def fixed_bytes(sizes: ModelConfig, dtype: str, load: Load) -> int:
    """Bytes that a model takes whatever its number of layers: embeddings, head, working memory."""
    without = shortened(sizes, 1).num_parameters() - layer_parameters(sizes)
    return without * DTYPE_BYTES[dtype] + working_bytes(sizes, dtype, load) + SPARE


def layer_parameters(sizes: ModelConfig) -> int:
    """Numbers of one layer."""
    return shortened(sizes, 2).num_parameters() - shortened(sizes, 1).num_parameters()


def layers_that_fit(sizes: ModelConfig, dtype: str, free: int, num_slots: int, load: Load) -> int:
    """How many of a model's layers fit into so many bytes beside a pool of so many slots; 0 where
    none does."""
    layer = layer_parameters(sizes) * DTYPE_BYTES[dtype]
    layer += num_slots * shortened(sizes, 1).kv_bytes_per_token(dtype)
    room = int(SHARE * free) - fixed_bytes(sizes, dtype, load)
    return max(0, min(sizes.num_layers, room // layer))


def slots_that_fit(sizes: ModelConfig, dtype: str, free: int, load: Load) -> int:
    """How many slots a pool may have, in so many bytes, beside all of a model's layers; 0 where
    these do not fit."""
    weights = layer_parameters(sizes) * DTYPE_BYTES[dtype] * sizes.num_layers
    room = int(SHARE * free) - fixed_bytes(sizes, dtype, load) - weights
    return max(0, room // sizes.kv_bytes_per_token(dtype))


def step_bytes(sizes: ModelConfig, dtype: str, batch: int, own: int, root: int = 0) -> float:
    """What a decode step must read: the weights, of the embedding only rows that are looked up and
    of experts those that are likely to be chosen, and keys and values: a root of so many tokens
    once, and so many of each sequence's own."""
    table = sizes.vocabulary_size * sizes.hidden_size
    experts = _expert_parameters(sizes)
    share = 1.0
    if experts:
        share = 1 - (1 - sizes.experts_per_token / sizes.num_experts) ** batch
    weights = sizes.num_parameters() - table - experts * (1 - share)
    tokens = root + batch * own
    return weights * DTYPE_BYTES[dtype] + tokens * sizes.kv_bytes_per_token(dtype)


def prefill_products(sizes: ModelConfig, length: int) -> float:
    """Products and sums of a prompt: its layers' matrices and attention, and one row of logits."""
    head, experts = sizes.vocabulary_size * sizes.hidden_size, _expert_parameters(sizes)
    layers = sizes.num_parameters() - 2 * head
    if experts:
        layers -= experts - experts * sizes.experts_per_token // sizes.num_experts
    attention = 4 * sizes.num_layers * sizes.num_heads * sizes.head_dim * length**2 / 2
    return 2.0 * layers * length + attention + 2 * head


def _expert_parameters(sizes: ModelConfig) -> int:
    return 3 * sizes.num_layers * sizes.num_experts * sizes.hidden_size * sizes.ffn_size


@dataclass
class LoadedModel:
    """A model that is loaded when it is needed. all_layers: how many the published one has.
    kernels: by what it is computed, see `kernels.devices`."""

    bench: Bench
    sizes: ModelConfig
    all_layers: int
    kernels: str = "triton"
    model: Llama | None = None
    runner: ModelRunner | None = None
    key: Any = None

    @classmethod
    def of(cls, bench: Bench, name: str, num_layers: int, context_len: int) -> LoadedModel:
        """So many layers of a published model, for sequences of so many tokens."""
        sizes = bench.sizes(name)
        short = replace(shortened(sizes, num_layers), context_len=context_len)
        return cls(bench, short, sizes.num_layers)

    def about(self) -> Figures:
        """How many layers of how many, where not all of them."""
        num = self.sizes.num_layers
        return {} if num == self.all_layers else {"layers": f"{num} of {self.all_layers}"}

    def loaded(self) -> Llama:
        """The model on the device."""
        if self.model is None:
            bench, kind = self.bench, Mixtral if self.sizes.num_experts else Llama
            weights = DummyWeights(self.sizes, bench.dtype, bench.device)
            backend = backend_for(bench.device, self.kernels)
            self.model = kind(self.sizes, weights, bench.device, Ranks(), backend)
            bench.wait()
        return self.model

    def running(
        self, num_slots: int, max_running: int, fill: Callable[[ModelRunner], None], **way: Any
    ) -> ModelRunner:
        """The runner of this kind, one at a time; `fill` makes its pool ready."""
        key = num_slots, max_running, way
        if self.runner is None or self.key != key:
            self.drop_runner()
            given = way if self.bench.is_cuda else {**INTERPRETED, **way}
            runner = ModelRunner(self.loaded(), num_slots, max_running=max_running, **given)
            fill(runner)
            self.runner, self.key = runner, key
        return self.runner

    def backend(self, **settings: Any) -> LocalBackend:
        """An engine over these weights, with a pool of its own; close it to free that."""
        model, settings = self.loaded(), self.bench.engine(**settings)
        config = fitted(EngineConfig.from_settings(settings), self.sizes)
        assert config.num_slots is not None
        tokenizer = Tokenizer.from_folder(model_folder(EMBEDDED))
        tokenizer.widen(self.sizes.vocabulary_size)
        runner = ModelRunner(
            model,
            config.num_slots,
            attention=config.attention,
            host=Host(config.host_slots),
            max_running=config.max_running,
            graphs=config.graphs,
            sampling=config.sampling,
        )
        size, close = self.sizes.vocabulary_size, runner.close
        return LocalBackend("dummy", config, tokenizer, runner, size, frozenset(), close)

    def drop_runner(self) -> None:
        """Give the memory of the runner back."""
        if self.runner is not None:
            self.runner.close()
        self.runner = None
        self.bench.forget()

    def close(self) -> None:
        """Give all memory back."""
        self.drop_runner()
        self.model = None
        self.bench.forget()


def counts(runner: ModelRunner) -> dict[str, int]:
    """How many steps the runner replayed from graphs and launched one by one, where it counts."""
    found = {name: getattr(runner, f"num_{name}", None) for name in ("replayed", "eager")}
    return {name: int(number) for name, number in found.items() if number is not None}


def replayed_share(before: dict[str, int], after: dict[str, int]) -> Figures:
    """The share of the steps between two counts that were replayed; nothing where none counts."""
    if not after:
        return {}
    num = {name: after[name] - before[name] for name in after}
    total = sum(num.values())
    return {"replayed": round(num.get("replayed", 0) / total, 4) if total else None}
