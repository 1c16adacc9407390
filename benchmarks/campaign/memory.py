"""What the processes of a server hold in memory over time, and how fast it grows.

Pages that belong to no file are counted, by shares (as PSS does) where several processes have them.
Pages of files are not: the system takes them away and reads them again as it likes.
Compile workers come and go: each kind of process counts as its largest one, times as many as there
were at most.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from forkroot.benchmarks.common.processes import command_of, family

Floats: TypeAlias = npt.NDArray[np.float64]
KINDS = ("core.child", "compile_worker", "serve")
_SECONDS_BETWEEN = 2.0
_MOST_BINS = 60  # of a slope: the median of each
_MOST_SHOWN = 30


class Sample(NamedTuple):
    """seconds: of the monotonic clock. mb: of each process of each kind."""

    seconds: float
    mb: dict[str, list[float]]


class Growth(NamedTuple):
    """mb_per_hour: slopes by kind and of "all". bounds: between which that of "all" is, with 95 %
    confidence. series: medians of equal parts of the whole time. mb: at the first sample, at half
    of the time and at the last. most: processes of a kind at a time. late_mb: how much the last
    quarter of the time has more than the one before."""

    mb_per_hour: dict[str, float]
    bounds: tuple[float, float]
    series: dict[str, list[float]]
    mb: dict[str, list[float]]
    most: dict[str, int]
    late_mb: float


@contextmanager
def watched(pid: int) -> Iterator[list[Sample]]:
    """The samples of a process and its descendants; they come while the context is open."""
    samples, is_over = list[Sample](), threading.Event()

    def watch() -> None:
        while not is_over.wait(_SECONDS_BETWEEN):
            samples.append(sample(pid))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def sample(pid: int) -> Sample:
    """The memory of a process and its descendants now."""
    found: dict[str, list[float]] = defaultdict(list)
    for member in family(pid):
        if (num_bytes := own_bytes(member)) is not None:
            command = command_of(member)
            kind = next((it for it in KINDS if it in command), "other")
            found[kind].append(num_bytes / 1e6)
    return Sample(time.monotonic(), dict(found))


def own_bytes(pid: int) -> int | None:
    """Memory of a process: its share of pages that belong to no file, swapped ones too. None for
    one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return None
    kb = {name: int(rest.split()[0]) for name, _, rest in (it.partition(":") for it in lines)}
    return 1024 * (kb["Pss_Anon"] + kb["Pss_Shmem"] + kb["SwapPss"])


def growth(samples: list[Sample]) -> Growth:
    """How memory grew over the last half of the samples: the median of the slopes between all pairs
    of points (Theil-Sen), so that a few processes that start or end do not matter."""
    most: dict[str, int] = defaultdict(int)
    for it in samples:
        for kind, found in it.mb.items():
            most[kind] = max(most[kind], len(found))
    series = {kind: _filled([max(it.mb.get(kind, [0.0])) for it in samples]) for kind in most}
    values = {kind: most[kind] * series[kind] for kind in most}
    values["all"] = np.sum(list(values.values()), axis=0)
    half = len(samples) // 2
    seconds = np.array([it.seconds for it in samples[half:]])
    slopes = {kind: slope(seconds, it[half:]) * 3600 for kind, it in values.items()}
    low, high = slope_bounds(seconds, values["all"][half:])
    late = values["all"][half:]
    quarter = max(1, len(late) // 2)
    return Growth(
        {kind: round(it, 2) for kind, it in slopes.items()},
        (round(low * 3600, 2), round(high * 3600, 2)),
        {kind: _medians(it, _MOST_SHOWN).round(1).tolist() for kind, it in values.items()},
        {k: [round(float(it[at]), 1) for at in (0, half, -1)] for k, it in values.items()},
        dict(most),
        round(float(np.median(late[-quarter:]) - np.median(late[:quarter])), 2),
    )


def slope(seconds: Floats, values: Floats) -> float:
    """The median slope between all pairs of points, each the median of neighbouring ones."""
    found = _slopes(seconds, values)
    return float(np.median(found)) if len(found) else 0.0


def slope_bounds(seconds: Floats, values: Floats) -> tuple[float, float]:
    """Between which the slope is with 95 % confidence, by the ranks of these slopes (Sen, 1968).
    Points that depend on their neighbours make it less sure than that."""
    found = np.sort(_slopes(seconds, values))
    if not len(found):
        return 0.0, 0.0
    num = min(_MOST_BINS, len(seconds))
    reach = 1.96 * math.sqrt(num * (num - 1) * (2 * num + 5) / 18) / 2
    middle, last = (len(found) - 1) / 2, len(found) - 1
    low, high = max(0, math.floor(middle - reach)), min(last, math.ceil(middle + reach))
    return float(found[low]), float(found[high])


def _slopes(seconds: Floats, values: Floats) -> Floats:
    """Between all pairs of points."""
    times, levels = _medians(seconds, _MOST_BINS), _medians(values, _MOST_BINS)
    first, second = np.triu_indices(len(times), 1)
    slopes: Floats = (levels[second] - levels[first]) / (times[second] - times[first])
    return slopes


def _medians(values: Floats, most: int) -> Floats:
    """Those of so many equal parts at most."""
    parts = np.array_split(values, min(most, len(values)))
    return np.array([np.median(part) for part in parts])


def _filled(values: list[float]) -> Floats:
    """Values, where 0 (no such process) is the next one that is known, or else the last."""
    found = np.array(values)
    known = np.flatnonzero(found)
    at = np.minimum(np.searchsorted(known, np.arange(len(found))), len(known) - 1)
    return found[known[at]]
