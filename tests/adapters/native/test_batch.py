"""Many runs at once: in order, each with its own errors."""

import threading

import pytest

from forkroot.adapters.native import function, gen, usage
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import (
    Completion,
    InvalidCall,
    Output,
    Overloaded,
    ProgramError,
    Usage,
)

pytestmark = pytest.mark.timeout(180)


@function
def ask(s, question):
    s += question + gen("answer")
    return len(s["answer"])


def echo(call):
    text = prompt_text(call.prompt)
    if "bad" in text:
        raise Overloaded("the queue is full")
    return text.upper()


def items(*questions):
    return [{"question": question} for question in questions]


def test_states_come_back_in_the_order_of_their_items() -> None:
    backend = ScriptedBackend(echo, is_held=True)
    states = []
    batch = threading.Thread(
        target=lambda: states.extend(ask.run_batch(items(*"abcd"), backend=backend))
    )
    batch.start()
    backend.wait_for(4)
    backend.release(3, 1, 0, 2)
    batch.join()
    assert [state["answer"] for state in states] == ["A", "B", "C", "D"]
    assert [state.ret_value for state in states] == [1, 1, 1, 1]


def test_an_error_stays_with_its_item() -> None:
    states = ask.run_batch(items("a", "bad", "c"), backend=ScriptedBackend(echo))
    assert states[0]["answer"] == "A"
    assert states[2]["answer"] == "C"
    assert isinstance(states[1].error(), Overloaded)
    with pytest.raises(Overloaded):
        states[1]["answer"]
    assert states[0].error() is None


def test_errors_can_be_raised_once_all_have_ended() -> None:
    backend = ScriptedBackend(echo)
    with pytest.raises(Overloaded):
        ask.run_batch(items("a", "bad", "c"), backend=backend, raise_errors=True)
    assert len(backend.calls) == 3


def test_a_wrong_argument_is_an_error_of_its_item() -> None:
    states = ask.run_batch([{"question": "a"}, {"wrong": "b"}], backend=ScriptedBackend(echo))
    assert states[0]["answer"] == "A"
    assert isinstance(states[1].error(), TypeError)
    with pytest.raises(ProgramError, match="wrong"):
        states[1]["answer"]


def test_an_item_without_an_argument_is_named_with_the_arguments_of_the_program() -> None:
    backend = ScriptedBackend(echo)
    with pytest.raises(TypeError) as caught:
        ask.run_batch([{"question": "a"}, {}], backend=backend, raise_errors=True)
    assert str(caught.value) == (
        "items[1]={}: missing a required argument: 'question';"
        " expected the arguments of ask: question"
    )
    (state,) = ask.run_batch([{"question": "a", "wrong": 1}], backend=backend)
    assert str(state.error()).startswith(
        "items[0]={'question': 'a', 'wrong': 1}: got an unexpected"
    )


@pytest.mark.parametrize("num_threads", [1, 2, "auto"])
def test_any_number_of_threads_gives_the_same_answers(num_threads):
    questions = [f"q{index}" for index in range(20)]
    states = ask.run_batch(
        items(*questions), backend=ScriptedBackend(echo), num_threads=num_threads
    )
    assert [state["answer"] for state in states] == [f"Q{index}" for index in range(20)]


def test_no_more_items_run_at_once_than_there_are_threads() -> None:
    backend = ScriptedBackend(echo, is_held=True)
    states = []
    batch = threading.Thread(
        target=lambda: states.extend(ask.run_batch(items(*"abc"), backend=backend, num_threads=2))
    )
    batch.start()
    backend.wait_for(2)
    with pytest.raises(TimeoutError):
        backend.wait_for(3, timeout=0.05)
    backend.release(0)
    backend.wait_for(3)
    backend.release()
    batch.join()
    assert [state["answer"] for state in states] == ["A", "B", "C"]


def test_no_items_give_no_states() -> None:
    assert ask.run_batch([], backend=ScriptedBackend(echo)) == []


@pytest.mark.parametrize("num_threads", [0, -1, 1.5, "many", True])
def test_an_impossible_number_of_threads_is_refused(num_threads):
    with pytest.raises(InvalidCall, match="num_threads"):
        ask.run_batch(items("a"), backend=ScriptedBackend(echo), num_threads=num_threads)


def test_items_are_mappings_of_arguments() -> None:
    with pytest.raises(InvalidCall, match="items='a'"):
        ask.run_batch(["a"], backend=ScriptedBackend(echo))


def test_without_a_backend_no_item_is_run() -> None:
    with pytest.raises(InvalidCall, match="set_default_backend"):
        ask.run_batch(items("a", "b"))


def test_bound_and_common_arguments_reach_every_item() -> None:
    @function
    def two(s, one, other):
        s += one + other + gen("x")

    states = two.bind(one="a").run_batch(
        [{"other": "b"}, {"other": "c"}], backend=ScriptedBackend(echo)
    )
    assert [state["x"] for state in states] == ["AB", "AC"]
    states = two.run_batch([{"other": "b"}], one="z", backend=ScriptedBackend(echo))
    assert states[0]["x"] == "ZB"


def test_a_progress_bar_is_shown_when_requested(capsys):
    ask.run_batch(items("a", "b"), backend=ScriptedBackend(echo), progress_bar=True)
    assert "2/2" in capsys.readouterr().err


@pytest.mark.parametrize("progress_bar", [None, False])
def test_no_progress_bar_is_shown_where_no_terminal_is(progress_bar, capsys):
    ask.run_batch(items("a", "b"), backend=ScriptedBackend(echo), progress_bar=progress_bar)
    assert capsys.readouterr().err == ""


def test_the_usage_of_a_batch_is_the_sum_of_its_runs() -> None:
    backend = ScriptedBackend(echo)
    states = ask.run_batch(items("a", "bb", "bad"), backend=backend)
    found = usage(states)
    assert (found.items, found.failed, found.calls) == (3, 1, 2)
    assert (found.prompt_tokens, found.completion_tokens) == (3, 0)
    assert str(found) == "3 items (1 failed): 2 calls, 3 input tokens, 0 output tokens"
    assert usage(states[:1]).calls == 1
    assert usage([states[0], states[0]]).calls == 1
    assert usage([]).items == 0
    with pytest.raises(InvalidCall, match="states=5"):
        usage([5])


def test_the_cost_of_a_batch_is_told_where_the_backend_has_prices() -> None:
    def priced(call):
        spent = Usage(prompt_tokens=1200, cached_tokens=200, requests=1, cost=0.25)
        return Completion((Output("x"),), spent)

    found = usage(ask.run_batch(items("a", "b"), backend=ScriptedBackend(priced)))
    assert found.cost == 0.5
    expected = "2 items: 2 calls in 2 requests, 2,400 input tokens (400 cached), 0 output tokens"
    assert str(found) == f"{expected}, cost 0.5000"


def test_the_summary_is_printed_below_the_progress_bar(capsys) -> None:
    ask.run_batch(items("a", "bad"), backend=ScriptedBackend(echo), progress_bar=True)
    assert (
        capsys.readouterr()
        .err.splitlines()[-1]
        .startswith("2 items (1 failed): 1 call, 1 input token")
    )
