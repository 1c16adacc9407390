"""The picture of a load, as SVG: how its latencies are distributed, and tokens over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import TypeAlias
from xml.sax.saxutils import escape

from .figures import FIRST, GAP, WHOLE, quantile, samples
from .outcome import Outcome

_WIDTH, _HEIGHT, _LEFT, _TOP, _BETWEEN = 620, 220, 64, 56, 96
_COLOURS = {FIRST: "#3b6ea5", GAP: "#4f8f5b", WHOLE: "#c05a2b"}
_FILL, _OPEN = "#9db8d6", "#c05a2b"
_LEAST = 1e-5  # seconds: shorter times are at the left edge
_POINTS = 200  # of a curve
_BINS = 80  # of the time

Point: TypeAlias = tuple[float, float]


def load_svg(outcomes: Sequence[Outcome], title: str) -> str:
    """Two plots above each other: for each kind of latency the share of its values that are not
    longer; and over time the tokens that came per second, with the number of open requests."""
    well = [it for it in outcomes if it.failure is None]
    lower = _TOP + _HEIGHT + _BETWEEN
    width, height = _LEFT + _WIDTH + 64, lower + _HEIGHT + 48
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12" fill="#333">',
        f"<title>{escape(title)}</title>",
        '<rect width="100%" height="100%" fill="#fff"/>',
        _text(_LEFT, 20, title, "start"),
        *_distribution(well, _TOP),
        *_over_time(outcomes, lower),
        "</svg>",
        "",
    ]
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Axis:
    """From values to pixels. A logarithmic one spans whole powers of ten."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def to_pixels(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            low, high, value = log10(low), log10(high), log10(max(value, low))
        share = (value - low) / (high - low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


def _distribution(well: Sequence[Outcome], top: float) -> Iterator[str]:
    """Curves of the share of values that are at most so long."""
    all_times = samples(well)
    found = {name: all_times[name] for name in _COLOURS if all_times[name]}
    yield from _legend({name: _COLOURS[name] for name in found}, top - 12)
    if not found:
        yield _text(_LEFT + _WIDTH / 2, top + _HEIGHT / 2, "no request ended well", "middle")
        return
    times = [max(_LEAST, value) for values in found.values() for value in values]
    low, high = floor(log10(min(times))), ceil(log10(max(times)))
    across = _Axis(10.0**low, 10.0 ** max(high, low + 1), _LEFT, _LEFT + _WIDTH, True)
    up = _Axis(0, 1, top + _HEIGHT, top)
    for power in range(low, max(high, low + 1) + 1):
        yield from _upright(across.to_pixels(10.0**power), top, _seconds(power))
    for share in (0, 0.5, 0.9, 1):
        yield from _level(up.to_pixels(share), f"{share:.0%}")
    for name, values in found.items():
        shares = [number / _POINTS for number in range(_POINTS + 1)]
        points = [(across.to_pixels(quantile(values, it)), up.to_pixels(it)) for it in shares]
        yield _curve(points, _COLOURS[name])


def _over_time(outcomes: Sequence[Outcome], top: float) -> Iterator[str]:
    """Bars of tokens per second, and a line of the requests that are open."""
    end = max((it.ended for it in outcomes), default=0.0) or 1.0
    rates, opens = tokens_per_second(outcomes, end, _BINS), open_requests(outcomes, end, _BINS)
    across = _Axis(0, end, _LEFT, _LEFT + _WIDTH)
    up = _Axis(0, max(*rates, 1), top + _HEIGHT, top)
    right = _Axis(0, max(*opens, 1), top + _HEIGHT, top)
    yield from _legend({"output tokens/s": _FILL, "open requests (right)": _OPEN}, top - 12)
    for quarter in range(5):
        at = end * quarter / 4
        yield from _upright(across.to_pixels(at), top, f"{at:.3g} s")
        label = f"{up.high * quarter / 4:,.4g}"
        yield from _level(up.to_pixels(up.high * quarter / 4), label)
        y = right.to_pixels(right.high * quarter / 4)
        yield _text(_LEFT + _WIDTH + 8, y + 4, f"{right.high * quarter / 4:,.3g}", "start")
    size = _WIDTH / _BINS
    for number, rate in enumerate(rates):
        y = up.to_pixels(rate)
        box = f'x="{_LEFT + number * size:.1f}" y="{y:.1f}" width="{size:.1f}"'
        yield f'<rect {box} height="{top + _HEIGHT - y:.1f}" fill="{_FILL}"/>'
    middles = [_LEFT + (number + 0.5) * size for number in range(_BINS)]
    yield _curve([(x, right.to_pixels(it)) for x, it in zip(middles, opens, strict=True)], _OPEN)


def tokens_per_second(outcomes: Sequence[Outcome], end: float, num: int) -> list[float]:
    """In each of `num` equal parts of the time until `end`. A stream's tokens come in equal shares
    with its pieces, others with the end of the answer."""
    found = [0.0] * num
    for it in outcomes:
        times = it.pieces or (it.ended,)
        for at in times:
            part = min(num - 1, int(at / end * num))
            found[part] += it.completion_tokens / len(times)
    return [tokens * num / end for tokens in found]


def open_requests(outcomes: Sequence[Outcome], end: float, num: int) -> list[float]:
    """How many were open, on average over each of `num` equal parts of the time until `end`."""
    found, size = [0.0] * num, end / num
    for it in outcomes:
        for part in range(int(it.due / size), min(num, int(it.ended / size) + 1)):
            start, stop = max(it.due, part * size), min(it.ended, (part + 1) * size)
            found[part] += max(0.0, stop - start) / size
    return found


def _legend(colours: dict[str, str], y: float) -> Iterator[str]:
    x = float(_LEFT)
    for name, colour in colours.items():
        yield f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="10" height="10" fill="{colour}"/>'
        yield _text(x + 15, y, name, "start")
        x += 40 + 7 * len(name)


def _upright(x: float, top: float, label: str) -> Iterator[str]:
    """A line of the grid, and its name below."""
    low = top + _HEIGHT
    yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{low}" stroke="#e4e4e4"/>'
    yield _text(x, low + 18, label, "middle")


def _level(y: float, label: str) -> Iterator[str]:
    """The same across, its name to the left."""
    right = _LEFT + _WIDTH
    yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e4e4"/>'
    yield _text(_LEFT - 8, y + 4, label, "end")


def _curve(points: Sequence[Point], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _seconds(power: int) -> str:
    """A power of ten of seconds in its unit."""
    if power >= 0:
        return f"{10**power:,} s"
    unit, zero = ("ms", -3) if power >= -3 else ("µs", -6)
    return f"{10 ** (power - zero)} {unit}"
