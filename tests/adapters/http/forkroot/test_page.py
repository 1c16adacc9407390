"""The page: its files, its data, and who may read them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.forkroot.page import LiveSnapshot, Uses
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.program_report import Guesses, KindUsage, ProgramReport
from forkroot.core.api.protocol import BackendClosed, Call, NodeView, Sampling, Text
from forkroot.core.local import LocalBackend
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.process.client import ProcessBackend
from forkroot.core.text.tokenizer import Tokenizer

from ..conftest import Letters, serving

SECRET = "The harbour master hides <b>gold</b> & pearls."
PATHS = ["/", "/page.css", "/page.js", "/docs", "/docs.css", "/docs.js"]


class Planted(ScriptedBackend):
    """A backend with a tree of its own; it counts snapshots, and may refuse some."""

    def __init__(self, *views: NodeView, refuses: int = 0) -> None:
        super().__init__("")
        self.views = views
        self.num_looks = 0
        self.refuses = refuses

    def snapshot(self, max_nodes: Any = None, max_tokens: Any = None) -> tuple[NodeView, ...]:
        self.num_looks += 1
        if self.num_looks <= self.refuses:
            raise BackendClosed("gone")
        return self.views[:max_nodes]


class Reporting(Planted):
    """One that reports programs, too, if it has some; else it fails to."""

    kinds: tuple[KindUsage, ...] = ()

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        if not self.kinds:
            raise BackendClosed("gone")
        return ProgramReport(self.kinds)


def planted(*views: NodeView, refuses: int = 0) -> tuple[Planted, Runtime]:
    backend = Planted(*views, refuses=refuses)
    return backend, Runtime(backend, Letters(), ("planted",))


def node(id: int, parent: int = 0, text: str = "a", used: int = 0, **fields: Any) -> NodeView:
    known = {"namespace": "", "end": len(text), "lock_count": 0, "hits": 0, "children": ()}
    tokens = tuple(text.encode())
    return NodeView(id, parent, tokens=tokens, last_used=used, **(known | fields))


ROOT = node(0, -1, "", children=(1,))


def ask(text: str) -> Call:
    return Call((Text(text),), Sampling(max_tokens=4, temperature=0))


def bearer(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def keyed(runtime: Runtime, backend: LocalBackend) -> Iterator[str]:
    """A server with keys, whose cache holds a secret."""
    backend.submit(ask(SECRET)).result(30)
    with serving(runtime, Settings(keys=("one",), admin_keys=("root",))) as url:
        yield url


# --- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_the_page_loads_nothing_from_elsewhere(server: str, path: str) -> None:
    response = httpx.get(server + path)
    assert response.status_code == 200
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none';")
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "unsafe" not in response.headers["Content-Security-Policy"]
    links = re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)|@import (.*)", response.text)
    assert {link for found in links for link in found if link} <= {
        *("page.css", "page.js", "docs.css", "docs.js", "openapi.json", "./"),
        *(link for found in links for link in found if link.startswith("data:")),
    }
    assert "//" not in re.sub(r"(^|\s)// .*|http://www\.w3\.org/2000/svg", "", response.text)


def test_the_page_has_no_code_in_its_markup_and_makes_no_markup_of_texts(server: str) -> None:
    page, code = httpx.get(server).text, httpx.get(f"{server}/page.js").text
    assert not re.search(r"\son\w+=|<script(?![^>]* src=)|style=", page)
    makes_markup = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\("
    assert not re.search(makes_markup, code)


# --- its data ----------------------------------------------------------------------------------


def test_the_page_of_routes_draws_the_description_that_the_server_gives(server: str) -> None:
    page, code = httpx.get(f"{server}/docs").text, httpx.get(f"{server}/docs.js").text
    assert "<script" in page and "innerHTML" not in code
    paths = httpx.get(f"{server}/openapi.json").json()["paths"]
    examples = re.findall(r'^  "(/[^"]+)":', code, re.MULTILINE)
    assert examples and set(examples) <= set(paths)


def test_it_gets_figures_and_the_tree_with_texts_as_they_are(
    server: str, backend: LocalBackend
) -> None:
    for end in (" One", " Two"):
        backend.submit(ask(SECRET + end)).result(30)
    response = httpx.get(f"{server}/live")
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/json")
    assert response.headers["Cache-Control"] == "no-store"
    body = response.json()
    assert body["model"] == "tiny"
    assert body["load"]["slots"] == 20_000
    assert body["counters"]["prompt_tokens"] > 0
    nodes = {node["id"]: node for node in body["nodes"]}
    assert len(nodes) <= 300
    for found in nodes.values():
        above = nodes.get(found["parent"])
        assert found["end"] - found["tokens"] == (above["end"] if above else 0)
        assert above is None or found["id"] in above["children"]
    ways = [way_to(node, nodes) for node in nodes.values()]
    assert any(way.startswith(SECRET) for way in ways)


def way_to(node: dict[str, Any], nodes: dict[int, dict[str, Any]]) -> str:
    above = nodes.get(node["parent"])
    return (way_to(above, nodes) if above else "") + node["text"]


def test_a_long_text_is_cut_and_says_so() -> None:
    long = NodeView(1, 0, "", tuple(b"abc"), 90, 2, 5, 7, (), 3)
    _, runtime = planted(ROOT, long)
    body = json.loads(asyncio.run(LiveSnapshot(runtime).now()))
    assert body["nodes"][1] == {
        "id": 1,
        "parent": 0,
        "namespace": "",
        "text": "abc…",
        "tokens": 90,
        "end": 90,
        "sharers": 2,
        "hits": 5,
        "idle": 0.0,
        "children": [],
        "hidden": 3,
    }


@pytest.mark.usefixtures("preloaded")
def test_an_engine_in_a_child_process_shows_its_tree_too() -> None:
    with ProcessBackend("tiny", num_slots=500, context_len=64) as backend:
        backend.submit(ask("The tide")).result(30)
        texts = Tokenizer.from_folder(model_folder("tiny"))
        with serving(Runtime(backend, texts, ("tiny",))) as url:
            body = httpx.get(f"{url}/live").json()
    assert any("The tide" in node["text"] for node in body["nodes"])
    assert body["load"]["cached_slots"] > 0


def test_a_backend_without_a_tree_shows_its_figures() -> None:
    runtime = Runtime(ScriptedBackend(""), Letters(), ("scripted",))
    with serving(runtime) as url:
        body = httpx.get(f"{url}/live").json()
    assert (body["nodes"], body["model"]) == (None, "scripted")


def test_the_kinds_of_programs_that_saved_most_are_shown() -> None:
    backend = Reporting(ROOT)
    backend.kinds = tuple(
        KindUsage(f"{number}", "t", calls_left=Guesses(3, 2, 1)) for number in range(20)
    )
    with serving(Runtime(backend, Letters(), ("m",))) as url:
        body = httpx.get(f"{url}/live").json()
        assert [it["kind"] for it in body["programs"]] == [f"{number}" for number in range(12)]
        assert body["programs"][0]["guesses"]["right"] == 2
        assert body["programs"][0]["tenant"] == "t"


@pytest.mark.parametrize("backend", [Reporting(ROOT), Planted(ROOT)], ids=["fails", "has none"])
def test_without_a_report_of_programs_the_rest_is_shown(backend: Planted) -> None:
    with serving(Runtime(backend, Letters(), ("m",))) as url:
        body = httpx.get(f"{url}/live").json()
    assert body["programs"] == []
    assert len(body["nodes"]) == 1


# --- whom --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401), ("one", 403)])
def test_texts_of_prompts_are_for_admins_only(keyed: str, key: str | None, status: int) -> None:
    response = httpx.get(f"{keyed}/live", headers=bearer(key))
    assert response.status_code == status
    assert "harbour" not in response.text
    assert "harbour" in httpx.get(f"{keyed}/live", headers=bearer("root")).text


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 403), ("root", 200)])
def test_an_admin_key_alone_closes_the_tree_and_not_the_page(
    runtime: Runtime, key: str | None, status: int
) -> None:
    with serving(runtime, Settings(admin_keys=("root",))) as url:
        assert httpx.get(f"{url}/live", headers=bearer(key)).status_code == status
        assert [httpx.get(url + path).status_code for path in PATHS] == [200] * len(PATHS)


def test_a_backend_that_has_ended_is_reported() -> None:
    _, runtime = planted(ROOT, refuses=100)
    with serving(runtime) as url:
        response = httpx.get(f"{url}/live")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "shutting_down")


# --- looking -----------------------------------------------------------------------------------


def test_many_viewers_cost_one_look() -> None:
    backend, runtime = planted(ROOT)

    async def crowd() -> set[bytes]:
        live_snapshot = LiveSnapshot(runtime)
        response = await asyncio.gather(*(live_snapshot.now() for _ in range(50)))
        return {*response, await live_snapshot.now()}

    assert len(asyncio.run(crowd())) == 1
    assert backend.num_looks == 1


def test_a_look_that_failed_is_not_kept() -> None:
    backend, runtime = planted(ROOT, refuses=1)

    async def twice() -> bytes:
        live_snapshot = LiveSnapshot(runtime)
        with pytest.raises(BackendClosed):
            await live_snapshot.now()
        return await live_snapshot.now()

    assert json.loads(asyncio.run(twice()))["nodes"][0]["id"] == 0
    assert backend.num_looks == 2


def test_a_viewer_who_leaves_ends_no_look_of_another() -> None:
    _, runtime = planted(ROOT)

    async def one_leaves() -> bytes:
        live_snapshot = LiveSnapshot(runtime)
        leaver = asyncio.create_task(live_snapshot.now())
        stayer = asyncio.create_task(live_snapshot.now())
        await asyncio.sleep(0)
        leaver.cancel()
        return await stayer

    assert json.loads(asyncio.run(one_leaves()))["model"] == "planted"


def test_how_long_ago_a_use_was_is_reported_only_where_it_was_watched() -> None:
    uses = Uses()
    assert uses.idle([node(1, used=5), node(2, used=6, lock_count=1)], 100.0) == {1: None, 2: 0.0}
    assert uses.idle([node(1, used=5), node(2, used=7)], 101.0) == {1: None, 2: 0.0}
    assert uses.idle([node(1, used=8), node(2, used=7)], 103.0) == {1: 0.0, 2: 2.0}
    assert uses.idle([node(1, used=9), node(2, used=7)], 200.0) == {1: None, 2: 99.0}
    assert uses.idle([node(1, used=9), node(3, used=4), node(4, used=10)], 201.0) == {
        1: None,
        3: None,
        4: 0.0,
    }


def test_with_keys_the_page_opens_but_shows_nothing_without_an_admin_key(runtime: Runtime) -> None:
    settings = Settings(keys=("one",), admin_keys=("boss",))
    with serving(runtime, settings) as url, httpx.Client(base_url=url) as client:
        assert all(client.get(path).status_code == 200 for path in (*PATHS, "/openapi.json"))
        assert client.get("/live").status_code == 401
        as_client = {"Authorization": "Bearer one"}
        assert client.get("/live", headers=as_client).status_code == 403
        as_admin = {"Authorization": "Bearer boss"}
        assert client.get("/live", headers=as_admin).status_code == 200
