"""The small world that the embedded model learned: seeded, split cleanly, right in its answers, and
small.
"""

import itertools
import json
import random
import re
from pathlib import Path

import pytest

from forkroot.examples.essay_judge import DIMENSIONS
from forkroot.models.training.tasks import (
    calls,
    chat,
    common,
    extraction,
    general,
    react,
    records,
    usual,
)
from forkroot.models.training.tasks.world import MIX, documents
from forkroot.models.training.world import invented, knowledge, people, prose, turns
from forkroot.models.training.world.document import BOS, END_TURN, LETTERS, Document, Pen
from forkroot.models.training.world.essays import save_essays, write_essay
from forkroot.models.training.world.facts import (
    CAPITALS,
    CONSONANTS,
    ENDS,
    HEADS,
    TAILS,
    VOWELS,
    Words,
    is_held_out,
)

ROOT = Path(__file__).parents[1]
MADE_UP = re.compile(rf"\b[{CONSONANTS}][{VOWELS}][{ENDS}][{CONSONANTS.lower()}][{VOWELS}][{ENDS}]")


def sample(count: int, held_out: bool, seed: int = 0, task=None) -> list[Document]:
    mix = {task: 1.0} if task else None
    return list(itertools.islice(documents(seed, held_out, mix), count))


def made_up_words(*texts: str) -> set[str]:
    found = {word for text in texts for word in MADE_UP.findall(text)}
    return {word for word in found if word[:3] in HEADS and word[3:] in TAILS}


def pen(seed: int, held_out: bool = False) -> Pen:
    rng = random.Random(seed)
    return Pen(rng, Words(rng, held_out))


def test_the_same_seed_writes_the_same_text():
    first, again, other = (sample(50, False, seed) for seed in (1, 1, 2))
    assert [doc.text for doc in first] == [doc.text for doc in again]
    assert [doc.text for doc in first] != [doc.text for doc in other]


def test_made_up_words_of_training_and_of_exams_are_disjoint():
    training = made_up_words(*(doc.text for doc in sample(2000, False)))
    exams = made_up_words(*(doc.text for doc in sample(1000, True)))
    assert len(training) > 1000 and len(exams) > 300
    assert not any(is_held_out(word) for word in training)
    assert all(is_held_out(word) for word in exams)


def test_words_in_other_scripts_keep_to_their_side_of_the_split():
    for held_out in (False, True):
        words = [pen(seed, held_out).words.foreign() for seed in range(200)]
        assert all(is_held_out(word) == held_out and not word.isascii() for word in words)


@pytest.mark.parametrize(
    "task", [knowledge.capitals, knowledge.facts, knowledge.arithmetic, knowledge.tips]
)
def test_held_out_prompts_of_closed_tasks_are_never_trained_on(task):
    asked = {doc.exams[-1][0] for doc in sample(300, True, task=task)}
    trained = {doc.exams[-1][0] for doc in sample(3000, False, task=task)}
    assert asked and not asked & trained


@pytest.mark.parametrize("task", MIX, ids=lambda task: task.__name__)
def test_every_task_asks_for_something_in_documents_of_its_name(task):
    for doc in sample(20, False, task=task):
        assert doc.task == task.__name__
        assert any(kind.is_asked for _, kind in doc.parts)


def test_json_records_hold_what_the_passage_tells():
    for doc in sample(100, True, task=people.reading_json):
        prompt, answer = doc.exams[-1]
        passage = prompt.split("\n\n")[-1]
        for value in json.loads(answer).values():
            assert str(value) in passage


def test_the_chosen_letter_is_the_option_that_the_passage_states():
    for doc in sample(100, True, task=people.choice_reading):
        prompt, letter = doc.exams[-1]
        passage, options = prompt.split("\n\n")[-1].split("?\nA. ")
        option = dict(zip(LETTERS, re.split(r"\n[BCD]\. |\nAnswer:", options), strict=False))[
            letter.strip()
        ]
        assert option in passage


def test_sums_are_right():
    for doc in sample(200, False, task=knowledge.arithmetic):
        prompt, value = doc.exams[-1]
        problem = re.findall(r"\d+ [-+*] \d+", prompt)[-1]
        assert eval(problem) == int(value)


def test_word_problems_end_with_the_value_of_their_steps():
    for doc in sample(50, False, task=knowledge.word_problem):
        steps = re.findall(r"(\d+) ([-+]) (\d+) = (\d+)", doc.exams[-1][1])
        assert all(eval("".join(step[:3])) == int(step[3]) for step in steps)
        assert doc.exams[-1][1].endswith(f"The answer is {steps[-1][3]}.")


def test_capitals_are_right():
    for doc in sample(100, False, task=knowledge.capitals):
        prompt, answer = doc.exams[-1]
        country = max(CAPITALS, key=prompt.rfind)
        assert CAPITALS[country] in answer


def test_react_finishes_with_something_observed_or_unknown():
    for doc in sample(100, True, task=react.react):
        prompt, step = doc.exams[-1]
        finish = re.search(r"Finish\[(.+)\]$", step)
        assert finish and (finish[1] == "unknown" or finish[1] in prompt)


def test_tool_calls_copy_their_argument_from_the_request():
    for doc in sample(100, True, task=chat.tools):
        calls = re.findall(
            r"user\n(.*?)<\|im_end\|>\n<\|im_start\|>assistant\n<tool_call>(.*?)</tool_call>",
            doc.text,
        )
        assert calls
        for request, call in calls:
            assert all(str(value) in request for value in json.loads(call)["arguments"].values())


def called(doc: Document) -> list[tuple[str, dict]]:
    """The request and the call of each turn in which a function is called."""
    turn = r"user\n([^|]*)<\|im_end\|>\n<\|im_start\|>assistant\n<tool_call>(.*?)</tool_call>"
    return [(request, json.loads(call)) for request, call in re.findall(turn, doc.text)]


def offered(doc: Document) -> dict[str, dict]:
    """The schemas of the functions that are offered, by name."""
    lines = [json.loads(line) for line in doc.text.splitlines() if line.startswith('{"name": ')]
    return {tool["name"]: tool["parameters"] for tool in lines}


@pytest.mark.parametrize(
    "task", [calls.function_calls, records.record_calls, usual.usual_calls, usual.prose_calls]
)
def test_calls_of_functions_copy_their_arguments_from_the_request_and_fit_the_schema(task):
    kinds = {"integer": int, "number": int | float, "string": str}
    for doc in sample(200, True, task=task):
        assert called(doc)
        for request, call in called(doc):
            schema = offered(doc)[call["name"]]
            assert list(call["arguments"]) == list(schema["properties"])
            assert sorted(call["arguments"]) == sorted(schema["required"])
            for key, value in call["arguments"].items():
                assert str(value) in request
                assert isinstance(value, kinds[schema["properties"][key]["type"]])


def test_names_and_numbers_of_calls_keep_to_their_side_of_the_split():
    for held_out in (False, True):
        for doc in sample(300, held_out, task=calls.function_calls):
            for _, call in called(doc):
                words = re.findall(r": (-?[\d.]+)", json.dumps(call["arguments"]))
                assert all(is_held_out(text) == held_out for text in (call["name"], *words))


def test_the_functions_of_langchains_own_tests_are_in_no_text():
    for doc in sample(2000, False, task=calls.function_calls) + sample(500, False):
        assert "magic" not in doc.text and "unicode" not in doc.text


def messages(doc: Document) -> list[str]:
    """What users say in a document, in ChatML or in the frame of a plain prompt."""
    frames = "|".join(re.escape(ask.partition("{")[0]) for ask, _ in general.FRAMES)
    found = re.findall(r"<\|im_start\|>user\n([^|]*)<\|im_end\|>", doc.text)
    return found + re.findall(rf"^(?:{frames})(.*)$", doc.text, re.MULTILINE)


def test_there_are_hundreds_of_wordings_and_each_belongs_to_one_topic():
    said = [turns.spoken(it) for topic in turns.TOPICS for it in topic.wordings]
    of = {turns.spoken(it): topic.reply for topic in turns.TOPICS for it in topic.wordings}
    assert len(turns.TOPICS) >= 70 and len(set(said)) >= 600
    for topic in turns.TOPICS:
        assert {of[turns.spoken(it)] for it in topic.wordings} == {topic.reply}
        assert len(topic.side(False)) >= 3 and "|" not in topic.reply and topic.reply.strip()


@pytest.mark.parametrize(
    "task", [general.general_chat, general.general_tools, general.general_dspy, chat.chat]
)
def test_held_out_wordings_of_topics_are_never_trained_on(task):
    asked = {turns.spoken(it) for doc in sample(800, False, task=task) for it in messages(doc)}
    assert len(asked) > 20 or task is general.general_dspy
    assert not asked & turns.HELD_OUT


def test_exams_of_general_chat_ask_only_held_out_wordings():
    for doc in sample(100, True, task=general.general_talk):
        assert next(turns.spoken(it) for it in messages(doc)) in turns.HELD_OUT


def test_common_knowledge_is_asked_on_one_side_of_the_split_only():
    for held_out in (False, True):
        for doc in sample(200, held_out, task=general.general_question):
            assert all(is_held_out(turns.spoken(it)) == held_out for it in messages(doc))


def test_general_chat_without_tools_never_calls_one():
    for doc in sample(400, False, task=general.general_chat) + sample(200, False, task=chat.chat):
        assert "<tool_call>" not in doc.text


def test_a_call_is_made_only_where_its_function_is_offered():
    for task in (chat.tools, general.general_tools):
        for doc in sample(200, False, task=task):
            assert {call["name"] for _, call in called(doc)} <= set(offered(doc))


def test_lists_have_as_many_items_as_were_asked_for():
    for seed in range(100):
        said, listed = common.listing(pen(seed))
        counts = [n for n, word in common.COUNTS.items() if f" {word} " in said or f" {n} " in said]
        assert counts == [len(re.split(r", |\n", listed))]


def test_values_of_free_form_records_stand_in_their_sentences():
    for held_out in (False, True):
        for seed in range(100):
            passage, fields = prose.prose(pen(seed, held_out), held_out)
            assert fields and all(value in passage for value in fields.values())


def test_free_form_sentences_of_exams_are_never_trained_on():
    trained, exams = (
        {it for kind in prose.KINDS for it in prose.sentences(kind, held_out)}
        for held_out in (False, True)
    )
    assert len(trained) > 70 and len(exams) >= 10 and not trained & exams
    fields = {field for kind in prose.KINDS for it in kind for field in prose.fields_of(it)}
    assert fields <= prose.FIELDS.keys()


def test_json_of_free_form_records_has_the_fields_that_were_asked_for():
    for doc in sample(200, True, task=extraction.prose_json):
        prompt, answer = doc.exams[-1]
        passage = prompt.split("\n\n")[-1]
        found = json.loads(answer)
        assert found and all(key in passage and str(it) in passage for key, it in found.items())


def test_invented_names_keep_to_their_side_of_the_split():
    for held_out in (False, True):
        pens = [pen(seed, held_out) for seed in range(200)]
        names = [draw(it) for it in pens for draw in (invented.invented, invented.surname)]
        assert len(set(names)) > 300
        assert all(is_held_out(name) == held_out for name in names)
        assert not made_up_words(*names)


def test_assistant_turns_end_with_the_end_of_turn():
    for doc in sample(100, False, task=chat.chat):
        assert all(text.endswith(END_TURN) for text, kind in doc.parts if kind.is_asked)


def test_an_essays_marks_are_visible_in_its_text():
    for seed in range(200):
        rng = random.Random(seed)
        essay = write_essay(rng, Words(rng, held_out=False))
        assert essay.text.startswith("First,") == essay.marks["Clarity"]
        assert (essay.count in essay.text) == essay.marks["Evidence"]
        assert ("!!!" in essay.text) != essay.marks["Style"]
        assert (essay.topic.split(" in ")[1] in essay.text) == essay.related
        assert essay.grade == "DCBA"[sum(" good" in essay.judgment(d) for d in DIMENSIONS)]


def test_the_essays_of_the_demo_are_held_out_ones(tmp_path):
    save_essays(tmp_path)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert len(written) >= 12
    for name, text in written.items():
        assert (ROOT / "examples" / "essays" / name).read_text(encoding="utf-8") == text
        assert all(is_held_out(word) for word in made_up_words(text))


def test_the_checkpoint_is_small():
    files = [path for path in (ROOT / "models" / "tiny").iterdir() if path.is_file()]
    assert {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"} <= {
        p.name for p in files
    }
    assert sum(path.stat().st_size for path in files) <= 8_000_000


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(ROOT / "models" / "tiny")


def test_plain_encoding_adds_the_beginning_of_text_and_the_chat_template_writes_it(tokenizer):
    assert tokenizer("Hello")["input_ids"][0] == tokenizer.bos_token_id == 1
    chat_text = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], tokenize=False)
    assert chat_text.startswith(BOS) and chat_text.count(BOS) == 1


def test_digits_are_single_tokens_and_text_survives(tokenizer):
    assert len(tokenizer.encode("12345", add_special_tokens=False)) == 5
    for text in ("Привет, 世界! 🍎", '{"a": [1, 2]}', "  two  spaces\n\n"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_the_chat_template_writes_what_the_world_writes(tokenizer):
    doc = Document()
    offered = [chat.TOOLS[0], chat.TOOLS[-1]]
    chat.turn(doc, "system", chat.tool_prompt(offered))
    chat.turn(doc, "user", "Look up Zorvek.")
    chat.turn(doc, "assistant", chat.tool_call(offered[0], "Zorvek"))
    call = {"function": {"name": "lookup", "arguments": {"word": "Zorvek"}}}
    messages = [
        {"role": "user", "content": "Look up Zorvek."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    schemas = [{"type": "function", "function": chat.tool_schema(tool)} for tool in offered]
    rendered = tokenizer.apply_chat_template(messages, tools=schemas, tokenize=False)
    assert rendered == BOS + doc.text


@pytest.mark.parametrize(
    "task", [calls.function_calls, records.record_calls, usual.usual_calls, usual.prose_calls]
)
def test_the_chat_template_writes_the_offered_functions_as_the_world_does(tokenizer, task):
    for doc in sample(20, False, task=task):
        tools = [{"name": name, "parameters": schema} for name, schema in offered(doc).items()]
        first = re.search(r"<\|im_end\|>\n<\|im_start\|>(system|user)\n([^|]*)<", doc.text)
        message = {"role": first[1], "content": first[2]}
        rendered = tokenizer.apply_chat_template([message], tools=tools, tokenize=False)
        assert (BOS + doc.text).startswith(rendered)


def test_a_batch_is_a_function_of_its_seed_and_step(tokenizer):
    from forkroot.models.training.batches import make_batch

    first, again, other = (
        make_batch(tokenizer.backend_tokenizer, 1, step) for step in (4501, 4501, 4502)
    )
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert (first.targets != other.targets).any()
    counts = first.weights > 0
    assert (first.targets == first.tokens.ravel().take(first.picked + 1, mode="clip"))[counts].all()
    assert first.positions.max() < 2048 and counts.mean() > 0.8


def test_the_network_that_is_trained_is_the_llama_that_is_saved(tmp_path):
    import torch
    from transformers import LlamaForCausalLM

    from forkroot.models.training.network import Network, Shape, load_weights, save_checkpoint

    torch.manual_seed(0)
    network = Network(Shape(num_hidden_layers=2, intermediate_size=64))
    for parameter in network.parameters():
        parameter.data = torch.randn_like(parameter).mul(0.05).bfloat16().float()
    save_checkpoint(network, dict(network.named_parameters()), tmp_path)
    llama = LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens, positions = torch.randint(0, 4096, (2, 40)), torch.arange(40).expand(2, 40)
    ours = network.logits(network(tokens, positions))
    again = Network(network.shape)
    load_weights(again, tmp_path)
    assert all(
        (a == b).all() for a, b in zip(again.parameters(), network.parameters(), strict=True)
    )
    torch.testing.assert_close(ours, llama(tokens).logits, rtol=1e-4, atol=1e-4)


def test_the_report_tells_of_every_run_that_made_a_checkpoint(tmp_path):
    from forkroot.models.training.report import report
    from forkroot.models.training.train import runs_of

    run = {"seed": 1, "tokens": 4096, "minutes": 2, "decay_steps": 3}
    runs = [
        {**run, "steps": steps, "muon_rate": rate, "adam_rate": rate}
        for steps, rate in ((70, 0.5), (1234, 0.25), (9, 0.125))
    ]
    made = {**runs[2], "before": runs[:2]}
    (tmp_path / "training.json").write_text(json.dumps(made))
    assert runs_of(tmp_path) == runs
    text = report([], 5, runs_of(tmp_path), 10)
    assert "from seed 1: 70 steps" in text and text.count("Then it learned on") == 2
    assert text.index("1,234 steps") < text.index(": 9 steps")
