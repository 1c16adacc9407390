"""The runtime gets hints of what is shared before it could see it, and only then."""

import pytest

from forkroot.adapters.native import function, gen, image, select
from forkroot.adapters.testing import ALL_FEATURES, ScriptedBackend, prompt_text, root_of
from forkroot.core.api.protocol import CallFailed
from forkroot.core.common.harmless import hint_errors

pytestmark = pytest.mark.timeout(180)


def forking(s):
    s += "root"
    group = s.fork(3)
    group += lambda index: str(index) + gen("x") + "more" + gen("y")
    group.join()


def run(body, script="ok", features=ALL_FEATURES, **settings):
    backend = ScriptedBackend(script, features=features)
    return function(body).run(backend=backend, **settings), backend


def test_the_prefix_is_sent_before_any_branch() -> None:
    _, backend = run(forking)
    plant = backend.calls[0]
    assert prompt_text(plant.prompt) == "root"
    assert plant.sampling.max_tokens == 0
    assert plant.hint.branches == 3
    assert [call.sampling.max_tokens for call in backend.calls[1:]] == [128] * 6


def test_only_the_first_call_of_a_branch_names_the_root() -> None:
    _, backend = run(forking)
    hints = {prompt_text(call.prompt): root_of(call) for call in backend.calls}
    root = root_of(backend.calls[0])
    assert hints["root0"] == hints["root1"] == hints["root2"] == root
    assert hints["root0okmore"] is None


def test_a_select_can_be_the_first_call_of_a_branch() -> None:
    def body(s):
        s += "root"
        group = s.fork(2)
        group += select("x", ["a", "b"])

    _, backend = run(body, "a")
    assert root_of(backend.calls[1]) == root_of(backend.calls[2]) == root_of(backend.calls[0])


def test_the_prefix_is_sent_after_what_the_parent_still_writes() -> None:
    backend = ScriptedBackend("ok", is_held=True)

    def body(s):
        s += "root " + gen("x")
        group = s.fork(2)
        group += gen("y")
        backend.release(0)
        backend.wait_for(4)
        backend.release()

    function(body).run(backend=backend)
    assert [call.sampling.max_tokens for call in backend.calls] == [128, 0, 128, 128]
    assert prompt_text(backend.calls[1].prompt) == "root ok"


def test_every_fork_has_its_own_root() -> None:
    def body(s):
        s += "root"
        for _ in range(2):
            group = s.fork(2)
            group += gen("x")

    _, backend = run(body)
    roots = [call.hint.root for call in backend.calls if call.sampling.max_tokens == 0]
    assert len(set(roots)) == 2


def test_without_hints_no_call_says_anything() -> None:
    state, backend = run(forking, hints=False)
    assert len(backend.calls) == 6
    assert {call.hint for call in backend.calls} == {None}
    assert state["x"] == ["ok"] * 3


def test_a_backend_that_knows_no_hints_is_sent_no_prefix() -> None:
    _, backend = run(forking, features=frozenset())
    assert len(backend.calls) == 6


def test_nothing_is_planted_for_a_single_branch_or_a_copy() -> None:
    def body(s):
        s += "root"
        one = s.fork(1)
        one += gen("x")
        with s.copy() as other:
            other += gen("y")

    _, backend = run(body)
    assert {root_of(call) for call in backend.calls} == {None}
    assert len(backend.calls) == 2


def test_an_empty_prefix_is_not_planted_but_its_branches_still_belong_together() -> None:
    def body(s):
        group = s.fork(2)
        group += gen("x")

    _, backend = run(body)
    one, two = backend.calls
    assert root_of(one) == root_of(two)
    assert one.hint.branches == 2


def test_an_error_of_the_planted_prefix_is_of_no_consequence() -> None:
    class NoPlants(ScriptedBackend):
        def submit(self, call):
            reply = super().submit(call)
            if call.sampling.max_tokens == 0:
                raise CallFailed("no plants here")
            return reply

    backend, before = NoPlants("ok"), hint_errors.total
    assert function(forking).run(backend=backend)["x"] == ["ok"] * 3
    assert hint_errors.total == before + 1


def test_a_prefix_that_the_backend_cannot_see_is_not_planted() -> None:
    def body(s):
        s += image(b"png")
        group = s.fork(2)
        group += gen("x", backend="seeing")
        group.join()

    blind = ScriptedBackend("ok", features=frozenset({"hints"}))
    seeing = ScriptedBackend("ok")
    state = function(body).run(backends={"blind": blind, "seeing": seeing})
    assert state["x"] == ["ok", "ok"]
    assert blind.calls == []


def test_the_first_calls_of_a_batch_belong_together() -> None:
    def body(s, question):
        s += "examples " + question + gen("x") + gen("y")

    backend = ScriptedBackend("ok")
    items = [{"question": str(index)} for index in range(3)]
    function(body).run_batch(items, backend=backend, num_threads=1)
    firsts, seconds = backend.calls[0::2], backend.calls[1::2]
    assert len({root_of(call) for call in firsts}) == 1
    assert firsts[0].hint.branches == 3
    assert firsts[0].hint.prefix_end is None
    assert {root_of(call) for call in seconds} == {None}


def test_a_batch_of_one_and_a_batch_without_hints_say_nothing() -> None:
    def body(s):
        s += gen("x")

    backend = ScriptedBackend("ok")
    function(body).run_batch([{}], backend=backend)
    function(body).run_batch([{}, {}], backend=backend, hints=False)
    assert {root_of(call) for call in backend.calls} == {None}


def test_a_second_run_says_what_followed_in_the_first() -> None:
    @function
    def story(s):
        s += "A tale of " + gen("hero")
        s += f" the {len(s['hero'])}th and of " + gen("foe")

    backend = ScriptedBackend("a word", features=ALL_FEATURES)
    for _ in range(2):
        story.run(backend=backend)
    hints = [call.hint for call in backend.calls]
    assert [hint.calls_left for hint in hints] == [None, None, 1, 0]
    assert len({hint.program for hint in hints}) == 2
    assert "0 of 2 guesses wrong" in story.courses.report()


def test_all_calls_bear_the_name_of_the_program_compiled_or_not() -> None:
    def body(s):
        s += "root" + gen("x")
        group = s.fork(2)
        group += gen("y") + select("z", ["o", "k"])
        outer(s)

    @function
    def outer(s):
        s += gen("w")

    backend = ScriptedBackend("ok")
    program = function(body)
    program.run(backend=backend)
    program.compile().run(backend=backend)
    function(name="named")(body).run_batch([{}, {}], backend=backend)
    assert {call.hint.kind for call in backend.calls} == {"body", "named"}
    num_named = [call.hint.kind for call in backend.calls].count("named")
    assert num_named == 2 * len(backend.calls) // 4
