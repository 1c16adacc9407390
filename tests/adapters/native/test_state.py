"""A state: what is appended reaches the backend in order, and what is fetched is there."""

import pickle

import pytest

from forkroot.adapters.native import (
    UnsetVariable,
    assistant,
    function,
    gen,
    image,
    select,
    system,
    user,
    video,
)
from forkroot.adapters.testing import ScriptedBackend, prompt_text, scored
from forkroot.core.api.protocol import (
    Chat,
    Completion,
    Image,
    InvalidCall,
    Message,
    NotPicklable,
    Output,
    Text,
    TokenLogprob,
    UnsupportedCall,
    Usage,
    Video,
)

pytestmark = pytest.mark.timeout(180)


def run(body, script="ok", **settings):
    backend = ScriptedBackend(script)
    return function(body).run(backend=backend, **settings), backend


def test_an_answer_becomes_a_variable_and_a_part_of_the_next_prompt() -> None:
    def body(s):
        s += "2+2=" + gen("sum", max_tokens=3) + ", 3+3=" + gen("next")

    state, backend = run(body, {"2+2=": "4", "3+3=": "6"})
    assert (state["sum"], state["next"]) == ("4", "6")
    assert state.text() == "2+2=4, 3+3=6"
    assert backend.calls[0].prompt == (Text("2+2="),)
    assert backend.calls[0].sampling.max_tokens == 3
    assert backend.calls[1].prompt == (Text("2+2="), Text("4", (52,)), Text(", 3+3="))


def test_an_answer_without_a_name_is_only_text() -> None:
    def body(s):
        s.extend("a").extend(gen())

    state, _ = run(body)
    assert state.text() == "aok"


def test_n_answers_are_a_list_and_the_first_goes_on() -> None:
    def body(s):
        s += "a" + gen("x", n=3)
        s += gen("y")

    state, backend = run(body, [["p", "q", "r"], "end"])
    assert state["x"] == ["p", "q", "r"]
    assert prompt_text(backend.calls[1].prompt) == "ap"
    assert state.get_meta_info("x")["finish_reason"] == ["stop", "stop", "stop"]


def test_a_variable_that_is_set_again_gives_the_latest_value() -> None:
    seen = []

    def body(s):
        for _ in range(3):
            s += gen("x")
            seen.append(s["x"])

    run(body, ["a", "b", "c"])
    assert seen == ["a", "b", "c"]


def test_select_keeps_the_likeliest_option_and_all_scores() -> None:
    def body(s):
        s += "sky is" + select("color", [" red", " blue"])
        s += gen("more")

    state, backend = run(body, [" blue", "!"])
    assert state["color"] == " blue"
    assert backend.calls[0].options == (" red", " blue")
    assert backend.calls[1].prompt[-1] == Text(" blue", (32, 98, 108, 117, 101))
    meta = state.get_meta_info("color")
    assert meta["index"] == 1
    assert meta["choices"] == [" red", " blue"]
    assert meta["scores"] == [-2.0, -1.0]
    assert meta["logprobs"] == [-8.0, -5.0]
    assert meta["token_logprobs"] == [[-2.0] * 4, [-1.0] * 5]


def test_unconditional_select_scores_the_options_without_a_prompt_too() -> None:
    def script(call):
        likeliest = "a" if call.prompt else "b"
        return Completion(scores=scored(call, likeliest), usage=Usage(10, 5, 0))

    def body(s):
        s += "x" + select("o", ["a", "b"], choices_method="unconditional_likelihood_normalized")

    state, backend = run(body, script)
    assert state["o"] == "a"
    assert {call.prompt for call in backend.calls} == {(Text("x"),), ()}
    meta = state.get_meta_info("o")
    assert meta["scores"] == [1.0, -1.0]
    assert meta["unconditional_logprobs"] == [-2.0, -1.0]
    assert meta["prompt_tokens"] == 20


def test_meta_information_has_usage_end_and_log_probabilities() -> None:
    logprobs = (TokenLogprob(4, -0.5, ((4, -0.5), (5, -1.5))),)
    output = Output("yes", (4,), "length", None, (Text("yes"),), logprobs, ((1, 3),), -0.25)

    def body(s):
        s += "a" + gen("x", return_logprob=True, top_logprobs_num=2, log_mass=True)

    state, backend = run(body, [Completion((output,), Usage(7, 3, 1))])
    assert backend.calls[0].sampling.logprobs == 2
    assert backend.calls[0].sampling.log_mass is True
    assert state.get_meta_info("x") == {
        "prompt_tokens": 7,
        "cached_tokens": 3,
        "root_tokens": 0,
        "completion_tokens": 1,
        "finish_reason": "length",
        "matched": None,
        "ids": (4,),
        "logprobs": logprobs,
        "log_mass": -0.25,
        "forced": ((1, 3),),
    }


def test_roles_make_a_chat_and_an_open_message_is_continued() -> None:
    def body(s):
        s += system("be brief") + user("hi")
        s += assistant("well, " + gen("a"))
        s += user("bye")
        s += assistant(gen("b"))

    state, backend = run(body, ["hello", "ciao"])
    start = (Message("system", (Text("be brief"),)), Message("user", (Text("hi"),)))
    assert backend.calls[0].prompt == Chat(
        (*start, Message("assistant", (Text("well, "),))), open_last=True
    )
    assert backend.calls[1].prompt.messages[-1] == Message("assistant", ())
    assert backend.calls[1].prompt.open_last
    assert state.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "well, hello"},
        {"role": "user", "content": "bye"},
        {"role": "assistant", "content": "ciao"},
    ]


def test_roles_as_methods_and_as_blocks_are_the_same_chat() -> None:
    def called(s):
        s.system("be brief")
        s.user("hi")
        s.assistant("so " + gen("a"))

    def blocks(s):
        with s.system():
            s += "be brief"
        with s.user():
            s += "h"
            s += "i"
        with s.assistant():
            s += "so "
            s += gen("a")

    one, backend_one = run(called)
    two, backend_two = run(blocks)
    assert [it.prompt for it in backend_one.calls] == [it.prompt for it in backend_two.calls]
    assert one.messages() == two.messages()


def test_an_answer_after_a_closed_message_opens_one_of_the_assistant() -> None:
    def body(s):
        s += user("hi")
        s += gen("a")

    state, backend = run(body)
    assert backend.calls[0].prompt == Chat((Message("user", (Text("hi"),)),))
    assert state.messages()[-1] == {"role": "assistant", "content": "ok"}


def test_a_scope_collects_the_text_inside() -> None:
    def body(s):
        s += "a"
        with s.var_scope("all"):
            s += "b" + gen("x") + "c"
        s += "d"

    state, _ = run(body)
    assert state["all"] == "bokc"
    assert state["x"] == "ok"


def test_in_checks_what_is_set_and_waits_for_what_will_be() -> None:
    seen = []

    def body(s):
        seen.append("x" in s)
        s += gen("x")
        seen.append("x" in s)

    run(body)
    assert seen == [False, True]


def test_a_variable_that_was_never_set_is_named_with_those_that_were() -> None:
    def body(s):
        s += gen("b") + gen("a")

    state, _ = run(body)
    with pytest.raises(UnsetVariable) as caught:
        state["c"]
    assert str(caught.value) == "variable 'c' was never set; set so far: 'a', 'b'"
    assert isinstance(caught.value, KeyError)


def test_a_variable_that_was_never_set_is_named_with_those_on_their_way() -> None:
    backend = ScriptedBackend("ok", is_held=True)
    result = []

    @function
    def body(s):
        s += gen("b")
        s += gen("a")
        with pytest.raises(UnsetVariable) as caught:
            s["c"]
        result.append(str(caught.value))
        backend.release()
        backend.wait_for(2)
        backend.release()

    body.run(backend=backend)
    assert result == [
        "variable 'c' was never set; set so far: none; on their way: 'a', 'b'",
    ]


def test_an_image_is_shown_to_a_backend_that_can_see() -> None:
    def body(s):
        s += image(b"png") + "what?" + gen("x")

    _, backend = run(body)
    assert backend.calls[0].prompt == (Image(b"png"), Text("what?"))


@pytest.mark.parametrize(
    ("media", "features", "refused"),
    [
        (image(b"png"), set(), "'an image': expected text; images are not supported"),
        (image(b"png"), {"videos"}, "'an image': expected text; images are not supported"),
        (video(b"mp4", 4), {"images"}, "'a video': expected text; videos are not supported"),
        (video(b"mp4", 4), {"videos"}, None),
        (image(b"png"), {"images"}, None),
    ],
)
def test_what_a_backend_cannot_see_is_refused_before_it_is_called(media, features, refused) -> None:
    def body(s):
        s += user(media + "what?") + assistant(gen("x"))

    backend = ScriptedBackend("ok", features=frozenset(features), model="m")
    if refused is None:
        assert function(body).run(backend=backend)["x"] == "ok"
        return
    with pytest.raises(UnsupportedCall, match=rf"{refused} by this model \(m\)"):
        function(body).run(backend=backend)
    assert backend.calls == []


def test_a_backend_is_asked_once_in_a_run_what_it_can_see() -> None:
    class Counting(ScriptedBackend):
        num_infos = 0

        def info(self):
            self.num_infos += 1
            return super().info()

    def inner(s):
        s += image(b"second") + gen("c")

    def body(s):
        s += image(b"png") + gen("a") + gen("b")
        for branch in s.fork(3):
            branch += gen("x")
        function(inner)(s)

    backend = Counting("ok")
    function(body).run(backend=backend)
    assert len(backend.calls) == 7
    assert backend.num_infos == 1


def test_branches_share_the_images_before_their_fork() -> None:
    def body(s):
        s += "See " + image(b"png") + video(b"mp4", 4)
        for index, branch in enumerate(s.fork(2)):
            branch += f"Q{index}" + gen("x")

    _, backend = run(body)
    shared = (Text("See "), Image(b"png"), Video(b"mp4", 4))
    planted, *calls = backend.calls
    assert planted.prompt == shared
    assert {call.prompt for call in calls} == {(*shared, Text("Q0")), (*shared, Text("Q1"))}
    assert {call.hint.root for call in backend.calls} == {planted.hint.root}


def test_what_cannot_be_appended_is_refused_at_once() -> None:
    def body(s):
        s += 3

    with pytest.raises(InvalidCall, match="expression=3"):
        run(body)


def test_a_misspelled_role_of_a_block_is_refused_where_it_begins() -> None:
    def body(s):
        with s.role("usr"):
            s += "never"

    with pytest.raises(InvalidCall, match=r"role='usr': .*did you mean user\?"):
        run(body)


def test_appending_never_waits() -> None:
    backend = ScriptedBackend("ok", is_held=True)
    reached = []

    def body(s):
        s += "a" + gen("x") + "b" + gen("y")
        reached.append(len(backend.calls))
        backend.release(0)
        backend.wait_for(2)
        reached.append(s["x"])
        backend.release(1)

    state = function(body).run(backend=backend)
    assert reached == [1, "ok"]
    assert state.text() == "aokbok"


def test_a_misspelled_variable_gets_a_suggestion() -> None:
    @function
    def program(s):
        s += "A" + gen("answer")
        return s["anwser"]

    with pytest.raises(UnsetVariable, match="did you mean 'answer'") as caught:
        program.run(backend=ScriptedBackend("x"))
    assert caught.value.name == "anwser"


def test_a_state_is_not_sent_to_another_process_but_what_it_holds_can_be() -> None:
    @function
    def program(s):
        s += "A" + gen("answer")

    state = program.run(backend=ScriptedBackend("x"))
    with pytest.raises(NotPicklable, match=r"a ProgramState .* expected its text\(\)"):
        pickle.dumps(state)
    held = state.text(), state.messages(), state["answer"]
    assert pickle.loads(pickle.dumps(held)) == held
