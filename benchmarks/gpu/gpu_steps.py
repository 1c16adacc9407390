"""Steps of whole models beside their floors: decode over contexts and roots, prefill, short extends
and a chunk beside decode; what the host takes for one, and the largest kernels of some.

A model runs by as many of its layers as fit into the device's free memory beside the pool that a
batch needs, and its figures say so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.util import find_spec
from statistics import median
from typing import Any, NamedTuple

from forkroot.benchmarks.gpu import gpu_engine
from forkroot.benchmarks.gpu.gpu_batches import Layout, params_of, unchanged
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_loaded import (
    LoadedModel,
    counts,
    layers_that_fit,
    prefill_products,
    replayed_share,
    step_bytes,
)
from forkroot.benchmarks.gpu.gpu_profile import largest_kernels
from forkroot.core.api.batch import Batch
from forkroot.core.model.checkpoint.memory import Load
from forkroot.core.model.config import ModelConfig
from forkroot.core.model.runner.runner import ModelRunner

LONGEST_PREFILL = 8192
LEAST_ROWS = 33  # of a pool: of those beside a chunk, and one more
TOO_LARGE = "not one of its layers fits into the device's free memory beside such a pool"


class Extent(NamedTuple):
    """What is measured of a model."""

    batches: tuple[int, ...]
    roots: tuple[int, ...] = (0, 2048, 8192)
    sampling: tuple[str, ...] = ("greedy", "top-p")
    is_whole: bool = True  # other steps than decode, and other ways to run it, too


class Group(NamedTuple):
    """Batches that one pool holds beside so many layers."""

    num_layers: int
    batches: tuple[int, ...]


MODELS = {
    "llama-3.1-8b": Extent((1, 32, 128, 256)),
    "llama-2-7b": Extent((1, 32, 128), (0,), ("greedy",), is_whole=False),
}
LARGE = {
    "mixtral-8x7b": Extent((1, 32, 128), (0, 2048), ("greedy",)),
    "llama-2-70b": Extent((1, 32), (0, 2048), ("greedy",), is_whole=False),
}
TINY = Extent((1, 3), (0, 16))


def cases(bench: Bench) -> Cases:
    """Models that fit, and the engine around the first."""
    for name, extent in list(MODELS.items())[: 1 if bench.is_tiny else None]:
        yield from _model(bench, name, TINY if bench.is_tiny else extent)
    yield from gpu_engine.cases(bench, next(iter(MODELS)))


def large(bench: Bench) -> Cases:
    """Models that may not fit."""
    for name, extent in LARGE.items():
        small = Extent((1,), (0,), ("greedy",), is_whole=False)
        yield from _model(bench, name, small if bench.is_tiny else extent)


def layout(bench: Bench, batch: int, vocabulary_size: int) -> Layout:
    """Of a batch: 1k tokens of context; a root of 8k, and 64 tokens behind it."""
    if bench.is_tiny:
        return Layout(max(batch, 3), 8, 6, 16, 4, vocabulary_size)
    return Layout(max(batch, LEAST_ROWS), 1024, 64, LONGEST_PREFILL, 64, vocabulary_size)


def groups(bench: Bench, sizes: ModelConfig, free: int, batches: Iterable[int]) -> list[Group]:
    """Batches by how many layers fit beside their pool: all that leave room for the whole model
    together, the others as the largest of them needs."""
    fits = {}
    for batch in batches:
        place = layout(bench, batch, sizes.vocabulary_size)
        load = Load(LONGEST_PREFILL, place.num)
        fits[batch] = layers_that_fit(sizes, bench.dtype_name, free, place.num_slots, load)
    whole = tuple(batch for batch, num in fits.items() if num == sizes.num_layers)
    some = tuple(batch for batch, num in fits.items() if 0 < num < sizes.num_layers)
    none = tuple(batch for batch, num in fits.items() if not num)
    found = [Group(sizes.num_layers, whole)] if whole else []
    found += [Group(min(fits[batch] for batch in some), some)] if some else []
    return [*found, *([Group(0, none)] if none else [])]


def _model(bench: Bench, name: str, extent: Extent) -> Cases:
    sizes = bench.sizes(name)
    is_first = True
    for group in groups(bench, sizes, bench.free(), extent.batches):
        if not group.num_layers:
            for batch in group.batches:
                yield Case(f"{name} decode {batch}", lambda: {"skipped": TOO_LARGE}, 0)
            continue
        place = layout(bench, max(group.batches), sizes.vocabulary_size)
        num_layers = 1 if bench.is_tiny else group.num_layers
        loaded = LoadedModel.of(bench, name, num_layers, place.width)
        steps = Steps(bench, name, loaded, place)
        yield from steps.decodes(group.batches, extent)
        if is_first and extent.is_whole:
            yield from steps.others()
        if is_first:
            yield from steps.profiles(extent)
        if is_first and extent.is_whole:
            for way in _other_ways(bench):
                few = extent._replace(roots=extent.roots[:2], sampling=("greedy",))
                yield from steps.decodes(group.batches[:2], few, **way)
        is_first = False
        loaded.close()


def _other_ways(bench: Bench) -> Iterator[dict[str, Any]]:
    """Other ways to run a model than by default: none in a trial."""
    if bench.is_cuda:
        yield {"graphs": False}
    if bench.is_cuda and find_spec("flashinfer") is not None:
        yield {"graphs": False, "attention": "flashinfer"}


class Steps(NamedTuple):
    """Cases of one loaded model over one layout of the pool."""

    bench: Bench
    name: str
    loaded: LoadedModel
    layout: Layout

    def decodes(self, batches: Sequence[int], extent: Extent, **way: Any) -> Cases:
        """Decode steps of every batch, root and kind of sampling."""
        of = "".join(f", {key}={value}" for key, value in way.items())
        for root in extent.roots:
            for kind in extent.sampling:
                for batch in batches:
                    under = f", root {root}" if root else ""
                    title = f"{self.name} decode {batch} {kind}{under}{of}"
                    yield Case(title, self._decode(batch, kind, root, way), 2)

    def others(self) -> Cases:
        """Prefill, short extends under a root, and a chunk beside decode."""
        tiny = self.bench.is_tiny
        for length in (8, 16) if tiny else (1024, LONGEST_PREFILL):
            yield Case(f"{self.name} prefill {length}", self._prefill(length), 3)
        num, length, root = (2, 4, 16) if tiny else (8, 60, 2048)
        title = f"{self.name} extend {num} x {length}, root {root}"
        yield Case(title, self._repeated(lambda: self.layout.extend(num, length, root)), 2)
        num, length = (2, 10) if tiny else (32, 1024)
        title = f"{self.name} decode {num} beside a chunk of {length}"
        yield Case(title, self._repeated(lambda: self.layout.mixed(num, length)), 2)

    def profiles(self, extent: Extent) -> Cases:
        """The largest kernels of a decode step, under the longest root too, and of a prefill."""
        batch = extent.batches[:2][-1]
        for root in (0, extent.roots[-1]) if extent.is_whole else (0,):
            under = f", root {root}" if root else ""
            make = self._maker(batch, root)
            yield Case(f"{self.name} kernels of decode {batch}{under}", self._profile(make), 3)
        length = self.layout.root
        make = self._prefill_maker(length)
        yield Case(f"{self.name} kernels of prefill {length}", self._profile(make), 3)

    def _maker(self, batch: int, root: int) -> Callable[[], Batch]:
        return lambda: self.layout.decode(0, batch, root)

    def _prefill_maker(self, length: int) -> Callable[[], Batch]:
        return lambda: self.layout.prefill(length)

    def _runner(self, way: dict[str, Any]) -> ModelRunner:
        """The runner, whose pool holds all prompts and the root."""
        place = self.layout

        def fill(runner: ModelRunner) -> None:
            for batch in place.fills(LONGEST_PREFILL):
                runner.run(batch)
            self.bench.wait()

        return self.loaded.running(place.num_slots, place.num, fill, **way)

    def _decode(
        self, batch: int, kind: str, root: int, way: dict[str, Any]
    ) -> Callable[[], Figures]:
        def run() -> Figures:
            runner, place, bench = self._runner(way), self.layout, self.bench
            num = 2 if bench.is_tiny else 48
            batches = [
                place.decode(index, batch, root, params_of(kind, index, batch, bench.seed))
                for index in range(num)
            ]
            figures = pipelined(bench, runner, batches)
            own = (place.tail if root else place.context) + num // 2
            moved = step_bytes(self.loaded.sizes, bench.dtype_name, batch, own, root)
            return figures | _beside(figures, bench.floor(moved)) | self.loaded.about()

        return run

    def _prefill(self, length: int) -> Callable[[], Figures]:
        def run() -> Figures:
            runner, bench = self._runner({}), self.bench
            figures = pipelined(bench, runner, self._again(self.layout.prefill(length)))
            products = prefill_products(self.loaded.sizes, length)
            rate = products / (figures["ms"] / 1000) / bench.rate
            floor = _beside(figures, bench.floor(products=products))
            return figures | floor | {"share_of_product_rate": round(rate, 3)} | self.loaded.about()

        return run

    def _repeated(self, make: Callable[[], Batch]) -> Callable[[], Figures]:
        def run() -> Figures:
            batches = self._again(make())
            return pipelined(self.bench, self._runner({}), batches) | self.loaded.about()

        return run

    def _profile(self, make: Callable[[], Batch]) -> Callable[[], Figures]:
        def run() -> Figures:
            runner, first = self._runner({}), make()
            runner.run(first)
            batch, rounds = unchanged(first), 1 if self.bench.is_tiny else 5
            found = largest_kernels(self.bench, lambda: runner.run(batch), rounds)
            return found | self.loaded.about()

        return run

    def _again(self, batch: Batch) -> list[Batch]:
        """The same step several times."""
        return [batch] + [unchanged(batch)] * (1 if self.bench.is_tiny else 11)


def pipelined(bench: Bench, runner: ModelRunner, batches: Sequence[Batch]) -> Figures:
    """Steps one after another, each launched before the results of the one before are read, as the
    engine does it. All in milliseconds, medians without the first quarter.

    ms: from results to results. device_ms: of the device's own clock, for what was launched.
    host_ms: of the thread that launches it, without waiting.
    """
    before, pending, last = counts(runner), None, time.perf_counter()
    walls, hosts, marks = [], [], []
    for batch in batches:
        started, first = time.perf_counter(), bench.mark()
        launched = runner.launch(batch)
        launched.sample(batch.sampling_params)
        marks.append((first, bench.mark()))
        hosts.append(time.perf_counter() - started)
        if pending is not None:
            _checked(pending)
            now = time.perf_counter()
            walls.append(now - last)
            last = now
        pending = launched
    assert pending is not None
    _checked(pending)
    walls.append(time.perf_counter() - last)
    bench.wait()
    devices = [bench.between(*pair) for pair in marks]
    skipped = len(batches) // 4  # kernels are compiled there
    figures: Figures = {
        name: round(median(times[skipped:]) * 1000, 3)
        for name, times in (("ms", walls), ("device_ms", devices), ("host_ms", hosts))
    }
    return figures | replayed_share(before, counts(runner))


def _checked(launched: object) -> None:
    """Wait for the results of a step; each of its rows has a token."""
    tokens = launched.result().tokens  # type: ignore[attr-defined]
    assert (tokens >= 0).all(), "a step gave no tokens"


def _beside(figures: Figures, floor: float) -> Figures:
    """A step beside its floor in seconds."""
    return {
        "floor_ms": round(floor * 1000, 3),
        "over_floor": round(figures["ms"] / 1000 / floor, 3),
    }
