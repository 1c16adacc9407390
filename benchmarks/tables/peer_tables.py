"""The tables about other engines, and their picture: rows of figures as lines of cells, or as SVG.

`table.py` writes the tables; this file, run by itself, plots docs/serving.svg from the newest row.
"""

from __future__ import annotations

from math import log10
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from forkroot.benchmarks.common.report import rows

PICTURE = Path(__file__).parents[2] / "docs" / "serving.svg"
TITLES = {
    "5-shot": "5-shot, one token",
    "react": "ReAct replay",
    "tree": "tree of thought",
    "skeleton": "skeleton of thought",
    "chat": "chat, short answers",
    "long chat": "chat, long answers",
    "rag": "RAG",
    "judge": "judge (fork of 6)",
    "none": "nothing shared",
    "schema": "JSON by schema",
    "regex": "JSON by regex",
    "select": "select of 4, scored",
    "choice": "choice of 4, decoded",
}
PEERS = {"vllm": "vLLM, CPU", "transformers": "transformers", "llama.cpp": "llama.cpp"}
COLOURS = {"vllm": "#3b6ea5", "transformers": "#c98a2b", "llama.cpp": "#5a8f5a"}
COUNTING = ("ours", "vllm", "llama.cpp")  # those that report how much of a prompt was cached
LEFT, WIDTH, BAR, GAP, TOP = 170, 520, 11, 10, 46
TICKS = (0.5, 1, 2, 5, 10, 20, 50)

Row = dict[str, Any]
Lines = list[list[str]]


def serving(row: Row) -> Lines:
    """Programs per second beside the peers'."""
    found = row["figures"]["serving"]
    peers = _peers(found)
    head = ["programs per second", "ours", *peers.values()]
    for title in peers.values():
        head += [f"ours / {title}", "by processor time"]
    lines = []
    for name, of in found.items():
        rates = [_cell(of, engine, "programs_per_second", "{:.2f}") for engine in ("ours", *peers)]
        ratios = [
            _cell(of, peer, key, "{:.2f}×") for peer in peers for key in ("ratio", "cpu_ratio")
        ]
        lines.append([TITLES[name], *rates, *ratios])
    return [head, *lines]


def cached(row: Row) -> Lines:
    """Programs, their tokens, and how many of these were in a cache."""
    head = ["workload", "programs", "calls", "prompt tokens", "generated"]
    found = row["figures"]["serving"]
    engines = {"ours": "ours", **_peers(found)}
    counting = [engine for engine in COUNTING if engine in engines]
    head += [f"cached, {engines[engine]}" for engine in counting]
    lines = []
    for name, of in found.items():
        sizes = [f"{of['ours'][key]:,.0f}" for key in ("programs", "calls", "prompt_tokens")]
        shares = [_cell(of, engine, "cached_share", "{:.3f}") for engine in counting]
        lines.append([TITLES[name], *sizes, f"{of['ours']['completion_tokens']:,.0f}", *shares])
    return [head, *lines]


def first_tokens(row: Row) -> Lines:
    """Time to the first text of a stream."""
    found = row["figures"]["streamed"]
    engines = {"ours": "ours", **_peers(found)}
    head = ["workload"]
    for title in engines.values():
        head += [f"{title}, median", "p99"]
    lines = []
    for name, of in found.items():
        times = [of[engine]["first_token_ms"] if engine in of else None for engine in engines]
        cells = [
            "–" if time is None else f"{time[key]:,.0f} ms"
            for time in times
            for key in ("median", "p99")
        ]
        lines.append([TITLES[name], *cells])
    return [head, *lines]


def steps(row: Row) -> Lines:
    """A decode step of a model of next to no size."""
    found = row["figures"]["steps"]
    peers = _peers(found)
    head = ["calls at a time", "ours", *peers.values()]
    head += [f"{title} / ours" for title in peers.values()]
    lines = []
    for num, of in found.items():
        times = [_cell(of, engine, "step_us", "{:,.0f} µs") for engine in ("ours", *peers)]
        lines.append([num, *times, *(_cell(of, peer, "ratio", "{:.2f}×") for peer in peers)])
    return [head, *lines]


def _peers(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    """The peers that were measured."""
    return {
        peer: title for peer, title in PEERS.items() if any(peer in of for of in found.values())
    }


def _cell(of: dict[str, Any], engine: str, key: str, form: str) -> str:
    value = of.get(engine, {}).get(key)
    return "–" if value is None else form.format(value)


def picture(row: Row) -> str:
    """Bars: how many times as many programs per second ours does, on a logarithmic scale."""
    found = row["figures"]["serving"]
    peers = _peers(found)
    line = len(peers) * BAR + GAP
    height = TOP + line * len(found) + 30
    parts = [*_legend(peers), *_scale(height)]
    for index, (name, of) in enumerate(found.items()):
        y = TOP + index * line
        parts.append(_text(LEFT - 8, y + BAR + 4, TITLES[name], "end"))
        for number, peer in enumerate(peers):
            if peer in of:
                parts += _bar(y + number * BAR, of[peer]["ratio"], COLOURS[peer])
    size = f'width="{LEFT + WIDTH + 60}" height="{height}"'
    style = 'font-family="sans-serif" font-size="12" fill="#333"'
    body = "\n".join(parts)
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{back}\n{body}\n</svg>\n'


def _x(ratio: float) -> float:
    """Where a ratio is plotted: the first tick at the left edge, the last at the right."""
    low, high = log10(TICKS[0]), log10(TICKS[-1])
    return LEFT + WIDTH * min(1.05, max(0.0, (log10(ratio) - low) / (high - low)))


def _bar(y: float, ratio: float, colour: str) -> list[str]:
    """From 1 to the ratio."""
    one, end = _x(1), _x(ratio)
    box = f'x="{min(one, end):.1f}" y="{y}" width="{abs(end - one):.1f}" height="{BAR - 1}"'
    label = _text(max(one, end) + 4, y + BAR - 2, f"{ratio:.2f}×", "start")
    return [f'<rect {box} fill="{colour}"/>', label]


def _legend(peers: dict[str, str]) -> list[str]:
    parts = [_text(LEFT, 16, "programs per second, ours over", "start")]
    for number, (peer, title) in enumerate(peers.items()):
        x = LEFT + 190 + 120 * number
        parts.append(f'<rect x="{x}" y="7" width="10" height="10" fill="{COLOURS[peer]}"/>')
        parts.append(_text(x + 15, 16, title, "start"))
    return parts


def _scale(height: float) -> list[str]:
    parts = []
    for tick in TICKS:
        x, colour = _x(tick), "#999" if tick == 1 else "#e4e4e4"
        ends = f'x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 26}"'
        parts.append(f'<line {ends} stroke="{colour}"/>')
        parts.append(_text(x, height - 10, f"{tick:g}×", "middle"))
    return parts


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(rows("peers")[-1]))
