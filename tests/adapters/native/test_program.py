"""Programs: how they are made, run, bound, nested, and which backend they use."""

import copy
import pickle

import pytest

from forkroot.adapters.connection import shared
from forkroot.adapters.native import (
    Program,
    function,
    gen,
    get_default_backend,
    select,
    set_default_backend,
)
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import InvalidCall, InvalidModel, NotPicklable

pytestmark = pytest.mark.timeout(180)


@function
def ask(s, question, mark="?"):
    """Ask a question."""
    s += question + mark + gen("answer")
    return s["answer"]


@pytest.fixture
def default():
    backend = ScriptedBackend("default")
    with pytest.raises(InvalidModel, match="no-such-model"):
        set_default_backend("no-such-model")
    with pytest.raises(InvalidCall, match="invalid backend=3"):
        set_default_backend(3)
    set_default_backend(backend)
    yield backend
    set_default_backend(None)


def test_a_program_keeps_the_name_and_the_text_of_its_function() -> None:
    assert isinstance(ask, Program)
    assert (ask.name, ask.__name__, ask.__doc__) == ("ask", "ask", "Ask a question.")
    assert repr(ask) == "<program ask>"


def test_a_program_can_be_named() -> None:
    @function(name="other")
    def body(s):
        return None

    assert body.name == "other"


def test_arguments_go_by_place_or_name() -> None:
    backend = ScriptedBackend("ok")
    assert ask.run("a", mark="!", backend=backend).text() == "a!ok"
    assert ask.run(question="b", backend=backend).text() == "b?ok"


def test_the_value_that_the_program_returns_is_kept() -> None:
    assert ask.run("a", backend=ScriptedBackend("ok")).ret_value == "ok"


def test_bound_arguments_are_overridden_by_those_of_the_run() -> None:
    bound = ask.bind(question="a", mark="!")
    backend = ScriptedBackend("ok")
    assert bound.run(backend=backend).text() == "a!ok"
    assert bound.run(mark=".", backend=backend).text() == "a.ok"
    assert bound.bind(mark=";").run(backend=backend).text() == "a;ok"
    assert ask.run("b", backend=backend).text() == "b?ok"


def test_a_run_sets_the_sampling_that_a_gen_leaves_open() -> None:
    @function
    def body(s):
        s += gen("x") + gen("y", max_tokens=3, temperature=0.5, stop="!")

    backend = ScriptedBackend("ok")
    body.run(backend=backend, temperature=0, max_tokens=64, stop=["\n"])
    one, two = (call.sampling for call in backend.calls)
    assert (one.temperature, one.max_tokens, one.stop) == (0, 64, ("\n",))
    assert (two.temperature, two.max_tokens, two.stop) == (0.5, 3, ("!",))


def test_a_run_refuses_sampling_that_is_not_allowed() -> None:
    with pytest.raises(InvalidCall, match="temperature=-1"):
        ask.run("a", backend=ScriptedBackend("ok"), temperature=-1)


@pytest.mark.parametrize(
    ("use", "suggested"),
    [
        (lambda **unknown: ask.run("a", **unknown), "temperature"),
        (lambda **unknown: ask.stream("a", **unknown), "temperature"),
        (lambda **unknown: ask.run_batch([{"question": "a"}], **unknown), "temperature"),
        (lambda **unknown: ask.bind(**unknown), None),
    ],
)
def test_a_misspelled_keyword_is_refused_before_anything_runs(use, suggested):
    with pytest.raises(InvalidCall, match="invalid temprature=1: expected ") as caught:
        use(temprature=1)
    assert (caught.value.field, caught.value.value) == ("temprature", 1)
    assert caught.value.suggestion == suggested
    assert "question" in caught.value.allowed
    assert isinstance(caught.value, TypeError)


def test_the_keywords_of_a_batch_are_among_those_suggested() -> None:
    with pytest.raises(InvalidCall, match="did you mean raise_errors"):
        ask.run_batch([], raise_error=True)


def test_the_state_is_not_a_keyword_of_a_run() -> None:
    with pytest.raises(InvalidCall, match="invalid s=1"):
        ask.run("a", s=1)


def test_a_function_that_takes_any_keyword_takes_them() -> None:
    @function
    def body(s, **options):
        s += f"{options}"

    state = body.bind(a=1).run(temprature=2, temperature=0, backend=ScriptedBackend())
    assert state.text() == "{'a': 1, 'temprature': 2}"


def test_a_keyword_that_the_function_declares_is_its_own() -> None:
    @function
    def body(s, seed, stream):
        s += f"{seed}{stream}" + gen("x")

    backend = ScriptedBackend("ok")
    assert body.run(seed=3, stream="abc", backend=backend).text() == "3abcok"
    assert backend.calls[0].sampling.seed is None
    assert not backend.calls[0].stream


def test_namespace_priority_and_deadline_reach_every_call() -> None:
    @function
    def body(s):
        s += "root"
        group = s.fork(2)
        group += gen("x") + select("y", ["ok"])

    backend = ScriptedBackend("ok")
    body.run(backend=backend, namespace="me", priority=3, deadline=5.0)
    assert len(backend.calls) == 5
    result = {(call.namespace, call.priority, call.deadline) for call in backend.calls}
    assert result == {("me", 3, 5.0)}


def test_a_program_runs_inside_another_on_its_state() -> None:
    @function
    def outer(s):
        s += "start "
        first = ask(s, "a")
        second = ask.bind(mark="!")(s, question="b")
        return [first, second]

    state = outer.run(backend=ScriptedBackend(["1", "2"]))
    assert state.text() == "start a?1b!2"
    assert state.ret_value == ["1", "2"]


def test_a_program_runs_in_the_branches_of_another() -> None:
    @function
    def outer(s):
        group = s.fork(2)
        for index, branch in enumerate(group):
            ask(branch, str(index))
        group.join()

    assert outer.run(backend=ScriptedBackend({"0?": "zero", "1?": "one"}))["answer"] == [
        "zero",
        "one",
    ]


def test_a_program_is_not_called_without_a_state() -> None:
    with pytest.raises(TypeError, match=r"use ask\.run"):
        ask("a")


def test_a_coroutine_function_is_not_a_program() -> None:
    async def body(s):
        return None

    with pytest.raises(InvalidCall, match="a plain function"):
        function(body)


def test_a_generator_function_would_never_run_and_is_not_a_program() -> None:
    def body(s):
        yield s

    async def other(s):
        yield s

    for wrong in (body, other):
        with pytest.raises(InvalidCall, match="a plain function, without async and yield"):
            function(wrong)


def test_a_model_is_named_as_connect_takes_it() -> None:
    with pytest.raises(InvalidCall, match=r"backend=.no-such-model.: expected a name"):
        ask.run("a", backend="no-such-model")
    try:
        set_default_backend("tiny")
        assert get_default_backend() is shared("tiny").backend
    finally:
        set_default_backend(None)


def test_the_default_backend_is_used_where_none_is_named(default):
    assert get_default_backend() is default
    assert ask.run("a").ret_value == "default"
    assert ask.run("a", backend=ScriptedBackend("own")).ret_value == "own"


def test_the_default_backend_can_be_taken_away(default):
    set_default_backend(None)
    assert get_default_backend() is None


def test_each_gen_may_name_its_backend(default):
    small, big = ScriptedBackend("s"), ScriptedBackend("b")

    @function
    def body(s):
        s += gen("x") + gen("y", backend="big") + gen("z", backend=default)
        s += select("w", ["s", "b"], backend="big")

    state = body.run(backends={"small": small, "big": big})
    assert [state[name] for name in "xyzw"] == ["s", "b", "default", "b"]
    assert prompt_text(big.calls[0].prompt) == "s"
    state = body.run(backends={"small": small, "big": big}, backend="big")
    assert state["x"] == "b"
    state = body.run(backends={"big": big}, backend=default)
    assert state["x"] == "default"


def test_a_run_can_be_repeated_on_the_same_program() -> None:
    backend = ScriptedBackend(["1", "2"])
    assert [ask.run("a", backend=backend).ret_value for _ in range(2)] == ["1", "2"]


def test_a_program_is_pickled_by_its_name_with_what_is_bound() -> None:
    assert pickle.loads(pickle.dumps(ask)) is ask
    bound = pickle.loads(pickle.dumps(ask.bind(question="Who", mark="!")))
    assert bound.run(backend=ScriptedBackend("me")).text() == "Who!me"
    assert copy.deepcopy([ask])[0] is ask


def test_a_program_that_its_module_does_not_have_is_not_pickled() -> None:
    @function
    def inner(s):
        s += "a"

    with pytest.raises(NotPicklable, match=r"<program inner> is not .*<locals>\.inner; expected a"):
        pickle.dumps(inner)
    inner.body.__qualname__ = "ask"
    other = function(name="other")(inner.body)
    with pytest.raises(TypeError, match=r"<program other> is not .*test_program\.ask; expected a"):
        pickle.dumps(other)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("backend", 3),
        ("backends", [1]),
        ("backends", {"one": 1}),
        ("hints", 3),
        ("stream", "yes"),
        ("max_tokens", "3"),
        ("stop", [1]),
    ],
)
def test_a_setting_whose_value_is_not_allowed_is_refused_before_the_program_runs(
    setting: str, value: object
) -> None:
    ran = []

    @function
    def body(s):
        ran.append(s)

    with pytest.raises(InvalidCall) as caught:
        body.run(**{"backend": ScriptedBackend(), setting: value})
    assert (caught.value.field, caught.value.value, ran) == (setting, value, [])


@pytest.mark.parametrize("items", [3, "ab", {"a": 1}, [3]])
def test_items_that_are_not_a_list_of_arguments_are_refused(items) -> None:
    @function
    def body(s, a):
        pass

    with pytest.raises(InvalidCall, match=r"^invalid items="):
        body.run_batch(items, backend=ScriptedBackend())
