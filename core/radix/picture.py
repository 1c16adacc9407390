"""The radix tree as a picture: lines for a terminal, or an SVG. Both show how much is shared.

Pure functions of a snapshot. It knows nothing of tokenizers (texts come from `label`), of terminals
or of colours in them: how hot an edge is, from 0 to 1, goes with each line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias
from unicodedata import category, east_asian_width
from xml.sax.saxutils import escape

from .node import NodeView

Label: TypeAlias = Callable[[tuple[int, ...]], str]
LEAST_TEXT = 12  # columns of a line that an edge's text gets in any case


@dataclass(frozen=True, slots=True)
class Twig:
    """One edge as it is drawn, or the rest of its siblings in one.

    text: in one line, of printable characters only. num_tokens: of the edge (of all that it stands
      for, if it is a root or a rest). sharers: how many cached texts run through it. hits: how
      often it was found again. heat: hits beside those of the hottest edge, 0 to 1.
    """

    text: str
    num_tokens: int
    sharers: int
    hits: int
    heat: float
    children: tuple[Twig, ...] = ()

    @property
    def notes(self) -> str:
        """Its figures in words."""
        found = [_amount(self.num_tokens, "token")]
        if self.hits:
            found.append(_amount(self.hits, "hit"))
        if self.sharers > 1:
            found.append(f"shared by {self.sharers:,}")
        return ", ".join(found)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a picture: `guide` (its place in the tree), `text` and `notes`."""

    guide: str
    text: str
    notes: str
    heat: float

    def __str__(self) -> str:
        return f"{self.guide}{self.text} ({self.notes})"


def tree_twigs(
    views: Sequence[NodeView], label: Label, max_depth: int, max_children: int
) -> tuple[Twig, ...]:
    """What a picture shows of a snapshot (parents before children): a twig for each namespace.

    max_depth: edges on a way down at most; deeper ones are counted only. max_children: of an edge,
    at most: those that most texts share, and one twig for all the others.
    """
    planter = _Planter(views, label, max_children)
    return tuple(planter.plant(view, max_depth) for view in views if view.parent < 0)


def tree_lines(
    views: Sequence[NodeView],
    label: Label,
    *,
    width: int = 80,
    max_depth: int = 4,
    max_children: int = 4,
) -> tuple[Line, ...]:
    """The tree in box-drawing characters, long texts shortened to lines of `width` columns."""
    roots = tree_twigs(views, label, max_depth, max_children)
    return tuple(line for root in roots for line in _lines(root, width, "", ""))


def tree_svg(
    views: Sequence[NodeView], label: Label, *, max_depth: int = 8, max_children: int = 16
) -> str:
    """The tree as an SVG file, from left to right; an edge is as thick as it is hot."""
    roots = tree_twigs(views, label, max_depth, max_children)
    rows = count()
    boxes = [_place(root, 0, rows) for root in roots]
    placed = [box for root in boxes for box in _walk(root)]
    width = max((box.x + _BOX_WIDTH for box in placed), default=0) + _MARGIN
    height = next(rows) * _ROW + _MARGIN
    links = [_draw_link(box, child) for box in placed for child in box.children]
    return "\n".join([_head(width, height), *links, *map(_draw_box, placed), "</svg>", ""])


class _Planter:
    """Makes twigs of views, with the sums over what is below them."""

    def __init__(self, views: Sequence[NodeView], label: Label, max_children: int) -> None:
        self._views = {view.id: view for view in views}
        self._label = label
        self._max_children = max_children
        self._most = max((view.hits for view in views if view.parent >= 0), default=0)
        self._leaves: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        for view in reversed(views):
            under = view.children
            self._leaves[view.id] = sum(self._leaves[child] for child in under) or 1
            self._tokens[view.id] = len(view.tokens) + sum(self._tokens[c] for c in under)

    def plant(self, view: NodeView, depth: int) -> Twig:
        """The twig of a view, with at most `depth` edges on a way down from it."""
        is_root = view.parent < 0
        return Twig(
            text=view.namespace or "root" if is_root else printable(self._label(view.tokens)),
            num_tokens=self._tokens[view.id] if is_root else len(view.tokens),
            sharers=self._leaves[view.id],
            hits=0 if is_root else view.hits,
            heat=0.0 if is_root else view.hits / max(1, self._most),
            children=self._children(view, depth),
        )

    def _children(self, view: NodeView, depth: int) -> tuple[Twig, ...]:
        limit = self._max_children if depth else 0
        ranked = sorted(view.children, key=lambda child: -self._leaves[child])
        rest = ranked[limit:]
        shown = [child for child in view.children if child not in rest]
        twigs = [self.plant(self._views[child], depth - 1) for child in shown]
        return tuple(twigs + [self._rest(rest)] if rest else twigs)

    def _rest(self, nodes: Sequence[int]) -> Twig:
        """One twig for all of these nodes and what is below them."""
        return Twig(
            text=f"… {len(nodes):,} more",
            num_tokens=sum(self._tokens[node] for node in nodes),
            sharers=sum(self._leaves[node] for node in nodes),
            hits=0,
            heat=0.0,
        )


def _lines(twig: Twig, width: int, guide: str, below: str) -> Iterator[Line]:
    room = width - len(guide) - len(twig.notes) - len(" ()")
    yield Line(guide, shorten(twig.text, max(LEAST_TEXT, room)), twig.notes, twig.heat)
    for child in twig.children[:-1]:
        yield from _lines(child, width, below + "├─ ", below + "│  ")
    for child in twig.children[-1:]:
        yield from _lines(child, width, below + "└─ ", below + "   ")


def printable(text: str) -> str:
    """The text in one line: line ends as ↵, whatever else cannot be seen as ·."""
    seen = text.strip(" ").replace("\n", "↵").replace("\t", " ") or "␣"
    return "".join("·" if category(char)[0] == "C" else char for char in seen)


def shorten(text: str, width: int) -> str:
    """The beginning of a text that fits into `width` columns, with … where more follows."""
    columns = 0
    for place, char in enumerate(text):
        columns += _columns(char)
        if columns > width:
            return shorten(text[:place], width - 1).removesuffix("…").rstrip() + "…"
    return text


def _columns(char: str) -> int:
    return 2 if east_asian_width(char) in "WF" else 1


def _amount(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


_BOX_WIDTH, _BOX_HEIGHT = 260, 38
_COLUMN, _ROW = _BOX_WIDTH + 70, _BOX_HEIGHT + 10
_MARGIN = 16
_TEXT_WIDTH = 33  # columns of a box in its font
_TIP_WIDTH = 600  # characters that a viewer shows of an edge's text under the pointer
_COLD, _HOT = (126, 140, 158), (214, 69, 20)
_STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d2733}"
    ".text{font-size:12px}.notes{font-size:10px;fill:#5b6775}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    """A twig and its place, in pixels from the upper left corner to that of its box."""

    twig: Twig
    x: float
    y: float
    children: tuple[_Box, ...]


def _place(twig: Twig, depth: int, rows: Iterator[int]) -> _Box:
    """Leaves get one row after another; a twig stands in the middle of its children."""
    children = tuple(_place(child, depth + 1, rows) for child in twig.children)
    own = (children[0].y + children[-1].y) / 2 if children else _MARGIN + next(rows) * _ROW
    return _Box(twig, _MARGIN + depth * _COLUMN, own, children)


def _walk(box: _Box) -> Iterator[_Box]:
    yield box
    for child in box.children:
        yield from _walk(child)


def _head(width: float, height: float) -> str:
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n<title>radix tree</title>\n'
        f'<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="#ffffff"/>'
    )


def _draw_link(parent: _Box, child: _Box) -> str:
    start, end = parent.x + _BOX_WIDTH, child.x
    high, low = parent.y + _BOX_HEIGHT / 2, child.y + _BOX_HEIGHT / 2
    middle = (start + end) / 2
    thick = 1 + 9 * math.sqrt(child.twig.heat)
    return (
        f'<path d="M{start:g} {high:g}C{middle:g} {high:g} {middle:g} {low:g} {end:g} {low:g}"'
        f' fill="none" stroke="{_color(child.twig.heat)}" stroke-width="{thick:.1f}"/>'
    )


def _draw_box(box: _Box) -> str:
    twig, left = box.twig, box.x + 9
    return (
        f"<g><title>{escape(shorten(twig.text, _TIP_WIDTH))}</title>"
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6"'
        f' fill="#f7f9fb" stroke="{_color(twig.heat)}" stroke-width="1.5"/>'
        f'<text class="text" x="{left:g}" y="{box.y + 16:g}" xml:space="preserve">'
        f"{escape(shorten(twig.text, _TEXT_WIDTH))}</text>"
        f'<text class="notes" x="{left:g}" y="{box.y + 30:g}">{escape(twig.notes)}</text></g>'
    )


def _color(heat: float) -> str:
    mixed = (cold + (hot - cold) * math.sqrt(heat) for cold, hot in zip(_COLD, _HOT, strict=True))
    return "#" + "".join(f"{round(part):02x}" for part in mixed)
