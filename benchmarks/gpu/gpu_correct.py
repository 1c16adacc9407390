"""Whether what runs on the device is right: a small model there and on the CPU, kernels beside
their oracles, and the tests."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from forkroot.benchmarks.gpu import gpu_attention, gpu_rows
from forkroot.benchmarks.gpu.gpu_bench import Bench, Case, Cases, Figures, verdict
from forkroot.core.api.protocol import Call, ForkHint, Sampling, Tokens
from forkroot.core.local import LocalBackend
from forkroot.core.model.hub.folders import EMBEDDED

ROOT = Path(__file__).parents[2]  # not resolved: pytest needs a folder of the package's name
LAST = 60  # lines that are kept of a run that failed
COMPILED = "tests/kernels/gpu/test_compiled.py"  # needs no GPU
SHAPES = ("llama-3.1-8b", "llama-2-7b")
MARKED = ("-m", "gpu and not slow")
ON_GPU = ("tests/gpu", "tests/core/model/runner")  # all tests marked `gpu`
KERNELS = ("tests/kernels/gpu", f"--ignore={COMPILED}")
UNMARKED = "tests/core/model/runner/test_launches.py"  # needs no GPU, and runs on a CPU in a second
SIZES = {"num_slots": 8192, "context_len": 1024, "max_running": 16}
Answers = list[tuple[int, ...]]


def cases(bench: Bench) -> Cases:
    """A small model first, as nothing else matters if that is wrong; then kernels, then tests."""
    yield Case("embedded model, GPU and CPU", lambda: end_to_end(bench), 10)
    for name in SHAPES[: 1 if bench.is_tiny else None]:
        for step in gpu_attention.few_steps(bench):
            yield Case(f"{name} attention, {step.name}", _attention(bench, name, step), 1)
        yield Case(f"{name} kernels over rows", _rows(bench, gpu_rows.errors(bench, name)), 2)
    draws = gpu_rows.draws_alike(bench, SHAPES[0])
    yield Case("masks and draws", _rows(bench, draws), 3)
    yield Case("experts", _rows(bench, gpu_rows.expert_errors(bench, "mixtral-8x7b")), 2)
    yield Case("pytest -m gpu", _pytest(bench, *MARKED, ON_GPU[0]), 15)


def tests(bench: Bench) -> Cases:
    """The other tests that use a GPU where there is one. A trial collects them all, and runs a file
    of those that need none; `cases` has run those that need one, which skip."""
    if bench.is_tiny:
        yield Case("collected", _pytest(bench, "--collect-only", *MARKED, *ON_GPU))
        yield Case("kernels collected", _pytest(bench, "--collect-only", *KERNELS))
        yield Case("pytest, no GPU needed", _pytest(bench, UNMARKED))
        return
    yield Case("pytest -m gpu, models", _pytest(bench, *MARKED, ON_GPU[1]), 10)
    yield Case("kernels", _pytest(bench, "-m", "not slow", *KERNELS), 20)


def end_to_end(bench: Bench) -> Figures:
    """Greedy tokens in float32 of prompts that share roots, on the device in several ways and on
    the CPU one prompt at a time."""
    calls = _calls(bench)
    device = bench.device.type
    plain = {"attention": "plain", "cache": False, "max_running": 1, "graphs": False}
    kernels = {} if bench.is_cuda else {"attention": "triton"}
    ways: dict[str, dict[str, Any]] = {
        "graphs": {"device": device, **kernels},
        "no graphs": {"device": device, "graphs": False, **kernels},
    }
    wanted = _answers(calls, {**SIZES, "device": "cpu", **plain})
    figures: Figures = {"prompts": len(calls)}
    for name, settings in ways.items():
        found = _answers(calls, {**SIZES, **settings})
        same = sum(a == b for a, b in zip(found, wanted, strict=True)) / len(wanted)
        figures[name] = {"same": same, "is_right": same == 1.0}
    return figures


def _calls(bench: Bench) -> list[Call]:
    num, longest, length = (2, 12, 2) if bench.is_tiny else (16, 400, 12)
    rng = random.Random(bench.seed)
    root = tuple(rng.choices(range(300, 4000), k=longest // 2))
    sampling = Sampling(max_tokens=length, temperature=0.0, ignore_eos=True)
    tails = [rng.choices(range(300, 4000), k=rng.randint(1, longest // 2)) for _ in range(num)]
    hint = ForkHint("root", prefix_end=1)
    return [Call((Tokens(root), Tokens(tuple(tail))), sampling, hint=hint) for tail in tails]


def _answers(calls: list[Call], settings: dict[str, Any]) -> Answers:
    with LocalBackend.from_folder(EMBEDDED, dtype="float32", **settings) as backend:
        replies = [backend.submit(call) for call in calls]
        return [reply.result(60).outputs[0].ids for reply in replies]


def _attention(bench: Bench, name: str, step: gpu_attention.Step) -> Callable[[], Figures]:
    def run() -> Figures:
        figures: Figures = {}
        for dtype in (bench.dtype, torch.float32) if bench.is_cuda else (torch.float32,):
            error = gpu_attention.error(bench, bench.sizes(name), step, "triton", dtype)
            figures[str(dtype).removeprefix("torch.")] = verdict(error, dtype)
        return figures

    return run


def _rows(bench: Bench, found: Iterator[tuple[str, Figures]]) -> Callable[[], Figures]:
    return lambda: dict(found)


def _pytest(bench: Bench, *options: str) -> Callable[[], Figures]:
    """How many tests ended how, also of a run that is ended because its time is over; collecting
    nothing is an error. Paths are relative to the tree."""

    def run() -> Figures:
        command = [sys.executable, "-m", "pytest", "-v", "--no-header", "-p", "no:cacheprovider"]
        # Other versions of packages may warn of other things.
        command += ["-W", "default", "--tb=short"]
        # The tree may have a name that no package can have: all paths go through ROOT, a link.
        command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
        command += [_absolute(option) for option in options]
        left = max(bench.until - time.time(), 5.0)
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT.parent
        )
        try:
            output, _ = process.communicate(timeout=left)
            is_over = False
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            is_over = True
        return outcome(output.splitlines(), process.returncode, is_over)

    return run


def _absolute(option: str) -> str:
    """An option of pytest with its path, if it has one, made absolute."""
    start = option.find("tests/")
    return option if start < 0 else f"{option[:start]}{ROOT / option[start:]}"


def outcome(lines: list[str], status: int, is_over: bool) -> Figures:
    """What pytest's lines say, with -v: how many tests ended how, the names of those that failed,
    and the last lines where not all is well. is_over: it was ended in the middle."""
    ended = re.compile(r"^(\S+::.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b")
    found = [match.groups() for match in map(ended.match, lines) if match]
    figures: Figures = {
        kind.lower(): sum(it == kind for _, it in found) for kind in {it for _, it in found}
    }
    bad = [name for name, kind in found if kind in ("FAILED", "ERROR")]
    figures["is_right"] = status == 0 and not is_over
    if is_over:
        figures["summary"] = "its time was over"
    elif lines:
        figures["summary"] = lines[-1].strip("= ")
    if bad:
        figures["bad"] = bad
    if not figures["is_right"]:
        figures["end"] = lines[-LAST:]
    return figures
