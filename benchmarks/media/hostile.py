"""Pictures and clips made to harm: is each answered by pixels or a typed error, how soon, and does
memory stay?

All files are made by a seed. Each goes through `core.media.load` with the default limits, as an
engine's input does; `--rounds` times in all. A row has the number of files, those that ended in any
other way than expected, the slowest, the most memory that one took for a while, and what resident
memory grew by between the first round and the last.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, thread_time
from typing import NamedTuple

from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Image, InvalidCall, Video
from forkroot.core.media.limits import MediaLimits
from forkroot.core.media.load import load

with needs("pillow"):
    from forkroot.benchmarks.media.pictures import EITHER, READ, REFUSED, hostile_pictures

MB = 1 << 20


class Ending(NamedTuple):
    """What became of one file. ending: READ, REFUSED, or the name of an untyped error.
    seconds: of the processor. waited: of the wall clock. growth: bytes resident since before."""

    name: str
    expected: str
    ending: str
    text: str
    seconds: float
    waited: float
    growth: int

    @property
    def is_expected(self) -> bool:
        """Whether it is one of the endings that are allowed."""
        allowed = (READ, REFUSED) if self.expected == EITHER else (self.expected,)
        return self.ending in allowed


def endings(seed: int, has_clips: bool = True) -> Iterator[Ending]:
    """Each file's ending."""
    limits = MediaLimits.of(EngineConfig())
    for name, expected, make in hostile_pictures(seed):
        yield ending(name, expected, Image(make()), limits)
    if not has_clips:
        return
    from forkroot.benchmarks.media.clips import hostile_clips

    for name, expected, make_clip, num in hostile_clips(seed):
        yield ending(name, expected, Video(make_clip(), num), limits)


def ending(name: str, expected: str, segment: Image | Video, limits: MediaLimits) -> Ending:
    """What becomes of one file."""
    before, began, started = rss(), perf_counter(), thread_time()
    try:
        found, text = READ, str(load(segment, limits).frames.shape)
    except InvalidCall as error:
        found, text = REFUSED, str(error)
    except Exception as error:
        found, text = type(error).__name__, str(error)
    seconds, waited = thread_time() - started, perf_counter() - began
    return Ending(name, expected, found, text, seconds, waited, rss() - before)


def rss() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def peak() -> int:
    """The most bytes of this process that were in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(it.split()[1]) * 1024 for it in lines if it.startswith("VmHWM"))


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--verbose", action="store_true", help="a line for each file")
    given = options.parse_args()
    sizes: list[int] = []
    found: list[Ending] = []
    for number in range(given.rounds):
        found = list(endings(given.seed + number))
        if given.verbose:
            for it in found:
                print(f"{it.seconds:.3f} {it.name}: {it.ending} {it.text:.150}", file=sys.stderr)
        gc.collect()
        sizes.append(rss())
        wrong = [it for it in found if not it.is_expected]
        for it in wrong:
            print(f"{it.name}: {it.ending} {it.text}; expected {it.expected}", file=sys.stderr)
    slowest = max(found, key=lambda it: it.seconds)
    figures = {
        "files": len(found),
        "refused": sum(it.ending == REFUSED for it in found),
        "read": sum(it.ending == READ for it in found),
        "unexpected": [it.name for it in found if not it.is_expected],
        "slowest": {"name": slowest.name, "seconds": round(slowest.seconds, 3)},
        "over_a_second": [it.name for it in found if it.seconds >= 1],
        "peak_MB": peak() // MB,
        "rss_MB": [size // MB for size in sizes],
    }
    report("hostile_media", figures, given.out, seed=given.seed, rounds=given.rounds)


if __name__ == "__main__":
    main()
