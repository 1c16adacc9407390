"""The radix tree as a picture: lines for a terminal, or an SVG. Both show how much is shared.

Pure functions of a snapshot. It knows nothing of tokenizers (texts come from `label`), of terminals
or of colours in them: how hot an edge is, from 0 to 1, goes with each line.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import NamedTuple, TypeAlias
from unicodedata import category, east_asian_width
from xml.sax.saxutils import escape

from ..api.protocol import NodeView

Label: TypeAlias = Callable[[tuple[int, ...]], str]
LEAST_TEXT = 12  # columns of a line that an edge's text gets in any case


@dataclass(frozen=True, slots=True)
class Branch:
    """One edge as it is drawn, or several siblings in one. Edges in a row that were always used
    together are drawn as one.

    text: in one line, of printable characters only. num_tokens: of the edge (of all edges, if
      it is a root or several siblings). sharers: how many cached texts run through it.
    hits: how often it was found again. heat: hits beside those of the hottest edge, 0 to 1.
    num_hidden: edges below it that are not drawn.
    """

    text: str
    num_tokens: int
    sharers: int
    hits: int = 0
    heat: float = 0.0
    num_hidden: int = 0
    children: tuple[Branch, ...] = ()

    @property
    def size(self) -> int:
        """Branches drawn, itself included."""
        return 1 + sum(child.size for child in self.children)

    @property
    def notes(self) -> str:
        """Its figures in words."""
        found = [_plural(self.num_tokens, "token")]
        if self.hits:
            found.append(_plural(self.hits, "hit"))
        if self.sharers > 1:
            found.append(f"shared by {self.sharers:,}")
        if self.num_hidden:
            found.append(f"{self.num_hidden:,} below")
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


def tree_branches(
    views: Sequence[NodeView], label: Label, max_edges: int, max_depth: int
) -> tuple[Branch, ...]:
    """What a picture shows of a snapshot (parents before children): a branch for each namespace.

    max_edges: drawn below a root at most. What most texts share comes first: of the room below an
      edge its first child may take two thirds, the next one as much of what is left, and so on;
      what finds no room is only counted. max_depth: edges on a way down at most.
    """
    builder = _BranchBuilder(views, label)
    return tuple(builder.build(view, max_edges, max_depth) for view in views if view.parent < 0)


def tree_lines(
    views: Sequence[NodeView],
    label: Label,
    *,
    width: int = 80,
    max_edges: int = 24,
    max_depth: int = 8,
) -> tuple[Line, ...]:
    """The tree in box-drawing characters, long texts shortened to lines of `width` columns."""
    roots = tree_branches(views, label, max_edges, max_depth)
    return tuple(line for root in roots for line in _lines(root, width, "", ""))


def tree_svg(
    views: Sequence[NodeView], label: Label, *, max_edges: int = 72, max_depth: int = 12
) -> str:
    """The tree as an SVG file, about 1,000 pixels wide at most: one row for each edge, indented by
    its depth; the hotter an edge, the thicker its line."""
    rows = count()
    roots = [_layout(root, 0, rows) for root in tree_branches(views, label, max_edges, max_depth)]
    boxes = [box for root in roots for box in _walk(root)]
    width = max((box.right for box in boxes), default=0) + _MARGIN
    height = next(rows) * _ROW + 2 * _MARGIN
    links = [_draw_link(box, child) for box in boxes for child in box.children]
    return "\n".join([_head(width, height), *links, *map(_draw_box, boxes), "</svg>", ""])


class _BranchBuilder:
    """Makes branches of views, with totals over their subtrees."""

    def __init__(self, views: Sequence[NodeView], label: Label) -> None:
        self._views = {view.id: view for view in views}
        self._label = label
        self._max_hits = max((view.hits for view in views if view.parent >= 0), default=0)
        self._totals: dict[int, _Totals] = {}
        for view in reversed(views):
            under = [self._totals[child] for child in view.children]
            self._totals[view.id] = _Totals(
                leaves=sum(totals.leaves for totals in under) or 1,
                tokens=sum(totals.tokens for totals in under) + len(view.tokens),
                edges=sum(totals.edges for totals in under) + 1,
            )

    def build(self, view: NodeView, budget: int, depth: int) -> Branch:
        """The branch of a view, with at most `budget` branches and `depth` levels below it."""
        if view.parent < 0:
            text, num_tokens, hits = view.namespace or "root", self._totals[view.id].tokens, 0
        else:
            tokens = view.tokens
            while (only := self._always_after(view)) is not None:
                view = only
                tokens += view.tokens
            text, num_tokens, hits = printable(self._label(tokens)), len(tokens), view.hits
        totals = self._totals[view.id]
        children = self._children(view, budget, depth)
        hidden = 0 if children else totals.edges - 1
        heat = hits / max(1, self._max_hits)
        return Branch(text, num_tokens, totals.leaves, hits, heat, hidden, children)

    def _always_after(self, view: NodeView) -> NodeView | None:
        """The only child of a view, if it was found again as often."""
        only = self._views[view.children[0]] if len(view.children) == 1 else None
        return only if only is not None and only.hits == view.hits else None

    def _children(self, view: NodeView, budget: int, depth: int) -> tuple[Branch, ...]:
        pending = sorted((self._views[child] for child in view.children), key=self._rank)
        branches: list[Branch] = []
        while pending and depth > 0:
            share = budget if len(pending) == 1 else budget * 2 // 3  # the others need one at least
            if share < 1:
                break
            branches.append(self.build(pending.pop(0), share - 1, depth - 1))
            budget -= branches[-1].size
        if pending and branches:
            branches.append(self._remaining(pending))
        return tuple(branches)

    def _rank(self, view: NodeView) -> tuple[int, int]:
        return -self._totals[view.id].leaves, -view.hits

    def _remaining(self, views: Sequence[NodeView]) -> Branch:
        """One branch for all of these and their subtrees."""
        totals = [self._totals[view.id] for view in views]
        return Branch(
            text=f"… {len(views):,} more",
            num_tokens=sum(one.tokens for one in totals),
            sharers=sum(one.leaves for one in totals),
            num_hidden=sum(one.edges for one in totals) - len(views),
        )


class _Totals(NamedTuple):
    """Over a node and all that is below it."""

    leaves: int
    tokens: int
    edges: int


def _lines(branch: Branch, width: int, guide: str, below: str) -> Iterator[Line]:
    text_width = width - len(guide) - len(branch.notes) - len(" ()")
    yield Line(guide, shorten(branch.text, max(LEAST_TEXT, text_width)), branch.notes, branch.heat)
    for child in branch.children[:-1]:
        yield from _lines(child, width, below + "├─ ", below + "│  ")
    for child in branch.children[-1:]:
        yield from _lines(child, width, below + "└─ ", below + "   ")


def printable(text: str) -> str:
    """The text in one line: line ends as ↵, whatever else cannot be seen as ·."""
    seen = text.strip(" ").replace("\n", "↵").replace("\t", " ") or "␣"
    return "".join("·" if category(char)[0] == "C" else char for char in seen)


def shorten(text: str, width: int) -> str:
    """The beginning of a text that fits into `width` columns, with … where more follows."""
    if num_columns(text) <= width:
        return text
    ends = list(accumulate(map(num_columns, text)))
    return text[: bisect_right(ends, width - 1)].rstrip() + "…"


def num_columns(text: str) -> int:
    """Columns of a terminal that a text takes."""
    return len(text) + sum(east_asian_width(char) in "WF" for char in text)


def _plural(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


_INDENT, _ROW, _MARGIN = 34, 44, 16
_BOX_HEIGHT = 36
_STEM = 14  # from the left side of a box to the line down to its children
_TEXT_WIDTH = 72  # columns of an edge's text in its box
_TIP_WIDTH = 600  # and of what a viewer shows under the pointer
_TEXT_PIXELS, _NOTE_PIXELS, _PADDING = 7.3, 6.1, 9  # of one column; left and right in a box
_COLD, _HOT = (126, 140, 158), (214, 69, 20)
_STYLE = (
    "text{font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d2733}"
    ".text{font-size:12px}.notes{font-size:10px;fill:#5b6775}"
)


@dataclass(frozen=True, slots=True)
class _Box:
    """A branch and the position of its box's upper left corner, in pixels."""

    branch: Branch
    x: float
    y: float
    children: tuple[_Box, ...]

    @property
    def text(self) -> str:
        return shorten(self.branch.text, _TEXT_WIDTH)

    @property
    def right(self) -> float:
        texts = (num_columns(self.text) * _TEXT_PIXELS, len(self.branch.notes) * _NOTE_PIXELS)
        return self.x + round(max(texts) + 2 * _PADDING)


def _layout(branch: Branch, depth: int, rows: Iterator[int]) -> _Box:
    """One row for each branch, parents above their children."""
    y = _MARGIN + next(rows) * _ROW
    children = tuple(_layout(child, depth + 1, rows) for child in branch.children)
    return _Box(branch, _MARGIN + depth * _INDENT, y, children)


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
    start, end = parent.y + _BOX_HEIGHT, child.y + _BOX_HEIGHT / 2
    stroke_width = 1 + 9 * math.sqrt(child.branch.heat)
    return (
        f'<path d="M{parent.x + _STEM:g} {start:g}V{end:g}H{child.x:g}" fill="none"'
        f' stroke="{_color(child.branch.heat)}" stroke-width="{stroke_width:.1f}"'
        f' stroke-linejoin="round"/>'
    )


def _draw_box(box: _Box) -> str:
    branch, left = box.branch, box.x + _PADDING
    return (
        f"<g><title>{escape(shorten(branch.text, _TIP_WIDTH))}</title>"
        f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.right - box.x:g}" height="{_BOX_HEIGHT}"'
        f' rx="6" fill="#f7f9fb" stroke="{_color(branch.heat)}" stroke-width="1.5"/>'
        f'<text class="text" x="{left:g}" y="{box.y + 15:g}">{escape(box.text)}</text>'
        f'<text class="notes" x="{left:g}" y="{box.y + 29:g}">{escape(branch.notes)}</text></g>'
    )


def _color(heat: float) -> str:
    channels = (
        cold + (hot - cold) * math.sqrt(heat) for cold, hot in zip(_COLD, _HOT, strict=True)
    )
    return "#" + "".join(f"{round(channel):02x}" for channel in channels)
