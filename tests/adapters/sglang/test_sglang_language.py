"""The constructs of SGLang's frontend on a scripted backend: what each does, or its refusal."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import forkroot
import forkroot.sglang as sgl
from forkroot.adapters.sglang.endpoints import Endpoint
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import (
    Completion,
    Image,
    InvalidCall,
    Output,
    Overloaded,
    Regex,
    Text,
    TokenLogprob,
    UnsupportedCall,
    Video,
)

pytestmark = pytest.mark.timeout(180)

SGLANG = {  # the public names of SGLang 0.5.23
    *("Anthropic", "Crusoe", "Engine", "LiteLLM", "OpenAI", "Runtime", "RuntimeEndpoint"),
    *("ServerArgs", "VertexAI", "__version__", "assistant", "assistant_begin", "assistant_end"),
    *("flush_cache", "function", "gen", "gen_int", "gen_string", "get_server_info"),
    *("global_config", "greedy_token_selection", "image", "select", "separate_reasoning"),
    *("set_default_backend", "system", "system_begin", "system_end", "token_length_normalized"),
    *("unconditional_likelihood_normalized", "user", "user_begin", "user_end", "video"),
}


@sgl.function
def ask(s: Any, question: str, mark: str = "?") -> None:
    s += question + mark + sgl.gen("answer", max_tokens=9)


@pytest.fixture
def default() -> Any:
    backend = ScriptedBackend("fine")
    sgl.set_default_backend(backend)
    yield backend
    sgl.set_default_backend(None)


def prompts(backend: ScriptedBackend) -> list[str]:
    return [prompt_text(call.prompt) for call in backend.calls]


def test_every_public_name_of_sglang_is_there() -> None:
    assert set(dir(sgl)) >= SGLANG
    for name in SGLANG:
        assert getattr(sgl, name) is not None
    assert sgl.__version__ == forkroot.__version__
    assert forkroot.sglang is sgl


def test_a_program_that_starts_in_the_checkout_does_not_find_it_as_sglang() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import importlib.util, forkroot.sglang as sgl\n"
        "found = importlib.util.find_spec('sglang')\n"
        "print(str(found and found.origin).startswith(sys.argv[1]), sgl.gen.__module__)"
    )
    root = str(Path(forkroot.__file__).parent)
    command = [sys.executable, "-W", "error", "-c", code, root]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "False forkroot.adapters.sglang.primitives\n")
    with pytest.raises(ModuleNotFoundError, match="not a package"):
        __import__("forkroot.sglang.state")


def test_looking_at_all_modules_as_torch_does_when_it_is_imported_does_not_load_it() -> None:
    code = (
        "import sys, forkroot\n"
        "for it in list(sys.modules.values()): hasattr(it, '__file__')\n"
        "print('forkroot.adapters.sglang' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "False\n")


def test_settings_of_a_run_have_their_names_of_sglang() -> None:
    backend = ScriptedBackend("x")

    @sgl.function
    def write(s: Any) -> None:
        s += "a" + sgl.gen("x")

    write.run(backend=backend)
    write.run(
        *(),
        max_new_tokens=7,
        temperature=0.5,
        top_k=-1,
        stop=["e"],
        stop_token_ids=None,
        stop_regex=[],
        return_logprob=True,
        top_logprobs_num=2,
        logprob_start_len=0,
        use_thread=True,
        backend=backend,
    )
    first, second = (call.sampling for call in backend.calls)
    assert (first.max_tokens, first.temperature, first.logprobs) == (128, 1.0, None)
    assert (second.max_tokens, second.temperature, second.stop) == (7, 0.5, ("e",))
    assert second.logprobs == 2
    assert backend.calls[1].scored_from == 1


def test_a_gen_goes_before_the_settings_of_its_run() -> None:
    backend = ScriptedBackend("x")

    @sgl.function
    def write(s: Any) -> None:
        s += sgl.gen("x", 3, 1, None, "end", return_logprob=False, logprob_start_len=-1)

    write.run(max_new_tokens=7, return_logprob=True, backend=backend)
    sampling = backend.calls[0].sampling
    assert (sampling.max_tokens, sampling.min_tokens, sampling.stop) == (3, 1, ("end",))
    assert sampling.logprobs is None


def test_a_keyword_that_the_program_declares_is_its_own() -> None:
    @sgl.function
    def sample(s: Any, n: int) -> None:
        forks = s.fork(n)
        forks += "a" + sgl.gen("x")
        forks.join()

    assert sample.run(n=3, backend=ScriptedBackend("x"))["x"] == ["x"] * 3


@pytest.mark.parametrize("name", ["max_new_token", "temprature", "backends_"])
def test_a_setting_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(InvalidCall, match=name):
        ask.run("a", backend=ScriptedBackend("x"), **{name: 1})


def test_a_stop_by_pattern_is_refused_by_a_typed_error() -> None:
    with pytest.raises(UnsupportedCall, match="stop_regex"):
        sgl.gen("x", stop_regex="a+")
    with pytest.raises(UnsupportedCall, match="stop_regex"):
        ask.run("a", stop_regex="a+", backend=ScriptedBackend("x"))


def test_a_program_without_a_state_runs(default: ScriptedBackend) -> None:
    state = ask(question="Who", max_new_tokens=5)
    assert state.text() == "Who?fine"
    assert state["answer"] == "fine"


def test_inside_another_program_its_calls_go_on_beside_the_others() -> None:
    backend = ScriptedBackend("fine", is_held=True)

    @sgl.function
    def outer(s: Any) -> None:
        parts = [ask(question=mark) for mark in "ab"]
        backend.wait_for(2)  # both are open: neither call has waited for its answer
        backend.release()
        s += " and ".join(part["answer"] for part in parts)

    state = outer.run(backend=backend)
    assert state.text() == "fine and fine"
    assert sorted(prompts(backend)) == ["a?", "b?"]


def test_the_outer_run_waits_for_its_parts_and_raises_their_errors() -> None:
    @sgl.function
    def outer(s: Any) -> None:
        ask(question="a")

    with pytest.raises(Overloaded):
        outer.run(backend=ScriptedBackend([Overloaded("full")]))


def test_what_a_part_raises_itself_comes_out_where_it_was_called() -> None:
    @sgl.function
    def broken(s: Any) -> None:
        s += "a" + sgl.gen("x")
        raise LookupError("mine")

    @sgl.function
    def outer(s: Any) -> str:
        try:
            broken()
        except LookupError as error:
            return str(error)
        return "nothing"

    assert outer.run(backend=ScriptedBackend("x")).ret_value == "mine"


def test_with_a_state_a_program_is_a_part_of_another_one() -> None:
    @sgl.function
    def outer(s: Any) -> None:
        ask(s, "a")
        s += "."

    assert outer.run(backend=ScriptedBackend("x")).text() == "a?x."


def test_roles_begin_and_end_where_the_program_says() -> None:
    backend = ScriptedBackend("Paris")

    @sgl.function
    def documents(s: Any, docs: list[str]) -> None:
        s += sgl.system_begin() + "Short." + sgl.system_end()
        s += sgl.user_begin()
        s += "Documents:"
        forks = s.fork(len(docs), [0, 1000])
        forks += lambda i: docs[i]
        forks.join("concate_and_append")
        s += sgl.user_end()
        s += sgl.assistant_begin() + sgl.gen("answer") + sgl.assistant_end()

    state = documents.run(docs=[" one", " two"], backend=backend)
    assert state.messages() == [
        {"role": "system", "content": "Short."},
        {"role": "user", "content": "Documents: one two"},
        {"role": "assistant", "content": "Paris"},
    ]


def test_a_role_without_content_is_an_empty_message() -> None:
    @sgl.function
    def chat(s: Any) -> None:
        s += sgl.system() + sgl.user("Hi") + sgl.assistant(sgl.gen("x"))

    assert chat.run(backend=ScriptedBackend("x")).messages()[0] == {"role": "system", "content": ""}


@pytest.mark.parametrize("offsets", [3, "ab", ["a"]])
def test_offsets_of_positions_that_are_none_are_refused(offsets: Any) -> None:
    @sgl.function
    def branches(s: Any) -> None:
        s.fork(2, offsets)

    with pytest.raises(InvalidCall, match="position_ids_offset"):
        branches.run(backend=ScriptedBackend("x"))


def test_groups_have_their_states_by_place_and_their_variables_by_name() -> None:
    @sgl.function
    def branches(s: Any) -> tuple[Any, ...]:
        forks = s.fork(2)
        forks += ["a" + sgl.gen("x"), "b" + sgl.gen("x")]
        return forks["x"], len(forks.states), forks.src_state is s

    script = {"a": "1", "b": "2"}
    assert branches.run(backend=ScriptedBackend(script)).ret_value == (["1", "2"], 2, True)


def test_variables_can_be_set_by_hand_also_after_the_end() -> None:
    state = ask.run("a", backend=ScriptedBackend("12"))
    state["answer"] = int(state["answer"])
    state.set_var("other", [1])
    assert (state["answer"], state.get_var("other")) == (12, [1])
    assert state.get_meta_info("answer")["prompt_tokens"] == 2


def test_a_state_shows_its_text_or_its_error() -> None:
    assert repr(ask.run("a", backend=ScriptedBackend("x"))) == "ProgramState(a?x)"
    states = ask.run_batch([{"question": "a"}], backend=ScriptedBackend([Overloaded("full")]))
    assert repr(states[0]) == "ProgramState(Overloaded('full'))"
    assert states[0].stream_executor is states[0]


def test_a_copy_gives_its_variables_back() -> None:
    @sgl.function
    def tries(s: Any) -> None:
        with s.copy() as other:
            other += "a" + sgl.gen("x")

    state = tries.run(backend=ScriptedBackend("1"))
    assert (state.text(), state["x"]) == ("", ["1"])


def test_batches_take_values_by_place_and_by_name() -> None:
    backend = ScriptedBackend(lambda call: prompt_text(call.prompt).upper())
    states = ask.run_batch([("a",), ["b", "!"], {"question": "c"}], backend=backend)
    assert [state["answer"] for state in states] == ["A?", "B!", "C?"]
    assert ask.run_batch([]) == []
    with pytest.raises(InvalidCall, match="1 to 2 values of question, mark"):
        ask.run_batch([("a", "b", "c")], backend=backend)


def test_a_batch_can_be_read_while_it_runs() -> None:
    backend = ScriptedBackend("x", is_held=True)
    items = [{"question": mark} for mark in "ab"]
    states = ask.run_batch(items, num_threads=2, generator_style=True, backend=backend)
    assert not backend.calls  # nothing runs before somebody reads

    async def read() -> list[str]:
        reading = asyncio.to_thread(lambda: next(states)["answer"])
        task = asyncio.ensure_future(reading)
        await asyncio.to_thread(backend.wait_for, 2)
        first = next(i for i, text in enumerate(prompts(backend)) if text == "a?")
        backend.release(first)
        found = [await task]
        backend.release()
        return [*found, *(state["answer"] for state in states)]

    assert asyncio.run(read()) == ["x", "x"]


def test_who_stops_reading_a_batch_ends_it() -> None:
    backend = ScriptedBackend(lambda call: prompt_text(call.prompt), delay=0.01)
    items = [{"question": str(number)} for number in range(50)]
    states = ask.run_batch(items, num_threads=1, generator_style=True, backend=backend)
    next(states)
    states.close()
    assert len(backend.calls) < 50


def test_numbers_end_where_a_blank_or_a_line_break_follows() -> None:
    backend = ScriptedBackend("24")

    @sgl.function
    def count(s: Any) -> None:
        s += sgl.gen_int("hours", 8, None, "!")
        s += sgl.gen("pi", dtype=float)
        s += sgl.gen_string("name")

    count.run(backend=backend)
    first, second, third = backend.calls
    assert first.constraint == Regex(r"[-+]?[0-9]+[ \n]*")
    assert first.sampling.stop == ("!", " ", "\n")
    assert (first.sampling.max_tokens, second.sampling.stop) == (8, (" ", "\n"))
    assert third.constraint == Regex(r'"[^"\\\n]*"')


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"dtype": int, "regex": "a"}, "regex|dtype"),
        ({"choices": ["a"], "max_tokens": 3}, "max_tokens"),
        ({"choices": ["a"], "temperature": 0.5}, "temperature"),
        ({"choices": ["a"], "choices_method": 3}, "choices_method"),
        ({"logprob_start_len": -2}, "logprob_start_len"),
        ({"grammer": "x"}, "did you mean grammar"),
    ],
)
def test_arguments_that_could_never_run_are_refused_where_they_are_written(
    arguments: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidCall, match=named):
        sgl.gen("x", **arguments)


def test_too_many_values_by_place_are_refused_as_python_does() -> None:
    with pytest.raises(TypeError, match="positional arguments"):
        sgl.gen_int("x", 1, None, None, *([None] * 14))
    with pytest.raises(TypeError, match="multiple values"):
        sgl.gen_int("x", 1, None, None, [1], stop_token_ids=[2])


def test_reasoning_is_kept_apart_from_the_answer_and_leaves_the_prompt() -> None:
    backend = ScriptedBackend(["<think>It is\nthe capital.</think>Paris", "Yes"])

    @sgl.function
    def think(s: Any) -> None:
        s += sgl.user("Where?")
        answer = sgl.assistant("So: " + sgl.gen("where", max_tokens=9))
        s += sgl.separate_reasoning(answer, model_type="qwen3")
        s += sgl.user("Sure?") + sgl.assistant(sgl.gen("sure"))

    state = think.run(backend=backend)
    assert state["where"] == "Paris"
    assert state["where_reasoning_content"] == "It is\nthe capital."
    assert state.messages()[1]["content"] == "So: Paris"
    assert "think" not in prompts(backend)[1]


@pytest.mark.parametrize(
    ("family", "text", "expected"),
    [
        ("qwen3", "plain", ("plain", "")),
        ("qwen3", "<think>cut", ("", "cut")),
        ("DeepSeek-R1", "why</think>yes", ("yes", "why")),
        ("deepseek-r1", "<think>why</think>yes", ("yes", "why")),
        ("deepseek-r1", "cut", ("", "cut")),
        ("kimi", "◁think▷why◁/think▷yes", ("yes", "why")),
    ],
)
def test_each_family_marks_its_reasoning(family: str, text: str, expected: tuple[str, str]) -> None:
    @sgl.function
    def think(s: Any) -> None:
        s += "a" + sgl.separate_reasoning(sgl.gen("x"), family)

    state = think.run(backend=ScriptedBackend([text]), stream=True)
    assert "".join(state.text_iter(var_name="x")) == expected[0]
    assert (state["x"], state["x_reasoning_content"]) == expected


@pytest.mark.parametrize("family", [None, "qwen-3", 3])
def test_a_family_that_is_not_known_is_refused(family: Any) -> None:
    with pytest.raises(InvalidCall, match="model_type"):
        sgl.separate_reasoning(sgl.gen("x"), family)


def test_reasoning_needs_the_name_of_an_answer() -> None:
    with pytest.raises(InvalidCall, match="name"):
        sgl.separate_reasoning(sgl.gen(), "qwen3")
    with pytest.raises(InvalidCall, match="with a gen in it"):
        sgl.separate_reasoning("text", "qwen3")  # type: ignore[arg-type]


def test_speculation_for_api_models_is_accepted_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @sgl.function(num_api_spec_tokens=64)
    def program(s: Any) -> None:
        s += "a" + sgl.gen("x")

    assert "no effect" in caplog.text
    assert program.num_api_spec_tokens == 64
    assert program.run(backend=ScriptedBackend("x"))["x"] == "x"
    with pytest.raises(InvalidCall, match="num_api_spec_tokens"):
        sgl.function(num_api_spec_tokens=0)


def test_a_program_says_what_it_was_made_of() -> None:
    bound = ask.bind(mark="!")
    assert bound.func is ask.func
    assert (ask.arg_names, ask.arg_defaults) == (["question", "mark"], ["?"])
    assert bound.bind_arguments == {"mark": "!"}
    assert bound.run("a", backend=ScriptedBackend("x")).text() == "a!x"


def test_the_prefix_of_all_runs_is_computed_ahead() -> None:
    backend = ScriptedBackend("x")

    @sgl.function
    def few_shot(s: Any, shots: str, question: str, last: str = "") -> None:
        s += shots
        s += "Q: Where is Oslo?\nA: In Norway\n"
        s += "Q: " + question + "\nA:" + sgl.gen("answer")

    shots = "These are questions, each with an answer that is short and true.\n"
    prefix = few_shot.bind(shots=shots).cache(backend)
    assert prefix == shots + "Q: Where is Oslo?\nA: In Norway\n"
    assert prompts(backend) == [prefix]
    assert backend.calls[0].sampling.max_tokens == 0
    assert few_shot.cache(backend) == ""
    assert len(backend.calls) == 1


def test_tracing_is_refused_by_a_typed_error() -> None:
    with pytest.raises(UnsupportedCall, match=r"cache\(\)"):
        ask.trace()


@pytest.mark.parametrize(
    "name", ["OpenAI", "Anthropic", "VertexAI", "LiteLLM", "Crusoe", "Shortfin", "ServerArgs"]
)
def test_what_is_not_run_here_says_what_is(name: str) -> None:
    with pytest.raises(UnsupportedCall, match="connect"):
        getattr(sgl, name)("gpt-4")


def test_images_need_a_backend_that_sees_them(tmp_path: Path) -> None:
    @sgl.function
    def look(s: Any, image: Any) -> None:
        s += sgl.user(sgl.image(image) + "What?") + sgl.assistant(sgl.gen("x"))

    path = tmp_path / "a.png"
    path.write_bytes(b"png")
    blind = ScriptedBackend("x", features=frozenset({"tokens"}))
    pixels = np.zeros((2, 3, 3), np.uint8)
    for source in (str(path), b"png", "data:image/png;base64,cG5n", pixels):
        with pytest.raises(UnsupportedCall, match="images are not supported"):
            look.run(source, backend=blind)
        assert look.run(source, backend=ScriptedBackend("cat"))["x"] == "cat"
    with pytest.raises(UnsupportedCall, match="nothing is fetched"):
        sgl.image("https://example.org/a.png")
    with pytest.raises(InvalidCall, match="no-such-file"):
        sgl.video("no-such-file.mp4", 4)


def test_images_and_videos_stand_where_a_program_puts_them(tmp_path: Path) -> None:
    @sgl.function
    def compare(s: Any, first: Any, second: Any, clip: Any) -> None:
        s += sgl.system("Look.") + sgl.user(sgl.image(first) + "and" + sgl.image(second))
        s += sgl.user(sgl.video(clip, num_frames=16) + "Differ?")
        s += sgl.assistant(sgl.gen("answer", max_tokens=9))

    paths = [tmp_path / name for name in ("a.png", "b.png", "c.mp4")]
    for path in paths:
        path.write_bytes(path.name.encode())
    backend = ScriptedBackend("yes")
    assert compare.run(*map(str, paths), backend=backend)["answer"] == "yes"
    _, both, moving, _ = backend.calls[0].prompt.messages  # type: ignore[union-attr]
    assert both.content == (Image(b"a.png"), Text("and"), Image(b"b.png"))
    assert moving.content == (Video(b"c.mp4", 16), Text("Differ?"))


def test_images_outside_of_roles_and_in_streams_and_forks() -> None:
    @sgl.function
    def act(s: Any, picture: bytes) -> None:
        s += sgl.image(picture) + "What next?"
        forks = s.fork(2)
        forks += sgl.gen("action")
        forks.join()
        s += sgl.gen("answer")

    backend = ScriptedBackend("go")
    state = act.run(b"png", backend=backend, stream=True)
    assert "".join(state.text_iter("answer")) == "go"
    assert state["action"] == ["go", "go"]
    assert {call.prompt[0] for call in backend.calls} == {Image(b"png")}  # type: ignore[index]


def test_the_runs_of_a_batch_show_their_own_images() -> None:
    @sgl.function
    def look(s: Any, picture: bytes) -> None:
        s += sgl.user(sgl.image(picture) + "What?") + sgl.assistant(sgl.gen("x"))

    def seen(call: Any) -> str:
        return str(call.prompt.messages[0].content[0].data, "ascii")

    states = look.run_batch(
        [{"picture": name} for name in (b"cat", b"dog")], backend=ScriptedBackend(seen)
    )
    assert [state["x"] for state in states] == ["cat", "dog"]


def test_a_chat_template_that_a_program_sets_is_named_and_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runtime = Endpoint(ScriptedBackend("yes", model="m"))
    with caplog.at_level("WARNING"):
        runtime.endpoint.chat_template = SimpleNamespace(name="llama-3-instruct")
    assert "chat_template=llama-3-instruct has no effect" in caplog.text
    assert runtime.endpoint.chat_template.name == "m (its own)"


class LastChoice(sgl.ChoicesSamplingMethod):
    """Chooses the last one."""

    def __call__(self, *, choices: Any, **expected: Any) -> sgl.ChoicesDecision:
        self.expected = expected
        return sgl.ChoicesDecision(choices[-1], {})


@pytest.mark.parametrize(
    "method",
    [
        None,
        "greedy_token_selection",
        sgl.token_length_normalized,
        sgl.greedy_token_selection,
        sgl.unconditional_likelihood_normalized,
    ],
)
def test_select_takes_the_methods_as_objects_and_by_name(method: Any) -> None:
    @sgl.function
    def choose(s: Any) -> None:
        s += "a" + sgl.gen("x", choices=["1", "22"], choices_method=method)

    def likely(call: Any) -> str:
        return "22" if prompt_text(call.prompt) else ""

    state = choose.run(backend=ScriptedBackend(likely))
    assert state["x"] == "22"
    meta = state.get_meta_info("x")
    assert meta["normalized_prompt_logprobs"] == [-2.0, -1.0]
    assert meta["input_token_logprobs"][1] == [[-1.0, 50, None], [-1.0, 50, None]]


def test_select_takes_methods_of_the_programs_own() -> None:
    method = LastChoice()

    @sgl.function
    def choose(s: Any) -> None:
        s += "a" + sgl.select("x", ["1", "2"], 0.0, method)

    assert choose.run(backend=ScriptedBackend("1"))["x"] == "2"
    assert method.expected["input_token_logprobs"] == [[[-1.0, 49, None]], [[-2.0, 50, None]]]


def test_the_methods_decide_over_given_log_probabilities() -> None:
    given: dict[str, Any] = {
        "choices": ["a", "bc"],
        "normalized_prompt_logprobs": [-1.0, -0.8],
        "input_token_logprobs": [[[-1.0, 1, "a"]], [[-1.2, 2, "b"], [-0.4, 3, "c"]]],
        "output_token_logprobs": [[], []],
    }
    assert sgl.token_length_normalized(**given).decision == "bc"
    assert sgl.greedy_token_selection(**given).decision == "a"
    alone = [[[None, 1, "a"]], [[None, 2, "b"], [-2.0, 3, "c"]]]
    found = sgl.unconditional_likelihood_normalized(**given, unconditional_token_logprobs=alone)
    assert found.decision == "bc"
    with pytest.raises(InvalidCall, match="unconditional_token_logprobs"):
        sgl.unconditional_likelihood_normalized(**given)


def test_meta_information_has_sglangs_names() -> None:
    logprobs = (TokenLogprob(65, -0.5, ((65, -0.5), (66, -1.5))),)
    output = Output("A", (65,), "stop", "\n", (Text("A", (65,)),), logprobs)
    scored = (TokenLogprob(66, -2.0),)
    completion = Completion((output,), prompt_logprobs=scored)
    state = ask.run("a", backend=ScriptedBackend([completion]), logprob_start_len=3)
    meta = state.get_meta_info("answer")
    assert meta["finish_reason"] == {"type": "stop", "matched": "\n"}
    assert meta["output_token_logprobs"] == [[-0.5, 65, None]]
    assert meta["output_top_logprobs"] == [[[-0.5, 65, None], [-1.5, 66, None]]]
    assert meta["input_token_logprobs"] == [[-2.0, 66, None]]


def test_verbosity_prints_the_text_of_a_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sgl.global_config, "verbosity", 2)
    ask.run("a", backend=ScriptedBackend("x"))
    assert capsys.readouterr().out == "a?x\n"


def test_the_default_backend_is_that_of_the_native_language(default: ScriptedBackend) -> None:
    assert sgl.global_config.default_backend is forkroot.get_default_backend() is default
    info = sgl.get_server_info()
    assert info is not None
    assert (info["model_path"], info["vocab_size"]) == ("scripted", 256)
    with pytest.raises(UnsupportedCall, match="a cache"):
        sgl.flush_cache()
    sgl.global_config.default_backend = None
    assert (sgl.flush_cache(), sgl.get_server_info()) == (False, None)
    with pytest.raises(UnsupportedCall, match="RuntimeEndpoint"):
        sgl.set_default_backend(object())
