"""Pictures and clips (paper, table 2)."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from statistics import mean
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from forkroot.benchmarks.media import programs as media
from forkroot.benchmarks.media.checkpoint import make

from ..engines import Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..programs import native
from ..programs.workload import Workload, is_equal
from ..rows import Row

NAME = "multimodal"
RATE, TIMES, ACCURACY = "programs per second", "times the baseline's", "accuracy"
SIZES = {"image": media.Size(6, 24, 28, 1, 8), "video": media.Size(3, 12, 28, 8, 8)}
SMALLEST = {"image": media.Size(2, 4, 28, 1, 4), "video": media.Size(1, 2, 28, 4, 4)}
LARGE = {"image": media.Size(6, 30, 336, 1, 16), "video": media.Size(3, 15, 336, 8, 16)}
PAPERS = {"image": ("0.18 → 1.15 image/s (6.4×)", 5.0), "video": ("0.02 → 0.10 frame/s (5×)", 3.0)}
TITLES = {"cache": "ours", "features": "ours, no cache", "nothing": "ours, nothing shared"}


def steps(settings: Settings) -> list[Step]:
    """Pictures, clips, and what the embedded model sees."""
    seconds = settings.pick(4, 8, 120)
    found = [
        Step(kind, lambda engines, kind=kind: _measure(kind, engines), seconds) for kind in SIZES
    ]
    return [*found, Step("eyes", _eyes, settings.pick(3, 6, 20))]


def _measure(kind: str, engines: Engines) -> list[Row]:
    settings = engines.settings
    is_full = settings.mode == "full"
    size = {"smallest": SMALLEST, "quick": SIZES, "full": LARGE}[settings.mode][kind]
    language, layers = ("56m", 3) if is_full else ("tiny", 1)
    args = SimpleNamespace(
        seed=settings.seed, repeats=1, sample=None, no_rival=False, dtype="float32"
    )
    with tempfile.TemporaryDirectory() as folder:
        model = make(kind, language, layers, Path(folder) / kind)
        found = media.measure(model, kind, size, args, perf_counter)
    if "skipped" in found:
        raise RuntimeError(found["skipped"])
    note = f"{size.questions} questions about {size.media}, random weights, {language}, synthetic"
    rows = [
        Row(NAME, RATE, kind, TITLES.get(way, way), found[way]["programs_per_second"], note=note)
        for way in (*TITLES, "transformers")
    ]
    paper, bar = PAPERS[kind]
    cells = kind, "ours", found["transformers"]["ratio"], "×"
    rows.append(Row(NAME, TIMES, *cells, bar=bar, paper=paper, note=note))
    same = found["transformers"]["same_answers"] / size.questions
    rows.append(Row(NAME, ACCURACY, f"{kind}: as transformers’", "ours", same, bar=1.0, note=note))
    return rows


def _eyes(engines: Engines) -> list[Row]:
    """Questions about drawn pictures to the embedded model that sees."""
    from forkroot import image
    from forkroot.core.local import LocalBackend
    from forkroot.models.training.scenes import drawing, questions, scene
    from forkroot.models.training.scenes.pictures import png

    rng = random.Random(engines.settings.seed)
    items, truths = list[dict[str, Any]](), list[str]()
    for _ in range(engines.settings.num(2, 8, 40)):
        seen = scene.scene_of(rng, "shapes", True)
        data = png(drawing.draw(seen, 64))
        for asked in questions.some_of(rng, list(questions.colours(rng, seen)), 3):
            items.append({"shown": image(data), "question": asked.question, "length": 8})
            truths.append(asked.answer)
    workload = Workload(
        "pictures", "questions about pictures, tiny-vision", native.ask_picture, items,
        lambda state: str(state["answer"]), "drawn from a seed", truths, is_equal,
    )  # fmt: skip
    rows = []
    for series, options in (("ours", {}), ("ours, no cache", {"cache": False})):
        with LocalBackend.from_folder("tiny-vision", num_slots=16_384, **options) as backend:
            engine = Engine(series, backend, frozenset({"images"}), True)
            workload.first(1).run(engine)
            outcome = workload.run(engine)
        note = f"{workload.source}; {len(items)} questions"
        rows.append(Row(NAME, RATE, workload.title, series, outcome.rate, note=note))
        accuracy = mean(score or 0.0 for score in outcome.scores)
        rows.append(Row(NAME, ACCURACY, workload.title, series, accuracy, note=note))
    return rows


FIGURE = Figure(
    NAME,
    "Pictures and video",
    "Table 2: LLaVA-v1.5-7B 0.18 → 1.15 image/s and LLaVA-NeXT-34B 0.02 → 0.10 frame/s, beside the"
    " authors’ implementation in transformers.",
    "Several questions about each picture and each clip, on LLaVA checkpoints with random weights;"
    " the baseline is transformers’ `generate`, one question after another. Below it, questions"
    " about drawn pictures to the embedded model that sees, with their accuracy.",
    steps,
    (Chart(TIMES, unit="×", is_ratio=True), Chart(RATE, is_log=True), Chart(ACCURACY)),
)
