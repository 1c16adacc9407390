"""Programs and adapters on API models: the embedded model behind our own server, and a script."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import forkroot
from forkroot import assistant, function, gen, select, user
from forkroot.__main__ import main
from forkroot.adapters.connection import Lent
from forkroot.core.api.protocol import (
    Backend,
    InvalidCall,
    InvalidModel,
    ProgramError,
    UnsupportedCall,
)

from .wires import Exchange, api_server, chat_body

PRICES = {"input": 2.0, "output": 10.0}


@pytest.fixture(scope="module")
def tiny(server: str) -> Iterator[Backend]:
    """The embedded model behind our own server, as an API model."""
    given = {"base_url": f"{server}/v1", "api_key": "sk-test", "prices": PRICES}
    backend = forkroot.connect("openai:tiny", **given)
    yield backend
    backend.close()


@function
def describe(s: Any, topic: str) -> None:
    s += f"Tell me about {topic}." + gen("first", max_tokens=6) + " So" + gen("second", 4)
    branches = s.fork(2)
    branches += " and" + gen("more", max_tokens=3)
    branches.join()


def test_a_program_has_the_answers_of_the_model_itself(tiny: Backend, local: Backend) -> None:
    found = describe.run(topic="rivers", backend=tiny, temperature=0)
    own = describe.run(topic="rivers", backend=local, temperature=0)
    for name in ("first", "second", "more"):
        assert found[name] == own[name]
    assert found.text() == own.text()


def test_meta_information_has_requests_and_cost_of_a_variable_and_of_the_whole_run(
    tiny: Backend,
) -> None:
    state = describe.run(topic="birds", backend=tiny, temperature=0)
    first, second = state.get_meta_info("first"), state.get_meta_info("second")
    assert first["requests"] == 1
    assert first["cost"] == pytest.approx(
        (first["prompt_tokens"] * 2.0 + first["completion_tokens"] * 10.0) / 1e6
    )
    more, total = state.get_meta_info("more"), state.get_meta_info()
    assert total["calls"] == total["requests"] == 4
    for name in ("prompt_tokens", "completion_tokens", "cost"):
        assert total[name] == pytest.approx(sum(it[name] for it in (first, second, *more)))


def test_the_totals_of_a_run_without_an_api_have_no_cost(local: Backend) -> None:
    total = describe.run(topic="metals", backend=local, temperature=0).get_meta_info()
    assert (total["requests"], total["cost"]) == (0, 0)
    assert total["calls"] == 4


def test_totals_are_kept_in_a_checkpoint(tiny: Backend, tmp_path: Any) -> None:
    given = {"backend": tiny, "temperature": 0, "checkpoint": tmp_path / "batch.jsonl"}
    items = [{"topic": "the sea"}, {"topic": "tides"}]
    before = [state.get_meta_info() for state in describe.run_batch(items, **given)]
    after = [state.get_meta_info() for state in describe.run_batch(items, **given)]
    assert before == after
    assert before[0]["requests"] == 4


def test_select_lets_an_api_model_write_one_of_the_options(tiny: Backend) -> None:
    @function
    def pick(s: Any, method: str) -> None:
        s += user("Is a whale a fish or a mammal?")
        s += assistant(select("kind", ["fish", "mammal"], choices_method=method))

    for backend in (tiny, Lent(tiny)):
        state = pick.run(method="token_length_normalized", backend=backend)
        assert state["kind"] in ("fish", "mammal")
        meta = state.get_meta_info("kind")
        assert meta["choices"][meta["index"]] == state["kind"]
        assert (meta["scores"], meta["requests"]) == (None, 1)
    for method in ("exact", "canonical", "unconditional_likelihood_normalized"):
        with pytest.raises(UnsupportedCall, match="choices_method"):
            pick.run(method=method, backend=tiny)


def test_an_option_that_was_cut_is_an_error_of_the_program() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.json(chat_body('{"value": "fi', reason="length"))

    @function
    def pick(s: Any) -> None:
        s += user("x") + assistant(select("kind", ["fish", "mammal"]))

    with (
        api_server(answer) as server,
        forkroot.connect("openai:m", base_url=server.url) as backend,
        pytest.raises(ProgramError, match="none of the options"),
    ):
        pick.run(backend=backend)


def test_a_name_is_a_backend_of_programs(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    state = describe.run(topic="rivers", backend="openai:tiny", temperature=0)
    assert state.get_meta_info()["requests"] == 4


def test_the_command_line_chats_with_an_api_model_and_does_not_serve_one(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    base_url = ["--set", f"base_url={server}/v1"]
    assert main(["chat", "openai:tiny", "Who are you?", "--max-tokens", "5", *base_url]) == 0
    assert capsys.readouterr().out.strip()
    assert main(["check", "openai:tiny", *base_url]) == 0
    out = capsys.readouterr().out
    assert "constraints, images" in out
    assert "0 tokens" not in out
    assert main(["serve", "openai:tiny", "--port", "0", *base_url]) == 2
    assert "its model runs elsewhere" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", io.StringIO("hi\n"))
    assert (
        main(
            [
                "chat",
                "openai:tiny",
                "--set",
                "base_url=http://127.0.0.1:9",
                "--set",
                "max_retries=0",
            ]
        )
        == 2
    )
    assert "cannot be reached" in capsys.readouterr().err


def test_dspy_takes_the_name_of_an_api_model(server: str, fresh_dspy_cache: None) -> None:
    dspy = pytest.importorskip("dspy")
    from forkroot.adapters.dspy import LM

    settings = {"base_url": f"{server}/v1"}
    lm = LM("openai:tiny", settings=settings, api_key="sk-test", temperature=0, max_tokens=40)
    with dspy.context(lm=lm):
        found = dspy.Predict("question -> answer")(question="What is the capital of France?")
    assert isinstance(found.answer, str)
    assert "sk-test" not in repr(lm.dump_state())


def test_langchain_takes_the_name_of_an_api_model(server: str) -> None:
    pytest.importorskip("langchain_core")
    from langchain_core.tools import tool

    from forkroot.adapters.langchain import ChatForkroot

    @tool
    def look_up(word: str) -> str:
        """Look up a word."""
        return word

    settings = {"base_url": f"{server}/v1"}
    model = ChatForkroot(
        model="openai:tiny", api_key="sk-test", settings=settings, temperature=0, max_tokens=40
    )
    assert model.invoke("Who are you?").content
    chosen = model.bind_tools([look_up], tool_choice="look_up").invoke("Look up the sea.")
    assert [call["name"] for call in chosen.tool_calls] == ["look_up"]
    assert "".join(str(it.content) for it in model.stream("Who are you?"))


def test_guidance_says_that_it_needs_tokens(server: str) -> None:
    pytest.importorskip("guidance")
    from forkroot.adapters.guidance import Forkroot

    with pytest.raises(UnsupportedCall, match=r"models\.OpenAI"):
        Forkroot("openai:tiny", base_url=f"{server}/v1", api_key="sk-test")


def test_names_of_other_models_are_checked_as_before() -> None:
    with pytest.raises(InvalidModel):
        forkroot.connect("opena:gpt")
    with pytest.raises(InvalidCall, match="num_slot"):
        forkroot.connect("tiny", num_slot=1)
