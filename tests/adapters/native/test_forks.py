"""Branches go on from their parent, side by side, and come back in order."""

import threading

import pytest

from forkroot.adapters.native import ForkGroup, assistant, function, gen, user
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Chat, InvalidCall, Message, Text

pytestmark = pytest.mark.timeout(180)


def run(body, script="ok", **settings):
    backend = ScriptedBackend(script)
    return function(body).run(backend=backend, **settings), backend


def answers(call):
    return f"[{prompt_text(call.prompt)[-1]}]"


def test_branches_start_with_all_that_their_parent_wrote_and_set() -> None:
    def body(s):
        s += "root " + gen("x")
        group = s.fork(2)
        group += lambda index: f" branch {index}"
        assert [branch.text() for branch in group] == ["root ok branch 0", "root ok branch 1"]
        assert [branch["x"] for branch in group] == ["ok", "ok"]
        assert s.text() == "root ok"

    run(body)


def test_a_fork_waits_in_the_stream_of_its_parent_and_not_in_the_program() -> None:
    backend = ScriptedBackend("ok", is_held=True)

    def body(s):
        s += "root " + gen("x")
        group = s.fork(2)
        group += " go " + gen("y")
        assert len(backend.calls) == 1
        backend.release(0)
        assert group[1]["x"] == "ok"
        backend.wait_for(4)
        backend.release()
        group.join()

    state = function(body).run(backend=backend)
    assert state["y"] == ["ok", "ok"]
    assert prompt_text(backend.calls[2].prompt) == "root ok go "


def test_all_branches_are_submitted_before_any_ends() -> None:
    backend = ScriptedBackend(answers, is_held=True)

    def body(s):
        s += "root"
        group = s.fork(5)
        group += lambda index: str(index) + gen("x")
        backend.wait_for(6)
        backend.release(5, 4, 3, 2, 1)
        group.join()

    state = function(body).run(backend=backend)
    assert state["x"] == ["[0]", "[1]", "[2]", "[3]", "[4]"]


def test_branches_take_one_expression_a_list_or_a_function() -> None:
    def body(s):
        group = s.fork(2)
        group += "a"
        group += ["b", "c" + gen("x")]
        group += lambda index: str(index)
        group[0] += "!"
        assert [branch.text() for branch in group] == ["ab0!", "ac[c]1"]
        assert len(group) == 2

    run(body, answers)


@pytest.mark.parametrize("value", [["a"], ["a", "b", "c"], 3, None])
def test_what_does_not_fit_the_branches_is_refused(value):
    def body(s):
        group = s.fork(2)
        group += value

    with pytest.raises(InvalidCall, match="a list of 2"):
        run(body)


def test_another_state_cannot_be_put_in_the_place_of_a_branch() -> None:
    def body(s):
        group = s.fork(2)
        group[0] = group[1]

    with pytest.raises(InvalidCall, match="already there"):
        run(body)


@pytest.mark.parametrize("num", [0, -1, 2.0, True, "2"])
def test_only_a_positive_number_of_branches_is_allowed(num):
    with pytest.raises(InvalidCall, match="an integer >= 1"):
        run(lambda s: s.fork(num))


def test_gathered_variables_are_lists_in_branch_order() -> None:
    def body(s):
        s += "root" + gen("kept")
        group = s.fork(3)
        group += lambda index: str(index) + gen("x")
        group[1] += "z" + gen("only")
        group.join()
        assert s["kept"] == "[t]"
        s += "end"

    state, _ = run(body, answers)
    assert state["x"] == ["[0]", "[1]", "[2]"]
    assert state["only"] == [None, "[z]", None]
    assert state.text() == "root[t]end"
    assert [meta["finish_reason"] for meta in state.get_meta_info("x")] == ["stop"] * 3


def test_only_what_a_branch_set_itself_is_gathered() -> None:
    def body(s):
        s += "root" + gen("x")
        group = s.fork(2)
        group[1] += "1" + gen("x")
        group.join()

    state, _ = run(body, answers)
    assert state["x"] == [None, "[1]"]


def test_concatenated_branches_append_what_they_wrote_with_its_token_ids() -> None:
    def body(s):
        s += "root"
        group = s.fork(2)
        group += lambda index: f" {index}" + gen("x")
        group.join("concate_and_append")
        s += "?" + gen("y")

    state, backend = run(body, answers)
    assert state.text() == "root 0[0] 1[1]?[?]"
    assert backend.calls[-1].prompt == (
        Text("root 0"),
        Text("[0]", tuple(b"[0]")),
        Text(" 1"),
        Text("[1]", tuple(b"[1]")),
        Text("?"),
    )
    assert "x" not in state


def test_concatenated_branches_of_a_chat_append_their_messages() -> None:
    def body(s):
        s += user("q")
        group = s.fork(2)
        group += lambda index: assistant(f"{index}" + gen("x"))
        group.join("concate_and_append")
        s += user("?") + assistant(gen("y"))

    state, backend = run(body)
    assert [message["content"] for message in state.messages()] == ["q", "0ok", "1ok", "?", "ok"]
    assert isinstance(backend.calls[-1].prompt, Chat)


def test_a_fork_inside_an_open_message_goes_on_in_that_message() -> None:
    def body(s):
        s += user("q")
        with s.assistant():
            s += "a"
            group = s.fork(2)
            group += lambda index: str(index) + gen("x")
            group.join("concate_and_append")

    state, backend = run(body, "!")
    assert backend.calls[1].prompt.messages[-1] == Message("assistant", (Text("a0"),))
    assert state.messages()[-1] == {"role": "assistant", "content": "a0!1!"}


def test_an_unknown_way_to_join_is_refused() -> None:
    with pytest.raises(InvalidCall, match="gather_variable"):
        run(lambda s: s.fork(2).join("merge"))


def test_a_join_waits_in_the_stream_and_not_in_the_program() -> None:
    backend = ScriptedBackend(answers, is_held=True)

    def body(s):
        group = s.fork(2)
        group += "a" + gen("x")
        group.join()
        s += "b" + gen("y")
        assert len(backend.calls) == 2
        backend.release(1, 0)
        backend.wait_for(3)
        assert s["x"] == ["[a]", "[a]"]
        backend.release(2)

    assert function(body).run(backend=backend)["y"] == "[b]"


def test_forks_nest_and_gather_nested_lists() -> None:
    def body(s):
        s += "r"
        outer = s.fork(2)
        for index, branch in enumerate(outer):
            branch += str(index)
            inner = branch.fork(2)
            inner += ["a" + gen("x"), "b" + gen("x")]
            inner.join()
        outer.join()

    state, _ = run(body, lambda call: prompt_text(call.prompt))
    assert state["x"] == [["r0a", "r0b"], ["r1a", "r1b"]]


def test_a_copy_leaves_its_state_alone() -> None:
    def body(s):
        s += "a"
        with s.copy() as other:
            other += "b" + gen("x")
            assert other.text() == "ab[b]"
        assert "x" not in s
        assert other["x"] == "[b]"
        s += "c"

    state, _ = run(body, answers)
    assert state.text() == "ac"


def test_a_fork_of_an_empty_state_works() -> None:
    def body(s):
        group = s.fork(2)
        group += gen("x")
        group.join()

    state, backend = run(body)
    assert state["x"] == ["ok", "ok"]
    assert [call.prompt for call in backend.calls] == [(), ()]


def test_branches_that_nobody_joins_end_before_their_run() -> None:
    backend = ScriptedBackend("ok", delay=0.05)

    def body(s):
        s += "a"
        group = s.fork(3)
        group += gen("x") + gen("y")

    function(body).run(backend=backend)
    assert len(backend.replies) == 7
    assert all(reply.done() for reply in backend.replies)


def test_the_same_program_gives_the_same_calls_each_time() -> None:
    def body(s):
        s += "r" + gen("a")
        group = s.fork(3)
        group += lambda index: str(index) + gen("x") + gen("y")
        group.join("concate_and_append")
        s += gen("z")

    def result(backend):
        return sorted(repr((call.prompt, call.sampling)) for call in backend.calls)

    one, first = run(body, answers)
    two, second = run(body, answers)
    assert result(first) == result(second)
    assert one.text() == two.text()


def test_a_thousand_branches_need_no_thousand_threads() -> None:
    backend = ScriptedBackend(answers, is_held=True)
    counts = []

    def body(s):
        s += "root"
        group = s.fork(1000)
        group += lambda index: str(index) + gen("x") + "," + gen("y")
        backend.wait_for(1001)
        counts.append(threading.active_count())
        backend.release(*range(1000, 0, -1))
        backend.wait_for(2001)
        counts.append(threading.active_count())
        backend.release()
        group.join()

    before = threading.active_count()
    state = function(body).run(backend=backend)
    assert max(counts) <= before + 1
    assert state["x"] == [f"[{str(index)[-1]}]" for index in range(1000)]
    assert state["y"] == ["[,]"] * 1000


def test_a_group_is_what_a_fork_makes() -> None:
    groups = []
    run(lambda s: groups.append(s.fork(2)))
    assert isinstance(groups[0], ForkGroup)
