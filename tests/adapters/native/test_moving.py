"""Programs whose constant texts move ahead of their arguments: graphs, samples and explanations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forkroot.adapters.native import (
    Graph,
    ModelReorderer,
    Rules,
    assistant,
    function,
    gen,
    select,
    user,
)
from forkroot.adapters.native.compiler.graph.nodes import (
    Argument,
    ConstantText,
    Gen,
    Node,
    Read,
    RoleBegin,
    RoleEnd,
    Variable,
)
from forkroot.adapters.native.compiler.sharing.moves import move
from forkroot.adapters.native.compiler.sharing.rewriting import rewritten
from forkroot.adapters.native.compiler.sharing.same_nodes import difference
from forkroot.adapters.native.compiler.sharing.stretches import find
from forkroot.adapters.native.moving import tokens_by
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import InvalidCall

MATHS = "Please act as a math expert and solve the given question."


@function
def solve(s: Any, question: str) -> None:
    s += f"Here is a question {question}. {MATHS}\n"
    s += gen("answer")


@function
def chat(s: Any, text: str, tone: str) -> Any:
    s.system("You are an editor.")
    s.user(f"Text: {text}\n\nName the author. Write in a {tone} tone. Use one word.")
    s += assistant(gen("author"))
    s += user("Text again: " + text + "\n\nUse French.")
    s += assistant(select("tone", ["good", "bad"]))
    return s["author"]


@function
def judge(s: Any, essay: str, names: str) -> Any:
    s += "Read the essay.\n\n"
    forks = s.fork(2)
    forks[0] += f"Essay: {essay}\n\nName the topic.\n" + gen("topic")
    forks[1] += f"Essay: {essay}\n\nGrade it.\n" + gen("grade")
    forks.join()
    s += f"People: {names}\n\nUse French.\n" + gen("end")
    return s["topic"]


def texts(graph: Graph) -> str:
    shown = [
        node.text if isinstance(node, ConstantText) else f"{{{node.name}}}"
        for node in graph.nodes
        if isinstance(node, ConstantText | Argument)
    ]
    return "".join(shown)


def test_a_compiled_program_runs_with_its_constants_in_front() -> None:
    backend = ScriptedBackend("2")
    moved = solve.compile(move=True)
    state = moved.run(question="1+1?", backend=backend)
    assert prompt_text(backend.calls[0].prompt) == f"{MATHS} Here is a question 1+1?.\n"
    assert state["answer"] == "2"
    assert texts(solve.compile().graph) == f"Here is a question {{question}}. {MATHS}\n"
    assert solve.compile().movement is None


def test_the_explanation_tells_what_moved_and_by_how_much_the_prefix_grew() -> None:
    movement = solve.compile(move=Rules()).movement
    assert movement is not None
    assert movement.is_changed
    assert movement.explain().splitlines()[1:] == [
        "stream 0: constant prefix 19 -> 77 characters (+58 characters)",
        f"  | {MATHS} Here is a question {{question}}.",
    ]
    counted = movement.explain(tokens_by(ScriptedBackend()))
    assert "19 -> 77 tokens (+58 tokens)" in counted


def test_nothing_crosses_a_role_or_an_answer_and_only_the_first_argument_counts() -> None:
    compiled = chat.compile()
    (found,) = find(compiled.graph)
    assert found.before == ""
    moved = compiled.move_for_sharing()
    moved_text = "Name the author. Use one word.\n\nText: {text}\n\nWrite in a {tone} tone."
    rest = "Text again: {text}\n\nUse French."
    assert texts(moved.graph) == f"You are an editor.{moved_text}{rest}"


def test_branches_move_apart_and_what_is_joined_stays() -> None:
    compiled = judge.compile()
    moved = compiled.move_for_sharing()
    assert moved.movement is not None
    first, second = moved.movement.moves
    assert first.after == "Name the topic.\n\nEssay: {essay}"
    assert str(second.refusal) == 'reference: "Grade it." refers by "it" to what stands before it'
    backend = ScriptedBackend("word")
    state = moved.run(essay="E", names="N", backend=backend)
    assert state.ret_value == ["word", None]
    assert state.text().endswith("People: N\n\nUse French.\nword")


def test_samples_on_which_the_programs_differ_refuse_the_move() -> None:
    def first_letters(call: Any) -> str:
        return prompt_text(call.prompt)[:4]

    samples = [{"question": "1+1?"}]
    equal = solve.compile().move_for_sharing(samples=samples, backend=ScriptedBackend("2"))
    other = solve.compile().move_for_sharing(
        samples=samples, backend=ScriptedBackend(first_letters)
    )
    assert equal.movement is not None and equal.movement.is_changed
    assert other.movement is not None and not other.movement.is_changed
    (refused,) = other.movement.moves
    assert str(refused.refusal) == "samples: in sample 0, 'answer' was 'Here', then 'Plea'"
    assert other.graph == solve.compile().graph


def test_a_proposal_of_a_backend_that_the_checks_refuse_changes_nothing() -> None:
    @function
    def summarise(s: Any, text: str) -> None:
        s += f"Text: {text}\n\nPlace: Paris.\n\nUse one word.\n" + gen("a")

    moved = summarise.compile(move=ModelReorderer(ScriptedBackend("2 1 3")))
    assert moved.graph == summarise.compile().graph
    assert moved.movement is not None
    assert "of the case at hand" in str(moved.movement.moves[0].refusal)


def test_a_moved_graph_is_saved_and_read_as_any_other() -> None:
    graph = judge.compile(move=True).graph
    assert Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("program", [solve, chat, judge])
def test_the_graph_in_its_own_order_has_the_same_nodes(program: Any) -> None:
    graph = program.compile().graph
    same = rewritten(graph, [(found, found.stretch.parts) for found in find(graph)])
    assert difference(graph, same) is None
    assert texts(same) == texts(graph)


def with_nodes(graph: Graph, *nodes: Node) -> Graph:
    (block,) = graph.blocks
    return replace(graph, nodes=nodes, blocks=(replace(block, start=0, end=len(nodes)),))


@pytest.mark.parametrize("seed", range(6))
def test_another_set_of_nodes_is_found(seed: int) -> None:
    graph = solve.compile().graph
    text, argument, rest, answer = graph.nodes
    assert isinstance(text, ConstantText) and isinstance(argument, Argument)
    assert isinstance(rest, ConstantText)
    longer = replace(rest, text=rest.text + "Now.")
    changed = [
        (text, replace(rest, continues=True), answer),
        (text, argument, rest, replace(argument, continues=True), answer),
        (text, argument, longer, answer),
        (text, replace(argument, spec=">3"), rest, answer),
        (text, argument, answer, replace(rest, continues=False)),
        (text, argument, rest, Gen(0, "answer", {"max_tokens": 1})),
    ][seed]
    found = difference(graph, with_nodes(graph, *changed))
    assert found is not None
    assert found.check == "same nodes"


def test_a_variable_ahead_of_what_sets_it_is_no_graph() -> None:
    @function
    def two(s: Any, q: str) -> None:
        s += f"Name: {q}\n" + gen("a")
        s += f"Again: {s['a']}\n" + gen("b")

    graph = two.compile().graph
    variable = next(node for node in graph.nodes if isinstance(node, Variable))
    assert isinstance(variable.read, Read)
    others = [node for node in graph.nodes if node is not variable]
    with pytest.raises(InvalidCall, match="read"):
        with_nodes(graph, replace(variable, continues=False), *others)


def test_messages_of_a_chat_keep_their_order() -> None:
    graph = chat.compile().graph
    begins = [at for at, node in enumerate(graph.nodes) if isinstance(node, RoleBegin)]
    ends = [at for at, node in enumerate(graph.nodes) if isinstance(node, RoleEnd)]
    first, second = begins[0], begins[1]
    swapped = (*graph.nodes[second : ends[1] + 1], *graph.nodes[first:second])
    found = difference(graph, replace(graph, nodes=swapped + graph.nodes[ends[1] + 1 :]))
    assert found is not None


def test_what_is_no_reorderer_or_no_sample_is_refused() -> None:
    compiled = solve.compile()
    with pytest.raises(InvalidCall, match="move='rules'"):
        compiled.move_for_sharing("rules")  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="samples="):
        compiled.move_for_sharing(samples={"question": "x"})  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="samples="):
        compiled.move_for_sharing(backend=ScriptedBackend())
    with pytest.raises(InvalidCall, match="move=False"):
        move(compiled.graph, False)  # type: ignore[arg-type]


def test_the_worth_of_the_passes_has_a_line_for_code_movement() -> None:
    assert solve.compile(move=True).explain()["move"].amount == 58
    assert "move" not in str(solve.compile().explain())
