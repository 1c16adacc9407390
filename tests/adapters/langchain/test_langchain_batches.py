"""Batches and forks of LangChain programs: one submission, one root, and the base class's rules."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip("langchain_core", reason="needs langchain-core")

from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel

from forkroot.adapters.langchain import ChatForkroot, Forkroot
from forkroot.adapters.testing import ScriptedBackend, prompt_text, root_of
from forkroot.core.api.protocol import BackendClosed, Call, CallFailed, EngineDied, Overloaded
from forkroot.core.local import LocalBackend

ROOT = " ".join(f"Rule {number}: say {number * 7} when asked for {number}." for number in range(60))


def prompt_of(number: int) -> list[tuple[str, str]]:
    return [("system", ROOT), ("user", f"What do you say when asked for {number}?")]


def questions(backend: ScriptedBackend) -> list[Call]:
    return [call for call in backend.calls if call.sampling.max_tokens != 0]


def echo(call: Call) -> str:
    return prompt_text(call.prompt)[-20:]


def cache_reads(messages: Sequence[AIMessage]) -> int:
    return sum(m.usage_metadata["input_token_details"]["cache_read"] for m in messages)


class Recorder(BaseCallbackHandler):
    """Keeps what happens to each model run."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.failed: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.started.append(kwargs["run_id"])

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.ended.append(kwargs["run_id"])

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.failed.append(kwargs["run_id"])


def run_held(backend: ScriptedBackend, program: Any, num_calls: int) -> Any:
    """What a program gives whose calls are answered only once all of them are there."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(program()))
    thread.start()
    backend.wait_for(num_calls)
    backend.release()
    thread.join(30)
    return found[0]


def test_a_batch_of_64_is_one_submission_under_one_planted_root() -> None:
    backend = ScriptedBackend(echo, is_held=True)
    model = ChatForkroot(model=backend)
    inputs = [prompt_of(number) for number in range(64)]
    answers = run_held(backend, lambda: model.batch(inputs), 65)
    assert [answer.content for answer in answers] == [
        prompt_text(call.prompt)[-20:] for call in sorted(questions(backend), key=number_of)
    ]
    assert backend.calls[0].sampling.max_tokens == 0
    assert {root_of(call) for call in questions(backend)} == {root_of(backend.calls[0])}
    assert backend.calls[0].hint.branches == 64


def number_of(call: Call) -> int:
    return int(prompt_text(call.prompt).rpartition(" ")[2].rstrip("?"))


def test_an_awaited_batch_is_one_submission_too() -> None:
    backend = ScriptedBackend(echo, is_held=True)
    model = ChatForkroot(model=backend)
    inputs = [prompt_of(number) for number in range(64)]
    answers = run_held(backend, lambda: asyncio.run(model.abatch(inputs)), 65)
    assert len(answers) == 64
    assert backend.calls[0].hint.branches == 64


@pytest.mark.parametrize("how", ["batch", "map"])
def test_chains_hand_all_inputs_on_at_once(how: str) -> None:
    backend = ScriptedBackend(echo, is_held=True)
    prompt = ChatPromptTemplate([("system", ROOT.replace("{", "")), ("user", "{question}")])
    chain = prompt | ChatForkroot(model=backend) | StrOutputParser()
    inputs = [{"question": f"What of {number}?"} for number in range(12)]
    run = chain.batch if how == "batch" else chain.map().invoke
    assert len(run_held(backend, lambda: run(inputs), 13)) == 12
    assert {call.hint.branches for call in backend.calls} == {12}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("include_raw", [False, True])
def test_a_batch_of_structured_answers_is_one_submission(include_raw: bool, is_async: bool) -> None:
    backend = ScriptedBackend('{"said": "yes"}', is_held=True)
    schema = {"title": "Answer", "type": "object", "properties": {"said": {"type": "string"}}}
    model = ChatForkroot(model=backend).with_structured_output(
        schema, method="json_schema", include_raw=include_raw
    )
    inputs = [prompt_of(number) for number in range(12)]

    def run() -> Any:
        return asyncio.run(model.abatch(inputs)) if is_async else model.batch(inputs)

    found = run_held(backend, run, 13)
    assert [it["parsed"] if include_raw else it for it in found] == [{"said": "yes"}] * 12
    assert backend.calls[0].sampling.max_tokens == 0
    assert {root_of(call) for call in backend.calls} == {root_of(backend.calls[0])}


@pytest.mark.parametrize("is_async", [False, True])
def test_branches_of_a_runnable_parallel_are_one_submission(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forkroot.adapters.langchain.hints.forks.PATIENCE", 20.0)
    backend = ScriptedBackend(echo, is_held=True)
    model = ChatForkroot(model=backend)
    steps = {
        f"part{number}": ChatPromptTemplate([("system", ROOT), ("user", f"{number}? {{text}}")])
        | model
        for number in range(4)
    }
    fork = RunnableLambda(lambda text: {"text": text}) | RunnableParallel(steps)

    def run() -> Any:
        return asyncio.run(fork.ainvoke("Go")) if is_async else fork.invoke("Go")

    assert set(run_held(backend, run, 5)) == set(steps)
    assert backend.calls[0].sampling.max_tokens == 0
    assert {call.hint.branches for call in backend.calls} == {4}


def test_a_branch_that_calls_no_model_keeps_nobody_waiting() -> None:
    backend = ScriptedBackend("yes")
    model = ChatForkroot(model=backend)
    fork = RunnableParallel(
        first=model, second=model | StrOutputParser(), third=RunnableLambda(lambda text: text)
    )
    found = fork.invoke("Hello")
    assert (found["first"].content, found["second"], found["third"]) == ("yes", "yes", "Hello")


def test_a_batch_is_identical_to_sequential_answers_and_computes_its_root_once(
    local: LocalBackend,
) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=6)
    inputs = [prompt_of(number) for number in range(64)]
    local.clear_cache()
    before = local.info().counters["computed_tokens"]
    concurrent = model.batch(inputs)
    computed = local.info().counters["computed_tokens"] - before
    total = sum(message.usage_metadata["input_tokens"] for message in concurrent)
    assert [message.content for message in concurrent] == [
        model.invoke(one).content for one in inputs
    ]
    root_len = concurrent[0].usage_metadata["input_tokens"] - 20
    assert root_len > 1000
    assert cache_reads(concurrent) >= 0.95 * (64 - 1) * root_len
    assert computed < total - 62 * root_len


def test_a_parallel_of_six_is_identical_to_sequential_answers_and_computes_its_root_once(
    local: LocalBackend,
) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=6)
    root = ROOT.replace("Rule", "Law")
    branches = {
        f"part{number}": ChatPromptTemplate([("system", root), ("user", f"{number}? {{text}}")])
        | model
        for number in range(6)
    }
    local.clear_cache()
    concurrent = RunnableParallel(branches).invoke({"text": "Tell me."})
    root_len = concurrent["part0"].usage_metadata["input_tokens"] - 20
    assert root_len > 1000
    assert cache_reads(list(concurrent.values())) >= 0.95 * 5 * root_len
    for name, branch in branches.items():
        assert concurrent[name].content == branch.invoke({"text": "Tell me."}).content


def test_a_model_given_a_backend_remembers_what_its_calls_shared(local: LocalBackend) -> None:
    model = ChatForkroot(model=local, temperature=0, max_tokens=2)
    before = sum(saving.calls for saving in model.connection().prefixes.savings)
    for number in range(2):
        model.batch([prompt_of(3 * number + place) for place in range(3)])
    savings = model.connection().prefixes.savings  # others' calls went to this backend, too
    assert sum(saving.calls for saving in savings) == before + 6
    assert savings[-1].cached_tokens > 0.8 * savings[-1].prompt_tokens


def test_every_input_of_a_batch_has_its_own_run() -> None:
    recorder, ids = Recorder(), [uuid4() for _ in range(3)]
    model = ChatForkroot(model=ScriptedBackend("yes"))
    configs = [{"callbacks": [recorder], "run_id": run_id} for run_id in ids]
    assert len(model.batch(["a", "b", "c"], configs)) == 3
    assert set(recorder.started) == set(recorder.ended) == set(ids)


def test_errors_of_a_batch_are_returned_or_raised_as_requested() -> None:
    def answer(call: Call) -> Any:
        return CallFailed("broken") if "bad" in prompt_text(call.prompt) else "good"

    recorder = Recorder()
    model = ChatForkroot(model=ScriptedBackend(answer), max_retries=0)
    config = {"callbacks": [recorder]}
    first, second = model.batch(["one", "bad"], config, return_exceptions=True)
    assert first.content == "good"
    assert isinstance(second, CallFailed)
    assert len(recorder.failed) == 1
    with pytest.raises(CallFailed):
        model.batch(["one", "bad"])
    found = asyncio.run(model.abatch(["one", "bad"], return_exceptions=True))
    assert [type(one) is AIMessage for one in found] == [True, False]


def test_each_prompt_of_a_batch_of_texts_has_its_own_error() -> None:
    def answer(call: Call) -> Any:
        return CallFailed("broken") if "bad" in prompt_text(call.prompt) else "good"

    model = Forkroot(model=ScriptedBackend(answer), max_retries=0)
    inputs = ["one", "bad", "two", "also bad"]
    found = model.batch(inputs, return_exceptions=True)
    assert found[0] == found[2] == "good"
    assert [type(found[place]).__mro__[1] for place in (1, 3)] == [CallFailed, CallFailed]
    assert found[1] is not found[3]
    again = asyncio.run(model.abatch(inputs, {"max_concurrency": 3}, return_exceptions=True))
    assert [isinstance(it, CallFailed) for it in again] == [False, True, False, True]
    with pytest.raises(CallFailed):
        model.batch(inputs)


def test_a_batch_runs_no_more_at_once_than_its_config_allows() -> None:
    lock, running, most = threading.Lock(), set[int](), 0

    class Counter(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            nonlocal most
            with lock:
                running.add(kwargs["run_id"])
                most = max(most, len(running))

        def on_llm_end(self, response: Any, **kwargs: Any) -> None:
            with lock:
                running.discard(kwargs["run_id"])

    model = ChatForkroot(model=ScriptedBackend("yes", delay=0.01), callbacks=[Counter()])
    texts = [str(number) for number in range(9)]
    assert len(model.batch(texts, {"max_concurrency": 3})) == 9
    assert most <= 3
    assert len(asyncio.run(model.abatch(texts, {"max_concurrency": 3}))) == 9
    assert most <= 3


def test_inputs_that_a_cache_answers_are_not_sent() -> None:
    backend = ScriptedBackend(echo)
    model = ChatForkroot(model=backend, cache=InMemoryCache())
    model.invoke("one")
    found = model.batch(["one", "two", "three"])
    assert len(questions(backend)) == 3
    assert found[0].content == model.invoke("one").content


def test_options_of_a_config_reach_the_backend() -> None:
    backend = ScriptedBackend("yes")
    model = ChatForkroot(model=backend)
    result = {"root": "book", "prefix_end": 1, "branches": 3, "namespace": "mine", "priority": 2}
    config = {"metadata": {"forkroot": result}}
    model.invoke("Hello", config)
    list(model.stream("Hello", config))
    (model | StrOutputParser()).batch(["Hello"], config)
    asyncio.run(model.ainvoke("Hello", config))
    Forkroot(model=backend).invoke("Hello", config)
    assert len(backend.calls) == 5
    for call in backend.calls:
        assert (call.hint.root, call.hint.prefix_end, call.hint.branches) == ("book", 1, 3)
        assert (call.namespace, call.priority) == ("mine", 2)
    with pytest.raises(ValueError, match=r"invalid metadata\.forkroot\.rot='x'"):
        model.invoke("Hello", {"metadata": {"forkroot": {"rot": "x"}}})


def test_namespaces_of_a_batch_are_kept_apart() -> None:
    backend = ScriptedBackend("yes")
    configs = [{"metadata": {"forkroot": {"namespace": name}}} for name in "ab"]
    for model in (ChatForkroot(model=backend), Forkroot(model=backend)):
        backend.calls.clear()
        model.batch(["one", "two"], configs)
        seen = {prompt_text(call.prompt)[-3:]: call.namespace for call in backend.calls}
        assert seen == {"one": "a", "two": "b"}


def test_a_model_that_a_callback_calls_is_not_of_the_batch() -> None:
    backend = ScriptedBackend("yes")
    inner = ChatForkroot(model=backend)

    class CallingCallback(BaseCallbackHandler):
        def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
            inner.invoke("beside", {"callbacks": []})

    outer = ChatForkroot(model=backend, callbacks=[CallingCallback()])
    assert [message.content for message in outer.batch(["a", "b"])] == ["yes", "yes"]
    assert len(questions(backend)) == 4


def test_an_overloaded_runtime_is_called_again() -> None:
    answers = [Overloaded("full"), "yes", Overloaded("full"), Overloaded("full")]
    model = ChatForkroot(model=ScriptedBackend(answers), max_retries=1)
    assert model.invoke("Hello").content == "yes"
    with pytest.raises(Overloaded):
        model.invoke("Hello")


def test_an_engine_that_died_is_called_again_once_another_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    died = EngineDied("it died", is_replaced=True)
    model = ChatForkroot(model=ScriptedBackend([died, died, "yes", EngineDied("for good")]))
    assert model.invoke("Hello").content == "yes"
    assert pauses == [1, 2]
    with pytest.raises(BackendClosed, match="for good"):
        model.invoke("Hello")
    assert pauses == [1, 2]


def test_a_batch_goes_on_without_what_the_cache_has() -> None:
    """What `docs/langchain.md` says of a batch that is run again: the cache keeps what ended."""
    cache = InMemoryCache()

    def answer(call: Call) -> str:
        if "3" in prompt_text(call.prompt) and len(backend.calls) < 9:
            raise EngineDied("it died")
        return "yes"

    backend = ScriptedBackend(answer)
    model = ChatForkroot(model=backend, cache=cache, temperature=0)
    inputs = [f"question {number}" for number in range(6)]
    found = model.batch(inputs, return_exceptions=True)
    assert [type(it).__name__ for it in found].count("ChatClosed") == 1
    num_calls = len(questions(backend))
    retried = model.with_retry(
        retry_if_exception_type=(BackendClosed,),
        stop_after_attempt=9,
        wait_exponential_jitter=False,
    )
    assert [it.content for it in retried.batch(inputs)] == ["yes"] * 6
    again = questions(backend)[num_calls:]
    assert len(again) > 0
    assert all("question 3" in prompt_text(call.prompt) for call in again)


def test_a_chain_says_in_its_second_run_what_follows_its_first_call() -> None:
    backend = ScriptedBackend("a word")
    model = ChatForkroot(backend=backend)
    chain = model | (lambda answer: f"Go on: {answer.content}") | model
    chain = chain.with_config(run_name="a chain that is followed")
    for _ in range(2):
        chain.invoke("Begin.")
    hints = [call.hint for call in backend.calls if call.sampling.max_tokens != 0]
    assert [it.calls_left for it in hints if it is not None] == [None, None, 1, 0]
    assert len({it.program for it in hints if it is not None}) == 2
