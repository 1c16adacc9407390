"""What a LangChain user says to `ChatForkroot`, and what comes back."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from typing import Any

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelTimeoutError,
)
from langchain_core.load import dumpd, load
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    trim_messages,
)
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.tools import tool
from pydantic import ValidationError

from forkroot.adapters.langchain import ChatForkroot, Forkroot
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import (
    CallTooLarge,
    Choices,
    DeadlineExceeded,
    Grammar,
    Image,
    InvalidCall,
    InvalidModel,
    Regex,
    Text,
    UnsupportedCall,
)
from forkroot.core.common.extras import how_to_install
from forkroot.core.local import LocalBackend


def test_constructor_and_call_say_the_sampling() -> None:
    backend = ScriptedBackend("yes")
    model = ChatForkroot(model=backend, temperature=0.5, stop=["."], seed=3, timeout=9, top_p=0.9)
    model.invoke("Hello")
    model.invoke("Hello", stop=["!"], temperature=0.1, max_tokens=5, seed=4, timeout=1)
    first, second = backend.calls
    assert (first.sampling.temperature, first.sampling.stop) == (0.5, (".",))
    assert (first.sampling.seed, first.sampling.top_p, first.deadline) == (3, 0.9, 9)
    assert first.sampling.max_tokens is None
    assert (second.sampling.temperature, second.sampling.stop) == (0.1, ("!",))
    assert (second.sampling.seed, second.sampling.top_p, second.deadline) == (4, 0.9, 1)
    assert second.sampling.max_tokens == 5


def test_names_and_values_that_are_not_allowed_are_refused() -> None:
    model = ChatForkroot(model=ScriptedBackend("yes"))
    with pytest.raises(ValueError, match="temperatur"):
        ChatForkroot(model="tiny", temperatur=0)
    with pytest.raises(ValueError, match=r"invalid temperature=-1\.0"):
        ChatForkroot(model="tiny", temperature=-1)
    with pytest.raises(ModelInvalidRequestError, match="invalid temperatur=0"):
        model.invoke("Hello", temperatur=0)
    with pytest.raises(ValueError, match="invalid model=3"):
        ChatForkroot(model=3)


def test_two_models_of_one_name_share_one_engine() -> None:
    first = ChatForkroot(model="tiny", settings={"dtype": "float32"})
    second = Forkroot(model="tiny", settings={"dtype": "float32"})
    assert first.connection() is second.connection()


def test_several_answers_to_one_prompt_are_one_call() -> None:
    backend = ScriptedBackend([("one", "two")])
    result = ChatForkroot(model=backend, n=2).generate([[HumanMessage("Hello")]])
    assert [generation.text for generation in result.generations[0]] == ["one", "two"]
    assert len(backend.calls) == 1
    with pytest.raises(InvalidCall, match="n=2"):
        list(ChatForkroot(model=backend, n=2).stream("Hello"))


def test_content_blocks_of_every_provider_are_read() -> None:
    backend = ScriptedBackend("yes")
    data = b"\x89PNG"
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    content = [
        "a ",
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {"url": url}},
    ]
    thought = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "said"}]
    ChatForkroot(model=backend).invoke([HumanMessage(content), AIMessage(thought)])
    user, assistant = backend.calls[0].prompt.messages
    assert user.content == (Text("a "), Text("b"), Image(data))
    assert assistant.content == (Text("said"),)


def test_content_that_cannot_be_shown_is_refused_by_its_place() -> None:
    model = ChatForkroot(model=ScriptedBackend("yes"))
    picture = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}
    with pytest.raises(UnsupportedCall, match=r"messages\[0\]\.content\[0\]\.image_url"):
        model.invoke([HumanMessage([picture])])
    with pytest.raises(UnsupportedCall, match=r"messages\[0\]\.content\[0\]\.type='input_audio'"):
        model.invoke([HumanMessage([sound])])
    with pytest.raises(InvalidCall, match=r"invalid messages=\[\]"):
        model.invoke([])


@pytest.mark.parametrize(
    ("content", "options", "field"),
    [
        ("a\ud800", {}, "messages[0].content"),
        ([{"type": "text", "text": "a\ud800"}], {}, "messages[0].content"),
        ("Hi", {"stop": ["a\ud800"]}, "stop[0]"),
        ("Hi", {"choices": ["b", "a\ud800"]}, "choices[1]"),
        ("Hi", {"tools": [{"name": "f", "description": "a\ud800", "parameters": {}}]}, "tools[0]"),
    ],
)
def test_what_is_not_text_is_refused_by_its_place(
    content: Any, options: dict[str, Any], field: str
) -> None:
    model = ChatForkroot(model=ScriptedBackend("yes"))
    with pytest.raises(InvalidCall, match=r"there is one at position 1\)") as caught:
        model.invoke([HumanMessage(content)], **options)
    assert caught.value.field.startswith(field)
    with pytest.raises(InvalidCall, match=r"^invalid prompts\[1\]="):
        Forkroot(model=ScriptedBackend("yes")).generate(["a", "a\ud800"])


def test_calls_and_results_of_earlier_turns_are_written_as_the_model_writes_them() -> None:
    backend = ScriptedBackend("yes")
    call = {"name": "add", "args": {"a": 1, "b": ["x", "y"]}, "id": "1", "type": "tool_call"}
    turns = [
        HumanMessage("1+2?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("3", tool_call_id="1"),
    ]
    ChatForkroot(model=backend).invoke(turns)
    text = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": ["x", "y"]}}</tool_call>'
    assert prompt_text(backend.calls[-1].prompt) == f"user: 1+2?\nassistant: {text}\ntool: 3"


def test_our_own_constraints_are_named_in_a_call() -> None:
    backend = ScriptedBackend("yes")
    model = ChatForkroot(model=backend)
    model.bind(regex="[a-z]+").invoke("Hello")
    model.bind(choices=["yes", "no"]).invoke("Hello")
    Forkroot(model=backend, max_tokens=4).invoke("Hello", grammar='start: "yes"')
    found = [call.constraint for call in backend.calls]
    assert found == [Regex("[a-z]+"), Choices(("yes", "no")), Grammar('start: "yes"')]
    with pytest.raises(InvalidCall, match="choices"):
        model.invoke("Hello", regex="a", choices=["a"])


def test_log_probabilities_have_openais_shape(local: LocalBackend) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=6)
    found = model.invoke("Hello", logprobs=True, top_logprobs=2)
    expected = found.response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in expected).startswith(found.content[:5])
    assert all(token["logprob"] <= 0 and len(token["top_logprobs"]) == 2 for token in expected)
    streamed = [
        token
        for chunk in model.stream("Hello", logprobs=True)
        for token in chunk.response_metadata.get("logprobs", {}).get("content", [])
    ]
    assert [token["token_id"] for token in streamed] == [token["token_id"] for token in expected]


def test_usage_and_endings_are_reported(local: LocalBackend) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=2)
    message = model.invoke("What is the capital of France, and of Spain?")
    assert message.response_metadata["finish_reason"] == "length"
    assert message.response_metadata["model_name"] == "tiny"
    usage = message.usage_metadata
    assert usage["output_tokens"] == 2
    assert usage["total_tokens"] == usage["input_tokens"] + 2
    again = model.invoke("What is the capital of France, and of Spain?").usage_metadata
    assert again["input_token_details"]["cache_read"] == again["input_tokens"] - 1


def test_errors_are_those_of_the_backend_and_those_of_langchain(local: LocalBackend) -> None:
    model = ChatForkroot(model=local, max_tokens=4)
    with pytest.raises(ContextOverflowError) as raised:
        model.invoke("word " * 5000)
    assert isinstance(raised.value, CallTooLarge)
    with pytest.raises(ModelTimeoutError) as late:
        model.invoke("Tell me everything.", timeout=1e-6, max_tokens=500)
    assert isinstance(late.value, DeadlineExceeded)
    with pytest.raises((ModelNotFoundError, ModelInvalidRequestError)) as missing:
        ChatForkroot(model="/no/such/folder").invoke("Hello")
    assert isinstance(missing.value, InvalidModel | InvalidCall)


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_cancelled_task_cancels_its_call(is_batch: bool) -> None:
    backend = ScriptedBackend("never", is_held=True)
    model = ChatForkroot(model=backend)

    async def give_up() -> None:
        work = model.abatch(["Hello", "Hey"]) if is_batch else model.ainvoke("Hello")
        task = asyncio.create_task(work)
        await asyncio.to_thread(backend.wait_for, 2 if is_batch else 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(give_up())
    assert all(reply.done() for reply in backend.replies)


@pytest.mark.parametrize("kind", [ChatForkroot, Forkroot])
def test_a_stream_that_nobody_reads_to_its_end_cancels_its_call(kind: Any) -> None:
    backend = ScriptedBackend("a long answer", is_held=True)
    model = kind(model=backend)

    async def leave() -> None:
        chunks = model.astream("Hello")
        first = asyncio.ensure_future(anext(chunks))
        await asyncio.to_thread(backend.wait_for, 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(leave())
    assert backend.replies[0].done()


def test_a_rate_limiter_holds_the_calls_of_a_batch_apart() -> None:
    limiter = InMemoryRateLimiter(requests_per_second=100, check_every_n_seconds=0.001)
    model = ChatForkroot(model=ScriptedBackend("yes"), rate_limiter=limiter)
    assert len(model.batch(["a", "b", "c"])) == 3


def test_many_threads_may_share_one_model(local: LocalBackend) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=4)
    found: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda n=n: found.update({n: model.invoke(f"Say {n}").text}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {n: model.invoke(f"Say {n}").text for n in range(8)}


@pytest.mark.filterwarnings("ignore:.*beta:langchain_core._api.LangChainBetaWarning")
def test_a_model_is_written_and_read_again_without_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORKROOT_API_KEY", "hidden")
    model = ChatForkroot(model="http://127.0.0.1:30000", temperature=0, seed=1)
    written = dumpd(model)
    assert "hidden" not in str(written)
    allowed = {"allowed_objects": [ChatForkroot], "valid_namespaces": ["forkroot"]}
    read = load(written, **allowed, secrets_from_env=True)
    assert read.asdict() == model.asdict()
    assert read.api_key.get_secret_value() == "hidden"


def test_standard_parameters_are_those_of_the_call() -> None:
    model = ChatForkroot(model="tiny", temperature=0.2, max_tokens=7, stop=["."])
    found = model.asdict()
    assert (found["_type"], found["model"], found["temperature"]) == ("forkroot-chat", "tiny", 0.2)


@pytest.mark.parametrize("kind", [ChatForkroot, Forkroot])
def test_a_misspelled_option_gets_a_suggestion(kind: Any) -> None:
    model = kind(model=ScriptedBackend("yes"))
    with pytest.raises(InvalidCall, match=r"; did you mean temperature\?$"):
        model.bind(temprature=1).invoke("Hello")
    with pytest.raises(InvalidCall, match=r"top_p$"):
        model.bind(colour=1).invoke("Hello")


@pytest.mark.parametrize("kind", [ChatForkroot, Forkroot])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("temprature", "did you mean temperature?"),
        ("num_slots", "settings={'num_slots': ...}"),
        ("model_name", "did you mean model?"),
        ("base_url", "pass the URL of a server as the model"),
        ("choices", "it is given to a call, or to bind"),
        ("colour", "colour is not a field of"),
    ],
)
def test_a_name_that_is_not_a_field_is_refused_with_a_suggestion(
    kind: Any, name: str, expected: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        kind(model="tiny", **{name: "x"})
    (fault,) = caught.value.errors()
    assert (fault["loc"], fault["type"], fault["input"]) == ((name,), "extra_forbidden", "x")
    assert expected in fault["msg"]


def test_every_name_that_is_not_a_field_is_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        ChatForkroot(temprature=0, max_token=3)
    assert [fault["loc"] for fault in caught.value.errors()] == [("temprature",), ("max_token",)]


def test_a_timeout_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(ValidationError) as caught:
        ChatForkroot(timeout="soon")
    assert caught.value.errors()[0]["loc"] == ("timeout",)
    with pytest.raises(ValidationError, match=r"invalid timeout=0\.0"):
        ChatForkroot(timeout=0)


def test_a_single_stop_is_a_list_of_one() -> None:
    assert ChatForkroot(stop=".").stop == ["."]


@pytest.mark.parametrize("kind", [ChatForkroot, Forkroot])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", 3),
        ("logit_bias", {"x": 1}),
        ("timeout", "soon"),
        ("timeout", 0),
        ("model", 3),
        ("regex", 3),
        ("choices", "yes"),
        ("choices", []),
        ("grammar", 3),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_by_the_name_that_it_was_given(
    kind: Any, name: str, value: Any
) -> None:
    backend = ScriptedBackend("yes")
    with pytest.raises(InvalidCall) as caught:
        kind(model=backend).invoke("Hello", **{name: value})
    assert (caught.value.field, caught.value.value) == (name, value)
    assert isinstance(caught.value, ModelInvalidRequestError)
    assert backend.calls == []


def test_importing_the_adapter_loads_no_langchain_and_says_what_is_missing() -> None:
    code = (
        "import sys; sys.modules['langchain_core'] = None\n"
        "import forkroot.adapters.langchain as face\n"
        "try: face.ChatForkroot\n"
        "except ModuleNotFoundError as error: print(error)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first == f"ChatForkroot needs langchain-core: {how_to_install('langchain')}"
    assert second == "False"


@pytest.mark.parametrize("where", ["here", "behind a URL"])
def test_tokens_are_counted_as_the_model_counts_them(
    local: LocalBackend, request: pytest.FixtureRequest, where: str
) -> None:
    given = local if where == "here" else request.getfixturevalue("server")
    model = ChatForkroot(model=given, temperature=0, max_tokens=2)

    @tool
    def lookup(word: str) -> str:
        """Look up a word."""
        return word

    for question, tools in (("Hello", ()), ("Look up Memhuv.", (lookup,))):
        bound = model.bind_tools(tools) if tools else model
        expected = bound.invoke(question).usage_metadata["input_tokens"]
        assert model.get_num_tokens_from_messages([HumanMessage(question)], tools) == expected
    num_start = len(local.tokenizer.start_ids) if where != "here" else 0
    assert model.get_num_tokens("a b c") == len(local.tokenizer.encode("a b c")) + num_start
    turns = [SystemMessage("Be brief."), HumanMessage("word " * 300), HumanMessage("Hello")]
    kept = trim_messages(
        turns, max_tokens=80, token_counter=model, strategy="last", include_system=True
    )
    assert kept == [turns[0], turns[2]]


def test_token_ids_are_reported_where_the_tokenizer_is_at_hand(local: LocalBackend) -> None:
    ids = local.tokenizer.encode("a b c")
    assert ChatForkroot(model=local).get_token_ids("a b c") == ids
    own = ChatForkroot(model=local, custom_get_token_ids=lambda text: [7])
    assert (own.get_token_ids("a b"), own.get_num_tokens("a b")) == ([7], 1)
    with pytest.raises(UnsupportedCall, match="get_num_tokens"):
        ChatForkroot(model=ScriptedBackend("x")).get_token_ids("a")


def test_settings_beside_a_backend_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"invalid settings=\{'cache': False\}"):
        ChatForkroot(model=ScriptedBackend("yes"), settings={"cache": False})


@pytest.mark.parametrize("options", [{"top_logprobs": "x"}, {"top_logprobs": 100}, {"logprobs": 3}])
def test_numbers_of_logprobs_that_are_none_are_named(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidCall, match=f"^invalid {name}="):
        ChatForkroot(model=ScriptedBackend("yes")).invoke("a", **options)
