"""The scripted backend keeps the protocol, so that what passes with it means something."""

import pytest

from forkroot.adapters.testing import ALL_FEATURES, ScriptedBackend, prompt_text, scored
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    CallFailed,
    Chat,
    Completion,
    Image,
    InvalidCall,
    Message,
    Output,
    Overloaded,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)

pytestmark = pytest.mark.timeout(180)


def call(text="q", **fields):
    return Call((Text(text),), **fields)


def test_it_is_a_backend() -> None:
    assert isinstance(ScriptedBackend(), Backend)


def test_one_text_answers_everything() -> None:
    backend = ScriptedBackend("ok")
    assert [backend.submit(call(text)).result(60).text for text in "ab"] == ["ok", "ok"]


def test_a_mapping_answers_by_the_longest_end_of_the_prompt() -> None:
    backend = ScriptedBackend({"b": "short", "ab": "long"})
    assert backend.submit(call("xab")).result(60).text == "long"
    assert backend.submit(call("xb")).result(60).text == "short"
    with pytest.raises(CallFailed, match="ends in 'x'"):
        backend.submit(call("x")).result(60)


def test_a_sequence_answers_in_order_and_says_when_it_is_over() -> None:
    backend = ScriptedBackend(["1", "2"])
    assert [backend.submit(call()).result(60).text for _ in range(2)] == ["1", "2"]
    with pytest.raises(CallFailed, match="2 answers"):
        backend.submit(call()).result(60)


def test_a_function_answers_by_the_call() -> None:
    backend = ScriptedBackend(lambda call: call.namespace)
    assert backend.submit(call(namespace="me")).result(60).text == "me"


def test_an_error_of_the_script_ends_its_call() -> None:
    backend = ScriptedBackend([Overloaded("full"), ValueError("odd")])
    with pytest.raises(Overloaded):
        backend.submit(call()).result(60)
    with pytest.raises(CallFailed, match="ValueError: odd"):
        backend.submit(call()).result(60)


def test_a_call_that_is_not_allowed_is_refused_through_its_reply() -> None:
    reply = ScriptedBackend("ok").submit(call(sampling=Sampling(temperature=-1)))
    assert isinstance(reply.error(), InvalidCall)


def test_an_answer_carries_the_ids_with_which_it_is_continued() -> None:
    output = ScriptedBackend("ok").submit(call()).result(60).outputs[0]
    assert output == Output("ok", (111, 107), segments=(Text("ok", (111, 107)),))


def test_options_are_scored_and_the_scripted_one_is_likeliest() -> None:
    completion = ScriptedBackend("b").submit(call(options=("a", "b"))).result(60)
    assert completion.scores == scored(Call((), options=("a", "b")), "b")
    assert [score.logprob for score in completion.scores] == [-2.0, -1.0]


def test_planting_takes_no_answer_from_the_script() -> None:
    backend = ScriptedBackend(["1"], is_held=True)
    planted = backend.submit(call(sampling=Sampling(max_tokens=0)))
    assert planted.result(60).text == ""
    reply = backend.submit(call())
    backend.release()
    assert reply.result(60).text == "1"


def test_several_answers_are_given_by_one_text_or_a_list() -> None:
    backend = ScriptedBackend(["a", ["b", "c"]])
    replies = [backend.submit(call(sampling=Sampling(n=2))) for _ in range(2)]
    texts = [[output.text for output in reply.result(60).outputs] for reply in replies]
    assert texts == [["a", "a"], ["b", "c"]]


def test_chunks_come_only_where_they_are_requested_and_add_up() -> None:
    backend = ScriptedBackend("abcdef", chunk_len=4)
    assert [chunk.text for chunk in backend.submit(call(stream=True))] == ["abcd", "ef"]
    assert list(backend.submit(call())) == []


def test_a_whole_completion_is_passed_on() -> None:
    completion = Completion((Output("x", finish_reason="length"),))
    assert ScriptedBackend([completion]).submit(call()).result(60) is completion


def test_held_calls_end_in_the_order_of_their_release() -> None:
    backend = ScriptedBackend(lambda call: prompt_text(call.prompt), is_held=True)
    ended = []
    for text in "abc":
        backend.submit(call(text)).when_done(lambda reply: ended.append(reply.result().text))
    assert ended == []
    backend.release(2, 0)
    backend.release()
    assert ended == ["c", "a", "b"]


def test_a_longer_delay_ends_later() -> None:
    backend = ScriptedBackend("ok", delay=lambda call: float(prompt_text(call.prompt)))
    slow, fast = backend.submit(call("60")), backend.submit(call("0.01"))
    assert fast.result(60).text == "ok"
    assert not slow.done()
    backend.close()
    with pytest.raises(BackendClosed):
        slow.result(60)


def test_a_cancelled_call_ends_in_an_abort() -> None:
    backend = ScriptedBackend("ok", is_held=True)
    reply = backend.submit(call())
    reply.cancel()
    assert reply.result(60).outputs[0].finish_reason == "abort"


def test_after_closing_every_call_ends_in_an_error() -> None:
    backend = ScriptedBackend("ok", is_held=True)
    before = backend.submit(call())
    backend.close()
    backend.close()
    after = backend.submit(call())
    for reply in (before, after):
        with pytest.raises(BackendClosed):
            reply.result(60)


def test_waiting_for_calls_that_do_not_come_ends() -> None:
    with pytest.raises(TimeoutError, match="0 of 1 calls"):
        ScriptedBackend().wait_for(1, timeout=0.01)


def test_a_prompt_is_shown_as_text() -> None:
    prompt = (Text("a"), Tokens((98, 99)), Image(b"png"))
    assert prompt_text(prompt) == "abc<image>"
    assert prompt_text(Chat((Message("user", prompt), Message("assistant", ())))) == (
        "user: abc<image>\nassistant: "
    )


@pytest.mark.parametrize(
    ("segment", "feature"), [(Image(b"p"), "images"), (Video(b"v", 2), "videos")]
)
def test_it_takes_the_media_that_its_features_name(segment, feature) -> None:
    for prompt in ((segment,), Chat((Message("user", (Text("a"), segment)),))):
        sees = ScriptedBackend("yes", features=frozenset({feature}))
        assert sees.submit(Call(prompt)).result().text == "yes"
        blind = ScriptedBackend("yes", features=ALL_FEATURES - {feature})
        with pytest.raises(UnsupportedCall, match=f"{feature} are not supported"):
            blind.submit(Call(prompt)).result()
