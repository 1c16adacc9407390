"""Programs on the server harm nobody: limits, namespaces, hostile graphs, clients that leave."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest

from forkroot.adapters.http.server.rate_limits import Rates
from forkroot.adapters.http.server.runtime import Limits, ProgramLimits
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.native import CompiledProgram, function, gen
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import CallTooLarge, DeadlineExceeded, ForkrootError, InvalidCall

from .conftest import Served, answering

pytestmark = pytest.mark.timeout(180)
PATH = "/v1/forkroot/programs"
Client = Callable[..., Any]
JSON = {"Content-Type": "application/json"}


def limited(**limits: Any) -> Limits:
    return Limits(programs=replace(ProgramLimits(), **limits))


def put(url: str, program: CompiledProgram, **options: Any) -> httpx.Response:
    graph = program.graph
    headers = {**JSON, **options.pop("headers", {})}
    path = f"{url}{PATH}/{graph.digest()}"
    return httpx.put(path, content=graph.to_json(), headers=headers, **options)


def run(url: str, program: CompiledProgram, body: Any, **options: Any) -> httpx.Response:
    path = f"{url}{PATH}/{program.graph.digest()}/run"
    return httpx.post(path, json=body, timeout=30, **options)


def events(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line for line in response.text.splitlines() if line.startswith("data:")]
    return [json.loads(line[5:]) for line in lines]


def test_a_program_takes_two_requests_of_plain_json(
    programs: dict[str, CompiledProgram], served: Served, scripted: ScriptedBackend
) -> None:
    url, ask = served(scripted), programs["ask"]
    kept = put(url, ask)
    assert kept.status_code == 200
    assert kept.json() == {
        "id": ask.graph.digest(),
        "object": "program",
        "name": "ask",
        "nodes": len(ask.graph.nodes),
        "parameters": ["question"],
    }
    body = {
        "arguments": {"question": "ab"},
        "sampling": {"temperature": 0, "stop": ["x"], "logit_bias": {"7": -1}},
        "priority": 5,
        "deadline": 9.5,
        "namespace": None,
    }
    response = run(url, ask, body)
    assert response.headers["content-type"].startswith("text/event-stream")
    (event,) = events(response)
    assert event["done"]["variables"] == {"answer": "<2>"}
    (call,) = scripted.calls
    assert (call.priority, call.deadline, call.sampling.stop) == (5, 9.5, ("x",))
    assert call.sampling.logit_bias == {7: -1}
    streamed = events(run(url, ask, {"arguments": {"question": "ab"}, "stream": True}))
    assert [next(iter(it)) for it in streamed] == ["text", "begin", "piece", "end", "set", "done"]
    gone = httpx.delete(f"{url}{PATH}/{ask.graph.digest()}")
    assert gone.json()["deleted"]
    for response in (run(url, ask, body), httpx.delete(f"{url}{PATH}/{ask.graph.digest()}")):
        assert (response.status_code, response.json()["error"]["code"]) == (
            404,
            "program_not_found",
        )


BODIES: dict[str, Any] = {
    "no object": [],
    "unknown field": {"argument": {}},
    "unknown setting": {"arguments": {"question": "a"}, "temprature": 1},
    "missing argument": {},
    "unknown argument": {"arguments": {"question": "a", "other": "b"}},
    "no arguments": {"arguments": ["a"]},
    "no plain data": {"arguments": {"question": {"$bytes": 5}}},
    "code": {"arguments": {"question": {"$eval": "1"}}},
    "unhashable": {"arguments": {"question": {"$dict": [[[], 1]]}}},
    "sampling": {"arguments": {"question": "a"}, "sampling": {"temperature": -1}},
    "sampling name": {"arguments": {"question": "a"}, "sampling": {"model": "x"}},
    "bias": {"arguments": {"question": "a"}, "sampling": {"logit_bias": {"x": 1}}},
    "stream": {"arguments": {"question": "a"}, "stream": "yes"},
    "priority": {"arguments": {"question": "a"}, "priority": 1000},
    "deadline": {"arguments": {"question": "a"}, "deadline": 0},
    "scored_from": {"arguments": {"question": "a"}, "scored_from": -1},
    "passes": {"arguments": {"question": "a"}, "passes": ["os.system"]},
    "too many answers": {"arguments": {"question": "a"}, "sampling": {"n": 1000}},
}


@pytest.mark.parametrize("name", sorted(BODIES))
def test_a_wrong_run_is_refused_by_a_typed_error(
    programs: dict[str, CompiledProgram], shared: tuple[str, ScriptedBackend], name: str
) -> None:
    url, scripted = shared
    put(url, programs["ask"])
    response = run(url, programs["ask"], BODIES[name])
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["error"]["message"] != "the server failed on this request"
    assert scripted.calls == []


def graph_of(**changes: Any) -> dict[str, Any]:
    graph = {
        "forkroot": "graph",
        "version": 1,
        "name": "hostile",
        "parameters": [{"name": "a"}],
        "nodes": [
            {"op": "argument", "stream": 0, "name": "a"},
            {"op": "gen", "stream": 0, "name": "x"},
        ],
        "blocks": [{"start": 0, "end": 2, "value": {"plain": None}}],
    }
    return {**graph, **changes}


def text_nodes(num: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"op": "argument", "stream": 0, "name": "a", **fields} for _ in range(num)]


GRAPHS: dict[str, Any] = {
    "no graph": {"a": 1},
    "another version": graph_of(version=2),
    "unknown field": graph_of(code="import os"),
    "unknown node": graph_of(nodes=[{"op": "python", "stream": 0}]),
    "a call of a name": graph_of(nodes=[{"op": "argument", "stream": 0, "name": "__class__"}]),
    "a cycle": graph_of(blocks=[{"start": 0, "end": 2, "switch": {"read": {}, "cases": []}}]),
    "a format that fills the memory": graph_of(
        nodes=text_nodes(1, spec="1000000000"),
        blocks=[{"start": 0, "end": 1, "value": {"plain": None}}],
    ),
    "a format of attributes": graph_of(
        nodes=text_nodes(1, spec="{0.__class__}"),
        blocks=[{"start": 0, "end": 1, "value": {"plain": None}}],
    ),
    "many nodes": graph_of(
        nodes=text_nodes(101), blocks=[{"start": 0, "end": 101, "value": {"plain": None}}]
    ),
    "another digest": graph_of(),
}


@pytest.mark.parametrize("name", sorted(GRAPHS))
def test_a_hostile_graph_is_refused_by_a_typed_error(
    shared: tuple[str, ScriptedBackend], name: str
) -> None:
    url, _ = shared
    response = httpx.put(f"{url}{PATH}/{'0' * 64}", json=GRAPHS[name])
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("digest", ["0" * 63, "F" * 64, "..%2f..%2fetc", "a" * 5000])
def test_what_is_no_digest_is_refused(shared: tuple[str, ScriptedBackend], digest: str) -> None:
    url, _ = shared
    for method, path in (("PUT", ""), ("POST", "/run"), ("DELETE", "")):
        response = httpx.request(method, f"{url}{PATH}/{digest}{path}", json={})
        assert 400 <= response.status_code < 500
        assert "error" in response.json()


def refused(program: CompiledProgram, backend: Any, **arguments: Any) -> ForkrootError:
    with pytest.raises(ForkrootError) as caught:
        program.run(backend=backend, remote=True, **arguments)
    return caught.value


@function
def many(s: Any, text: str) -> None:
    for _ in range(20):
        s += f"{text}" + gen(max_tokens=10)


@function
def forking(s: Any, text: str) -> None:
    s += f"{text}"
    group = s.fork(20)
    for branch in group:
        branch += "a" + gen("each", max_tokens=1)
    group.join()


@function
def doubling(s: Any, text: str) -> None:
    with s.var_scope("v0"):
        s += f"{text}"
    for number in range(1, 40):
        with s.var_scope(f"v{number}"):
            s += f"{s[f'v{number - 1}']}{s[f'v{number - 1}']}"


def test_limits_of_a_run_are_typed_errors(served: Served, client: Client) -> None:
    there = ScriptedBackend("yes")

    def backend(**limits: Any) -> Any:
        return client(served(there, limited(**limits)))

    error = refused(many.compile(), backend(max_calls=19), text="a")
    assert isinstance(error, CallTooLarge)
    assert "more than 19 calls: expected at most 19 calls in a run" in str(error)
    assert len(there.calls) == 19
    error = refused(many.compile(), backend(max_tokens=199), text="a")
    assert "at most 199 tokens in a run" in str(error)
    error = refused(forking.compile(), backend(max_streams=20), text="a")
    assert "at most 20 streams" in str(error)
    error = refused(forking.compile(), backend(max_chars=300), text="a" * 20)
    assert "at most 300 characters in a run" in str(error)
    assert (
        many.compile().run(text="a", backend=backend(max_calls=20, max_tokens=200)).error() is None
    )


def test_texts_that_double_end_in_a_typed_error_before_the_memory_does(
    served: Served, client: Client
) -> None:
    there = ScriptedBackend("yes")
    error = refused(doubling.compile(), client(served(there)), text="ab")
    assert isinstance(error, CallTooLarge)
    assert "characters in a run" in str(error)


def test_a_value_of_many_copies_ends_in_a_typed_error(
    served: Served, scripted: ScriptedBackend
) -> None:
    given = {"argument": "a"}
    graph = graph_of(nodes=[], blocks=[{"start": 0, "end": 0, "value": {"list": [given] * 5000}}])
    from forkroot.adapters.native import Graph

    program = CompiledProgram(Graph.from_json(json.dumps(graph)))
    url = served(scripted)
    assert put(url, program).status_code == 200
    response = run(url, program, {"arguments": {"a": "x" * 100_000}})
    assert response.status_code == 400
    assert "characters in a run" in response.json()["error"]["message"]


def test_a_run_that_takes_too_long_is_ended(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    backend = client(served(there, limited(max_seconds=0.2)))
    error = refused(programs["ask"], backend, question="a")
    assert isinstance(error, DeadlineExceeded)
    assert "took longer than 0.2 s" in str(error)
    there.replies[0].result(60)  # the call was cancelled


def test_a_client_that_leaves_ends_its_run_and_frees_its_thread(
    programs: dict[str, CompiledProgram], served: Served
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    url = served(there, limited(max_runs=1))
    put(url, programs["judge"])
    for num in (1, 2):
        with pytest.raises(httpx.ReadTimeout):
            run_for(url, programs["judge"], {"arguments": {"essay": "a"}}, 0.3)
        there.wait_for(num)
        assert there.replies[num - 1].result(60).outputs[0].finish_reason == "abort"
    assert len(there.calls) == 2  # an ended run makes no further call


def run_for(url: str, program: CompiledProgram, body: Any, seconds: float) -> httpx.Response:
    path = f"{url}{PATH}/{program.graph.digest()}/run"
    return httpx.post(path, json=body, timeout=seconds)


def test_runs_beyond_the_threads_wait_their_turn(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    backend = client(served(there, limited(max_runs=2)))
    ask = programs["ask"]
    states = [ask.stream(question="a", backend=backend) for _ in range(6)]
    for num in range(1, 7):
        there.wait_for(num)
        assert sum(not reply.done() for reply in there.replies) <= 2
        there.release(num - 1)
    assert [state["answer"] for state in states] == ["<1>"] * 6


KEYS = Settings(keys=("one", "two"), weights={"two": 3.0})


def test_programs_of_one_client_are_not_there_for_another(
    programs: dict[str, CompiledProgram], served: Served, scripted: ScriptedBackend
) -> None:
    url, ask = served(scripted, settings=KEYS), programs["ask"]
    one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
    body = {"arguments": {"question": "a"}}
    assert put(url, ask).status_code == 401
    assert put(url, ask, headers=one).status_code == 200
    assert run(url, ask, body, headers=one).status_code == 200
    assert run(url, ask, body, headers=two).json()["error"]["code"] == "program_not_found"
    other = {**body, "namespace": "salt"}
    assert run(url, ask, other, headers=one).json()["error"]["code"] == "program_not_found"
    assert put(url, ask, headers=one, params={"namespace": "salt"}).status_code == 200
    assert run(url, ask, other, headers=one).status_code == 200
    gone = httpx.delete(f"{url}{PATH}/{ask.graph.digest()}", headers=two)
    assert gone.status_code == 404
    first, second = scripted.calls
    assert first.namespace.startswith("key-")
    assert second.namespace == f"{first.namespace}salt"
    assert first.tenant == second.tenant != ""


def test_weights_rates_and_the_audit_log_hold_for_the_calls_of_a_run(
    programs: dict[str, CompiledProgram],
    served: Served,
    scripted: ScriptedBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: list[Any] = []
    monkeypatch.setattr("forkroot.adapters.http.server.audit.note", lines.append)
    url = served(scripted, settings=replace(KEYS, rates=Rates(tokens=100)))
    two = {"Authorization": "Bearer two"}
    put(url, programs["judge"], headers=two)
    body = {"arguments": {"essay": "a" * 200}}
    assert run(url, programs["judge"], body, headers=two).status_code == 200
    assert {call.weight for call in scripted.calls} == {3.0}
    refusal = run(url, programs["judge"], body, headers=two)
    assert refusal.status_code == 429
    assert int(refusal.headers["Retry-After"]) > 0
    deadline = time.monotonic() + 60
    while len(lines) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    used = sum(reply.result().usage.prompt_tokens for reply in scripted.replies)
    assert [line["status"] for line in lines] == [200, 200, 429]
    assert lines[1]["prompt_tokens"] == used


def test_more_programs_than_are_kept_are_sent_again(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering)
    backend = client(served(there, limited(max_kept=1)))
    for _ in range(3):
        assert programs["ask"].run(question="a", backend=backend)["answer"] == "<1>"
        programs["judge"].run(essay="a", backend=backend)


def test_paths_of_the_server_are_never_read(
    served: Served, scripted: ScriptedBackend, tmp_path: Any
) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"secret")
    graph = graph_of(
        nodes=[
            {"op": "media", "stream": 0, "argument": "a"},
            {"op": "gen", "stream": 0, "name": "x"},
        ]
    )
    from forkroot.adapters.native import Graph

    program, url = CompiledProgram(Graph.from_json(json.dumps(graph))), served(scripted)
    assert put(url, program).status_code == 200
    for source in (str(secret), f"file://{secret}", "http://127.0.0.1/", None, 5, ["a"]):
        response = run(url, program, {"arguments": {"a": source}})
        assert response.status_code == 400
        assert "a data: URL" in response.json()["error"]["message"]
    encoded = base64.b64encode(b"seen").decode()
    for source in ({"$bytes": encoded}, f"data:image/png;base64,{encoded}"):
        assert run(url, program, {"arguments": {"a": source}}).status_code == 200
    assert [call.prompt[0].data for call in scripted.calls] == [b"seen", b"seen"]


def test_a_request_that_is_aborted_ends_its_run(
    programs: dict[str, CompiledProgram], served: Served
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    url = served(there)
    put(url, programs["judge"])
    found: list[httpx.Response] = []

    def ask() -> None:
        headers = {"X-Request-Id": "mine"}
        body = {"arguments": {"essay": "a"}}
        found.append(run(url, programs["judge"], body, headers=headers))

    thread = threading.Thread(target=ask)
    thread.start()
    there.wait_for(1)
    httpx.post(f"{url}/abort_request", json={"rid": "mine"})
    thread.join(60)
    assert found[0].json()["error"]["message"] == "the run was aborted"
    assert len(there.calls) == 1


def test_the_description_lists_the_routes(shared: tuple[str, ScriptedBackend]) -> None:
    paths = httpx.get(f"{shared[0]}/openapi.json").json()["paths"]
    assert set(paths[PATH + "/{digest}"]) == {"put", "delete"}
    (digest,) = paths[PATH + "/{digest}/run"]["post"]["parameters"]
    assert (digest["in"], digest["required"]) == ("path", True)


def test_an_invalid_call_of_a_program_names_its_field(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    def failing(call: Any) -> Any:
        raise InvalidCall("max_tokens", -1, "more")

    backend = client(served(ScriptedBackend(failing)))
    error = refused(programs["ask"], backend, question="a")
    assert (type(error), error.field, error.value) == (InvalidCall, "max_tokens", -1)
