"""A graph as a file: the same in another process, and nothing else is read as one."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from forkroot import Graph, InvalidGraph, load
from forkroot.adapters.native.compiler.graph.schema import PATH, graph_schema, written
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import InvalidCall
from forkroot.examples.essay_judge import essay_judge

from .programs import CASES, answer, branching, forks, seen

pytestmark = pytest.mark.timeout(180)
OTHER = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from forkroot import load
from forkroot.tests.adapters.native.compiler.programs import backend, seen
state = load("folder/program.json").run(topic="tea", essay="Long.", backend=backend())
print(json.dumps(seen(state), sort_keys=True))
"""


def graph_of(program: Any = essay_judge) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(program.compile().graph.to_json())
    return found


def test_another_process_in_another_folder_has_the_same_results(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    essay_judge.compile().save(tmp_path / "folder" / "program.json")
    root = Path(__file__).resolve().parents[5]
    command = [sys.executable, "-c", OTHER, str(root)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    state = essay_judge.run(topic="tea", essay="Long.", backend=ScriptedBackend(answer))
    assert json.loads(done.stdout) == json.loads(json.dumps(seen(state)))


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_the_same_graph_has_the_same_text(case: Any) -> None:
    one, other = (case.program.compile(**case.fixed).graph for _ in range(2))
    assert one.to_json() == other.to_json()
    assert Graph.from_json(one.to_json().encode()) == one
    assert one.digest() == other.digest()


def test_a_compiled_program_is_pickled_as_its_text() -> None:
    again = pickle.loads(pickle.dumps(forks.compile(passes=("fold",))))
    assert again.graph == forks.compile().graph
    assert again.plan.passes == {"fold"}


SMALL = {"op": "end", "stream": 0}
HOSTILE = {
    "another version": lambda g: g.update(version=2),
    "no version": lambda g: g.pop("version"),
    "a version that is none": lambda g: g.update(version=True),
    "another kind": lambda g: g.update(forkroot="batch"),
    "an unknown field": lambda g: g.update(code="import os"),
    "an unknown field of a node": lambda g: g["nodes"][0].update(run="x"),
    "an unknown node": lambda g: g["nodes"][0].update(op="eval"),
    "an op that is no text": lambda g: g["nodes"][0].update(op=["gen"]),
    "a missing field": lambda g: g["nodes"][0].pop("text"),
    "a field of another type": lambda g: g["nodes"][0].update(stream="0"),
    "a stream that is not open": lambda g: g["nodes"][0].update(stream=7),
    "a negative stream": lambda g: g["nodes"][0].update(stream=-1),
    "code as a name": lambda g: g["nodes"][5].update(name="__import__('os').system('x')"),
    "code as an argument": lambda g: g["parameters"][0].update(name="a);import os;("),
    "a private argument": lambda g: g["parameters"][0].update(name="__class__"),
    "code in a format": lambda g: g["nodes"][1].update(spec="{0.__class__}"),
    "an unknown form": lambda g: g["nodes"][1].update(form="eval"),
    "an unknown method": lambda g: g["nodes"][5].update(method="os.system"),
    "an argument that is no parameter": lambda g: g["nodes"][1].update(name="other"),
    "a cycle of nodes": lambda g: _node(g, "variable")["read"].update(source=25),
    "a read of itself": lambda g: _node(g, "variable")["read"].update(source=17),
    "a read of what is no variable": lambda g: _node(g, "variable")["read"].update(source=1),
    "a read of another branch's source": lambda g: _node(g, "variable")["read"].update(stream=2),
    "a cycle of blocks": lambda g: g["blocks"][0]["switch"]["cases"][0].update(block=0),
    "a block twice": lambda g: g["blocks"][0]["switch"]["cases"][1].update(block=1),
    "an option that is missing": lambda g: g["blocks"][0]["switch"]["cases"][0].update(options=[]),
    "an end before its start": lambda g: g["blocks"][1].update(end=1),
    "a fork of more branches": lambda g: _node(g, "fork").update(num=4),
    "a fork of a million branches": lambda g: _node(g, "fork").update(num=10**6),
    "a fork of itself": lambda g: _node(g, "fork_item").update(fork=7),
    "a join of no fork": lambda g: _node(g, "join").update(fork=0),
    "a huge number": lambda g: _node(g, "gen")["sampling"].update(max_tokens=-(10**400)),
    "an unknown setting": lambda g: _node(g, "gen")["sampling"].update(run="x"),
    "a setting that is none": lambda g: _node(g, "gen").update(sampling={"n": 10**6}),
    "a constraint of no kind": lambda g: _node(g, "gen").update(constraint={"code": "x"}),
    "no blocks": lambda g: g.update(blocks=[]),
    "nodes that are none": lambda g: g.update(nodes={"a": 1}),
    "too many nodes": lambda g: g.update(nodes=[SMALL] * 100_001),
    "a value of no kind": lambda g: g["blocks"][1].update(value={"eval": "x"}),
    "a surrogate": lambda g: g["nodes"][0].update(text="\ud800"),
    "plain data that is none": lambda g: g["blocks"][1].update(value={"plain": {"$code": "x"}}),
}


def _node(graph: dict[str, Any], op: str) -> dict[str, Any]:
    return next(node for node in graph["nodes"] if node["op"] == op)


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_graph_is_refused_by_its_field(change: Any, tmp_path: Path) -> None:
    graph = graph_of()
    change(graph)
    path = tmp_path / "program.json"
    path.write_text(json.dumps(graph))
    with pytest.raises(InvalidGraph) as caught:
        load(path)
    assert caught.value.field


@pytest.mark.parametrize("node", [json.dumps(SMALL), "0", "{}", '""'])
def test_a_million_nodes_are_refused_before_they_are_read(node: str) -> None:
    text = '{"forkroot":"graph","version":1,"name":"x","parameters":[],"blocks":[],"nodes":[{}]}'
    for num in (150_000, 10**6):
        with pytest.raises(InvalidGraph, match="at most") as caught:
            Graph.from_json(text.replace("[{}]", f"[{','.join([node] * num)}]"))
        assert caught.value.field in ("graph", "nodes")


@pytest.mark.parametrize(
    "text",
    [
        *("", "nan", "[]", "1", '{"forkroot":"graph"', '{"forkroot":"graph","version":1e999}'),
        *(b"\xff\xfe", "[" * 100_000, '{"a":' * 100_000, "[1," * 10**6, '"' * 10**6),
        "[" + "0," * 2_000_000,
    ],
    ids=lambda text: repr(text)[:30],
)
def test_any_other_text_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidGraph):
        Graph.from_json(text)


def test_deeply_nested_schemas_are_refused() -> None:
    graph = graph_of()
    schema: Any = True
    for _ in range(200):
        schema = {"not": schema}
    _node(graph, "gen")["constraint"] = {"json_schema": schema, "separators": [",", ":"]}
    with pytest.raises(InvalidGraph, match="nested"):
        Graph.from_json(json.dumps(graph))


def test_forks_in_each_other_are_bounded() -> None:
    nodes: list[dict[str, Any]] = []
    for depth in range(70):
        nodes.append({"op": "fork", "stream": depth, "num": 1})
        nodes.append({"op": "fork_item", "stream": depth + 1, "fork": len(nodes) - 1, "index": 0})
    block = {"start": 0, "end": len(nodes), "value": {"plain": None}}
    graph = {"forkroot": "graph", "version": 1, "name": "deep", "parameters": []}
    with pytest.raises(InvalidGraph, match="64"):
        Graph.from_json(json.dumps({**graph, "nodes": nodes, "blocks": [block]}))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="path"):
        load(tmp_path / "nothing.json")
    with pytest.raises(InvalidCall, match="path"):
        forks.compile().save(tmp_path / "no folder" / "x.json")


def test_a_graph_connects_to_nothing_by_itself() -> None:
    graph = graph_of(forks)
    _node(graph, "gen")["backend"] = "tiny"
    program = load_text(json.dumps(graph))
    with pytest.raises(InvalidCall, match="backends="):
        program.run(topic="tea", backend=ScriptedBackend(answer))


def load_text(text: str) -> Any:
    from forkroot import CompiledProgram

    return CompiledProgram(Graph.from_json(text))


VALID = [branching.compile().graph.to_json(), essay_judge.compile().graph.to_json()]
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-3, 200), st.text(max_size=3))


SCHEMA = Draft202012Validator(json.loads(PATH.read_text()))


def test_the_schema_in_the_package_is_that_of_the_code() -> None:
    assert PATH.read_text() == written()
    Draft202012Validator.check_schema(graph_schema())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_saved_programs_are_of_the_schema(case: Any, tmp_path: Path) -> None:
    case.program.compile(**case.fixed).save(tmp_path / "program.json")
    SCHEMA.validate(json.loads((tmp_path / "program.json").read_text()))


def test_the_schema_refuses_what_has_another_shape() -> None:
    refused = set()
    whole = graph_of()
    for name, change in HOSTILE.items():
        if name == "too many nodes":  # which the validator looks at one by one
            continue
        graph = json.loads(json.dumps(whole))
        change(graph)
        if not SCHEMA.is_valid(graph):
            refused.add(name)
    assert len(refused) >= 16
    assert {"an unknown field", "an unknown node", "a value of no kind", "no blocks"} <= refused


@given(st.data())
def test_a_changed_graph_is_valid_or_refused(data: st.DataObject) -> None:
    graph = json.loads(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(1, 3))):
        at: Any = graph
        while isinstance(at, dict | list) and at:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(at[key], dict | list) or data.draw(st.integers(0, 4)) == 0:
                at[key] = data.draw(LEAVES)
                break
            at = at[key]
    try:
        found = Graph.from_json(json.dumps(graph))
    except InvalidGraph:
        return
    SCHEMA.validate(graph)
    SCHEMA.validate(json.loads(load_text(found.to_json()).graph.to_json()))
