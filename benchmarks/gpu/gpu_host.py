"""The second tier of the cache: how fast tokens come and go, and what of the reuse of an unlimited
pool is reached in one of a tenth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import numpy as np
import torch

from forkroot.benchmarks.common import workloads
from forkroot.benchmarks.common.programs import Maker, Workload
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures
from forkroot.benchmarks.gpu.gpu_engine import CHUNK, TOO_LARGE, engine_model
from forkroot.benchmarks.gpu.gpu_loaded import slots_that_fit
from forkroot.benchmarks.peers.serving import measure
from forkroot.core.api.batch import Copy
from forkroot.core.common.memory import available_memory
from forkroot.core.model.checkpoint.memory import Load
from forkroot.core.model.parallel import Ranks
from forkroot.core.model.pool import KVPool
from forkroot.core.model.runner.host import Host, HostStore

MODEL = "llama-3.1-8b"
RUNNING = 32  # sequences
POOLS: Mapping[str, tuple[float, dict[str, Any]]] = {
    "unlimited": (1.0, {}),
    "a tenth": (0.1, {}),
    "a tenth, host behind": (0.1, {"host_policy": "back"}),
    "a tenth, host written through": (0.1, {"host_policy": "through"}),
}


def cases(bench: Bench) -> Cases:
    """Copies of plain memory, of tokens, and the tier at work."""
    yield Case("plain copies", lambda: plain(bench), 3)
    yield Case("tokens", lambda: tokens(bench), 5)
    share, size = (0.01, 0.03) if bench.is_tiny else (0.5, 0.25)
    for make in (workloads.shared_prefixes, workloads.rag)[: 1 if bench.is_tiny else 2]:
        workload = make(Maker(range(300, 4000), share, bench.seed, size))
        yield Case(workload.name, _tier(bench, workload), 15)


def plain(bench: Bench) -> Figures:
    """Gigabytes a second from pinned memory and back, for one large piece."""
    size = 1 << 20 if bench.is_tiny else 1 << 29
    here = torch.randint(0, 255, (size,), dtype=torch.uint8)
    here = here.pin_memory() if bench.is_cuda else here
    host_pool = torch.empty(size, dtype=torch.uint8, device=bench.device)
    seconds, _ = bench.timed([lambda: host_pool.copy_(here, non_blocking=True)])
    back, _ = bench.timed([lambda: here.copy_(host_pool, non_blocking=True)])
    return {"to_device_GB_s": round(size / seconds / 1e9, 2), "back_GB_s": _gb(size, back)}


def tokens(bench: Bench) -> Figures:
    """Gigabytes a second of tokens in scattered slots, on their way to the host and back; each
    must come back as it was."""
    sizes = bench.sizes(MODEL)
    num = 16 if bench.is_tiny else 4096
    pool = KVPool(sizes, 2 * num, bench.dtype, bench.device, Ranks())
    pool.storage.normal_()
    store = HostStore(pool.storage, Host(num))
    rng = np.random.default_rng(bench.seed)
    slots = rng.permutation(2 * num)[:num].astype(np.int32)
    host = np.arange(num, dtype=np.int32)
    where = torch.from_numpy(slots.astype(np.int64)).to(bench.device)
    before = pool.storage.index_select(3, where)
    size, figures = before.nbytes, {}
    for name, is_load in (("to_host", False), ("to_device", True)):
        if is_load:
            pool.storage.index_fill_(3, where, torch.nan)
        seconds = _wall(bench, lambda load=is_load: store.copy(Copy(slots, host, load)))
        figures[f"{name}_GB_s"] = _gb(size, seconds)
    figures["is_right"] = torch.equal(pool.storage.index_select(3, where), before)
    return figures


def _wall(bench: Bench, action: Callable[[], object]) -> float:
    times = []
    for _ in range(2 if bench.is_tiny else 6):
        bench.wait()
        started = time.perf_counter()
        action()
        bench.wait()
        times.append(time.perf_counter() - started)
    return median(times[1:])


def _gb(size: int, seconds: float) -> float:
    return round(size / seconds / 1e9, 2)


def _tier(bench: Bench, workload: Workload) -> Callable[[], Figures]:
    """The workload on each pool; the first one counts the tokens."""

    def run() -> Figures:
        figures: Figures = {"programs": len(workload.bodies)}
        longest, span = (128, 4096) if bench.is_tiny else (4096, 262_144)
        load = Load(CHUNK, RUNNING, has_host=True)
        fitting = slots_that_fit(bench.sizes(MODEL), bench.dtype_name, bench.free(), load)
        host = available_memory() // 4 // bench.sizes(MODEL).kv_bytes_per_token(bench.dtype_name)
        span = min(span, host, max(fitting, 4 * longest))
        loaded = engine_model(bench, MODEL, longest, span, load)
        if loaded is None:
            return {"skipped": TOO_LARGE}
        for name, (share, settings) in POOLS.items():
            num_slots = max(round(span * share), longest)
            sizes = {"num_slots": num_slots, "context_len": longest, "max_running": RUNNING}
            if settings:
                sizes["host_slots"] = span
            with loaded.backend(chunk_tokens=CHUNK, **sizes, **settings) as backend:
                found = measure(backend, workload, workload.width, hints=True, is_streamed=True)
                backend.check()
                if share == 1.0:
                    span = max(backend.info().load["cached_slots"], longest)
                    figures["tokens"] = span
            kept = ("programs_per_second", "cached_share", "first_token_ms")
            figures[name] = {key: found[key] for key in kept if key in found}
            bench.forget()
        loaded.close()
        return figures | loaded.about()

    return run
