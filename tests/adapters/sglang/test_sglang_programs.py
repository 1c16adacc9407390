"""Programs as SGLang's own benchmarks and examples write them, on the embedded model: each has the
constructs of one of them, with a text of ours."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from math import exp
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import forkroot.sglang as sgl
from forkroot.core.api.keywords import UnknownKeyword
from forkroot.core.api.protocol import CallFailed, InvalidCall, Text, UnsupportedCall
from forkroot.core.local import LocalBackend

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def default(local: LocalBackend) -> Iterator[None]:
    sgl.set_default_backend(local)
    yield
    sgl.set_default_backend(None)


@sgl.function
def few_shot(s: Any, question: str) -> None:
    s += "Q: What is the capital of France?\nA: Paris\n"
    s += "Q: " + question + "\nA:" + sgl.gen("answer", stop="\n")


@sgl.function
def expand(s: Any, topic: str, tip: str) -> None:
    s += ("Topic: " + topic + "\nTip: " + tip + "\nParagraph:")  # fmt: skip
    s += sgl.gen("paragraph", max_tokens=8, stop=["\n\n"], temperature=0)


@sgl.function
def tips(s: Any, topic: str) -> None:
    parts = []
    for number in range(1, 3):
        s += f"{number}." + sgl.gen(f"tip_{number}", max_tokens=4, stop=[".", "\n"]) + ".\n"
        parts.append(expand(topic=topic, tip=s[f"tip_{number}"]))
    for number in range(1, 3):
        s += f"Tip {number}:" + parts[number - 1]["paragraph"] + "\n"


@sgl.function
def multi_turn(s: Any, first: str, second: str) -> None:
    s += sgl.system()
    s += sgl.user(first)
    s += sgl.assistant(sgl.gen("answer_1"))
    with s.user():
        s += second
    with s.assistant():
        s += sgl.gen("answer_2")


@sgl.function
def documents(s: Any, docs: list[str], question: str) -> None:
    s += sgl.user_begin()
    s += "Question:" + question + "Documents begin.\n"
    forks = s.fork(len(docs), [index * 1000 for index in range(len(docs))])
    forks += lambda i: docs[i]
    forks.join("concate_and_append")
    s += "\nDocuments end." + question
    s += sgl.user_end()
    s += sgl.assistant(sgl.gen("answer", max_tokens=8))


def branch(s: Any, message: str, name: str, number: int) -> Any:
    s += sgl.user(message)
    forks = s.fork(number)
    forks += sgl.assistant(sgl.gen(name, max_tokens=6, temperature=0.3))
    return forks


@sgl.function
def tree(s: Any, question: str, number: int) -> list[list[str]]:
    joined = [branch(s, question, "plan", number)]
    solved: list[Any] = []
    for plan in joined[0]:
        joined.append(branch(plan, "Solve it.", "answer", number))
        solved.extend(joined[-1])
    scored = [branch(one, "Score it.", "score", number) for one in solved]
    texts = [[state.text() for state in forks] for forks in scored]
    for forks in reversed([*joined, *scored]):
        forks.join()
    return texts


@sgl.function
def react(s: Any, question: str, steps: list[dict[str, str]]) -> None:
    s += "Question: " + question + "\n"
    for number in range(1, len(steps) + 2):
        s += f"Thought {number}:"
        one = s.fork(1)
        one[0] += sgl.gen(name="thought", max_tokens=8, stop="Observation")
        one.join()
        if number > len(steps):
            break
        s += steps[number - 1]["thought"] + "\n"


@sgl.function
def paths(s: Any, question: str, number: int) -> list[str]:
    s += sgl.user("Question: " + question) + sgl.assistant_begin()
    first = s.fork(1)[0]
    forks, spans = s.fork(number), s.fork(number)
    arguments = {"return_logprob": True, "return_text_in_logprobs": True}
    first += sgl.gen("first", max_tokens=0, top_logprobs_num=number, **arguments)
    starts = first.get_meta_info("first")["output_top_logprobs"][0]
    found = []
    for index, (fork, (logprob, _, text)) in enumerate(zip(forks, starts, strict=True)):
        assert exp(logprob) <= 1
        fork += text
        fork += sgl.gen("answer", temperature=0, max_tokens=4, top_logprobs_num=2, **arguments)
        margins = [best[0] - next_[0] for best, next_ in fork.get_meta_info("answer")[
            "output_top_logprobs"]]  # fmt: skip
        assert min(margins) >= 0
        spans[index] += text + fork["answer"] + "\nSo:" + sgl.gen("span", max_tokens=3)
        found.append(str(spans[index])[len("ProgramState(") : -1])
    return found


@sgl.function
def record(s: Any, name: str) -> None:
    s += "The city " + name + " as JSON:\n"
    with s.var_scope("json"):
        s += '{\n  "name": ' + sgl.gen_string("name", max_tokens=8) + ",\n"
        s += '  "people": ' + sgl.gen_int(max_tokens=6) + ",\n"
        s += '  "size": ' + sgl.gen(regex=r"[0-9]{1,3}\.[0-9]", max_tokens=6) + ",\n"
        s += '  "old": ' + sgl.gen("old", choices=["true", "false"]) + "\n}"


def test_few_shot_programs_run_in_batches_with_max_new_tokens() -> None:
    items = [{"question": f"What is the capital of {it}?"} for it in ("Japan", "Norway")]
    states = few_shot.run_batch(
        items, temperature=0, max_new_tokens=1, num_threads=8, progress_bar=False
    )
    assert [state.get_meta_info("answer")["completion_tokens"] for state in states] == [1, 1]
    finished = states[0].get_meta_info("answer")["finish_reason"]
    assert finished == {"type": "length", "length": 1}


def test_a_program_calls_another_one_without_a_state() -> None:
    states = tips.run_batch([{"topic": "tea"}, {"topic": "walks"}], temperature=0, num_threads=2)
    for state in states:
        assert state["tip_1"] in state.text()
        assert state.text().count("Tip ") == 2


def test_chats_of_two_turns_have_their_messages() -> None:
    state = multi_turn.run(
        first="What is the capital of Italy?", second="And?", temperature=0, max_new_tokens=8
    )
    roles = [message["role"] for message in state.messages()]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert state.messages()[2]["content"] == state["answer_1"]


def test_documents_are_appended_inside_one_message() -> None:
    state = documents.run(docs=["Oslo. ", "Rome. "], question="Where? ", temperature=0)
    assert state.messages()[0]["content"].count("Oslo. Rome. ") == 1
    assert state.get_meta_info("answer")["cached_tokens"] > 0


def test_a_tree_of_thought_joins_its_branches_from_the_leaves() -> None:
    state = tree.run(question="What is 1 + 1?", number=2, temperature=0)
    assert [len(texts) for texts in state.ret_value] == [2, 2, 2, 2]
    assert len(state["plan"]) == 2
    assert [len(answers) for answers in state["answer"]] == [2, 2]
    assert isinstance(state["score"][0][0][0], str)


def test_a_trace_is_replayed_with_a_fork_of_one() -> None:
    state = react.run(question="Who?", steps=[{"thought": "I look."}] * 2, temperature=0)
    assert state.text().count("Thought ") == 3
    assert len(state["thought"]) == 1


def test_paths_begin_with_the_tokens_that_a_peek_found() -> None:
    state = paths.run("What is the capital of Spain?", number=3, temperature=0)
    assert len(state.ret_value) == 3
    assert "Madrid" in state.ret_value[0]


def test_json_is_written_field_by_field() -> None:
    for state in record.run_batch([{"name": "Oslo"}, {"name": "Rome"}], temperature=0):
        found = json.loads(state["json"])
        assert isinstance(found["people"], int)
        assert re.fullmatch(r'"[^"]*"', state["name"])
        assert state["old"] in ("true", "false")


def test_streams_are_read_by_the_name_of_a_variable() -> None:
    arguments = {"question": "What is the capital of Japan?", "temperature": 0, "stream": True}
    state = few_shot(**arguments)
    assert "".join(state.text_iter(var_name="answer")) == state["answer"]
    state = few_shot(**arguments)
    assert "".join(state.text_iter()) == state.text()

    async def read() -> str:
        state = few_shot.run(**arguments)
        return "".join([piece async for piece in state.text_async_iter(var_name="answer")])

    assert asyncio.run(read()) == state["answer"]


def test_streams_have_the_log_probabilities_of_each_piece() -> None:
    async def read() -> tuple[list[Any], int]:
        state = few_shot.run(
            *("What is the capital of Japan?",),
            **{"stream": True, "temperature": 0, "return_logprob": True, "max_new_tokens": 6},
        )
        found = [it async for it in state.text_async_iter("answer", return_meta_data=True)]
        return found, state.get_meta_info("answer")["completion_tokens"]

    pieces, num_tokens = asyncio.run(read())
    assert pieces
    before = 0
    for text, meta in pieces:
        assert text
        assert meta["completion_tokens"] == meta["output_token_logprobs_length"]
        assert len(meta["output_token_logprobs"]) == meta["completion_tokens"] - before
        before = meta["completion_tokens"]
    assert before <= num_tokens


def test_an_endpoint_is_a_backend_with_sglangs_methods(server: str, local: LocalBackend) -> None:
    with sgl.RuntimeEndpoint(server) as endpoint:
        state = few_shot.run(
            *("What is the capital of Japan?",),
            **{"backend": endpoint, "temperature": 0, "max_new_tokens": 3, "return_logprob": True},
        )
        entries = state.get_meta_info("answer")["output_token_logprobs"]
        assert "".join(text for _, _, text in entries).startswith(state["answer"])
        assert endpoint.model_info == {"model_path": "tiny"}
        assert endpoint.get_model_name() == endpoint.endpoint.get_model_name() == "tiny"
        assert sgl.get_server_info(endpoint)["context_length"] == local.info().context_len
        assert sgl.flush_cache(endpoint) is True
        assert local.clear_cache() == 0
        endpoint.cache_prefix("A prefix of some words.")
        assert local.clear_cache() > 0
        with pytest.raises(UnsupportedCall, match="counters"):
            endpoint.start_profile()


def test_an_endpoint_of_sglangs_own_package_is_taken_by_its_url(server: str) -> None:
    theirs = SimpleNamespace(base_url=server, api_key=None)
    arguments = {"question": "What is the capital of Japan?", "temperature": 0, "max_new_tokens": 2}
    for backend in (theirs, SimpleNamespace(endpoint=theirs), server):
        assert few_shot.run(backend=backend, **arguments)["answer"]


def test_an_endpoint_refuses_what_the_server_decides(server: str) -> None:
    with pytest.raises(UnsupportedCall, match="chat_template_name"):
        sgl.RuntimeEndpoint(server, chat_template_name="llama-2-chat")
    with pytest.raises(UnsupportedCall, match="verify"):
        sgl.RuntimeEndpoint(server, verify="cert.pem")
    with sgl.RuntimeEndpoint(server) as endpoint:
        endpoint.base_url += "/nowhere"
        with pytest.raises(CallFailed, match="flush_cache"):
            endpoint.flush_cache()


def test_a_runtime_is_a_model_in_this_process() -> None:
    runtime = sgl.Runtime(model_path="tiny", max_total_tokens=4096, log_level="error")
    try:
        sgl.set_default_backend(runtime)
        assert few_shot("What is the capital of Japan?", temperature=0, max_new_tokens=3)["answer"]
        assert sgl.flush_cache() is True
        info = sgl.get_server_info()
        assert info is not None
        assert info["model_path"] == "tiny"
        ids = runtime.get_tokenizer().encode("Paris")
        assert runtime.get_tokenizer().decode(ids) == "Paris"
        with pytest.raises(UnsupportedCall, match="forkroot serve"):
            print(runtime.url)
    finally:
        runtime.shutdown()


@pytest.mark.parametrize("setting", [{"mem_fraction_static": 0.5}, {"disable_radix_cache": 3}])
def test_a_runtime_refuses_settings_that_it_does_not_have(setting: dict[str, Any]) -> None:
    with pytest.raises(InvalidCall, match=next(iter(setting))):
        sgl.Runtime(model_path="tiny", **setting)


@pytest.mark.parametrize(
    ("name", "suggested"),
    [
        ("tp", "ranks"),
        ("tensor_parallel_size", "ranks"),
        ("tp_sizes", "tp_size"),
        ("rank", "ranks"),
        ("mem_fraction_static", "num_slots"),
        ("attention_backend", "attention"),
        ("max_model_len", "context_len"),
        ("contextlength", "context_length"),
        ("disable_radixcache", "disable_radix_cache"),
    ],
)
def test_an_unknown_setting_of_a_runtime_gets_the_closest_known_one(
    name: str, suggested: str
) -> None:
    with pytest.raises(UnknownKeyword, match=rf"; did you mean {suggested}\?$"):
        sgl.Runtime("tiny", **{name: 2})


def test_a_setting_of_a_runtime_that_is_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(UnknownKeyword, match=r"invalid lora_paths=2: expected .*, tp_size$"):
        sgl.Runtime("tiny", lora_paths=2)


def test_an_engine_answers_prompts_without_programs() -> None:
    with sgl.Engine(model_path="tiny", max_total_tokens=4096) as engine:
        arguments = {"max_new_tokens": 3, "temperature": 0, "stop": None}
        prompt = "The capital of Spain is"
        one = engine.generate(
            prompt, arguments, return_logprob=True, logprob_start_len=0, top_logprobs_num=1
        )
        meta = one["meta_info"]
        assert one["text"].startswith(" Madrid")
        assert meta["completion_tokens"] == len(one["output_ids"]) == 3
        assert len(meta["input_token_logprobs"]) == meta["prompt_tokens"]
        assert json.loads(json.dumps(meta)) == json.loads(json.dumps(meta))
        many = engine.generate([prompt, "The capital of France is"], arguments)
        assert [it["text"].split()[0].strip(".") for it in many] == ["Madrid", "Paris"]
        ids = engine.get_tokenizer().encode_prompt((Text(prompt),))
        assert engine.generate(input_ids=ids, sampling_params=arguments)["text"] == one["text"]
        parts = list(engine.generate(prompt, arguments, stream=True))
        assert parts[-1]["text"] == one["text"]
        assert all(one["text"].startswith(part["text"]) for part in parts)
        regex = engine.generate(prompt, {"regex": "[ab]{3}", "n": 2})
        assert all(re.fullmatch("[ab]{3}", text) for text in regex["text"])
        assert asyncio.run(engine.async_generate(prompt, arguments))["text"] == one["text"]
        with pytest.raises(InvalidCall, match=r"sampling_params\.best_of"):
            engine.generate(prompt, {"best_of": 2})
        with pytest.raises(InvalidCall, match="either a prompt or input_ids"):
            engine.generate()
        with pytest.raises(UnsupportedCall, match="embeddings"):
            engine.encode(prompt)


@pytest.mark.slow
def test_the_script_runs_a_folder_of_programs(tmp_path: Path) -> None:
    script = Path(sgl.__file__).parents[2] / "benchmarks" / "frameworks" / "sglang_programs.py"
    folder = tmp_path / "benchmark" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "bench_sglang.py").write_text(
        "import argparse\n"
        "import sglang as sgl\n"
        "from sglang.test.test_utils import add_common_sglang_args_and_parse as common\n"
        "from sglang.test.test_utils import select_sglang_backend\n"
        "from sglang.utils import read_jsonl\n"
        "@sgl.function\n"
        "def ask(s, question):\n"
        "    s += question + sgl.gen('answer', max_tokens=2)\n"
        "if __name__ == '__main__':\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--num-shots')\n"
        "    parser.add_argument('--num-questions')\n"
        "    args = common(parser)\n"
        "    items = [{'question': it['question']} for it in read_jsonl('test.jsonl')]\n"
        "    sgl.set_default_backend(select_sglang_backend(args))\n"
        "    states = ask.run_batch(items, max_new_tokens=2, num_threads=args.parallel)\n"
        "    assert len([state['answer'] for state in states]) == 3\n"
    )
    (tmp_path / "broken.py").write_text(
        "import sglang as sgl\n"
        "@sgl.function\n"
        "def ask(s):\n"
        "    s += sgl.gen('x', stop_regex='a')\n"
        "if __name__ == '__main__':\n"
        "    sgl.set_default_backend(sgl.OpenAI('any'))\n"
        "    ask.run()\n"
    )
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    ran, broken, row = done.stdout.splitlines()
    assert broken.startswith("broken.py ") and "stop_regex" in broken
    assert ran.split() == ["benchmark/gsm8k/bench_sglang.py", "ran"]
    assert json.loads(row)["figures"]["ran"] == 1
