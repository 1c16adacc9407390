"""Guidance programs in threads: on our runtime, and on Guidance's own transformers backend.

Eight programs at a time, each a few sentences of `gen`, `select`, `regex` and `json` over a prompt
that all share. Guidance's own engine keeps one key-value cache and is not made for threads, so its
programs run one after the other, which is how its users run them. Both write greedily with the same
checkpoint in float32. Rounds are taken in turn; the ratio is that within a round.

Needs guidance and transformers. Prints one JSON row.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from forkroot.benchmarks.common.checkpoints import MODELS, make
from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.model.hub.folders import model_folder

with needs("guidance"):
    import guidance
    from guidance import gen, models, select
    from guidance import json as gen_json

    from forkroot.adapters.guidance import Forkroot

NUM_PROGRAMS = 8
COUNTRIES = ("France", "Japan", "Kenya", "Norway", "Peru", "Spain", "Egypt", "India")
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "size": {"enum": ["small", "large"]},
        "year": {"type": "integer", "minimum": 1000, "maximum": 2999},
    },
    "required": ["name", "size", "year"],
    "additionalProperties": False,
}
ROOT = "".join(
    f"Country: {country}\nCapital: {capital}\nContinent: {continent}\n\n"
    for country, capital, continent in (
        ("Poland", "Warsaw", "Europe"),
        ("Cuba", "Havana", "America"),
        ("Nepal", "Kathmandu", "Asia"),
        ("Ghana", "Accra", "Africa"),
    )
)


@guidance
def program(lm: Any, country: str) -> Any:
    """One program: facts of a country, in every way that Guidance calls a model."""
    lm += ROOT + f"Country: {country}\nCapital:" + gen("capital", max_tokens=8, stop="\n")
    lm += "\nContinent:" + select([" Europe", " Asia", " Africa", " America"], name="continent")
    lm += "\nFounded in " + gen("year", regex="[12][0-9]{3}") + ", code " + gen(regex="[A-Z]{3}")
    lm += "\nAs JSON: " + gen_json("record", schema=SCHEMA)
    return lm + "\nIn a word:" + gen("word", max_tokens=12)


def run_ours(lm: Any) -> list[str]:
    """The texts of all programs, run in threads."""
    with ThreadPoolExecutor(NUM_PROGRAMS) as pool:
        return list(pool.map(lambda country: str(lm + program(country)), COUNTRIES))


def run_theirs(lm: Any) -> list[str]:
    """The same, one after the other."""
    return [str(lm + program(country)) for country in COUNTRIES]


def timed(run: Callable[[Any], list[str]], lm: Any, is_busy: bool) -> tuple[float, list[str]]:
    """Seconds that a round takes, and its texts."""
    clock = process_time if is_busy else perf_counter
    start = clock()
    texts = run(lm)
    return clock() - start, texts


def peer(folder: Path) -> Any:
    """Guidance's own model of a checkpoint."""
    import transformers
    from transformers import cache_utils

    crop = cache_utils.Cache.crop

    def crop_as_before(cache: Any, length: int) -> None:
        """Newer transformers take only how much to remove; Guidance passes how much to keep."""
        crop(cache, length if length < 0 else length - cache.get_seq_length())

    cache_utils.Cache.crop = crop_as_before
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return models.Transformers(model, tokenizer, echo=False, enable_monitoring=False)


@contextlib.contextmanager
def checkpoint(name: str) -> Iterator[Path]:
    """The folder of a model: the embedded one, or one of random weights made for now."""
    if name == "tiny":
        yield model_folder(name)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield make(name, Path(folder))


def main() -> None:
    """Measure and print."""
    options = parser(__doc__)
    options.add_argument("--model", choices=("tiny", *MODELS), default="tiny")
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    warnings.simplefilter("ignore")
    with checkpoint(args.model) as folder:
        figures = measure(folder, args.rounds, args.busy)
    report("guidance_programs", figures, args.out, model=args.model, seed=args.seed)


def measure(folder: Path, num_rounds: int, is_busy: bool) -> dict[str, Any]:
    """Programs per second of both, and what our runtime had in its cache."""
    ours = Forkroot(folder, echo=False, dtype="float32")
    with contextlib.redirect_stderr(io.StringIO()):
        theirs = peer(folder)
    backend = ours.engine.connection.backend
    timed(run_ours, ours, is_busy), timed(run_theirs, theirs, is_busy)  # compile and warm up
    seconds: list[tuple[float, float]] = []
    same, counters = 0, backend.info().counters
    before = {name: counters[name] for name in ("prompt_tokens", "cached_tokens")}
    for _ in range(num_rounds):
        mine, texts = timed(run_ours, ours, is_busy)
        other, peer_texts = timed(run_theirs, theirs, is_busy)
        seconds.append((mine, other))
        same += sum(a == b for a, b in zip(texts, peer_texts, strict=True))
    counters = backend.info().counters
    used = {name: counters[name] - value for name, value in before.items()}
    return {
        "programs_per_second": round(NUM_PROGRAMS / median(mine for mine, _ in seconds), 2),
        "rival_per_second": round(NUM_PROGRAMS / median(other for _, other in seconds), 2),
        "ratio": round(median(other / mine for mine, other in seconds), 2),
        "clock": "processor" if is_busy else "wall",
        "same_texts": f"{same} of {num_rounds * NUM_PROGRAMS}",
        "cached_share": round(used["cached_tokens"] / used["prompt_tokens"], 3),
    }


if __name__ == "__main__":
    main()
