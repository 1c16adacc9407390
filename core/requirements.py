"""What a model is and needs, and whether this machine can run it: the facts that `forkroot check`
prints.

Nothing but small files and the headers of weights is read, and of a hub model downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .api.config import EngineConfig
from .api.files import CONFIG_BYTES, read_object
from .api.protocol import InvalidModel
from .common.memory import available_memory
from .local import fitted
from .model.checkpoint.load import Described, describe
from .model.checkpoint.memory import number_bytes, weight_bytes
from .model.checkpoint.speed import CONTEXT, estimate, measure
from .model.hub.client import Hub
from .model.hub.fetch import Preview, explained, preview
from .model.hub.files import INDEX, SINGLE, weight_names
from .model.hub.folders import hub_errors, is_dummy, is_hub_model, model_folder
from .model.hub.headers import Tensors, joined, read_header
from .model.hub.names import hub_name
from .model.sizes import DTYPE_BYTES
from .text.chat_template import ChatTemplate

_NUM_ACTIVE_KEYS = ("num_experts_per_tok", "moe_topk", "moe_k")
_NUM_EXPERTS_KEYS = ("num_local_experts", "num_experts", "n_routed_experts")


class Fact(NamedTuple):
    """One thing that is known of a model. text: for people. values: the same for programs, by
    names of their own."""

    label: str
    text: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model's files are. folder: holds config.json. tensors: from the weights' headers;
    None where there are none. to_download: bytes that are not here. is_whole: none are missing."""

    model: str
    folder: Path
    tensors: Tensors | None
    is_whole: bool = True
    to_download: int = 0


def find(name: str) -> tuple[Source, Iterator[Fact]]:
    """A model's files, and what a hub reports of them. Raises InvalidModel."""
    hub = hub_name(name) if is_hub_model(name) and not is_dummy(name) else None
    if hub is not None:
        with hub_errors(name):
            found = preview(hub)
        missing = sum(found.sizes[file] for file in found.missing)
        source = Source(name, found.folder, found.tensors, found.is_whole, missing)
        return source, _of_hub(hub.repo, hub.revision, found)
    folder = model_folder(name)
    has_weights = any((folder / file).is_file() for file in (SINGLE, INDEX))
    tensors = None
    if has_weights and not is_dummy(name):
        tensors = joined(read_header(folder / file) for file in weight_names(folder))
    return Source(name, folder, tensors), iter(())


def facts(source: Source, config: EngineConfig) -> Iterator[Fact]:
    """Facts about a model before it is loaded, and what it takes here. Raises InvalidModel at the
    first thing that cannot be run, after the facts that come before it."""
    name, folder = source.model, source.folder
    with explained(name, folder):
        model = describe(name if is_dummy(name) else folder)
    if source.tensors is not None:
        source.tensors.check(name)
    path = f"{model.architecture}, by {model.path} on {config.device}"
    yield Fact("architecture", path, {"architecture": model.architecture, "path": model.path})
    yield from _sizes(source, model, config)
    fit, is_auto = fitted(config, model), config.dtype == "auto"
    text = f"{fit.dtype} ({'auto; ' if is_auto else ''}stored in {model.dtype})"
    yield Fact("run in", text, {"dtype": fit.dtype, "stored_dtype": model.dtype})
    kv = {dtype: model.kv_bytes_per_token(dtype) for dtype in DTYPE_BYTES}
    thousand = 1000 * kv[fit.dtype]
    text = f"{by_dtype(kv)}; of 1,000 tokens {in_bytes(thousand)}"
    yield Fact("KV of one token", text, {"kv_bytes_per_token": kv, "kv_bytes_per_1000": thousand})
    is_stated = not model.is_length_assumed
    note = "" if is_stated else " (assumed: config.json does not say max_position_embeddings)"
    values = {"context_len": model.context_len, "is_context_len_assumed": not is_stated}
    yield Fact("context length", f"{model.context_len:,} tokens{note}", values)
    has_template = ChatTemplate.from_folder(folder) is not None
    yield Fact(
        "chat template", "yes" if has_template else "no", {"has_chat_template": has_template}
    )
    yield _speed(source, model, fit)
    yield from _on_this_machine(model, fit)
    if source.to_download and source.to_download > (free := _free_disk(Hub().cache)):
        text = f"the download takes {in_bytes(source.to_download)}; free in {Hub().cache}"
        raise InvalidModel(f"{text}: {in_bytes(free)}; set HF_HUB_CACHE to a larger disk")


def _of_hub(repo: str, revision: str, found: Preview) -> Iterator[Fact]:
    commit = found.folder.name
    text = f"{repo}, {revision} is {commit[:12]}{', gated' if found.is_gated else ''}"
    values = {"repository": repo, "revision": revision, "commit": commit, "gated": found.is_gated}
    yield Fact("hub model", text, values)
    missing = sum(found.sizes[file] for file in found.missing)
    total = sum(found.sizes.values())
    free = _free_disk(Hub().cache)
    text = f"nothing: all files are in the cache ({Hub().cache})"
    if not found.is_whole:
        text = f"{in_bytes(missing)} in {len(found.missing)} files; {in_bytes(free)} of disk free"
    values = {"download_bytes": missing, "repository_bytes": total, "free_disk_bytes": free}
    yield Fact("to download", text, values)


def _sizes(source: Source, model: Described, config: EngineConfig) -> Iterator[Fact]:
    count, (of_experts, share) = model.num_parameters(), _experts(source)
    active = count - round(of_experts * (1 - share))
    text = f"{count:,}" + (f", of which a token uses {active:,}" if active != count else "")
    yield Fact("parameters", text, {"parameters": count, "active_parameters": active})
    weights = {dtype: count * size for dtype, size in DTYPE_BYTES.items()}
    label = "weights by dtype" if config.ranks == 1 else f"weights of {config.ranks} ranks"
    yield Fact(label, by_dtype(weights), {"weight_bytes": weights})


def _on_this_machine(model: Described, fit: EngineConfig) -> Iterator[Fact]:
    """Memory, of this machine and of the device where that is another."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = min(available_memory(), memory)
    text = f"{in_bytes(memory)}, {in_bytes(free)} of it free"
    yield Fact("memory here", text, {"memory_bytes": memory, "free_memory_bytes": free})
    for index in range(torch.cuda.device_count()):
        gpu_free, total = torch.cuda.mem_get_info(index)
        used = "" if fit.device.startswith("cuda") else f"; use it by --set device=cuda:{index}"
        text = f"{torch.cuda.get_device_name(index)}, {in_bytes(gpu_free)} free{used}"
        values = {f"gpu_{index}_memory_bytes": total, f"gpu_{index}_free_memory_bytes": gpu_free}
        yield Fact(f"GPU {index}", text, values)
    size = (fit.num_slots or 0) * model.kv_bytes_per_token(fit.dtype)
    needed = weight_bytes(model, fit.dtype, fit.device)
    text = f"{fit.num_slots:,}, for running and cached sequences: {in_bytes(size)}"
    yield Fact("KV tokens here", text, {"num_slots": fit.num_slots, "kv_pool_bytes": size})
    text = f"{in_bytes(needed)} of weights{_as_held(model, fit)} and {in_bytes(size)} of KV"
    yield Fact("takes here", text, {"loaded_weight_bytes": needed})
    if fit.device == "cpu" and needed > free:
        half = weight_bytes(model, "bfloat16", fit.device)
        hint = f"; with --set dtype=bfloat16 they take {in_bytes(half)}" if half <= free else ""
        text = f"the weights take {in_bytes(needed)} in {fit.dtype}; free here: {in_bytes(free)}"
        raise InvalidModel(f"{text}{hint}")


def _as_held(model: Described, fit: EngineConfig) -> str:
    """Why the loaded weights take another size than all numbers in the dtype that they are run in;
    "" where they take that size."""
    if number_bytes(model, fit.dtype, fit.device) != DTYPE_BYTES[fit.dtype]:
        return f" (matrices in {model.dtype} as stored, embeddings in {fit.dtype})"
    if weight_bytes(model, fit.dtype, fit.device) > model.num_parameters() * DTYPE_BYTES[fit.dtype]:
        return " (embeddings twice: as a table and as the output matrix)"
    return ""


def _speed(source: Source, model: Described, fit: EngineConfig) -> Fact:
    machine = measure(fit.dtype, fit.device)
    found = estimate(model, fit.dtype, fit.device, machine, *_experts(source))
    text = f"{_about(found.decode)} tokens/s decode, {_about(found.prefill)} prefill"
    values = {"decode_tokens_per_s": found.decode, "prefill_tokens_per_s": found.prefill}
    read, multiplied = _about(machine.bandwidth / 1e9), _about(machine.flops / 1e9)
    text += f" (one sequence of {CONTEXT:,} tokens; {read} GB/s, {multiplied} GFLOP/s now)"
    return Fact("speed, estimated", text, values | machine._asdict())


def _about(number: float) -> str:
    """With two digits that count, as "9,900" or "0.35"."""
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _experts(source: Source) -> tuple[int, float]:
    """How many numbers belong to experts, and which share of these a token uses."""
    if source.tensors is None or not source.tensors.of_experts:
        return 0, 1.0
    config = read_object(source.folder / "config.json", CONFIG_BYTES)
    config = config.get("text_config") or config
    used, num_experts = (
        next((config[it] for it in keys if it in config), 0)
        for keys in (_NUM_ACTIVE_KEYS, _NUM_EXPERTS_KEYS)
    )
    return source.tensors.of_experts, used / num_experts if used and num_experts else 1.0


def _free_disk(cache: Path) -> int:
    return shutil.disk_usage(next(p for p in (cache, *cache.parents) if p.exists())).free


def by_dtype(sizes: Mapping[str, int]) -> str:
    """As "2.0 MiB (float32), 1.0 MiB (bfloat16, float16)"."""
    named = {size: [d for d in sizes if sizes[d] == size] for size in sizes.values()}
    return ", ".join(f"{in_bytes(size)} ({', '.join(dtypes)})" for size, dtypes in named.items())


def in_bytes(size: float) -> str:
    """As "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} GiB"
