"""Tensor parallelism (paper, figures 7 and 11) and data parallelism (appendix A.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from statistics import median
from types import SimpleNamespace
from typing import Any

from ..engines import Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..programs.catalog import workload
from ..programs.workload import Outcome
from ..rows import Row

TENSOR, DATA = "tensor parallel", "data parallel"
RATE, EQUAL, TIMES = "programs per second", "answers equal to one rank's", "over no cache"
OF_OPTIMUM, OF_LINEAR, DECISION = "hit rate over optimum", "speed-up over linear", "decision"
ONE, TWO, NONE = "ours, 1 rank", "ours, 2 ranks", "no cache, 2 ranks"
NAMES = ("mmlu", "tree of thought", "json city")
QUICK = ("mmlu", "json city")  # two ranks on two cores are slow


def tensor_steps(settings: Settings) -> list[Step]:
    """All in one step: a second process is started once."""
    return [Step("two ranks", _tensor, settings.pick(15, 20, 60))]


def _tensor(engines: Engines) -> list[Row]:
    settings, rows = engines.settings, list[Row]()
    names = {"smallest": NAMES[:1], "quick": QUICK}.get(settings.mode, NAMES)
    num = settings.num(4, 4, 1_000)
    whole = {name: workload(name, settings).first(num) for name in names}
    outcomes = dict[tuple[str, str], list[Outcome]]()
    for title, start in _ranks(engines).items():
        with start() as engine:
            for name in names:
                whole[name].first(1).run(engine)
                runs = [whole[name].run(engine) for _ in range(settings.num(1, 1, 3))]
                outcomes[name, title] = runs
                rate = median(run.rate for run in runs)
                note = f"{whole[name].source}; {len(whole[name].items)} programs"
                cells = whole[name].title, title, rate, "programs/s"
                rows.append(Row(TENSOR, RATE, *cells, note=note))
    for name in names:
        one, two, none = (outcomes[name, title] for title in (ONE, TWO, NONE))
        pairs = zip(one[0].answers, two[0].answers, strict=True)
        share = sum(a == b for a, b in pairs) / len(one[0].answers)
        title = whole[name].title
        rows.append(Row(TENSOR, EQUAL, title, TWO, share, bar=1.0))
        ratio = median(run.rate for run in two) / median(run.rate for run in none)
        rows.append(Row(TENSOR, TIMES, title, TWO, ratio, "×", bar=1.0))
    return rows


def _ranks(engines: Engines) -> dict[str, Callable[[], AbstractContextManager[Engine]]]:
    """One rank in this process, and two ranks with and without the cache."""

    @contextmanager
    def two(**options: Any) -> Iterator[Engine]:
        import forkroot

        size = {"num_slots": 16_384, "dtype": "float32"}
        model = engines.settings.model
        backend = forkroot.connect(model, process=True, ranks=2, **size, **options)
        try:
            yield Engine(TWO, backend, frozenset({"score", "regex"}), "cache" not in options)
        finally:
            backend.close()

    return {ONE: lambda: nullcontext(engines.ours()), TWO: two, NONE: lambda: two(cache=False)}


TENSOR_FIGURE = Figure(
    TENSOR,
    "Tensor parallelism",
    "Figures 7 and 11: Mixtral-8x7B on 8 A10G and Llama-70B on 4 A100: the trend of"
    " smaller models.",
    "The model split over two processes that exchange sums (gloo, on the same cores: two ranks are"
    " not faster than one here), with the cache and without: sharing is worth the same.",
    tensor_steps,
    (
        Chart(TIMES, unit="×", is_ratio=True),
        Chart(RATE, unit="programs/s", is_log=True),
        Chart(EQUAL),
    ),
)


def data_steps(settings: Settings) -> list[Step]:
    """A shape on so many replicas, by each policy."""
    shapes = ("mmlu",) if settings.mode != "full" else ("mmlu", "tree", "judge", "chat", "rag")
    nums = (4,) if settings.mode != "full" else (4, 16)
    return [
        Step(f"{shape}, {num}", lambda engines, s=shape, n=num: _data(s, n, engines), 3.0 * num)
        for shape in shapes
        for num in nums
    ]


def _data(shape: str, num: int, engines: Engines) -> list[Row]:
    from contextlib import redirect_stdout
    from io import StringIO

    from forkroot.benchmarks.router.simulation import POLICIES, SHAPES, measure

    settings = engines.settings
    options = SimpleNamespace(
        seed=settings.seed, zipf=1.0, programs=1.0, slots=1 << 17, faults=False,
        scale=settings.pick(0.25, 0.5, 1.0),
    )  # fmt: skip
    with redirect_stdout(StringIO()):
        found = measure(shape, SHAPES[shape], num, list(POLICIES), options)
    title, rows = f"{shape}, {num} replicas", []
    note = f"{found['programs']} programs of several tenants, synthetic, virtual time"
    for policy in POLICIES:
        part = found[policy]
        own = policy == "affinity"
        series = f"{policy} (ours)" if own else policy
        bar, paper = (0.99, "optimal") if own else (None, "")
        cells = title, series, part["of_optimum"]
        rows.append(Row(DATA, OF_OPTIMUM, *cells, bar=bar, paper=paper, note=note))
        bar, paper = (0.9, "linear scaling, 4 workers") if own else (None, "")
        cells = title, series, part["of_linear"]
        rows.append(Row(DATA, OF_LINEAR, *cells, bar=bar, paper=paper, note=note))
        rows.append(Row(DATA, DECISION, title, series, part["decision_us"][0], "µs", note=note))
    return rows


DATA_FIGURE = Figure(
    DATA,
    "Data parallelism",
    "Appendix A.4: four workers on MMLU scale linearly, with the optimal hit rate.",
    "The router before replicas in virtual time: the real router and real caches, and a"
    " model of how"
    " long an engine takes. “sglang” is the policy of its router, written here after its"
    " description.",
    data_steps,
    (
        Chart(OF_OPTIMUM),
        Chart(OF_LINEAR),
        Chart(DECISION, unit="µs", better="lower", is_log=True),
    ),
)
