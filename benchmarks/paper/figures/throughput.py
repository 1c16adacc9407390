"""Throughput by workload, with the accuracy of the answers beside it (paper, figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ..engines import BASELINE, OURS, Engine, Engines
from ..figure import Chart, Figure, Settings, Step
from ..programs.catalog import WORKLOADS, workload
from ..programs.workload import Outcome, Workload
from ..rows import Row, missing

NAME = "throughput"
RATE, CPU_RATE = "programs per second", "programs per second of processor time"
ACCURACY, EQUAL = "accuracy", "answers equal to the baseline's"
NOTHING = "no cache, no hints, no jumps"
PAPER = "up to 6.4× the best of vLLM 0.2.5, Guidance, LMQL"
ALMOST_NONE = "almost no speed-up"


def dtypes(peer: str) -> tuple[str, ...]:
    """A peer at each of its settings: vLLM at the checkpoint's dtype, which is its default, too."""
    return ("vllm float32", "vllm bfloat16") if peer == "vllm" else (peer,)


def steps(settings: Settings) -> list[Step]:
    """A workload on our engine beside the baseline; and on each peer beside ours."""
    names = list(WORKLOADS) if settings.mode != "smallest" else ["mmlu", "extraction"]
    found = [Step(name, lambda engines, name=name: _own(name, engines), 7.0) for name in names]
    for peer in settings.peers:
        for kind in dtypes(peer):
            found += [
                Step(f"{name}/{kind}", lambda engines, n=name, k=kind: _peer(n, k, engines), 6.0)
                for name in names
            ]
    return found


def _own(name: str, engines: Engines) -> list[Row]:
    whole = workload(name, engines.settings)
    rounds = engines.settings.num(1, 1, 3)
    pair = {OURS: engines.ours(), NOTHING: engines.ours("nothing")}
    for engine in pair.values():  # what is loaded or compiled by the first
        whole.first(1).run(engine)
    outcomes = in_turn(whole, pair, rounds)
    rows = [row for series, found in outcomes.items() for row in rows_of(whole, series, found)]
    rows += _over(whole, NOTHING, outcomes[OURS], outcomes[NOTHING], 1.0)
    if not engines.baseline().can_run(whole.needs):
        reason = "the baseline has no constraints"
        return [*rows, missing(NAME, RATE, whole.title, BASELINE, reason)]
    few = whole.first(engines.settings.num(1, 1, 8))
    judged = few.run(engines.baseline())
    rows += rows_of(few, BASELINE, [judged])
    for series, found in outcomes.items():
        rows.append(_equal(whole, series, found[0], judged))
    return rows


def in_turn(whole: Workload, engines: dict[str, Engine], rounds: int) -> dict[str, list[Outcome]]:
    """The outcomes of each engine; in each round another begins."""
    names, outcomes = list(engines), {name: list[Outcome]() for name in engines}
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            outcomes[name].append(whole.run(engines[name]))
    return outcomes


def rows_of(whole: Workload, series: str, outcomes: Sequence[Outcome]) -> list[Row]:
    """Medians with the least and the most of the rounds."""
    count = len(outcomes[0].answers)
    note = f"{whole.source}; {count} programs, {whole.width} at a time"
    paper = PAPER if series == OURS else ""
    paper = ALMOST_NONE if paper and whole.name == "chat long" else paper
    found = []
    for measure, rates in (
        (RATE, [it.rate for it in outcomes]),
        (CPU_RATE, [len(it.answers) / max(it.cpu, 1e-3) for it in outcomes]),
    ):
        spread = (min(rates), max(rates)) if len(rates) > 1 else (None, None)
        cells = whole.title, series, median(rates), "programs/s", *spread
        shown = paper if measure == RATE else ""
        found.append(Row(NAME, measure, *cells, paper=shown, note=note))
    if outcomes[0].accuracy is not None:
        cells = whole.title, series, outcomes[0].accuracy
        found.append(Row(NAME, ACCURACY, *cells, note=note))
    return found


def _equal(whole: Workload, series: str, found: Outcome, judged: Outcome) -> Row:
    pairs = list(zip(found.answers, judged.answers, strict=False))
    share = sum(one == other for one, other in pairs) / len(pairs)
    bar = 1.0 if series == OURS else None
    return Row(NAME, EQUAL, whole.title, series, share, bar=bar, note=f"{len(pairs)} programs")


def _peer(name: str, kind: str, engines: Engines) -> list[Row]:
    """A peer, with ours in turn in the same rounds; the ratio within each round."""
    whole, peer = workload(name, engines.settings), engines.peer(kind)
    if isinstance(peer, str):
        return [missing(NAME, RATE, whole.title, kind, peer)]
    if not peer.can_run(whole.needs):
        lacking = ", ".join(sorted(whole.needs - peer.features))
        return [missing(NAME, RATE, whole.title, kind, f"it has no {lacking}")]
    pair = {OURS: engines.ours(), kind: peer}
    for engine in pair.values():
        whole.first(1).run(engine)
    outcomes = in_turn(whole, pair, engines.settings.num(1, 1, 3))
    rows = rows_of(whole, kind, outcomes[kind])
    rows += _over(whole, kind, outcomes[OURS], outcomes[kind], OVER_BAR)
    if engines.baseline().can_run(whole.needs):
        judged = whole.first(engines.settings.num(1, 1, 8)).run(engines.baseline())
        rows.append(_equal(whole, kind, outcomes[kind][0], judged))
    return rows


OVER_BAR = 1.5
OVER, CPU_OVER = "ours over others", "ours over others, by processor time"


def _over(
    whole: Workload, series: str, ours: Sequence[Outcome], others: Sequence[Outcome], bar: float
) -> list[Row]:
    """Ours over another engine, within each round."""
    pairs, rows = list(zip(ours, others, strict=True)), []
    for measure, ratios in (
        (OVER, [b.seconds / a.seconds for a, b in pairs]),
        (CPU_OVER, [b.cpu / max(a.cpu, 1e-3) for a, b in pairs]),
    ):
        spread = (min(ratios), max(ratios)) if len(ratios) > 1 else (None, None)
        cells = whole.title, series, median(ratios), "×", *spread
        rows.append(Row(NAME, measure, *cells, bar=bar, paper=PAPER if measure == OVER else ""))
    return rows


FIGURE = Figure(
    NAME,
    "Throughput by workload",
    "Figure 5 (Llama-7B on an A10G): SGLang against vLLM 0.2.5, Guidance 0.1.8 and LMQL"
    " 0.7.3, up to"
    " 6.4× higher.",
    "Each workload is a program of the native language; its text and the number of programs are in"
    " the notes. “ours” has every optimization; the second series is the same engine with"
    " the cache,"
    " hints and jump-forward off; the baseline is transformers’ model code, one call after another,"
    " on the first few programs. Peers run the same programs over the OpenAI wire. Accuracy counts"
    " right answers: an engine that is fast and wrong shows there, and where its answers"
    " differ from"
    " the baseline’s. The embedded model is small: it knows the synthetic tasks, and"
    " guesses at MMLU.",
    steps,
    (
        Chart(RATE, unit="programs/s", is_log=True),
        Chart(CPU_RATE, unit="programs/s", is_log=True),
        Chart(OVER, unit="×", is_log=True, is_ratio=True),
        Chart(CPU_OVER, unit="×", is_log=True, is_ratio=True),
        Chart(ACCURACY),
        Chart(EQUAL),
    ),
)
