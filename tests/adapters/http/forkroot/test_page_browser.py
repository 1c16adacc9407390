"""The page in headless Chromium: it draws, goes on drawing, shows what is wrong, runs no prompt."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.core.api.program_report import Guesses, KindUsage
from forkroot.core.api.protocol import BackendClosed, Call, ForkHint, NodeView, Sampling, Text
from forkroot.core.local import LocalBackend

from ..conftest import Letters, serving
from .chromium import CHROMIUM, Tab, chromium
from .test_page import Planted, Reporting, node, planted

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
EVIL = "<img src=x onerror=\"document.title='harmed'\"><script>document.title='harmed'</script>"
BOXES = "[...document.querySelectorAll('.node:not(.root)')]"
IS_LIVE = "document.body.className === 'live'"


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with chromium(tmp_path) as tab:
        yield tab


@contextmanager
def forks(backend: LocalBackend, root: str) -> Iterator[None]:
    """Programs that fork from a root, again and again."""
    is_over = threading.Event()
    sampling = Sampling(max_tokens=60, temperature=0, ignore_eos=True)

    def program() -> None:
        while not is_over.is_set():
            calls = [
                Call((Text(f"{root} Number {n}: "),), sampling, hint=ForkHint("root", 1, 6))
                for n in range(6)
            ]
            for reply in [backend.submit(call) for call in calls]:
                reply.result(60)

    thread = threading.Thread(target=program)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def points(tab: Tab, card: str) -> int:
    """Points of a strip chart."""
    path = tab.ask(f"document.querySelector('#{card} .line').getAttribute('d') ?? ''")
    return len(re.findall("[ML]", path))


def drawn(tab: Tab) -> list[str]:
    """Texts of the boxes."""
    texts: list[str] = tab.ask(f"{BOXES}.map((box) => box.firstChild.textContent)")
    return texts


def test_it_draws_and_updates_under_load_without_an_error(
    server: str, backend: LocalBackend, tab: Tab
) -> None:
    root = "Every branch of this program begins with these words of its root, and goes on alone."
    with forks(backend, root):
        tab.open(server)
        tab.wait_for(f"{BOXES}.some((box) => /words of its root/.test(box.textContent))")
        tab.wait_for(f"{BOXES}.some((box) => /×[67]/.test(box.textContent))")
        tab.wait_for(f"{BOXES}.some((box) => box.classList.contains('used'))")
        tab.wait_for("document.querySelector('#speed .line').getAttribute('d')?.split('L')[3]")
        tab.wait_for("Number(document.querySelector('#batch .value').textContent) > 0")
    assert [points(tab, card) >= 3 for card in ("hit-rate", "speed", "batch", "queue")] == [
        True
    ] * 4
    assert (tab.text("#state"), tab.text("#model")) == ("live", "tiny")
    assert tab.is_shown("#tree")
    assert not any(map(tab.is_shown, ("#empty", "#key", "#treeless")))
    tab.wait_for(f"!{BOXES}.some((box) => box.classList.contains('used'))")  # they have ended
    assert tab.errors == []


def test_a_prompt_of_markup_is_shown_as_text(tab: Tab) -> None:
    root = node(0, -1, "", children=(1,), namespace=EVIL)
    _, runtime = planted(root, node(1, text=EVIL, namespace=EVIL))
    with serving(runtime) as url:
        tab.open(url)
        tab.wait_for(IS_LIVE)
        assert drawn(tab) == [EVIL]
        tab.ask(f"{BOXES}[0].focus()")
        assert tab.text("#text") == EVIL
    assert tab.ask("document.title") == "forkroot: planted"
    assert tab.ask("document.querySelectorAll('img, script').length") == 1
    assert tab.errors == []


def test_what_programs_saved_is_a_table_of_texts(tab: Tab) -> None:
    backend = Reporting(node(0, -1, "", children=(1,)), node(1, text="root"))
    used = KindUsage(EVIL, "", 2, 0, 8, 0, 400, 300, 200, saved_seconds=1.25)
    backend.kinds = (replace(used, calls_left=Guesses(8, 5, 1)), KindUsage("", "key-abcdefgh"))
    with serving(Runtime(backend, Letters(), ("m",))) as url:
        tab.open(url)
        tab.wait_for(IS_LIVE)
        assert tab.is_shown("#programs")
        cells = tab.ask(
            "[...document.querySelectorAll('tbody tr > *')].map((it) => it.textContent)"
        )
    first, second = cells[:8], cells[8:]
    assert first == [
        *(f"{EVIL} (everybody)", "2", "8", "400", "300 (75 %)", "200", "1.3 s", "1 of 6")
    ]
    assert second == ["(not named) (key abcdef…)", *["0"] * 3, "0 (–)", "0", "0.0 s", "–"]
    assert tab.ask("document.title") == "forkroot: m"
    assert tab.errors == []


def test_a_click_looks_closer_and_escape_goes_back(tab: Tab) -> None:
    views = (
        node(0, -1, "", children=(1,)),
        node(1, 0, "root ", children=(2, 3)),
        node(2, 1, "one", end=8, hits=2),
        node(3, 1, "two", end=8),
    )
    with serving(planted(*views)[1]) as url:
        tab.open(url, is_still=True)
        tab.wait_for(IS_LIVE)
        assert drawn(tab) == ["root", "one", "two"]
        assert not tab.is_shown("#whole")
        tab.ask(f"{BOXES}[1].click()")
        assert drawn(tab) == ["one"]
        assert tab.is_shown("#whole")
        tab.ask("dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
        assert sorted(drawn(tab)) == ["one", "root", "two"]
    assert tab.errors == []


def test_more_boxes_than_there_is_room_for_are_counted(tab: Tab) -> None:
    leaves = [node(n, 1, f"leaf {n}", end=12, hits=n) for n in range(2, 202)]
    ids = tuple(leaf.id for leaf in leaves)
    above = (node(0, -1, "", children=(1,)), node(1, 0, "root", children=ids, num_hidden=50))
    with serving(planted(*above, *leaves)[1]) as url:
        tab.open(url, is_still=True)
        tab.wait_for(IS_LIVE)
        shown = drawn(tab)
        assert tab.text(".rest") == f"+ {250 - (len(shown) - 1)} more"
    assert 5 < len(shown) < 60
    assert "leaf 201" in shown
    assert "leaf 2" not in shown
    assert tab.errors == []


def test_an_empty_cache_says_what_to_do(tab: Tab) -> None:
    with serving(planted()[1]) as url:
        tab.open(url)
        tab.wait_for(IS_LIVE)
        assert f"curl {url}/v1/chat/completions" in tab.text("#curl")
    assert tab.is_shown("#empty")
    assert not tab.is_shown("#tree")
    assert tab.errors == []


class Mortal(Planted):
    """A backend that ends while it is reported."""

    has_ended = False

    def snapshot(self, max_nodes: Any = None, max_tokens: Any = None) -> tuple[NodeView, ...]:
        if self.has_ended:
            raise BackendClosed("the engine died")
        return super().snapshot(max_nodes, max_tokens)


def test_a_server_or_an_engine_that_is_gone_is_reported_and_the_tree_stays_in_sight(
    tab: Tab,
) -> None:
    mortal = Mortal(node(0, -1, "", children=(1,)), node(1, text="still here"))
    with serving(Runtime(mortal, Letters(), ("planted",))) as url:
        tab.open(url)
        tab.wait_for(IS_LIVE)
        mortal.has_ended = True
        tab.wait_for("document.body.className === 'gone'")
        assert tab.text("#state") == "the backend is closed"
        mortal.has_ended = False
        tab.wait_for(IS_LIVE)
    tab.wait_for("/does not answer/.test(document.querySelector('#state').textContent)")
    assert drawn(tab) == ["still here"]
    assert all("/live" in error for error in tab.errors)


def test_who_has_no_admin_key_is_requested_it_and_sees_no_text(tab: Tab) -> None:
    backend, runtime = planted(node(0, -1, "", children=(1,)), node(1, text="a secret"))
    with serving(runtime, Settings(admin_keys=("root",))) as url:
        tab.open(url)
        tab.wait_for("!document.querySelector('#key').hidden")
        assert not tab.is_shown("#tree")
        assert backend.num_looks == 0
        give(tab, "wrong")
        tab.wait_for("/not an admin key/.test(document.querySelector('#state').textContent)")
        give(tab, "root")
        tab.wait_for(IS_LIVE)
        assert drawn(tab) == ["a secret"]
        assert not tab.is_shown("#key")
    assert all("/live" in error for error in tab.errors)


def give(tab: Tab, key: str) -> None:
    """Type a key and send it."""
    tab.ask(f"document.querySelector('#secret').value = '{key}'")
    tab.ask("document.querySelector('#key button').click()")
