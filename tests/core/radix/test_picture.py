"""The pictures of small trees, letter by letter."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

import pytest

from forkroot.core.radix.node import NodeView
from forkroot.core.radix.picture import (
    Branch,
    printable,
    shorten,
    tree_branches,
    tree_lines,
    tree_svg,
)

SVG = "{http://www.w3.org/2000/svg}"


def label(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode()


def node(id: int, parent: int, text: str, hits: int = 0, children: Sequence[int] = ()) -> NodeView:
    return NodeView(
        id=id,
        parent=parent,
        namespace="",
        tokens=tuple(text.encode()),
        end=0,
        lock_count=0,
        hits=hits,
        last_used=0,
        children=tuple(children),
    )


FORK = (
    node(0, -1, "", 9, [1]),
    node(1, 0, "Judge this: ", 8, [2, 3, 4]),
    node(2, 1, "a", 1),
    node(3, 1, "essay", 4, [5, 6]),
    node(4, 1, "cat\n", 2),
    node(5, 3, " is clear", 0),
    node(6, 3, " is loud", 0),
)


def drawn(views: Sequence[NodeView], **limits: int) -> list[str]:
    return [str(line) for line in tree_lines(views, label, **limits)]


def test_a_tree_is_drawn_with_what_most_texts_share_first() -> None:
    assert drawn(FORK) == [
        "root (39 tokens, shared by 4)",
        "└─ Judge this: (12 tokens, 8 hits, shared by 4)",
        "   ├─ essay (5 tokens, 4 hits, shared by 2)",
        "   │  ├─ is clear (9 tokens)",
        "   │  └─ is loud (8 tokens)",
        "   ├─ cat↵ (4 tokens, 2 hits)",
        "   └─ a (1 token, 1 hit)",
    ]


def test_an_empty_cache_is_an_empty_picture() -> None:
    assert drawn(()) == []
    assert ElementTree.fromstring(tree_svg((), label)).tag == SVG + "svg"


def test_heat_is_the_share_of_the_hottest_edge() -> None:
    assert [line.heat for line in tree_lines(FORK, label)] == [0, 1, 0.5, 0, 0, 0.25, 0.125]


def test_below_the_greatest_depth_edges_are_only_counted() -> None:
    assert drawn(FORK, max_depth=2)[2:] == [
        "   ├─ essay (5 tokens, 4 hits, shared by 2, 2 below)",
        "   ├─ cat↵ (4 tokens, 2 hits)",
        "   └─ a (1 token, 1 hit)",
    ]
    assert drawn(FORK, max_depth=0) == ["root (39 tokens, shared by 4, 6 below)"]


def test_siblings_without_room_are_drawn_as_one() -> None:
    assert drawn(FORK, max_edges=3)[2:] == [
        "   ├─ essay (5 tokens, 4 hits, shared by 2, 2 below)",
        "   └─ … 2 more (5 tokens, shared by 2)",
    ]


def test_edges_that_were_always_used_together_are_drawn_as_one() -> None:
    chain = (
        node(0, -1, "", 9, [1]),
        node(1, 0, "one ", 3, [2]),
        node(2, 1, "two ", 3, [3]),
        node(3, 2, "three", 2),
    )
    assert drawn(chain) == [
        "root (13 tokens)",
        "└─ one two (8 tokens, 3 hits)",
        "   └─ three (5 tokens, 2 hits)",
    ]


def test_each_namespace_has_its_own_root() -> None:
    other = NodeView(7, -1, "ward", (), 0, 0, 0, 0, ())
    assert drawn((*FORK, other))[-1] == "ward (0 tokens)"


def test_long_texts_are_shortened_to_the_width() -> None:
    views = (node(0, -1, "", 0, [1]), node(1, 0, "to be or not to be " * 9, 1))
    lines = drawn(views, width=50)
    assert lines[1] == "└─ to be or not to be to be o… (171 tokens, 1 hit)"
    assert [len(drawn(views, width=width)[1]) for width in (50, 80)] == [50, 80]
    assert drawn(views, width=10)[1] == "└─ to be or no… (171 tokens, 1 hit)"


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (" yes", "yes"),
        ("a\nb\tc", "a↵b c"),
        ("\x1b[31mred\x00", "·[31mred·"),
        ("\u202ebidi\ufffe", "·bidi·"),
        ("  ", "␣"),
        ("", "␣"),
    ],
)
def test_a_text_is_shown_in_one_line_and_can_do_no_harm(text: str, seen: str) -> None:
    assert printable(text) == seen


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdef", 5, "abcd…"),
        ("ab  cdef", 5, "ab…"),
        ("木木木", 6, "木木木"),
        ("木木木", 5, "木木…"),
        ("木木木", 4, "木…"),
        ("", 3, ""),
    ],
)
def test_shortening_counts_columns_and_not_characters(text: str, width: int, short: str) -> None:
    assert shorten(text, width) == short


def grown(rng: random.Random, size: int) -> tuple[NodeView, ...]:
    """A random tree, parents before children."""
    parents = [-1] + [rng.randrange(place) for place in range(1, size)]
    return tuple(
        node(
            id=place,
            parent=parents[place],
            text="".join(rng.choices("<&>\"'ab \n", k=rng.randrange(1, 60))) if place else "",
            hits=rng.randrange(4),
            children=[child for child in range(size) if parents[child] == place],
        )
        for place in range(size)
    )


def below(branch: Branch) -> Iterator[Branch]:
    for child in branch.children:
        yield child
        yield from below(child)


@pytest.mark.parametrize("seed", range(20))
def test_no_picture_grows_beyond_its_limits_and_none_loses_a_token(seed: int) -> None:
    rng = random.Random(seed)
    views = grown(rng, rng.randrange(1, 80))
    (whole,) = tree_branches(views, label, max_edges=10**6, max_depth=100)
    assert whole.num_hidden == 0 and not any(branch.num_hidden for branch in below(whole))
    total = sum(len(view.tokens) for view in views)
    assert sum(branch.num_tokens for branch in below(whole)) == whole.num_tokens == total
    for max_edges in range(0, 40, 3):
        (cut,) = tree_branches(views, label, max_edges, max_depth=5)
        assert cut.size <= 1 + max_edges
        assert len(drawn(views, max_edges=max_edges, max_depth=5)) == cut.size


@pytest.mark.parametrize("seed", range(5))
def test_an_svg_is_xml_with_one_box_for_each_branch_and_one_line_for_each_edge(seed: int) -> None:
    views = grown(random.Random(seed), 50)
    (root,) = tree_branches(views, label, max_edges=30, max_depth=12)
    picture = ElementTree.fromstring(tree_svg(views, label, max_edges=30, max_depth=12))
    groups = picture.findall(SVG + "g")
    assert len(groups) == root.size
    assert len(picture.findall(SVG + "path")) == root.size - 1
    titles = [title.text for group in groups for title in group.findall(SVG + "title")]
    assert titles == [root.text, *(branch.text for branch in below(root))]


def test_boxes_of_an_svg_lie_inside_it_and_do_not_overlap() -> None:
    picture = ElementTree.fromstring(tree_svg(grown(random.Random(7), 60), label))
    width, height = float(picture.attrib["width"]), float(picture.attrib["height"])
    sides = [
        [float(rect.attrib[name]) for name in ("x", "y", "width", "height")]
        for rect in picture.iterfind(f"{SVG}g/{SVG}rect")
    ]
    assert all(x >= 0 and y >= 0 and x + w <= width and y + h <= height for x, y, w, h in sides)
    for place, (x, y, w, h) in enumerate(sides):
        for x2, y2, w2, h2 in sides[:place]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_a_hot_edge_is_thicker_than_a_cold_one() -> None:
    picture = ElementTree.fromstring(tree_svg(FORK, label))
    widths = [float(path.attrib["stroke-width"]) for path in picture.iterfind(SVG + "path")]
    assert widths == [10.0, 7.4, 5.5, 4.2, 1.0, 1.0]


def test_an_svg_of_a_deep_tree_fits_a_screen() -> None:
    views = grown(random.Random(7), 200)
    picture = ElementTree.fromstring(tree_svg(views, lambda tokens: "word " * len(tokens)))
    assert float(picture.attrib["width"]) <= 1_024
