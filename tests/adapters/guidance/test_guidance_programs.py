"""Guidance's programs run unchanged: texts, captures, usage, streams, chats, threads and tools."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from forkroot.core.api.protocol import CallTooLarge, InvalidCall, InvalidModel, UnsupportedCall
from forkroot.core.local import LocalBackend

guidance = pytest.importorskip("guidance")

from guidance import assistant, gen, select, system, user  # noqa: E402
from guidance import json as gen_json  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["a", "b"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def lm(local: LocalBackend) -> Any:
    from forkroot.adapters.guidance import Forkroot

    return Forkroot(local, tokenizer="models/tiny", echo=False)


@guidance.guidance(stateless=True)
def bracketed(lm: Any) -> Any:
    return lm + select([guidance.regex("[0-9]"), "(" + bracketed() + "+" + bracketed() + ")"])


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


# --- texts and captures --------------------------------------------------------------------------


def test_what_the_model_knows_is_generated_until_the_stop(lm: Any) -> None:
    lm += "The capital of France is" + gen("city", max_tokens=8, stop=".")
    assert lm["city"] == " Paris"
    assert str(lm) == "The capital of France is Paris"


def test_a_select_takes_the_likely_option(lm: Any) -> None:
    lm += "The capital of Japan is" + select([" Paris", " Tokyo", " Rome"], name="city")
    assert lm["city"] == " Tokyo"


def test_an_option_that_begins_another_may_be_chosen(lm: Any) -> None:
    options = ["baad I think", "bad I think", "bad"]
    assert (lm + "Scott is quite " + select(options, name="word"))["word"] in options


def test_a_select_takes_thousands_of_options(lm: Any) -> None:
    lm += "Pick a number" + select(list(range(2002)), name="number")
    assert 0 <= int(lm["number"]) < 2002


def test_several_pieces_in_one_grammar_keep_their_places(lm: Any) -> None:
    lm += (
        "Name: "
        + gen("name", max_tokens=4, stop="\n")
        + "\nAge: "
        + gen("age", regex="[0-9]{2}")
        + " Kind: "
        + select(["x", "y"], name="kind")
    )
    assert re.fullmatch(r"Name: .*\nAge: [0-9]{2} Kind: [xy]", str(lm))
    assert str(lm) == f"Name: {lm['name']}\nAge: {lm['age']} Kind: {lm['kind']}"


def test_captures_within_a_select_are_those_of_the_way_taken(lm: Any) -> None:
    lm += "I " + select(["eat " + gen("food", regex="[a-z]{3}") + ".", "run"], name="all")
    assert ("food" in lm) is lm["all"].startswith("eat ")


def test_captures_are_appended_to_lists(lm: Any) -> None:
    for _ in range(3):
        lm += "- " + gen("items", list_append=True, stop="\n", max_tokens=5) + "\n"
    assert len(lm["items"]) == 3
    assert str(lm) == "".join(f"- {item}\n" for item in lm["items"])


def test_the_text_of_a_stop_is_saved_where_that_is_requested(lm: Any) -> None:
    lm += "1, 2, 3," + gen("rest", stop_regex="[4-9]", save_stop_text="stop", max_tokens=20)
    assert lm["stop"] == "" or lm["stop"] in "456789"


def test_a_limit_of_tokens_is_kept_to(lm: Any) -> None:
    lm += " 1 1 1 1 1" + gen(max_tokens=9) + gen(max_tokens=9)
    assert 18 <= lm._get_usage().output_tokens <= 20


@pytest.mark.parametrize("prompt", ["Hi there", "2 + 2 = ", "?FD32"])
@pytest.mark.parametrize(
    "pattern", ["(Scott is a person|Scott is a persimmon)", r"[0-9]\.{0,20}[0-9]+"]
)
def test_a_pattern_is_matched_whatever_comes_before(lm: Any, prompt: str, pattern: str) -> None:
    lm += prompt + gen("text", regex=pattern, max_tokens=40)
    assert re.fullmatch(pattern, lm["text"])


@pytest.mark.parametrize("temperature", [0.0, 1.0, 1.7])
def test_json_meets_its_schema_at_any_temperature(lm: Any, temperature: float) -> None:
    lm += "A record: " + gen_json("record", schema=SCHEMA, temperature=temperature)
    record = json.loads(lm["record"])
    assert list(record) == ["name", "age", "kind"]
    assert len(record["name"]) <= 8
    assert 0 <= record["age"] <= 99
    assert record["kind"] in ("a", "b")
    assert lm["record"] == json.dumps(record, ensure_ascii=False) or "\\" in lm["record"]


def test_open_and_nested_schemas_are_met(lm: Any) -> None:
    pair = {"type": "object", "properties": {"on": {"type": ["boolean", "null"]}}}
    schema = {"type": "array", "items": {"$ref": "#/$defs/pair"}, "$defs": {"pair": pair}}
    lm += "Pairs: " + gen_json("pairs", schema=schema, max_tokens=200)
    assert isinstance(json.loads(lm["pairs"]), list)


def test_recursive_grammars_run(lm: Any) -> None:
    lm += "1+2 = " + guidance.capture(bracketed(), "sum") + ";"
    assert re.fullmatch(r"[0-9()+]+", lm["sum"])
    assert lm["sum"].count("(") == lm["sum"].count(")")


def test_a_substring_is_one(lm: Any) -> None:
    text = "the quick brown fox"
    lm += "fox: " + guidance.substring(text, name="part")
    assert lm["part"] in text


def test_a_grammar_in_lark_runs_on_the_engine_itself(lm: Any) -> None:
    grammar = (
        '%llguidance {}\nstart: "I choose " one\none[capture="value"]: LETTER\nLETTER: "A" | "B"'
    )
    text, captures = lm.engine.chat_completion([{"role": "user", "content": "A or B?"}], grammar)
    assert captures["value"] in ("A", "B")
    assert text == f"I choose {captures['value']}"


# --- sampling ------------------------------------------------------------------------------------


def test_a_greedy_program_writes_the_same_text_again(lm: Any) -> None:
    program = "A poem:" + gen(max_tokens=20)
    assert str(lm + program) == str(lm + program)


def test_parameters_of_sampling_are_taken(lm: Any) -> None:
    one = (
        lm.with_sampling_params({"top_k": 1})
        + "The capital of France is"
        + gen("city", max_tokens=4, stop=".", temperature=1.5)
    )
    assert one["city"] == " Paris"


def test_parameters_that_are_not_allowed_are_refused_by_name(lm: Any) -> None:
    with pytest.raises(InvalidCall, match="top_k"):
        lm.with_sampling_params({"top_k": 0}) + "Hello" + gen(max_tokens=2)
    with pytest.raises(InvalidCall, match="top_z"):
        lm.with_sampling_params({"top_z": 1}) + "Hello" + gen(max_tokens=2)


def test_sampled_text_under_an_open_pattern_matches_it(lm: Any) -> None:
    for _ in range(5):
        one = lm + "x = " + gen("x", regex=r"[0-9]+(\.[0-9]+)?", temperature=1.5, max_tokens=20)
        assert re.fullmatch(r"[0-9]+(\.[0-9]+)?", one["x"])


# --- states --------------------------------------------------------------------------------------


def test_a_copy_goes_its_own_way(lm: Any) -> None:
    root = lm + "The capital of"
    france = root + " France is" + gen("city", max_tokens=4, stop=".")
    japan = root + " Japan is" + gen("city", max_tokens=4, stop=".")
    assert (france["city"], japan["city"]) == (" Paris", " Tokyo")
    assert "city" not in root


def test_copies_share_the_root_in_threads(lm: Any) -> None:
    lines = "".join(f"Line {number} says {number * 7}.\n" for number in range(60))
    root = lm + f"A text for copies.\n{lines}"
    program = ["Who?", "What?", "When?", "Where?", "Why?", "How?", "Which?", "Whose?"]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda ask: root + ask + gen("a", max_tokens=6), program))
    used = [one.used for one in done]
    shared = sum(one.prompt_tokens for one in used) - used[0].prompt_tokens
    assert sum(one.cached_tokens for one in used) >= 0.95 * shared
    assert [str(one) for one in done] == [str(root + ask + gen(max_tokens=6)) for ask in program]


def test_roles_are_the_templates_own(lm: Any) -> None:
    with system():
        lm += "You are a helpful assistant."
    with user():
        lm += "What is the capital of France?"
    with assistant():
        lm += gen("answer", max_tokens=20)
    assert "Paris" in lm["answer"]
    assert str(lm + "").startswith("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")


def test_a_stream_gives_states_that_grow(lm: Any) -> None:
    texts = [str(part) for part in lm.stream() + "Count:" + gen(max_tokens=12)]
    assert len(texts) > 4
    assert all(after.startswith(before) for before, after in pairwise(texts))


def test_an_error_in_a_stream_reaches_the_reader(lm: Any) -> None:
    @guidance.guidance
    def fail(lm: Any) -> Any:
        raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        list(lm.stream() + fail())


def test_a_prompt_means_the_same_whether_it_came_before_or_with_the_grammar(lm: Any) -> None:
    grammar = gen("number", regex="[0-9]")
    assert str(lm + "pi = " + grammar) == str(lm + ("pi = " + grammar))


def test_usage_counts_what_was_cached(lm: Any) -> None:
    text = "A sentence that no other test has written, of some length. " * 4
    lm + text + gen(max_tokens=2)
    second = lm + text + gen(max_tokens=2)
    assert second.used.cached_tokens >= 0.9 * second.used.prompt_tokens
    assert second._get_usage().cached_input_tokens >= second.used.cached_tokens


def test_texts_that_are_forced_are_not_sampled(lm: Any) -> None:
    lm += "My record: " + gen_json("record", schema=SCHEMA)
    usage = lm._get_usage()
    assert usage.ff_tokens > 0
    assert usage.round_trips < usage.output_tokens


def test_the_loops_own_steps_can_be_taken_part_in(lm: Any) -> None:
    seen: list[str] = []

    def watch(context: Any) -> dict[str, str]:
        seen.append(context["last_step_text"])
        return {}

    lm.with_step_config({"step_every_k": 2, "callback": watch}) + "Go:" + gen(max_tokens=6)
    assert len(seen) >= 2


# --- tools ---------------------------------------------------------------------------------------


def test_a_tool_is_called_and_its_answer_written_down(lm: Any) -> None:
    lm += "Add two numbers. " + gen(tools=[add], tool_choice="required")
    found = re.search(r'"arguments": (\{.*?\})\}</tool_call>\n<tool_result=add>(.*)</', str(lm))
    assert found is not None
    assert int(found[2]) == add(**json.loads(found[1]))


def test_a_tool_with_a_pattern_gets_the_text(lm: Any) -> None:
    tool = guidance.Tool.from_regex("[0-9]{2}", lambda text: f"got {text}", name="take")
    lm += "x" + gen(tools=[tool], tool_choice="required")
    assert re.search(r"<tool=take>([0-9]{2})</tool>\n<tool_result=take>got \1</", str(lm))


def test_a_model_may_write_text_instead(lm: Any) -> None:
    lm += "Say: " + gen(tools=[add], regex="[a-z]{3}")
    assert re.fullmatch(r"Say: ([a-z]{3}|<tool_call>.*)", str(lm), re.DOTALL)


def weather(city: str, why: str) -> str:
    """The weather."""
    return f"{len(city)} {len(why)}"


@pytest.mark.parametrize("room", [None, 200])
def test_a_call_that_would_never_end_is_ended_and_answered(lm: Any, room: int | None) -> None:
    if room is None:
        lm += "What is the weather in Paris?"
    else:
        lm += " hello" * (lm.engine.connection.backend.info().context_len - room)
    lm += gen(tools=[weather, add], tool_choice="required")
    found = re.search(r'"arguments": (\{.*\})\}</tool_call>\n<tool_result=(.*?)>(.*)</', str(lm))
    assert found is not None
    arguments, tool = json.loads(found[1]), {"weather": weather, "add": add}[found[2]]
    assert found[3] == str(tool(**arguments))


def test_a_model_that_may_choose_gets_the_results_of_its_calls(lm: Any) -> None:
    written = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>\n'
    lm += written * 4 + gen(tools=[weather, add], regex="ψ{3}")
    assert re.search(r"</tool_call>\n<tool_result=(add>-?[0-9]+|weather>[0-9]+ [0-9]+)</", str(lm))


def test_a_call_that_does_not_end_within_the_context_is_refused(lm: Any) -> None:
    context_len = lm.engine.connection.backend.info().context_len
    long_prompt = lm + " hello" * (context_len - 50)
    with pytest.raises(CallTooLarge, match=r"call of weather.*end within \d+ tokens"):
        long_prompt + gen(tools=[weather], tool_choice="required")
    with pytest.raises(CallTooLarge, match="before a tool call"):
        long_prompt + " hello" * 30 + gen(tools=[weather], tool_choice="required")


def test_a_tool_whose_grammar_is_cut_off_is_not_called(lm: Any) -> None:
    tool = guidance.Tool.from_regex("[0-9]*", lambda text: text, name="take")
    long_prompt = lm + " hello" * (lm.engine.connection.backend.info().context_len - 60)
    with pytest.raises(CallTooLarge, match="call of take"):
        long_prompt + gen(tools=[tool], tool_choice="required")


def test_an_answer_that_fills_the_context_says_so(lm: Any) -> None:
    long_prompt = lm + " hello" * (lm.engine.connection.backend.info().context_len - 40)
    with pytest.raises(CallTooLarge, match="an answer that ends within the context"):
        long_prompt + gen(regex="[a-z ]*X")


# --- what is refused -----------------------------------------------------------------------------


def test_images_are_refused(lm: Any) -> None:
    with pytest.raises(UnsupportedCall, match="image"):
        lm + guidance._ast.ImageBlob(data=b"aGVsbG8=")


def test_a_model_without_a_tokenizer_at_hand_is_refused(local: LocalBackend) -> None:
    from forkroot.adapters.guidance.tokens import tokenizer_folder

    with pytest.raises(InvalidModel, match="tokenizer=folder"):
        tokenizer_folder(local, "somebody's model")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("temperature", r"^invalid temperature=3: .* gen\(\.\.\., temperature=\.\.\.\)$"),
        ("max_tokens", r"^invalid max_tokens=3: .* gen\(\.\.\., max_tokens=\.\.\.\)$"),
        ("top_p", r"sampling_params=\{'top_p': \.\.\.\}$"),
        ("temprature", r"; temperature is given in a program: gen\(\.\.\., temperature=\.\.\.\)$"),
        ("num_slot", r"did you mean num_slots\?"),
        ("tokeniser", r"did you mean tokenizer\?"),
        ("base_url", "pass the URL of a server as the model$"),
        ("zzz", "one of the settings dtype, "),
        ("tokenizer", "the folder of a checkpoint's tokenizer, or None$"),
        ("sampling_params", "a mapping, or None$"),
        ("settings", "a mapping of the runtime's settings, or None$"),
    ],
)
def test_what_is_not_a_setting_is_refused_with_where_it_goes(name: str, expected: str) -> None:
    from forkroot.adapters.guidance import Forkroot

    with pytest.raises(InvalidCall, match=expected) as caught:
        Forkroot("tiny", **{name: 3})
    assert (caught.value.field, caught.value.value) == (name, 3)


def test_settings_of_the_runtime_are_keywords_or_a_mapping() -> None:
    from forkroot.adapters.guidance import Forkroot

    with pytest.raises(InvalidCall, match="invalid num_slots=0"):
        Forkroot("tiny", settings={"num_slots": 0})
    with pytest.raises(InvalidCall, match="did you mean num_slots"):
        Forkroot("tiny", settings={"num_slot": 9})
    with pytest.raises(InvalidCall, match="one value: in settings, or as a keyword"):
        Forkroot("tiny", settings={"num_slots": 4096}, num_slots=4096)
    lm = Forkroot("tiny", settings={"num_slots": 4096})
    assert (lm + "The capital of France is" + gen("city", max_tokens=1))["city"] == " Paris"


def test_a_model_may_be_named_as_guidances_own_have_it(local: LocalBackend) -> None:
    from forkroot.adapters.guidance import Forkroot

    lm = Forkroot(model=local, tokenizer="models/tiny")
    assert (lm + "The capital of France is" + gen("city", max_tokens=1))["city"] == " Paris"


def test_guidance_is_not_loaded_before_it_is_requested() -> None:
    code = (
        "import sys, forkroot.adapters.guidance as a\n"
        "assert 'guidance' not in sys.modules\n"
        "sys.modules['guidance'] = None\n"
        "try: a.Forkroot\n"
        "except ModuleNotFoundError as error: assert '.[guidance]' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
