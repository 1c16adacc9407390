"""The paper's figure of nine time points: two chats, few-shot questions, self-consistency.

Each edge is one text of the figure; its letters are in the comments where the caption names them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from forkroot.core.api.batch import Ints
from forkroot.core.api.protocol import NodeView
from forkroot.core.radix.cache import RadixCache

SIZES = {"system": 6, "hello": 4, "solve": 12, "write": 5, "story": 7}
SIZES |= {"examples": 8, "q1": 3, "q2": 3, "q3": 3, "q4": 3, "more": 12}
SIZES |= {"a1": 5, "a2": 5, "a3": 5}
CAPACITY = 53

Shape: TypeAlias = dict[str, "Shape"]


def _tokens(*names: str) -> Ints:
    starts = {name: 100 * index for index, name in enumerate(SIZES)}
    return np.concatenate([np.arange(SIZES[n], dtype=np.int32) + starts[n] for n in names])


class Server:
    """Runs one request after another, each as a serving engine would."""

    def __init__(self) -> None:
        self.cache = RadixCache(CAPACITY)

    def serve(self, *names: str, reserve: int = 0) -> int:
        """Serve a request whose prompt and answer are these texts, with room for `reserve` tokens
        that it does not come to generate. Returns how many tokens were reused."""
        tokens = _tokens(*names)
        lease = self.cache.acquire("", tokens, len(tokens))
        reused, count = lease.length, len(tokens) - lease.length
        slots = self.cache.allocate(count + reserve)
        assert slots is not None
        self.cache.commit(lease, tokens, np.concatenate([lease.slots, slots[:count]]))
        self.cache.free(slots[count:])
        self.cache.release(lease)
        self.cache.check(0)
        return reused

    def shape(self) -> Shape:
        """The tree as nested texts."""
        views = {view.id: view for view in self.cache.snapshot()}
        roots = [view for view in views.values() if view.parent == -1]
        return _shape(roots[0], views) if roots else {}


def _shape(view: NodeView, views: dict[int, NodeView]) -> Shape:
    children = [views[child] for child in view.children]
    return {_text(child.tokens): _shape(child, views) for child in children}


def _text(tokens: tuple[int, ...]) -> str:
    """Texts of an edge, which has to be made of whole ones."""
    names = [name for name in SIZES if _tokens(name)[0] in tokens]
    assert sorted(tokens) == sorted(_tokens(*names).tolist())
    return "+".join(sorted(names, key=lambda name: tokens.index(_tokens(name)[0])))


def test_the_nine_time_points_of_the_paper() -> None:
    server = Server()
    # (1) the tree is empty
    assert server.shape() == {}

    # (2) prompt and answer become one edge
    assert server.serve("system", "hello") == 0
    assert server.shape() == {"system+hello": {}}

    # (3) the next turn reuses the first one and hangs below it
    assert server.serve("system", "hello", "solve") == 10
    assert server.shape() == {"system+hello": {"solve": {}}}

    # (4) a second chat: the first turn (b) is split, so that the system prompt is shared
    assert server.serve("system", "write") == 6
    assert server.shape() == {"system": {"hello": {"solve": {}}, "write": {}}}

    # (5) the second chat goes on; the memory limit evicts the last turn of the first one (c)
    assert server.serve("system", "write", "story", reserve=31) == 11
    assert server.shape() == {"system": {"hello": {}, "write": {"story": {}}}}

    # (6) a few-shot question shares nothing: the root gets a second edge
    assert server.serve("examples", "q1") == 0
    chats: Shape = {"hello": {}, "write": {"story": {}}}
    assert server.shape() == {"system": chats, "examples+q1": {}}

    # (7) more questions: the examples (e) are split off
    assert [server.serve("examples", q) for q in ("q2", "q3", "q4")] == [8, 8, 8]
    questions: Shape = {"q1": {}, "q2": {}, "q3": {}, "q4": {}}
    assert server.shape() == {"system": chats, "examples": questions}

    # (8) the first chat comes back: the second one (g, h) is evicted, as least recently used
    assert server.serve("system", "hello", "more", reserve=11) == 10
    assert server.shape() == {"system": {"hello": {"more": {}}}, "examples": questions}

    # (9) more answers to one question (j): the other questions (i, k, l) are evicted
    assert server.serve("examples", "q2", "a1") == 11
    assert server.serve("examples", "q2", "a2") == 11
    assert server.serve("examples", "q2", "a3", reserve=5) == 11
    answers: Shape = {"a1": {}, "a2": {}, "a3": {}}
    assert server.shape() == {
        "system": {"hello": {"more": {}}},
        "examples": {"q2": answers},
    }
