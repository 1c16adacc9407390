"""The passes: what each of them changes, and what it is worth."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from forkroot import function, gen, select, system, user
from forkroot.adapters.native.compiler.graph.nodes import ConstantText
from forkroot.adapters.native.compiler.passes.memory import Memory
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import BackendInfo, Call, InvalidCall
from forkroot.examples.essay_judge import RUBRIC, essay_judge

from .programs import answer, branching, forks, seen, uneven

pytestmark = pytest.mark.timeout(180)
ITEMS = [{"topic": "tea", "essay": "Long."}, {"topic": "sea", "essay": "Short."}]


class Small(ScriptedBackend):
    """A scripted backend that has room for so many tokens."""

    def __init__(self, slots: int, **settings: Any) -> None:
        super().__init__(answer, **settings)
        self._slots = slots

    def info(self) -> BackendInfo:
        found = super().info()
        return BackendInfo(
            found.model, found.context_len, 256, found.features, load={"slots": self._slots}
        )


def planted(backend: ScriptedBackend) -> list[Call]:
    return [call for call in backend.calls if call.sampling.max_tokens == 0]


def test_an_unknown_pass_is_refused() -> None:
    with pytest.raises(InvalidCall, match="passes"):
        forks.compile(passes=["fast"])


def test_texts_beside_each_other_become_one() -> None:
    @function
    def body(s: Any, x: str) -> None:
        s += "a"
        s += "b" + x
        s += "c"
        s += select("d", ["1", "2"])
        s += "!" if s["d"] == "1" else "?"
        s += s["d"]

    compiled = body.compile()
    texts = [node.text for node in compiled.plan.graph.nodes if isinstance(node, ConstantText)]
    assert texts == ["ab", "c", "!1", "?2"]
    assert compiled.explain()["fold"].amount == 3


def test_calls_that_no_output_needs_are_left_out() -> None:
    compiled = essay_judge.compile(outputs=["related"])
    backend = ScriptedBackend(answer)
    state = compiled.run(**ITEMS[0], backend=backend)
    assert len([call for call in backend.calls if call.options or not planted(backend)]) == 1
    assert (
        state["related"] == essay_judge.run(**ITEMS[0], backend=ScriptedBackend(answer))["related"]
    )
    assert compiled.explain()["dead"].amount == 6
    assert essay_judge.compile(outputs=["grade"]).explain()["dead"].amount == 1
    kept = essay_judge.compile(outputs=["related"], passes=())
    assert len(kept.plan.graph.nodes) == len(kept.graph.nodes)


def test_what_is_returned_is_needed_too() -> None:
    compiled = branching.compile(outputs=[])
    for text in ("a", "b", "c", "d"):
        whole = branching.run(text=text, backend=ScriptedBackend(answer))
        assert compiled.run(text=text, backend=ScriptedBackend(answer)).ret_value == whole.ret_value
    assert compiled.explain()["dead"].amount == 4


def test_a_batch_plants_the_constant_prefix_once_and_its_calls_name_it() -> None:
    backend = ScriptedBackend(answer)
    compiled = essay_judge.compile()
    compiled.run_batch(ITEMS, backend=backend)
    first = backend.calls[0]
    assert first.sampling.max_tokens == 0
    assert prompt_text(first.prompt) == RUBRIC + "Topic: "
    assert first.hint is not None
    assert first.hint.branches == 2
    named = [call for call in backend.calls if call.hint and call.hint.root == first.hint.root]
    assert len(named) == 3
    assert all(prompt_text(call.prompt).startswith(prompt_text(first.prompt)) for call in named)


@pytest.mark.parametrize(
    "settings", [{"passes": ("fold",)}, {"features": frozenset({"options"})}, {"hints": False}]
)
def test_no_prefix_is_planted_where_it_is_of_no_use(settings: dict[str, Any]) -> None:
    features = settings.pop("features", None)
    backend = ScriptedBackend(answer, **({} if features is None else {"features": features}))
    passes = settings.pop("passes", None)
    essay_judge.compile(passes=passes).run_batch(ITEMS, backend=backend, **settings)
    assert RUBRIC + "Topic: " not in [prompt_text(call.prompt) for call in planted(backend)]


def test_a_prefix_can_be_planted_when_a_program_is_loaded() -> None:
    backend = ScriptedBackend(answer)
    assert essay_judge.compile().plant(backend=backend, namespace="x")
    (call,) = backend.calls
    assert (call.namespace, call.sampling.max_tokens) == ("x", 0)

    @function
    def without(s: Any, x: str) -> None:
        s += x + gen("a")

    assert not without.compile().plant(backend=backend)


def test_a_prefix_of_a_chat_is_whole_messages() -> None:
    @function
    def chat(s: Any, x: str) -> None:
        s += system("Be brief.") + user(x)

    backend = ScriptedBackend(answer)
    chat.compile().plant(backend=backend)
    (call,) = backend.calls
    assert [message.role for message in call.prompt.messages] == ["system"]


def test_a_hint_of_a_fork_has_the_calls_that_name_its_root() -> None:
    backend = ScriptedBackend(answer)
    uneven.compile().run(topic="tea", backend=backend)
    (root,) = planted(backend)
    assert root.hint is not None
    assert root.hint.branches == 4
    assert [call.hint.root for call in backend.calls if call.hint] == [root.hint.root] * 5
    backend = ScriptedBackend(answer)
    uneven.compile(passes=("fold",)).run(topic="tea", backend=backend)
    assert [call.hint.branches for call in planted(backend) if call.hint] == [3]


def test_calls_that_can_wait_have_a_lower_priority() -> None:
    @function
    def body(s: Any) -> None:
        long, short = s.fork(2)
        long += "long" + gen("a", 90) + gen("b", 90)
        short += "short" + gen("a", 10)
        s += long["b"] + short["a"] + gen("end", 20)

    backend = ScriptedBackend(answer)
    body.compile().run(backend=backend, priority=5)
    priorities = {
        prompt_text(call.prompt)[:5]: call.priority for call in backend.calls if not _is_plant(call)
    }
    assert priorities["long"[:5]] == 5
    assert priorities["short"] < 5
    backend = ScriptedBackend(answer)
    body.compile(passes=("ahead",)).run(backend=backend, priority=5)
    assert {call.priority for call in backend.calls} == {5}


def _is_plant(call: Call) -> bool:
    return call.sampling.max_tokens == 0


def test_branches_that_do_not_fit_run_after_one_another() -> None:
    @function
    def wide(s: Any, topic: str) -> None:
        s += topic
        group = s.fork(6)
        group += lambda index: f"branch {index}"
        group += gen("a", 100)
        group.join()
        s += str(s["a"]) + gen("end", 10)

    assert Memory(wide.compile().graph).peak(capacity=400).most == {1: 3}
    for slots, num_first in ((400, 3), (5_000, 6)):
        backend = Small(slots, is_held=True)
        state = wide.compile().stream(topic="tea", backend=backend, hints=False)
        backend.wait_for(num_first)
        assert len(backend.calls) == num_first
        for number in range(7):
            backend.wait_for(number + 1)
            backend.release()
        expected = wide.run(topic="tea", backend=ScriptedBackend(answer))
        assert seen(state) == seen(expected)


def test_a_batch_runs_as_many_programs_as_fit() -> None:
    compiled = forks.compile()
    items = [{"topic": str(number)} for number in range(8)]
    backend = Small(200, is_held=True)
    peak = Memory(compiled.graph, {"topic": 1}).peak()
    assert 200 // peak.own < 8
    num = compiled._num_threads("auto", items, _settings(backend))
    assert num == (200 - peak.shared) // Memory(compiled.graph, {"topic": 1}).peak(4).own


def _settings(backend: Any) -> Any:
    from forkroot.adapters.native.language.settings import Settings

    return Settings(backend=backend)


def test_an_explanation_has_a_line_for_each_pass() -> None:
    text = str(essay_judge.compile(passes=("fold", "ahead")).explain())
    assert "prefixes off" in text
    assert "ahead    on   5 calls one after the other" in text
    counted = essay_judge.compile().explain(Small(1000))
    assert counted["prefixes"].amount > 0
    assert "runs fit 1000" in str(counted)


def test_a_picture_shows_streams_as_columns(tmp_path: Any) -> None:
    path = tmp_path / "judge.svg"
    text = essay_judge.compile().draw(path)
    assert "branch 1" in text.splitlines()[1]
    assert any("if related is ' no'" in line for line in text.splitlines())
    drawn = ElementTree.fromstring(path.read_text("utf-8"))
    labels = ["".join(it.itertext()) for it in drawn.iter() if it.tag.endswith("text")]
    assert {"main", "branch 3", "gen summary", "{essay}", "fork 3"} <= set(labels)


def test_roots_know_their_uses_in_order_and_what_is_left_of_the_program() -> None:
    @function
    def body(s: Any, x: str) -> None:
        s += x + gen("plan", 10)
        branches = s.fork(3)
        branches[0] += "a" + gen("one", 20)
        branches[1] += "b" + gen("one", 5) + "c" + gen("two", 30)
        s += branches[0]["one"] + branches[1]["two"]
        inner = branches[2].fork(2)
        inner += gen("deep", 7)
        s += gen("end", 4)

    compiled = body.compile()
    nodes = compiled.plan.graph.nodes
    outer, inner = compiled.plan.roots
    names = [nodes[use.position].name for use in outer.uses]
    assert sorted(names) == ["deep", "deep", "end", "one", "one", "two"]
    assert [use.step for use in outer.uses] == [1, 1, 1, 1, 2, 3]
    assert (outer.step, outer.num_uses, outer.tokens_left) == (1, 6, 5 + 30 + 4)
    assert (nodes[outer.last.position].name, outer.last.tokens) == ("end", 45)
    assert nodes[outer.next_after(1).position].name == "two"
    assert outer.next_after(3) is None
    assert (inner.num_uses, inner.tokens_left, inner.last.is_certain) == (2, 7, True)


def test_roots_of_a_branch_on_a_select_are_used_on_some_paths() -> None:
    @function
    def body(s: Any) -> None:
        branches = s.fork(2)
        branches += gen("a", 5)
        branches.join()
        s += select("kind", ["x", "y"])
        if s["kind"] == "x":
            s += gen("more", 9)

    root, *others = body.compile().plan.roots
    nodes = body.compile().plan.graph.nodes
    certain = {getattr(nodes[use.position], "name", ""): use.is_certain for use in root.uses}
    assert certain == {"a": True, "kind": True, "more": False}
    assert root.tokens_left == 5 + 1 + 9
    assert not others


def test_graphs_with_very_many_uses_of_roots_have_none() -> None:
    @function
    def body(s: Any, num: int) -> None:
        for _ in range(num):
            s.fork(1)[0] += gen("a", 1)

    assert len(body.compile(num=20).plan.roots) == 20
    assert body.compile(num=1500).plan.roots == ()


def test_a_picture_fits_narrow_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in (20, 40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(width))
        text = essay_judge.compile().draw()
        assert max(map(len, text.splitlines())) <= width
        assert text.count("●") == 5
    monkeypatch.setenv("COLUMNS", "40")
    assert "branch 2 ● gen judgment" in essay_judge.compile().draw()
