"""The table of all scenarios."""

from __future__ import annotations

from typing import NamedTuple

from forkroot.benchmarks.campaign import (
    aborts,
    bombs,
    exhaustion,
    greedy,
    kills,
    malformed,
    model,
    openapi,
    slow,
    soak,
    timings,
)
from forkroot.benchmarks.campaign.faults import batches
from forkroot.benchmarks.campaign.runner import Scenario


class Entry(NamedTuple):
    """A scenario. about: what it does. quick, full: seconds that it takes in each campaign, beside
    the starts of its servers."""

    name: str
    about: str
    run: Scenario
    quick: float
    full: float


ENTRIES = (
    Entry("malformed", "broken bodies and broken HTTP on every route", malformed.run, 4, 120),
    Entry("aborts", "streams closed at random moments", aborts.run, 5, 300),
    Entry("soak", "mixed calls, every constrained answer checked", soak.run, 8, 420),
    Entry(
        "kills",
        "each process and thread, each signal, each moment, under load",
        kills.run,
        24,
        1200,
    ),
    Entry("batches", "a batch with a checkpoint, killed again and again", batches.run, 6, 60),
    Entry("bombs", "bodies that cost far more than their size", bombs.run, 20, 180),
    Entry("greedy", "one key sends as much as it can", greedy.run, 14, 180),
    Entry("timings", "what one key learns of another's by time", timings.run, 8, 300),
    Entry("slow", "half-sent headers, slow bodies, slow readers", slow.run, 18, 120),
    Entry("exhaustion", "full disks, no memory, no descriptors", exhaustion.run, 15, 120),
    Entry("openapi", "schemathesis on the server's own description", openapi.run, 5, 300),
    Entry("model", "random programs of requests against a reference", model.run, 5, 240),
)
BY_NAME = {entry.name: entry for entry in ENTRIES}
