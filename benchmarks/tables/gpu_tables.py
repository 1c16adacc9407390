"""The tables about GPUs: a stage's row as lines of cells. `table.py` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Row = dict[str, Any]
Lines = list[list[str]]
NONE = "–"


def kernels(row: Row) -> Lines:
    """Each kernel beside its oracle and its floor."""
    lines = [
        [
            name,
            _number(of.get("error", of.get("same"))),
            f"{of['us']:,.1f} µs",
            f"{of['floor_us']:,.1f} µs",
            f"{of['over_floor']:.2f}×",
        ]
        for name, of in _measured(row, "us")
    ]
    return [["kernel", "error (draws: same tokens)", "time", "floor", "time / floor"], *lines]


def steps(row: Row) -> Lines:
    """Steps beside their floors: by the wall clock, on the device, and of the launching thread."""
    lines = []
    for name, of in _measured(row, "ms"):
        if "device_ms" not in of:
            continue
        times = [_optional(of.get(key), "{:.2f} ms") for key in ("ms", "device_ms", "host_ms")]
        floor = [_optional(of.get("floor_ms"), "{:.2f} ms"), _ratio(of.get("over_floor"))]
        shares = [of.get(key) for key in ("share_of_product_rate", "replayed")]
        shown = [_optional(it, "{:.1%}") for it in shares]
        lines.append([_titled(name, of), *times, *floor, *shown])
    head = ["step", "time", "device", "host", "floor", "time / floor", "of the matrix rate"]
    return [[*head, "replayed"], *lines]


def engine(row: Row) -> Lines:
    """Decode steps of the whole engine."""
    lines = []
    for name, of in _measured(row, "outside_runner"):
        times = [f"{of['ms']:.2f} ms", f"{of['floor_ms']:.2f} ms", _ratio(of["over_floor"])]
        shares = [of["outside_runner"], of.get("idle_share")]
        shown = [_optional(it, "{:.1%}") for it in shares]
        lines.append([_titled(name, of), str(of["sequences"]), *times, *shown])
    head = ["engine", "sequences", "time of a step", "floor", "time / floor"]
    return _unless_empty([[*head, "outside the runner", "device idle"], *lines])


def largest(row: Row) -> Lines:
    """The largest kernels of some steps."""
    lines = []
    for step, of in _measured(row, "kernels"):
        for kernel in of["kernels"]:
            name = kernel["name"].replace("|", "\\|")
            figures = [f"{kernel['launches']:g}", f"{kernel['us']:,.0f} µs"]
            lines.append([step, f"`{name}`", *figures, f"{kernel['share']:.1%}"])
    head = ["step", "kernel", "launches", "time", "share of the device's time"]
    return _unless_empty([head, *lines])


def throughput(row: Row) -> Lines:
    """Prompts of 1k tokens, answered with as many."""
    lines = []
    for name, of in _measured(row, "output_tokens_per_second"):
        rates = [f"{of[f'{kind}_tokens_per_second']:,.0f}" for kind in ("output", "all")]
        lines.append([_titled(name, of), str(of["calls"]), *rates, _ratio(of["over_floor"])])
    head = ["model", "calls at once", "output tokens per second", "all tokens per second"]
    return [[*head, "time / floor"], *lines]


def host(row: Row) -> Lines:
    """What the host tier keeps of an unlimited pool's reuse."""
    lines = []
    for name, of in row["figures"]["cases"].items():
        for pool, figures in of.items():
            if isinstance(figures, dict) and "cached_share" in figures:
                rate, share = figures["programs_per_second"], figures["cached_share"]
                lines.append([name, pool, f"{rate:.2f}", f"{share:.3f}"])
    return _unless_empty([["workload", "pool", "programs per second", "cached share"], *lines])


def workloads(row: Row) -> Lines:
    """The paper's workloads, and what each part of the runtime is worth there."""
    lines = []
    for name, of in row["figures"]["cases"].items():
        if "nothing" not in of:
            continue
        rates = [f"{of[way]['programs_per_second']:.2f}" for way in ("all", "nothing")]
        ratios = [f"{of['ratio'][way]:.2f}×" for way in ("all", "no hints", "first come")]
        first = [f"{of[way]['first_token_ms']['median']:.0f} ms" for way in ("all", "nothing")]
        lines.append([name, *rates, *ratios, f"{of['all']['cached_share']:.3f}", *first])
    head = ["workload", "programs per second", "cache off", "ratio", "no hints", "first come"]
    return [[*head, "cached share", "first token", "cache off"], *lines]


def peers(row: Row) -> Lines:
    """Other engines on the same machine and prompts: prompts per second."""
    cases = row["figures"]["cases"]
    tasks = [name for name, of in cases["forkroot"].items() if isinstance(of, dict)]
    lines = []
    for name, of in cases.items():
        if "absent" in of or "skipped" in of or isinstance(of.get("error"), str):
            continue
        found = [of.get(task, {}).get("prompts_per_second") for task in tasks]
        if "prompts_per_second" in of:  # of one task alone
            found[0] = of["prompts_per_second"]
        alone = _optional(of.get("ms_per_token"), "{:.2f} ms")
        lines.append([name, *(_optional(it, "{:,.2f}") for it in found), alone])
    return [["prompts per second", *tasks, "a token, one prompt"], *lines]


def _measured(row: Row, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The figures that have this key, by case and, where a case has several, by what they are."""
    for name, of in row["figures"]["cases"].items():
        if key in of:
            yield name, of
            continue
        for inner, it in of.items():
            if isinstance(it, dict) and key in it:
                yield f"{name}, {inner}", it


def _unless_empty(lines: Lines) -> Lines:
    """Raises KeyError where there is nothing but a head: the row is of a part of its stage."""
    if len(lines) == 1:
        raise KeyError("no figures")
    return lines


def _titled(name: str, of: Mapping[str, Any]) -> str:
    """With the number of layers, where not all were measured."""
    return f"{name} ({of['layers']} layers)" if "layers" in of else name


def _optional(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)


def _ratio(value: float | None) -> str:
    return _optional(value, "{:.2f}×")


def _number(value: Any) -> str:
    return NONE if value is None else f"{value:.1e}" if value and value < 0.1 else f"{value:g}"
