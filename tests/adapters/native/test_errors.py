"""Whatever goes wrong is raised where it is read, once and typed, and nothing ever waits."""

import ntpath
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import forkroot.sglang as sgl
from forkroot.adapters.native import function, gen, select, user
from forkroot.adapters.native.interpreter.context import Context
from forkroot.adapters.native.language.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    BackendClosed,
    BackendInfo,
    CallFailed,
    Completion,
    InvalidCall,
    Overloaded,
    ProgramError,
)
from forkroot.core.api.reply import Mailbox

pytestmark = pytest.mark.timeout(180)

BROKEN = {"good": "ok", "bad": Overloaded("the queue is full")}


def caught_in(read):
    with pytest.raises(Overloaded) as caught:
        read()
    return caught.value


def failed_state(body, script=BROKEN):
    (state,) = function(body).run_batch([{}], backend=ScriptedBackend(script))
    return state


def test_the_run_raises_an_error_that_nobody_fetched() -> None:
    def body(s):
        s += "bad" + gen("x")

    with pytest.raises(Overloaded) as caught:
        function(body).run(backend=ScriptedBackend(BROKEN))
    assert caught.value.__notes__ == ["in gen('x')"]


def test_every_way_to_read_a_failed_state_raises_its_error() -> None:
    def body(s):
        s += "bad" + gen("x")
        s += "good" + gen("y")
        for read in (
            lambda: s["x"],
            lambda: s["y"],
            lambda: s.get_var("z"),
            lambda: s.get_meta_info("x"),
            s.text,
            s.messages,
            s.sync,
            lambda: list(s.text_iter()),
            lambda: list(s.text_iter("x")),
            lambda: list(s.text_iter("y")),
        ):
            caught_in(read)
        assert "y" not in s
        assert isinstance(s.error(), Overloaded)
        s += "good" + gen("late")
        caught_in(lambda: s["late"])
        caught_in(s.sync)

    assert isinstance(failed_state(body).error(), Overloaded)


def test_what_was_set_before_the_error_stays_readable() -> None:
    def body(s):
        s += "good" + gen("x")
        s += "bad" + gen("y")

    state = failed_state(body)
    assert state["x"] == "ok"
    assert "x" in state
    caught_in(lambda: state["y"])


def test_a_variable_that_should_have_been_set_again_is_not_read_from_before() -> None:
    def body(s):
        s += "good" + gen("x")
        s += "bad" + gen("x")

    caught_in(lambda: failed_state(body)["x"])


def test_after_an_error_no_further_call_is_made() -> None:
    backend = ScriptedBackend(BROKEN)

    def body(s):
        s += "bad" + gen("x") + "good" + gen("y")

    with pytest.raises(Overloaded):
        function(body).run(backend=backend)
    assert len(backend.calls) == 1


def test_branches_copies_and_joins_of_a_failed_state_carry_its_error() -> None:
    def body(s):
        s += "bad" + gen("x")
        group = s.fork(3)
        group += "good" + gen("y")
        nested = group[0].fork(2)
        nested += gen("z")
        for branch in (*group, *nested):
            caught_in(branch.text)
        caught_in(lambda: group[1]["y"])
        caught_in(lambda: group[1]["x"])
        with s.copy() as other:
            other += "good" + gen("w")
            caught_in(lambda: other["w"])
        nested.join()
        group.join()
        caught_in(lambda: s["y"])

    assert isinstance(failed_state(body).error(), Overloaded)


@pytest.mark.parametrize("mode", ["gather_variable", "concate_and_append"])
def test_a_join_carries_the_error_of_the_first_failed_branch(mode):
    script = {"0": "ok", "1": Overloaded("first"), "2": CallFailed("second")}

    def body(s):
        group = s.fork(3)
        group += lambda index: str(index) + gen("x")
        group.join(mode)
        s += "good" + gen("y")
        assert str(caught_in(lambda: s["x"])) == "first"
        assert str(caught_in(lambda: s["y"])) == "first"

    assert str(failed_state(body, script).error()) == "first"


def test_an_error_of_a_branch_that_nobody_read_is_one_of_the_run() -> None:
    def body(s):
        s += "good" + gen("x")
        branch = s.fork(2)[1]
        branch += "bad" + gen("y")

    state = failed_state(body)
    assert state["x"] == "ok"
    assert isinstance(state.error(), Overloaded)
    with pytest.raises(Overloaded):
        function(body).run(backend=ScriptedBackend(BROKEN))


def test_an_error_of_a_branch_that_the_program_read_is_its_own_affair() -> None:
    def body(s):
        branch = s.fork(2)[1]
        branch += "bad" + gen("y")
        caught_in(lambda: branch["y"])
        s += "good" + gen("x")

    state = function(body).run(backend=ScriptedBackend(BROKEN))
    assert state["x"] == "ok"
    assert state.error() is None


def test_what_the_program_raises_comes_out_of_run_as_it_is() -> None:
    def body(s):
        s += "good" + gen("x")
        raise LookupError("of the program")

    with pytest.raises(LookupError, match="of the program"):
        function(body).run(backend=ScriptedBackend(BROKEN))
    state = failed_state(body)
    assert isinstance(state.error(), LookupError)
    with pytest.raises(ProgramError, match="LookupError: of the program") as caught:
        state.sync()
    assert caught.value.__cause__ is state.error()


def test_what_the_program_raises_cancels_its_open_calls() -> None:
    backend = ScriptedBackend("ok", is_held=True)

    def body(s):
        group = s.fork(2)
        group += gen("x")
        raise LookupError("of the program")

    with pytest.raises(LookupError):
        function(body).run(backend=backend)
    assert [reply.result().outputs[0].finish_reason for reply in backend.replies] == [
        "abort",
        "abort",
    ]


def test_the_rest_of_a_cancelled_answer_is_not_a_value() -> None:
    def body(s):
        s += gen("x")
        raise LookupError("of the program")

    (state,) = function(body).run_batch([{}], backend=ScriptedBackend("ok", is_held=True))
    assert "x" not in state
    with pytest.raises(ProgramError, match="LookupError"):
        state["x"]


def test_branches_that_wait_for_a_call_get_its_error() -> None:
    backend = ScriptedBackend(BROKEN, is_held=True)

    def body(s):
        s += "bad" + gen("x")
        group = s.fork(2)
        group += "good" + gen("y")
        nested = group[1].fork(2)
        group.join()
        s += "good" + gen("z")
        threading.Thread(target=backend.release).start()
        for state in (group[0], group[1], nested[0], s):
            caught_in(state.sync)
        for name in "xyz":
            caught_in(lambda name=name: s[name])

    with pytest.raises(Overloaded):
        function(body).run(backend=backend)
    assert len(backend.calls) == 1


def test_a_run_that_was_given_up_opens_no_stream_that_anyone_could_wait_for() -> None:
    with ThreadPoolExecutor(1) as worker:
        context = Context(Settings(backend=ScriptedBackend("ok")), worker)
        before = context.open(is_born=False)
        context.abort(Overloaded("given up"))
        after = context.open(is_born=False)
    for stream in (before, after):
        stream.wait_idle()
        assert isinstance(stream.error, Overloaded)


def test_an_untyped_error_of_a_backend_is_the_cause_of_a_program_error() -> None:
    class Leaky(ScriptedBackend):
        def submit(self, call):
            mailbox = Mailbox(call)
            mailbox.fail(ConnectionError("reset"))
            return mailbox

    def body(s):
        s += gen("x")

    with pytest.raises(ProgramError, match="ConnectionError: reset") as caught:
        function(body).run(backend=Leaky())
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_backend_that_raises_in_submit_fails_the_state() -> None:
    class Raising(ScriptedBackend):
        def submit(self, call):
            raise Overloaded("from submit")

    def body(s):
        s += gen("x")
        caught_in(lambda: s["x"])
        group = s.fork(2)
        caught_in(group[0].sync)

    with pytest.raises(Overloaded, match="from submit"):
        function(body).run(backend=Raising())


def test_an_answer_without_outputs_is_an_error_and_not_a_wait() -> None:
    def body(s):
        s += gen("x")
        with pytest.raises(ProgramError, match="IndexError"):
            s["x"]

    with pytest.raises(ProgramError, match="IndexError"):
        function(body).run(backend=ScriptedBackend([Completion()]))


def test_scores_that_do_not_fit_their_options_are_an_error_and_not_a_wait() -> None:
    def body(s):
        s += select("x", ["a"], choices_method="greedy_token_selection")

    with pytest.raises(ProgramError):
        function(body).run(backend=ScriptedBackend([Completion()]))


def test_a_misplaced_text_in_a_chat_is_reported_where_the_chat_is_read() -> None:
    def body(s):
        s += user("hi")
        s += "lost"
        s += gen("x")
        with pytest.raises(ProgramError, match="outside of any role in a chat: 'lost'"):
            s["x"]

    with pytest.raises(ProgramError, match="outside of any role"):
        function(body).run(backend=ScriptedBackend("ok"))


def test_a_backend_that_closes_ends_the_program_that_waits_for_it() -> None:
    backend = ScriptedBackend("ok", is_held=True)

    def body(s):
        group = s.fork(3)
        group += gen("x")
        backend.wait_for(3)
        threading.Thread(target=backend.close).start()
        group.join()
        s["x"]

    with pytest.raises(BackendClosed):
        function(body).run(backend=backend)


def test_a_state_takes_nothing_after_its_program_or_its_join() -> None:
    def body(s):
        group = s.fork(2)
        group += gen("x")
        group.join()
        with pytest.raises(ProgramError, match="has ended"):
            group += "more"
        with pytest.raises(ProgramError, match="has ended"):
            group[0].fork(2)
        assert group[0]["x"] == "ok"

    state = function(body).run(backend=ScriptedBackend("ok"))
    with pytest.raises(ProgramError, match="has ended"):
        state += gen("y")
    with pytest.raises(ProgramError, match="has ended"):
        state.fork(2)
    assert state["x"] == ["ok", "ok"]


def test_without_a_backend_a_run_says_how_to_give_one() -> None:
    def body(s):
        s += gen("x")

    with pytest.raises(InvalidCall, match="set_default_backend"):
        function(body).run()


def test_an_unknown_backend_is_named_with_the_known_ones() -> None:
    def body(s):
        s += gen("x", backend="huge")

    backends = {"small": ScriptedBackend("ok"), "big": ScriptedBackend("ok")}
    with pytest.raises(InvalidCall, match=r"backend='huge'.*\['big', 'small'\]"):
        function(body).run(backends=backends)


def test_what_is_not_a_backend_is_refused_by_name() -> None:
    def body(s):
        s += gen("x", backend=5)

    with pytest.raises(InvalidCall, match=r"^invalid backend=5"):
        function(body).run(backend=ScriptedBackend("ok"))


def test_a_backend_without_an_answer_to_info_plants_nothing_and_answers_all_the_same() -> None:
    class Secretive(ScriptedBackend):
        def info(self) -> BackendInfo:
            raise ConnectionError("no info")

    def body(s):
        s += "a"
        group = s.fork(2)
        group += gen("x")
        group.join()

    state = function(body).run(backend=Secretive("ok"))
    assert state["x"] == ["ok", "ok"]


@pytest.mark.parametrize("run", ["run", "run_batch", "sglang"])
def test_a_number_that_is_added_to_a_text_is_refused_with_what_may_be_added(run: str) -> None:
    def body(s):
        s += "a" + 5

    backend = ScriptedBackend("x")
    with pytest.raises(
        InvalidCall, match=r"^invalid expression=text \+ int: expected text"
    ) as error:
        if run == "run_batch":
            function(body).run_batch([{}], backend=backend)[0].text()
        elif run == "sglang":
            sgl.function(lambda s: sgl.function(body)()).run(backend=backend)
        else:
            function(body).run(backend=backend)
    assert isinstance(error.value, TypeError)
    assert "concatenate str" in str(error.value.__cause__)


def test_a_type_error_of_another_file_stays_what_it_is() -> None:
    def body(s):
        s += ntpath.join("a", 5)

    with pytest.raises(TypeError) as error:
        function(body).run(backend=ScriptedBackend("x"))
    assert not isinstance(error.value, InvalidCall)
