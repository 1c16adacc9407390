"""Rows of `forkroot check` for a backend that runs: what it reports, and a trial call."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from ..core.api.protocol import Backend, BackendInfo, Call, Sampling, Text

Row: TypeAlias = tuple[str, str, Mapping[str, Any]]  # label, text, and values for programs


def info_rows(info: BackendInfo, version: str) -> Iterator[Row]:
    """The rows of a backend whose files are elsewhere, such as a server. version: of forkroot
    here."""
    yield "model", info.model, {"served_model": info.model}
    for label, name in (("context length", "context_len"), ("vocabulary", "vocabulary_size")):
        if size := getattr(info, name):  # unknown of an API
            yield label, f"{size:,} tokens", {name: size}
    features = sorted(info.features)
    yield "takes", ", ".join(features), {"features": features}
    if "slots" in info.load:  # reported to admins, or to everybody if there are no keys
        slots, free = info.load["slots"], info.load["free_slots"]
        yield "KV cache", f"{slots:,} tokens, {free:,} of them free", {"num_slots": slots}
        running, waiting = info.load["running"], info.load["waiting"]
        text = f"running {running}, waiting {waiting}"
        yield "requests", text, {"running": running, "waiting": waiting}
    if info.version:
        report = f"{info.version} (here: {version})"
        yield "forkroot", report, {"version": info.version}


def trial(backend: Backend) -> Row:
    """The row of a trial run of a loaded checkpoint."""
    start = time.perf_counter()
    is_ours = "tokens" in backend.info().features  # an API ends its answers itself
    sampling = Sampling(max_tokens=8, temperature=0 if is_ours else 1.0, ignore_eos=is_ours)
    usage = backend.submit(Call((Text("Hello"),), sampling)).result().usage
    seconds = time.perf_counter() - start
    text = f"{usage.completion_tokens} tokens generated in {seconds:.2f} s"
    return "trial run", text, {"trial_tokens": usage.completion_tokens, "trial_s": seconds}
