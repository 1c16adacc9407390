"""Reading along while a program runs: pieces as they come, and never a wait for nothing."""

import threading

import pytest

from forkroot.adapters.native import UnsetVariable, function, gen, select
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Chunk, Completion, Output, Overloaded

pytestmark = pytest.mark.timeout(180)


@function
def ask(s, question):
    s += question + gen("answer") + "/" + gen("more")


def echo(call):
    return prompt_text(call.prompt).upper()


def test_the_pieces_add_up_to_the_text() -> None:
    state = ask.run("hello", backend=ScriptedBackend(echo, chunk_len=3), stream=True)
    pieces = list(state.text_iter())
    assert pieces[:3] == ["hello", "HEL", "LO"]
    assert "".join(pieces) == state.text() == "helloHELLO/HELLOHELLO/"


def test_the_pieces_of_a_variable_are_its_own() -> None:
    state = ask.stream("ab", backend=ScriptedBackend(echo, chunk_len=3))
    assert list(state.text_iter("more")) == ["ABA", "B/"]
    assert list(state.text_iter("answer")) == ["AB"]


def test_pieces_are_there_before_the_answer_has_ended() -> None:
    backend = ScriptedBackend("", is_held=True)
    state = ask.stream("a", backend=backend)
    pieces = state.text_iter("answer")
    backend.wait_for(1)
    backend.replies[0].put(Chunk("x"))
    assert next(pieces) == "x"
    backend.replies[0].put(Chunk("y"))
    assert next(pieces) == "y"
    backend.replies[0].finish(Completion((Output("xy"),)))
    assert list(pieces) == []
    assert state["answer"] == "xy"
    backend.wait_for(2)
    backend.release()


def test_a_stream_of_several_answers_shows_the_first() -> None:
    @function
    def several(s):
        s += gen("x", n=2)

    state = several.stream(backend=ScriptedBackend([["ab", "cd"]], chunk_len=1))
    assert list(state.text_iter()) == ["a", "b"]
    assert state["x"] == ["ab", "cd"]


def test_the_state_can_be_read_before_the_program_has_come_so_far() -> None:
    gate = threading.Event()

    @function
    def late(s):
        gate.wait(60)
        s += "a" + gen("x")
        return "done"

    state = late.stream(backend=ScriptedBackend("ok"))
    threading.Timer(0.02, gate.set).start()
    assert state["x"] == "ok"
    assert state.ret_value == "done"
    assert state.text() == "aok"


def test_a_variable_that_the_program_never_sets_ends_the_wait_for_it() -> None:
    state = ask.stream("a", backend=ScriptedBackend(echo))
    with pytest.raises(UnsetVariable):
        state["nothing"]
    assert "nothing" not in state


def test_an_error_ends_every_wait() -> None:
    state = ask.stream("a", backend=ScriptedBackend([Overloaded("full")]))
    with pytest.raises(Overloaded):
        list(state.text_iter())
    with pytest.raises(Overloaded):
        list(state.text_iter("more"))
    with pytest.raises(Overloaded):
        state.sync()


def test_what_the_program_raises_ends_every_wait() -> None:
    @function
    def broken(s):
        s += gen("x")
        raise LookupError("of the program")

    state = broken.stream(backend=ScriptedBackend("ok", is_held=True))
    assert isinstance(state.error(), LookupError)


def test_only_a_streaming_run_or_gen_requests_chunks() -> None:
    @function
    def mixed(s):
        s += gen("x") + gen("y", stream=True) + select("z", ["a"])

    backend = ScriptedBackend(lambda call: "a", chunk_len=1)
    mixed.run(backend=backend)
    assert [call.stream for call in backend.calls] == [False, True, False]
    mixed.run(backend=backend, stream=True).sync()
    assert [call.stream for call in backend.calls[3:]] == [True, True, False]


def test_inside_the_program_the_pieces_end_with_what_was_submitted() -> None:
    seen = []

    @function
    def reading(s):
        for word in ("one", "two"):
            s += word + gen("x")
            seen.append("".join(s.text_iter("x")))
        seen.append("".join(s.text_iter()))

    reading.run(backend=ScriptedBackend(["A", "B"]))
    assert seen == ["A", "B", "oneAtwoB"]


def test_branches_can_be_read_along_too() -> None:
    seen = []

    @function
    def forking(s):
        s += "r" + gen("a")
        group = s.fork(2)
        group += lambda index: str(index) + gen("x")
        seen.extend("".join(branch.text_iter("x")) for branch in group)
        seen.extend("".join(branch.text_iter()) for branch in group)
        seen.append("".join(group[0].text_iter("a")))

    forking.run(backend=ScriptedBackend(lambda call: f"<{prompt_text(call.prompt)[-1]}>"))
    assert seen == ["<0>", "<1>", "r<r>0<0>", "r<r>1<1>", "<r>"]


def test_what_has_no_pieces_of_its_own_comes_whole() -> None:
    @function
    def scoped(s):
        with s.var_scope("all"):
            s += "a" + gen("x")

    state = scoped.run(backend=ScriptedBackend("ok"))
    assert list(state.text_iter("all")) == ["aok"]
