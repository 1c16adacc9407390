"""Frameworks that speak OpenAI's protocol, unmodified, against a running server.

Each test needs its client's package and is skipped where that is not installed. The model is small:
what is asserted are shapes and what constraints hold to be true, not wisdom. Warnings are those of
the packages themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings, tokenizer_info
from forkroot.core.api.protocol import Call, Tokens
from forkroot.core.model.hub.folders import model_folder

from ..conftest import serving

QUESTION = "What is the capital of France?"
BOB = "Bob is 3 years old and glad."


class Person(pydantic.BaseModel):
    """A person."""

    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=120)
    mood: Literal["glad", "sad"]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key in the environment, where clients look for one; and none of them asks the network."""
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "LITELLM_LOCAL_MODEL_COST_MAP"):
        monkeypatch.setenv(name, "True")
    return "any"


# --- langchain-openai ----------------------------------------------------------------------------


def by_langchain(server: str, **fields: Any) -> Any:
    """Its chat model on this server."""
    package = pytest.importorskip("langchain_openai")
    settings = {"temperature": 0, "max_tokens": 200, "max_retries": 0}
    return package.ChatOpenAI(model="tiny", base_url=f"{server}/v1", **{**settings, **fields})


@pytest.fixture
def langchain(server: str, key: str) -> Any:
    """The same, as it comes."""
    return by_langchain(server)


def test_langchain_gets_answers_and_the_usage(langchain: Any) -> None:
    langchain.invoke(QUESTION)
    reply_body = langchain.invoke([("system", "Be brief."), ("human", QUESTION)])
    assert reply_body.content
    assert reply_body.response_metadata["model_name"] == "tiny"
    assert reply_body.response_metadata["finish_reason"] == "stop"
    usage = langchain.invoke(QUESTION).usage_metadata
    assert usage["input_tokens"] == 16
    assert usage["input_token_details"]["cache_read"] == 15


def test_langchain_streams_what_it_would_be_answered(langchain: Any) -> None:
    pieces = list(langchain.stream(QUESTION, stream_usage=True))
    assert "".join(piece.content for piece in pieces) == langchain.invoke(QUESTION).content
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert whole.usage_metadata["output_tokens"] > 0


def test_langchain_batches_many_at_once(langchain: Any, server: str) -> None:
    reply_body = langchain.batch([QUESTION] * 8)
    assert len({message.content for message in reply_body}) == 1
    openai = pytest.importorskip("openai")

    async def ask() -> list[Any]:
        async with openai.DefaultAsyncHttpxClient() as http:
            found = await by_langchain(server, http_async_client=http).abatch([QUESTION] * 4)
            return [message.content for message in found]

    assert asyncio.run(ask()) == [reply_body[0].content] * 4


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_langchain_gets_structured_output(langchain: Any, method: str) -> None:
    if method == "json_mode":  # any object: no schema is sent
        reader = langchain.with_structured_output(None, method=method)
        assert isinstance(reader.invoke("JSON: Bob is 3."), dict)
        return
    reader = langchain.with_structured_output(Person, method=method)
    assert isinstance(reader.invoke(BOB), Person)


@pytest.mark.parametrize("choice", ["any", "Person", True])
def test_langchain_gets_tool_calls(langchain: Any, choice: Any) -> None:
    bound = langchain.bind_tools([Person], tool_choice=choice)
    reply_body = bound.invoke("Bob is 3 years old.")
    assert {call["name"] for call in reply_body.tool_calls} == {"Person"}
    for call in reply_body.tool_calls:
        Person.model_validate(call["args"])
    assert reply_body.invalid_tool_calls == []


def test_langchain_gets_streamed_tool_calls_and_goes_on_after_them(langchain: Any) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    bound = langchain.bind_tools([add], tool_choice="add")
    pieces = list(bound.stream("What is 2 plus 3?"))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    (call,) = whole.tool_calls
    assert {type(value) for value in call["args"].values()} == {int}
    result = messages.ToolMessage(str(add(**call["args"])), tool_call_id=call["id"])
    reply_text = langchain.bind_tools([add], tool_choice="none").invoke(
        [messages.HumanMessage("What is 2 plus 3?"), whole, result]
    )
    assert reply_text.tool_calls == []


def test_langchain_gets_logprobs(langchain: Any) -> None:
    reply_body = langchain.bind(logprobs=True, top_logprobs=2).invoke(QUESTION)
    content = reply_body.response_metadata["logprobs"]["content"]
    assert "".join(it["token"] for it in content) == reply_body.content


def test_langchain_speaks_the_responses_route(server: str, key: str) -> None:
    model = by_langchain(server, use_responses_api=True)
    assert model.invoke(QUESTION).text
    assert "".join(piece.text for piece in model.stream(QUESTION))


# --- litellm -------------------------------------------------------------------------------------


def complete_by_litellm(server: str, **fields: Any) -> Any:
    litellm = pytest.importorskip("litellm")
    settings = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    where = {"model": "openai/tiny", "api_base": f"{server}/v1", "api_key": "any"}
    return litellm.completion(**{**where, **settings, "max_tokens": 100, **fields})


def test_litellm_is_answered(server: str, key: str) -> None:
    reply_body = complete_by_litellm(server)
    assert reply_body.choices[0].message.content
    assert reply_body.choices[0].finish_reason == "stop"
    assert reply_body.usage.prompt_tokens == 16


def test_litellm_streams(server: str, key: str) -> None:
    whole = complete_by_litellm(server).choices[0].message.content
    events = complete_by_litellm(server, stream=True)
    assert "".join(it.choices[0].delta.content or "" for it in events) == whole


def test_litellm_gets_structured_output(server: str, key: str) -> None:
    reply_body = complete_by_litellm(server, response_format=Person)
    Person.model_validate_json(reply_body.choices[0].message.content)


def test_litellm_gets_tool_calls(server: str, key: str) -> None:
    tool = {"name": "person", "parameters": Person.model_json_schema()}
    tools = [{"type": "function", "function": tool}]
    reply_body = complete_by_litellm(server, tools=tools, tool_choice="required")
    assert reply_body.choices[0].finish_reason == "tool_calls"
    for call in reply_body.choices[0].message.tool_calls:
        Person.model_validate_json(call.function.arguments)


def test_litellm_hands_our_own_fields_on(server: str, key: str) -> None:
    reply_body = complete_by_litellm(server, extra_body={"choices": ["Rome", "Oslo"]})
    assert reply_body.choices[0].message.content in ("Rome", "Oslo")


def test_litellm_raises_its_own_errors(server: str, key: str) -> None:
    litellm = pytest.importorskip("litellm")
    with pytest.raises(litellm.BadRequestError):
        complete_by_litellm(server, temperature=-1)
    with pytest.raises(litellm.NotFoundError):
        complete_by_litellm(server, model="openai/gpt-9")


# --- dspy ----------------------------------------------------------------------------------------


@pytest.fixture
def dspy(server: str, key: str) -> Iterator[Any]:
    """The package, with a model on this server."""
    package = pytest.importorskip("dspy")
    settings = {"temperature": 0, "max_tokens": 200, "cache": False, "num_retries": 0}
    model = package.LM("openai/tiny", api_base=f"{server}/v1", api_key=key, **settings)
    with package.context(lm=model):
        yield package


@pytest.fixture
def stated(dspy: Any, server: str) -> Iterator[Any]:
    """The same, and the package is set to send schemas to this server: it sends none otherwise."""
    lm15 = pytest.importorskip("dspy.lm15")
    access = lm15.AccessPolicy(provider="forkroot", env_keys=(), base_url=f"{server}/v1")
    compat = lm15.OpenAIChatCompat()
    definition = lm15.ProviderDefinition.chat(access, compat=compat, placeholder_key="any")
    lm15.register_provider(definition, supports=lm15.ModelSupport(response_schema=True))
    settings = {"temperature": 0, "max_tokens": 200, "cache": False, "num_retries": 0}
    try:
        with dspy.context(lm=dspy.LM("forkroot/tiny", **settings), adapter=dspy.JSONAdapter()):
            yield dspy
    finally:
        lm15.unregister_provider("forkroot")


def test_dspy_asks_a_model(dspy: Any) -> None:
    (reply_body,) = dspy.settings.lm(QUESTION)
    assert reply_body


def test_dspy_predicts(dspy: Any) -> None:
    reply_body = dspy.Predict("question -> answer")(question=QUESTION)
    assert isinstance(reply_body.answer, str)
    assert reply_body.answer


def test_dspy_gets_typed_fields_by_its_json_adapter(stated: Any) -> None:
    signature = "sentence -> mood: Literal['glad', 'sad'], is_true: bool"
    reply_body = stated.Predict(signature)(sentence="Bob is glad.")
    assert reply_body.mood in ("glad", "sad")
    assert isinstance(reply_body.is_true, bool)


def test_dspy_asks_many_at_once(dspy: Any) -> None:
    program = dspy.Predict("question -> answer")
    examples = [dspy.Example(question=QUESTION).with_inputs("question") for _ in range(6)]
    reply_body = program.batch(examples, num_threads=6, disable_progress_bar=True)
    assert len({it.answer for it in reply_body}) == 1


# --- instructor ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Mode.TOOLS_STRICT is deprecated:DeprecationWarning")
@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_instructor_gets_a_model_of_pydantic(server: str, key: str, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server}/v1", api_key=key, max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=getattr(instructor.Mode, mode))
        reply_body = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": BOB}],
            response_model=Person,
            temperature=0,
            max_tokens=200,
            max_retries=0,
        )
    assert isinstance(reply_body, Person)


def test_instructor_streams_a_model_of_pydantic(server: str, key: str) -> None:
    instructor = pytest.importorskip("instructor")
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{server}/v1", api_key=key, max_retries=0) as plain:
        client = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)
        parts = list(
            client.chat.completions.create_partial(
                model="tiny",
                messages=[{"role": "user", "content": BOB}],
                response_model=Person,
                temperature=0,
                max_tokens=200,
            )
        )
    Person.model_validate(parts[-1].model_dump())


# --- pydantic-ai ---------------------------------------------------------------------------------


def run_agent(
    server: str, ask_model: str, kind: str = "OpenAIChatModel", **settings: Any
) -> tuple[Any, str]:
    """The output of an agent, and all that it streams as text if its output is text."""
    package = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    openai = pytest.importorskip("openai")

    async def run() -> tuple[Any, str]:
        async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key="any") as client:
            model = getattr(models, kind)(
                "tiny", provider=providers.OpenAIProvider(None, None, client)
            )
            sampling = {"temperature": 0, "max_tokens": 200}
            agent = package.Agent(model, model_settings=sampling, **settings)
            if settings:
                return (await agent.run(ask_model)).output, ""
            async with agent.run_stream(ask_model) as reply_body:
                pieces = [piece async for piece in reply_body.stream_text(delta=True)]
            return (await agent.run(ask_model)).output, "".join(pieces)

    return asyncio.run(run())


BY_KIND = pytest.mark.parametrize("kind", ["OpenAIChatModel", "OpenAIResponsesModel"])


@BY_KIND
def test_pydantic_ai_is_answered_whole_and_in_a_stream(server: str, kind: str) -> None:
    whole, streamed = run_agent(server, QUESTION, kind)
    assert whole == streamed != ""


@BY_KIND
def test_pydantic_ai_gets_structured_output(server: str, kind: str) -> None:
    reply_body, _ = run_agent(server, BOB, kind, output_type=Person)
    assert isinstance(reply_body, Person)


@BY_KIND
def test_pydantic_ai_gets_structured_output_by_a_schema(server: str, kind: str) -> None:
    package = pytest.importorskip("pydantic_ai")
    reply_body, _ = run_agent(server, BOB, kind, output_type=package.NativeOutput(Person))
    assert isinstance(reply_body, Person)


@BY_KIND
def test_pydantic_ai_runs_a_tool_and_hands_its_result_on(server: str, kind: str) -> None:
    called: list[str] = []

    def lookup(word: str) -> str:
        """Look up a word."""
        called.append(word)
        return "a river of ice"

    reply_body, _ = run_agent(server, "Look up glacier.", kind, tools=[lookup])
    assert called
    assert isinstance(reply_body, str)


# --- guidance's models on servers ----------------------------------------------------------------


@pytest.fixture
def guided(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Makes its models on this server, and closes the connections that they leave open."""
    experimental = pytest.importorskip("guidance.models.experimental")
    openai = pytest.importorskip("openai")
    opened: list[Any] = []

    def noted(**settings: Any) -> Any:
        opened.append(connect(**settings))
        return opened[-1]

    connect = openai.OpenAI
    monkeypatch.setattr(openai, "OpenAI", noted)
    where = {"base_url": f"{server}/v1", "api_key": "any", "echo": False}
    yield lambda kind: getattr(experimental, kind)("tiny", **where)
    for client in opened:
        client.close()


def ask_model(model: Any, question: str) -> Any:
    guidance = pytest.importorskip("guidance")
    with guidance.user():
        model += question
    return model


@pytest.mark.parametrize("kind", ["SglangModel", "VLLMModel"])
def test_guidance_generates_freely(guided: Callable[[str], Any], kind: str) -> None:
    guidance = pytest.importorskip("guidance")
    model = ask_model(guided(kind), QUESTION)
    with guidance.assistant():
        model += guidance.gen("answer", max_tokens=20, temperature=0)
    assert model["answer"]


@pytest.mark.parametrize("kind", ["SglangModel", "VLLMModel"])
def test_guidance_selects(guided: Callable[[str], Any], kind: str) -> None:
    guidance = pytest.importorskip("guidance")
    model = ask_model(guided(kind), QUESTION)
    with guidance.assistant():
        model += guidance.select(["Rome", "Oslo"], name="city")
    assert model["city"] in ("Rome", "Oslo")


@pytest.mark.parametrize("kind", ["SglangModel", "VLLMModel"])
def test_guidance_holds_a_pattern(guided: Callable[[str], Any], kind: str) -> None:
    guidance = pytest.importorskip("guidance")
    model = ask_model(guided(kind), "A number?")
    with guidance.assistant():
        model += guidance.gen("number", regex="[0-9]{3}-[a-z]{2}", temperature=0)
    assert len(model["number"]) == 6


@pytest.mark.parametrize("kind", ["SglangModel", "VLLMModel"])
def test_guidance_holds_a_schema(guided: Callable[[str], Any], kind: str) -> None:
    guidance = pytest.importorskip("guidance")
    model = ask_model(guided(kind), BOB)
    with guidance.assistant():
        # greedy: a name may be drawn in characters of several tokens, which guidance cannot join
        model += guidance.json("person", schema=Person, max_tokens=200, temperature=0)
    Person.model_validate_json(model["person"])


@pytest.mark.parametrize("kind", ["SglangModel", "VLLMModel"])
def test_guidance_holds_a_grammar_and_reads_its_captures(
    guided: Callable[[str], Any], kind: str
) -> None:
    guidance = pytest.importorskip("guidance")
    model = ask_model(guided(kind), "A date?")
    date = guidance.gen("year", regex="[0-9]{4}") + "-" + guidance.gen("month", regex="0[1-9]")
    with guidance.assistant():
        model += date
    assert model["year"].isdecimal() and len(model["year"]) == 4
    assert model["month"][0] == "0"


# --- lm-eval -------------------------------------------------------------------------------------


@pytest.fixture
def tokenizer_server(runtime: Runtime) -> Iterator[str]:
    """A server that reports its tokenizer, as `forkroot serve` does."""
    settings = Settings(tokenizer_info=tokenizer_info(model_folder("tiny")))
    with serving(runtime, settings) as url:
        yield url


CAPITALS = [
    {"q": "The capital of France is", "choices": [" Paris", " Rome"], "gold": 0},
    {"q": "The capital of Italy is", "choices": [" Oslo", " Rome"], "gold": 1},
]


def task_file(folder: Path, kind: str, **fields: Any) -> Path:
    """A task of lm-eval on rows of our own."""
    data = folder / "rows.json"
    data.write_text("\n".join(map(json.dumps, CAPITALS)))
    task = {
        "task": f"capitals_{kind}",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": kind,
        "doc_to_text": "{{q}}",
        **fields,
    }
    path = folder / f"capitals_{kind}.yaml"
    path.write_text(json.dumps(task))  # JSON is YAML
    return path


def evaluate(url: str, folder: Path, kind: str, **fields: Any) -> dict[str, Any]:
    """The results of such a task."""
    lm_eval = pytest.importorskip("lm_eval")
    tasks = pytest.importorskip("lm_eval.tasks")
    task_file(folder, kind, **fields)
    found = lm_eval.simple_evaluate(
        model="local-completions",
        model_args={"model": "tiny", "base_url": f"{url}/v1/completions", "num_concurrent": 2},
        tasks=[f"capitals_{kind}"],
        task_manager=tasks.TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
    )
    return dict(found)


def test_lm_eval_scores_choices_as_the_backend_does(
    tokenizer_server: str, runtime: Runtime, key: str, tmp_path: Path
) -> None:
    found = evaluate(
        tokenizer_server,
        tmp_path,
        "multiple_choice",
        doc_to_choice="{{choices}}",
        doc_to_target="{{gold}}",
        target_delimiter="",
    )
    assert found["results"]["capitals_multiple_choice"]["acc,none"] == 1.0
    for sample, row in zip(found["samples"]["capitals_multiple_choice"], CAPITALS, strict=True):
        ids = tuple(runtime.texts.encode(str(row["q"])))
        call = Call((Tokens(ids),), options=tuple(row["choices"]))
        scores = runtime.backend.submit(call).result().scores
        reply_body = [float(response[0]) for response in sample["filtered_resps"]]
        assert reply_body == pytest.approx([sum(score.logprobs) for score in scores], abs=1e-3)


def test_lm_eval_generates(tokenizer_server: str, key: str, tmp_path: Path) -> None:
    found = evaluate(
        tokenizer_server,
        tmp_path,
        "generate_until",
        doc_to_target="{{choices[gold]}}",
        generation_kwargs={"until": ["."], "max_gen_toks": 8},
        metric_list=[{"metric": "exact_match"}],
    )
    samples = found["samples"]["capitals_generate_until"]
    assert [sample["resps"][0][0] for sample in samples] == [" Paris", " Rome"]


# --- openai-agents, smolagents -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["OpenAIChatCompletionsModel", "OpenAIResponsesModel"])
def test_openai_agents_run(server: str, key: str, kind: str) -> None:
    agents = pytest.importorskip("agents")
    openai = pytest.importorskip("openai")
    agents.set_tracing_disabled(True)

    async def ask() -> tuple[Any, Any]:
        async with openai.AsyncOpenAI(base_url=f"{server}/v1", api_key=key) as client:
            model = getattr(agents, kind)("tiny", client)
            settings = agents.ModelSettings(temperature=0, max_tokens=200)
            plain = agents.Agent("plain", model=model, model_settings=settings)
            typed = plain.clone(output_type=Person)
            reply_text = await agents.Runner.run(plain, QUESTION)
            found = await agents.Runner.run(typed, BOB)
            return reply_text.final_output, found.final_output

    reply_text, found = asyncio.run(ask())
    assert isinstance(reply_text, str) and reply_text
    assert isinstance(found, Person)


def test_smolagents_asks_with_content_in_parts(server: str, key: str) -> None:
    smolagents = pytest.importorskip("smolagents")
    model = smolagents.OpenAIServerModel("tiny", api_base=f"{server}/v1", api_key=key)
    message = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
    assert model([message], temperature=0, max_tokens=50).content
