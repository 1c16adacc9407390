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


def model(row: Row) -> Lines:
    """Steps and prefills beside their floors."""
    lines = []
    for name, of in _measured(row, "ms"):
        times = [f"{of['ms']:.2f} ms", f"{of['floor_ms']:.2f} ms", f"{of['over_floor']:.2f}×"]
        shares = (of.get("share_of_product_rate"), of.get("idle_share"))
        lines.append([name, *times, *(NONE if it is None else f"{it:.1%}" for it in shares)])
    head = ["what", "time", "floor", "time / floor", "of the matrix rate", "device idle"]
    return [head, *lines]


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
    """Other engines on the same machine."""
    lines = []
    for name, of in row["figures"]["cases"].items():
        if "absent" in of or isinstance(of.get("error"), str):
            continue
        cells = [of.get(key) for key in ("prompts_per_second", "output_tokens_per_second")]
        cells.append(of.get("ms_per_token"))
        lines.append([name, *(NONE if it is None else f"{it:,.2f}" for it in cells)])
    head = ["engine", "prompts per second", "output tokens per second", "ms per token, alone"]
    return [head, *lines]


def _measured(row: Row, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The figures that have this key, by case and, where a case has several, by what they are."""
    for name, of in row["figures"]["cases"].items():
        if key in of:
            yield name, of
            continue
        for inner, it in of.items():
            if isinstance(it, dict) and key in it:
                yield f"{name}, {inner}", it


def _number(value: Any) -> str:
    return NONE if value is None else f"{value:.1e}" if value and value < 0.1 else f"{value:g}"
