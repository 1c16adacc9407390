"""An unmodified program of the SGLang frontend, where that is installed (`pip install --no-deps
sglang==0.5.10`, and what it imports)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    sgl = pytest.importorskip("sglang")

pytestmark = pytest.mark.filterwarnings("ignore")
METHODS = (
    *("token_length_normalized", "greedy_token_selection"),
    "unconditional_likelihood_normalized",
)


@pytest.fixture(scope="module", autouse=True)
def endpoint(server: str) -> Any:
    endpoint = sgl.RuntimeEndpoint(server)
    sgl.set_default_backend(endpoint)
    return endpoint


def capital(s: Any, country: str) -> None:
    s += f"The capital of {country} is" + sgl.gen("city", max_tokens=2, temperature=0)


def choice(s: Any, method: str) -> None:
    s += "The capital of France is"
    names = [" Rome", " Paris", " London", " Berlin Wall"]
    s += sgl.select("city", names, choices_method=getattr(sgl, method))


def tips(s: Any) -> None:
    s += "Some tips. "
    forks = s.fork(3)
    for index, fork in enumerate(forks):
        fork += f"Tip {index}: " + sgl.gen("tip", max_tokens=6, temperature=0)
    s += "; ".join(fork["tip"] for fork in forks)


def appended(s: Any) -> None:
    s += "Some tips. "
    forks = s.fork(2)
    for fork, name in zip(forks, ("First: ", " Second: "), strict=True):
        fork += name + sgl.gen("tip", max_tokens=4, temperature=0)
    forks.join("concate_and_append")
    s += " So: " + sgl.gen("end", max_tokens=4, temperature=0)


def record(s: Any) -> None:
    s += "Number: " + sgl.gen("number", regex="[0-9]{3}", max_tokens=9)
    s += " Age: " + sgl.gen("age", dtype=int, max_tokens=9)
    s += " True? " + sgl.gen("is_true", dtype=bool, max_tokens=9)
    schema = '{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}'
    s += " JSON: " + sgl.gen("json", json_schema=schema, max_tokens=30)


def chat(s: Any) -> None:
    s += sgl.system("You are helpful.")
    s += sgl.user("Hi")
    s += sgl.assistant(sgl.gen("answer", max_tokens=8, stop="\n"))


def scored(s: Any) -> None:
    s += "The capital of France is"
    s += sgl.gen("city", max_tokens=1, temperature=0, return_logprob=True, logprob_start_len=0)


def run(program: Any, **arguments: Any) -> Any:
    state = sgl.function(program).run(**arguments)
    state.sync()
    assert state.error() is None
    return state


def test_gen_writes_and_returns_its_meta_info() -> None:
    state = run(capital, country="France")
    assert state["city"] == " Paris."
    assert state.text() == "The capital of France is Paris."
    assert state.get_meta_info("city")["completion_tokens"] == 2


def test_gen_streams() -> None:
    state = sgl.function(capital).run(country="Italy", stream=True)
    assert "".join(state.text_iter("city")) == " Rome."


@pytest.mark.parametrize("method", METHODS)
def test_select_finds_the_likeliest_by_every_method(method: str) -> None:
    state = run(choice, method=method)
    assert state["city"] == " Paris"
    found = state.get_meta_info("city")["input_token_logprobs"]
    assert ["".join(text for _, _, text in one) for one in found] == [
        *(" Rome", " Paris", " London", " Berlin Wall"),
    ]


def test_forks_run_side_by_side_and_come_together() -> None:
    parts = run(tips).text().removeprefix("Some tips. ").split("; ")
    assert len(parts) == 3
    assert all(parts)


def test_forks_are_appended_to_where_they_began() -> None:
    state = run(appended)
    text = state.text()
    assert text.startswith("Some tips. First: ")
    assert text.index("First: ") < text.index(" Second: ") < text.index(" So: ")
    assert state["end"] and text.endswith(state["end"])


def test_constraints_hold() -> None:
    state = run(record)
    assert len(state["number"]) == 3
    assert state["number"].isdigit()
    int(state["age"])
    assert state["is_true"] in ("True", "False")
    assert state["json"] in ('{"a":1}', '{"a":2}')


def test_roles_are_written() -> None:
    state = run(chat)
    assert [message["role"] for message in state.messages()] == ["system", "user", "assistant"]


def test_log_probabilities_are_reported() -> None:
    meta = run(scored).get_meta_info("city")
    assert meta["output_token_logprobs"][0][0] > -0.1
    assert meta["input_token_logprobs"][0][0] is None
    assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]


def test_a_batch_runs_in_threads() -> None:
    countries = ["France", "Italy", "Spain", "Japan"] * 4
    states = sgl.function(capital).run_batch(
        [{"country": country} for country in countries], num_threads=8, progress_bar=False
    )
    assert [state["city"] for state in states] == [" Paris.", " Rome.", " Madrid.", " Tokyo."] * 4


def test_the_cache_is_flushed_and_the_server_described(endpoint: Any, backend: Any) -> None:
    run(capital, country="France")
    endpoint.flush_cache()
    assert backend.clear_cache() == 0
    assert endpoint.get_server_info()["context_length"] == backend.info().context_len
    endpoint.cache_prefix("A prefix to be cached.")
    assert backend.clear_cache() > 0
