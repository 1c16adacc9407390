"""The engines: requests in, responses out, as DSPy's contract wants them."""

# ruff: noqa: E402
from __future__ import annotations

import asyncio
import copy
import pickle
import re
from typing import Any

import pytest

dspy = pytest.importorskip("dspy")

from dspy import lm15
from dspy.utils.exceptions import (
    ContextWindowExceededError,
    LMConfigurationError,
    LMInvalidRequestError,
    LMRateLimitError,
    LMServerError,
    LMTimeoutError,
    LMTransportError,
    LMUnsupportedFeatureError,
)

from forkroot.adapters.dspy import LM, AsyncEngine, Engine, Judge
from forkroot.adapters.testing import ScriptedBackend, prompt_text, written
from forkroot.core.api.protocol import (
    BackendClosed,
    CallFailed,
    CallTooLarge,
    Chat,
    Choices,
    Completion,
    DeadlineExceeded,
    EngineDied,
    Grammar,
    InvalidCall,
    JsonSchema,
    Output,
    Overloaded,
    Regex,
    UnsupportedCall,
    Usage,
)

from .dspy_requests import last_call, lm_of, request

pytestmark = pytest.mark.usefixtures("fresh_dspy_cache")


# --- requests -----------------------------------------------------------------------------------


def test_a_request_becomes_a_call() -> None:
    backend = ScriptedBackend("Hi")
    request = lm15.Request(
        model="forkroot/scripted",
        system="Be kind.",
        messages=(
            lm15.Message.user("One"),
            lm15.Message.assistant("Two"),
            lm15.Message.developer("Three"),
            lm15.Message.user("Four"),
        ),
        config=lm15.Config(
            max_tokens=9, temperature=0.5, top_p=0.9, top_k=7, seed=3, stop=("x",),
            frequency_penalty=0.1, presence_penalty=0.2, extensions={"logit_bias": {"5": 2}},
        ),
    )  # fmt: skip
    assert Engine(backend).complete(request).text == "Hi"
    call = last_call(backend)
    assert isinstance(call.prompt, Chat)
    assert [message.role for message in call.prompt.messages] == [
        *("system", "user", "assistant", "system", "user"),
    ]
    assert prompt_text(call.prompt).startswith("system: Be kind.\nuser: One\nassistant: Two")
    result = call.sampling
    assert (result.max_tokens, result.temperature, result.top_p, result.top_k, result.seed) == (
        9,
        0.5,
        0.9,
        7,
        3,
    )
    assert (result.stop, result.frequency_penalty, result.presence_penalty) == (("x",), 0.1, 0.2)
    assert result.logit_bias == {5: 2.0}


@pytest.mark.parametrize(
    ("keywords", "constraint"),
    [
        ({"regex": "[ab]+"}, Regex("[ab]+")),
        ({"choices": ["yes", "no"]}, Choices(("yes", "no"))),
        ({"grammar": 'start: "a"'}, Grammar('start: "a"')),
        ({"json_schema": {"type": "integer"}}, JsonSchema({"type": "integer"}, (", ", ": "))),
    ],
)
def test_keywords_of_ours_reach_the_call(keywords: dict[str, Any], constraint: object) -> None:
    backend = ScriptedBackend("a")
    lm_of(backend)("Hello", **keywords)
    assert last_call(backend).constraint == constraint


def test_other_keywords_of_ours_are_those_of_the_call() -> None:
    backend = ScriptedBackend("a")
    lm_of(backend)("Hi", namespace="n", priority=3, deadline=5.0, min_tokens=1, top_k=4, min_p=0.1)
    call = last_call(backend)
    assert (call.namespace, call.priority, call.deadline) == ("n", 3, 5.0)
    assert (call.sampling.min_tokens, call.sampling.top_k, call.sampling.min_p) == (1, 4, 0.1)


def test_calls_with_other_keywords_are_kept_apart_in_the_cache() -> None:
    backend = ScriptedBackend(["one", "two"])
    lm = LM(backend, cache=True, num_retries=0)
    text = "Are these two calls told apart?"
    result = [lm(text, choices=["one"]), lm(text, choices=["two"]), lm(text, choices=["one"])]
    assert result == [["one"], ["two"], ["one"]]


def test_free_answers_are_not_taken_for_constrained_ones() -> None:
    backend = ScriptedBackend(["one", "two"])
    lms = [LM(backend, constrain=is_held, num_retries=0) for is_held in (True, False)]
    assert [lm("Are free answers told apart?") for lm in lms] == [["one"], ["two"]]


def test_an_evaluation_survives_a_dead_engine_and_asks_again_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What `docs/dspy.md` says of retries, and of an evaluation that is run again."""
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    faults = [EngineDied("it died", is_replaced=True)] * 2

    def answer(call: Any) -> str:
        if faults and "Survives 2" in prompt_text(call.prompt):
            raise faults.pop()
        return "[[ ## answer ## ]]\nx\n\n[[ ## completed ## ]]"

    backend = ScriptedBackend(answer)
    examples = [
        dspy.Example(question=f"Survives {number}?", answer="x").with_inputs("question")
        for number in range(4)
    ]
    evaluate = dspy.Evaluate(
        devset=examples,
        metric=lambda example, found, trace=None: example.answer == found.answer,
        num_threads=1,
        max_errors=10,
    )
    for num_retries, score, left in ((0, 75, 1), (1, 100, 0), (0, 100, 0)):
        num_calls = len(backend.calls)
        with dspy.context(lm=LM(backend, num_retries=num_retries)):
            assert evaluate(dspy.Predict("question -> answer")).score == score
        calls = [it for it in backend.calls[num_calls:] if it.sampling.max_tokens != 0]
        asked = [prompt_text(call.prompt) for call in calls]
        assert len(faults) == left
        assert num_calls == 0 or all("Survives 2" in text for text in asked)
    assert asked == []


def test_a_cache_that_is_turned_off_is_not_used() -> None:
    backend = ScriptedBackend(["one", "two"])
    lm = LM(backend, cache=True, num_retries=0)
    assert [lm("Is this kept?", cache=False), lm("Is this kept?", cache=False)] == [
        ["one"],
        ["two"],
    ]


def test_keywords_that_are_not_allowed_are_refused_before_any_call() -> None:
    backend = ScriptedBackend("a")
    with pytest.raises(LMInvalidRequestError, match="one of regex, choices"):
        lm_of(backend)("Hi", regex="a", choices=["b"])
    with pytest.raises(LMInvalidRequestError, match="priority"):
        lm_of(backend)("Hi", priority="high")
    with pytest.raises(LMInvalidRequestError, match=r"did you mean max_tokens\?"):
        lm_of(backend)("Hi", max_token=3)
    assert backend.calls == []


def test_keywords_of_ours_given_to_the_lm_are_the_defaults_of_its_calls() -> None:
    backend = ScriptedBackend("a")
    lm = LM(backend, namespace="own", regex="[ab]", temperature=0, cache=False)
    keyword_sets = [
        {},
        {"namespace": "other", "choices": ["a"]},
        {"metadata": {"note": 1}, "priority": 3},
    ]
    for keywords in keyword_sets:
        lm("Hello", **keywords)
    lm.copy(namespace="third")("Hello")
    lm("Hello")
    calls = [call for call in backend.calls if call.sampling.max_tokens != 0]
    assert [call.namespace for call in calls] == ["own", "other", "own", "third", "own"]
    regex, choice = Regex("[ab]"), Choices(("a",))
    assert [call.constraint for call in calls] == [regex, choice, regex, regex, regex]
    assert [call.priority for call in calls] == [0, 0, 3, 0, 0]
    assert lm.namespace == "own"


def test_a_value_of_ours_that_is_not_allowed_is_refused_with_the_lm() -> None:
    with pytest.raises(LMInvalidRequestError, match="namespace=3"):
        LM(ScriptedBackend("a"), namespace=3)


def test_a_misspelled_keyword_is_refused_with_the_lm_and_with_its_copy() -> None:
    with pytest.raises(LMInvalidRequestError, match=r"temprature=0: .*did you mean temperature\?"):
        LM(ScriptedBackend("a"), temprature=0)
    with pytest.raises(LMInvalidRequestError, match=r"hint=False: .*did you mean hints\?"):
        LM(ScriptedBackend("a"), hint=False)
    with pytest.raises(LMInvalidRequestError, match=r"did you mean seed\?"):
        LM(ScriptedBackend("a")).copy(sed=3)


def test_a_setting_of_the_engine_is_refused_with_where_it_goes() -> None:
    with pytest.raises(LMInvalidRequestError, match=r"settings=\{'num_slots': \.\.\.\}"):
        LM("no-such-model", num_slots=4096)  # before a model is looked for
    with pytest.raises(LMInvalidRequestError, match=r"settings=\{'device': \.\.\.\}"):
        LM(ScriptedBackend("a")).copy(device="cuda")
    with pytest.raises(LMInvalidRequestError, match="pass the URL of a server as the model"):
        LM("tiny", api_base="http://127.0.0.1:30000/v1")


@pytest.mark.parametrize("name", ["timeout", "settings"])
def test_a_value_that_no_lm_could_have_is_refused_with_it(name: str) -> None:
    with pytest.raises(LMInvalidRequestError, match=f"invalid {name}='x'"):
        LM(ScriptedBackend("a"), **{name: "x"})


@pytest.mark.parametrize(
    "keywords",
    [
        {"rollout_id": 3, "temperature": 1.0, "n": 2},
        {"reasoning_effort": "low", "verbosity": "low", "user": "someone"},
        {"logprobs": True, "top_logprobs": 2, "stop": ["."], "seed": 1, "logit_bias": {3: 1.0}},
        {"parallel_tool_calls": False, "prompt_cache": lm15.CacheConfig(mode="off")},
        {"launch_kwargs": {}, "train_kwargs": {}, "use_developer_role": False},
        {"nonsense": None},
    ],
)
def test_keywords_that_dspy_knows_are_taken_by_an_lm_and_its_copies(keywords: Any) -> None:
    lm = LM(ScriptedBackend("a"), **keywords)
    copied = LM(ScriptedBackend("a")).copy(**keywords)
    for name, value in keywords.items():
        if value is not None and name in lm.kwargs:
            assert lm.kwargs[name] == copied.kwargs[name] == value


def test_a_model_may_be_named_as_dspys_lm_has_it() -> None:
    with pytest.raises(LMConfigurationError, match="no-such-model"):
        LM(model="no-such-model")


def test_a_response_format_constrains_the_answer() -> None:
    backend = ScriptedBackend("{}")
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    result = {"type": "json_schema", "schema": schema}
    Engine(backend).complete(request(response_format=result))
    assert last_call(backend).constraint == JsonSchema(schema, (", ", ": "))


def test_parts_that_no_model_of_ours_reads_are_refused_by_name() -> None:
    audio = lm15.Message.user([lm15.AudioPart(data="eA==")])
    request = lm15.Request(model="forkroot/scripted", messages=(audio,))
    with pytest.raises(lm15.UnsupportedFeatureError, match="audio"):
        Engine(ScriptedBackend("a")).complete(request)


# --- responses ----------------------------------------------------------------------------------


def test_usage_reports_what_was_cached() -> None:
    usage = Usage(prompt_tokens=30, cached_tokens=20, completion_tokens=4)
    backend = ScriptedBackend(lambda call: Completion((written("Hi"),), usage))
    lm = lm_of(backend)
    lm("Hello")
    result = lm.history[-1]["usage"]
    assert (result["prompt_tokens"], result["completion_tokens"]) == (30, 4)
    assert result["prompt_tokens_details"] == {"cached_tokens": 20}


def test_a_stream_has_one_start_deltas_and_one_end_with_usage() -> None:
    engine = Engine(ScriptedBackend("A longer answer."))
    events = list(engine.stream(request()))
    assert [event.type for event in events] == ["start", *["delta"] * 4, "end"]
    assert "".join(e.delta.text for e in events[1:-1]) == "A longer answer."
    assert events[-1].usage.input_tokens is not None


def test_an_async_stream_is_the_same() -> None:
    engine = AsyncEngine(ScriptedBackend("A longer answer."))

    async def collect() -> list[Any]:
        return [event async for event in engine.stream(request())]

    events = asyncio.run(collect())
    assert [event.type for event in events] == ["start", *["delta"] * 4, "end"]


def test_a_cancelled_task_cancels_its_call() -> None:
    backend = ScriptedBackend("never", is_held=True)

    async def ask() -> None:
        task = asyncio.create_task(AsyncEngine(backend).complete(request()))
        while not backend.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(ask())
    assert backend.replies[0].done()


def test_logprobs_come_by_token_id() -> None:
    from forkroot.core.api.protocol import Output, TokenLogprob

    output = Output("Hi", (7,), logprobs=(TokenLogprob(7, -0.5, ((7, -0.5), (9, -1.0))),))
    backend = ScriptedBackend(lambda call: Completion((output,)))
    response = Engine(backend).complete(request(logprobs=2))
    assert response.logprobs is not None
    assert [(it.token_id, it.logprob, len(it.top)) for it in response.logprobs] == [(7, -0.5, 2)]


# --- tools --------------------------------------------------------------------------------------


def look_up(word: str, times: int) -> str:
    """Look up a word."""
    return word * times


class Tooled(dspy.Signature):
    """Use the tools."""

    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()


CALLED = '<tool_call>{"name": "look_up", "arguments": {"word": "ab", "times": 2}}</tool_call>'


def test_tool_calls_are_read_and_demanded_where_nothing_else_is_wanted() -> None:
    backend = ScriptedBackend(lambda call: CALLED)
    with dspy.context(
        lm=lm_of(backend), adapter=dspy.ChatAdapter(use_native_function_calling=True)
    ):
        found = dspy.Predict(Tooled)(question="?", tools=[dspy.Tool(look_up)])
    (call,) = found.calls.tool_calls
    assert (call.name, call.args) == ("look_up", {"word": "ab", "times": 2})
    made = last_call(backend)
    assert isinstance(made.prompt, Chat)
    assert made.prompt.tools[0]["function"]["name"] == "look_up"


def test_tools_whose_pattern_a_runtime_refuses_end_in_its_error() -> None:
    backend = ScriptedBackend(lambda call: InvalidCall("regex", "...", "a shorter one"))
    adapter = dspy.ChatAdapter(use_native_function_calling=True)
    refused = pytest.raises(LMInvalidRequestError, match="a shorter one")
    with dspy.context(lm=lm_of(backend), adapter=adapter), refused:
        dspy.Predict(Tooled)(question="?", tools=[dspy.Tool(look_up)])


def test_tool_calls_stream_as_deltas_of_their_own() -> None:
    tool = lm15.FunctionTool("look_up", "Look up.", {"type": "object", "properties": {}})
    request = lm15.Request(model="m", messages=(lm15.Message.user("x"),), tools=(tool,))
    events = list(Engine(ScriptedBackend(lambda call: CALLED)).stream(request))
    deltas = [event.delta for event in events[1:-1]]
    assert deltas[0].name == "look_up"
    assert "".join(delta.input for delta in deltas) == '{"word": "ab", "times": 2}'
    assert events[-1].finish_reason == "tool_call"


@pytest.mark.parametrize(("cut", "reason"), [(0, "tool_call"), (20, "length")])
def test_calls_that_were_cut_off_are_reported(cut: int, reason: str) -> None:
    output = Output(CALLED[: len(CALLED) - cut], finish_reason="length")
    tool = lm15.FunctionTool("look_up", "Look up.", {"type": "object", "properties": {}})
    request = lm15.Request(model="m", messages=(lm15.Message.user("x"),), tools=(tool,))
    result = Engine(ScriptedBackend(lambda call: Completion((output,)))).complete(request)
    assert result.finish_reason == reason


def test_tool_messages_are_shown_as_the_model_writes_them() -> None:
    backend = ScriptedBackend(lambda call: "done")
    messages = (
        lm15.Message.user("x"),
        lm15.Message.assistant(lm15.ToolCallPart("call_1", "look_up", {"word": "a"})),
        lm15.Message.tool("call_1", "found"),
    )
    tool = lm15.FunctionTool("look_up")
    Engine(backend).complete(lm15.Request(model="m", messages=messages, tools=(tool,)))
    shown = prompt_text(last_call(backend).prompt)
    assert '<tool_call>{"name": "look_up", "arguments": {"word": "a"}}</tool_call>' in shown
    assert shown.endswith("tool: found")


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (CallTooLarge("prompt", "9 tokens", "8"), ContextWindowExceededError),
        (InvalidCall("max_tokens", 3, ">= 9"), ContextWindowExceededError),
        (InvalidCall("temperature", 3, "less"), LMInvalidRequestError),
        (UnsupportedCall("images", 1, "none"), LMUnsupportedFeatureError),
        (DeadlineExceeded("late"), LMTimeoutError),
        (Overloaded("full"), LMRateLimitError),
        (CallFailed("broken"), LMServerError),
        (BackendClosed("closed"), LMTransportError),
    ],
)
def test_our_errors_come_out_as_dspys(error: Exception, result: type[Exception]) -> None:
    lm = lm_of(ScriptedBackend(lambda call: error))
    with pytest.raises(result) as raised:
        lm("Hello")
    assert str(error) in str(raised.value)


def test_a_timeout_is_the_deadline_of_every_call() -> None:
    backend = ScriptedBackend("a")
    lm_of(backend, timeout=2.5)("Hello")
    assert backend.calls[-1].deadline == 2.5


def test_an_unknown_model_is_refused_at_once() -> None:
    with pytest.raises(LMConfigurationError, match="no-such-folder"):
        LM("/no-such-folder")
    with pytest.raises(LMConfigurationError, match="no-such-folder"):
        Judge("/no-such-folder")
    with pytest.raises(lm15.ConfigurationError, match="no-such-folder"):
        Engine("/no-such-folder")


# --- copies and files ---------------------------------------------------------------------------


def test_copies_of_a_program_share_the_runtime() -> None:
    lm = lm_of(ScriptedBackend("a"))
    predict = dspy.Predict("question -> answer")
    predict.lm = lm
    assert copy.deepcopy(predict).lm.engine is lm.engine
    assert lm.copy(temperature=0.3).engine is lm.engine


def test_an_lm_over_a_backend_object_cannot_be_saved() -> None:
    with pytest.raises(TypeError, match="name, folder or URL"):
        lm_of(ScriptedBackend("a")).dump_state()


def test_an_lm_with_a_name_is_saved_without_secrets_and_comes_back() -> None:
    lm = LM("tiny", temperature=0.5, settings={"num_slots": 4096}, timeout=9)
    again = dspy.BaseLM.load_state(lm.dump_state(), allow_custom_lm_class=True)
    assert isinstance(again, LM)
    assert (again.model, again.kwargs["temperature"]) == ("forkroot/tiny", 0.5)
    assert again.runtime.state() == lm.runtime.state()
    assert pickle.loads(pickle.dumps(lm.engine)).runtime.state() == lm.runtime.state()
    lm.runtime.connection().backend.close()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", "hot", "a number >= 0"),
        ("max_tokens", "3", "an integer > 0"),
        ("max_tokens", -1, "an integer > 0"),
        ("stop", 3, "a text, or a list of texts"),
        ("top_p", 3, "a number from 0 to 1"),
        ("tool_choice", "x", "a value that DSPy accepts (tool_choice must be none, auto,"),
        ("choices", "ab", "a list of texts"),
    ],
)
def test_a_value_that_dspy_would_refuse_with_a_bare_error_is_reported_with_its_keyword(
    name: str, value: Any, allowed: str
) -> None:
    result = re.escape(f"invalid {name}={value!r}: expected {allowed}")
    with pytest.raises(dspy.LMInvalidRequestError, match=result):
        LM(ScriptedBackend("yes"), **{name: value})
    lm = LM(ScriptedBackend("yes"), cache=False)
    with pytest.raises(dspy.LMInvalidRequestError, match=result):
        lm("Hello", **{name: value})
    with pytest.raises(dspy.LMInvalidRequestError, match=result):
        asyncio.run(lm.acall("Hello", **{name: value}))
    with pytest.raises(dspy.LMInvalidRequestError, match=result):
        lm.copy(**{name: value})


@pytest.mark.parametrize("name", ["hints", "constrain"])
def test_a_switch_is_true_or_false(name: str) -> None:
    with pytest.raises(dspy.LMInvalidRequestError, match=f"invalid {name}='no'"):
        LM(ScriptedBackend("yes"), **{name: "no"})


def test_an_error_of_dspy_that_no_keyword_made_stays_as_it_is() -> None:
    request = dspy.lm15.Request("any", (dspy.lm15.Message.user("Hi"),))
    with pytest.raises(TypeError, match="Do not combine"):
        LM(ScriptedBackend("yes"), temperature=0.5, cache=False)(request, messages=[1])
