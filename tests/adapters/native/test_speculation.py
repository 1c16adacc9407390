"""Speculative execution: one call for several gens, whose answer is what each call alone would be.

The model of these tests goes on with a fixed text, from wherever a prompt ends in it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from forkroot.adapters.native import assistant, function, gen, select, user
from forkroot.adapters.native.interpreter.template import Follower, Template
from forkroot.adapters.native.language.expressions import Expression
from forkroot.adapters.testing import ScriptedBackend, prompt_text, scored
from forkroot.core.api.protocol import (
    Call,
    CallFailed,
    Chat,
    Chunk,
    Completion,
    InvalidCall,
    Message,
    Output,
    ProgramError,
    Sampling,
    Text,
    UnsupportedCall,
    Usage,
)
from forkroot.core.api.reply import Mailbox

CARD = 'x{"name": "Ada", "age": 36, "city": "London"}\nAnd so on and on, without an end.'


def writer(text: str) -> Callable[[Call], Completion]:
    """A model that writes this text, four characters a token, until a stop or the limit."""

    def script(call: Call) -> Completion:
        prompt = prompt_text(call.prompt)
        if call.options:
            return Completion(scores=scored(call, call.options[0]), usage=Usage(10, 0, 0))
        if isinstance(call.prompt, Chat):
            prompt = prompt_text(call.prompt.messages[-1].content)
        start = 0 if isinstance(call.prompt, Chat) and not prompt else text.index(prompt[-8:])
        start += len(prompt[-8:])
        rest, reason, matched = text[start:], "stop", None
        ends = {stop: rest.find(stop) for stop in call.sampling.stop if stop in rest}
        if ends:
            matched = min(ends, key=lambda stop: ends[stop])
            rest = rest[: ends[matched]]
        if len(rest) > 4 * (call.sampling.max_tokens or 999):
            rest, reason, matched = rest[: 4 * (call.sampling.max_tokens or 0)], "length", None
        usage = Usage(math.ceil(len(prompt) / 4), 0, math.ceil(len(rest) / 4), requests=1)
        output = Output(rest, (), reason, matched, (Text(rest),))  # type: ignore[arg-type]
        return Completion((output,), usage)

    return script


def astray(text: str) -> Callable[[Call], Completion]:
    """A model that writes CARD, and this text in the place of what follows its first name."""
    written, right = writer(text), writer(CARD)
    return lambda call: (written if prompt_text(call.prompt).endswith('"name": "') else right)(call)


def card(s: Any) -> None:
    s += 'x{"name": "' + gen("name", 8, stop='"') + '", "age": ' + gen("age", 8, stop=",")
    s += ', "city": "' + gen("city", 8, stop='"') + '"}'


def run(body: Callable[..., Any], text: str = CARD, **settings: Any) -> tuple[Any, Any]:
    backend = ScriptedBackend(writer(text))
    return function(body).run(backend=backend, temperature=0, **settings), backend


@pytest.mark.parametrize("limit", [True, 64])
def test_one_call_writes_all_fields_and_ends_where_the_last_one_does(limit: int | bool) -> None:
    state, backend = run(card, speculate=limit)
    plain, _ = run(card)
    for name, value in (("name", "Ada"), ("age", "36"), ("city", "London")):
        assert state[name] == plain[name] == value
    assert state.text() == plain.text()
    (call,) = backend.calls
    assert call.sampling.stop == ('"}',)
    assert call.sampling.max_tokens <= 24 + 12


def test_meta_information_says_what_was_saved_and_wasted() -> None:
    state, _ = run(card, speculate=True)
    assert [state.get_meta_info(name)["speculated"] for name in ("name", "age")] == [False, True]
    assert state.get_meta_info("name")["matched"] == '"'
    assert state.get_meta_info("age")["completion_tokens"] == 0
    total, plain = state.get_meta_info(), run(card)[0].get_meta_info()
    assert (total["calls"], plain["calls"]) == (1, 3)
    assert (total["reused"], total["wasted_tokens"]) == (2, 0)
    saved = plain["prompt_tokens"] - total["prompt_tokens"]
    assert total["saved_tokens"] == pytest.approx(saved, abs=6)
    assert "reused" not in plain


def test_a_model_that_ends_early_has_written_the_fields_before() -> None:
    def script(call: Call) -> Completion:
        prompt = prompt_text(call.prompt)
        return writer('x{"name": "Ada"}' if prompt.endswith('"name": "') else CARD)(call)

    backend = ScriptedBackend(script)
    state = function(card).run(backend=backend, temperature=0, speculate=True)
    assert (state["name"], state["age"], state["city"]) == ("Ada", "36", "London")
    assert len(backend.calls) == 2


def test_a_limit_bounds_the_overrun() -> None:
    state, backend = run(card, speculate=2)
    assert backend.calls[0].sampling.max_tokens == 8 + 2
    assert state["city"] == "London"


def test_text_that_does_not_match_is_dropped_and_counted() -> None:
    other = 'x{"name": "Ada", "years": 36}'

    backend = ScriptedBackend(astray(other))
    state = function(card).run(backend=backend, temperature=0, speculate=True)
    assert (state["name"], state["age"], state["city"]) == ("Ada", "36", "London")
    assert len(backend.calls) == 2
    total = state.get_meta_info()
    assert total["reused"] == 1
    assert total["wasted_tokens"] >= 4


def test_a_text_that_is_cut_off_is_not_a_value() -> None:
    def body(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"') + '", "age": ' + gen("age", 1, stop=",")
        s += ', "city": "' + gen("city", 1, stop='"') + '"}'

    state, plain = run(body, speculate=True)[0], run(body)[0]
    assert state.text() == plain.text()
    assert plain["city"] == "Lond"
    assert state["city"] == "Lond"


def test_a_first_gen_whose_stop_does_not_come_is_asked_for_alone() -> None:
    def body(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 2, stop="}") + '", "age": ' + gen("age", 1, stop="!")

    state, backend = run(body, speculate=3)
    assert (state["name"], len(backend.calls)) == (run(body)[0]["name"], 3)


def test_gens_that_differ_in_more_than_stop_and_limit_have_calls_of_their_own() -> None:
    def body(*nodes: Expression) -> Callable[[Any], None]:
        def program(s: Any) -> None:
            s += 'x{"name": "' + gen("name", 8, stop='"')
            for node in nodes:
                s += node

        return program

    for node in (
        gen("age", 8, stop=",", temperature=0.5),
        gen("age", 8, stop=",", return_logprob=True),
        gen("age", 8, stop=",", n=2),
        gen("age", 8, regex="[0-9]+"),
        gen("age", 8, stop=",", backend="other"),
        gen("age", None, stop=","),
    ):
        settings = {"max_tokens": None} if node.sampling.get("max_tokens") is None else {}
        backend = ScriptedBackend(writer(CARD))
        program = function(body('", "age": ' + node))
        program.run(
            backend=backend, backends={"other": backend}, temperature=0, speculate=True, **settings
        )
        assert backend.calls[0].sampling.stop == ('"',)
        assert len(backend.calls) == 2


class Typist(ScriptedBackend):
    """Writes the answers of streamed calls piece by piece to who follows them, until it is
    cancelled, or breaks after `num_pieces`."""

    def __init__(self, script: Callable[[Call], Completion], num_pieces: int = 1 << 20) -> None:
        super().__init__(script)
        self.script = script
        self.num_pieces = num_pieces
        self.written: list[str] = []

    def submit(self, call: Call) -> Any:
        if not call.stream:
            return super().submit(call)
        self.calls.append(call)
        return Typed(call, self)

    def cancel(self, reply: Any) -> None:
        reply.is_cancelled = True


class Typed(Mailbox):
    def __init__(self, call: Call, backend: Typist) -> None:
        super().__init__(call, backend.cancel)
        self.backend, self.is_cancelled = backend, False

    def follow(self, take: Callable[..., object]) -> None:
        super().follow(take)
        whole = self.backend.script(self.call)
        text, written = whole.outputs[0].text, ""
        for start in range(0, len(text), 4):
            if start // 4 == self.backend.num_pieces:
                self.fail(CallFailed("the stream broke"))
                return
            written += text[start : start + 4]
            self.put(Chunk(text[start : start + 4]))
            if self.is_cancelled:
                output = Output(written, (), "abort", None, (Text(written),))
                usage = replace(whole.usage, completion_tokens=len(written) // 4)
                whole = Completion((output,), usage)
                break
        self.backend.written.append(written)
        self.finish(whole)


def test_a_stop_that_constants_have_is_told_from_them_by_what_a_model_may_write_behind_it() -> None:
    def body(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"') + '", "age": 36, "city": "'
        s += gen("city", 8, stop='"')

    state, backend = run(body, speculate=True)
    assert state["city"] == "London"
    (call,) = backend.calls
    assert call.sampling.stop == ('"\n', '"}', '"]', '".')
    assert state.get_meta_info()["wasted_tokens"] == 0


def test_a_call_is_left_as_soon_as_its_last_gen_has_ended() -> None:
    def body(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"') + '", "age": 36, "city": "'
        s += gen("city", 8, stop='"')

    text = 'x{"name": "Ada", "age": 36, "city": "London" and so on, without an end.'
    backend = Typist(writer(text.replace('" and', '"- and')))
    state = function(body).run(backend=backend, temperature=0, speculate=True)
    assert (state["name"], state["city"]) == ("Ada", "London")
    (written,) = backend.written
    assert 'Ada", "age": 36, "city": "London"'.startswith(written[:-3])
    assert len(written) <= len('Ada", "age": 36, "city": "London"') + 3
    assert state.get_meta_info()["wasted_tokens"] <= 1


def test_a_call_is_left_where_its_answer_is_not_of_the_template() -> None:
    other = 'x{"name": "Ada", "born": 1815 in London, and so on and on.'

    backend = Typist(astray(other))
    state = function(card).run(backend=backend, temperature=0, speculate=True)
    assert (state["name"], state["age"], state["city"]) == ("Ada", "36", "London")
    assert backend.written[0] == 'Ada", "b'
    assert state.get_meta_info()["wasted_tokens"] == 1


FIELDS = Template((Sampling(4, stop=('"',)), Sampling(4, stop=(",", "}"))), ('", "age": ', "}"))


@pytest.mark.parametrize(
    "pieces",
    [
        ["Ada", '", "a', 'ge": 3', "6, "],
        ["Ada", '", "age": ', "36}"],
        ["Ada", '", "b'],
        ['Ada", "age": 36,'],
        ["A", "d", "a", "-", "b"],  # more than four tokens
        ["Ada", '", "age": ', "1", "2", "3", "4", "5"],
        ["A", "d", "a", '"', ", ", '"', "age", '": ', "36", ","],
    ],
)
def test_a_follower_has_no_use_for_more_after_the_last_stop_or_another_text(
    pieces: list[str],
) -> None:
    for given in (pieces, ["Name: ", *pieces]):
        follower = Follower(FIELDS, "" if given is pieces else "Name: ")
        assert [follower.take(piece) for piece in given] == [False] * (len(given) - 1) + [True]
        assert follower.has_text
    assert Follower(FIELDS, "Name: ").take("Nome: ")


def test_a_stream_that_breaks_is_followed_by_a_call_for_the_gen_alone() -> None:
    for num_pieces in (1, 3, 5):
        backend = Typist(writer(CARD), num_pieces)
        state = function(card).run(backend=backend, temperature=0, speculate=True)
        assert (state["name"], state["age"], state["city"]) == ("Ada", "36", "London")
    with pytest.raises(CallFailed, match="broke"):
        function(card).run(backend=Typist(writer(CARD), 0), temperature=0, speculate=True)


def test_a_select_a_role_or_a_fork_ends_what_a_call_is_planned_for() -> None:
    def body(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"') + '", "age": '
        s += select("age", ["36", "37"]) + ', "city": "' + gen("city", 8, stop='"')

    state, backend = run(body, speculate=True)
    assert (state["age"], state["city"], len(backend.calls)) == ("36", "London", 3)

    def forked(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"')
        branches = s.fork(2)
        branches += '", "age": ' + gen("age", 8, stop=",") + ', "city": "' + gen("c", 8, stop='"')
        branches.join()

    state, backend = run(forked, speculate=True, hints=False)
    assert (state["age"], state["c"]) == (["36", "36"], ["London", "London"])
    assert len(backend.calls) == 3


def test_the_rest_of_a_program_is_seen_when_it_waits_and_soon_where_it_does_not() -> None:
    def reads(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"')
        s += '", "age": ' + gen("age", 8, stop=",")
        assert s["name"] == "Ada"
        s += ', "city": "' + gen("city", 8, stop='"') + '"}'

    state, backend = run(reads, speculate=True)
    assert (state["city"], len(backend.calls)) == ("London", 2)

    def sleeps(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"')
        time.sleep(0.3)
        assert len(s._interpreter.feeds) == 2
        s += '", "age": ' + gen("age", 8, stop=",")

    assert run(sleeps, speculate=True)[0]["age"] == "36"


def test_a_chat_has_one_request_for_each_message_of_the_assistant() -> None:
    """As an API that continues no message takes them."""
    text = "Name: Ada\nJob: writer\nThat is all."

    def script(call: Call) -> Completion:
        if call.prompt.messages[-1].content:
            raise UnsupportedCall("prompt.open_last", True, "False")
        return writer(text)(call)

    def body(s: Any) -> None:
        s += user("Who?")
        s += assistant("Name: " + gen("name", 8, stop="\n") + "\nJob: " + gen("job", 8, stop="\n"))

    backend = ScriptedBackend(script)
    state = function(body).run(backend=backend, temperature=0, speculate=True)
    assert (state["name"], state["job"]) == ("Ada", "writer")
    assert [call.prompt.messages[-1] for call in backend.calls[1:]] == [Message("assistant", ())]
    assert state.messages()[-1] == {"role": "assistant", "content": "Name: Ada\nJob: writer"}
    with pytest.raises(UnsupportedCall, match="open_last"):
        function(body).run(backend=ScriptedBackend(script), temperature=0)
    text = "My name is Ada."
    with pytest.raises(ProgramError, match="begins with 'My name is Ada"):
        function(body).run(backend=ScriptedBackend(script), temperature=0, speculate=True)


def test_errors_of_a_planned_call_end_the_program() -> None:
    backend = ScriptedBackend([InvalidCall("x", 1, "2")])
    with pytest.raises(InvalidCall):
        function(card).run(backend=backend, speculate=True)


def test_a_program_that_wastes_more_than_it_saves_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "forkroot.programs")
    run(card, speculate=True)
    assert caplog.text == ""

    def ends(s: Any) -> None:
        s += 'x{"name": "' + gen("name", 8, stop='"') + "-" + gen("age", 20, stop=";")

    def script(call: Call) -> Completion | str:
        return "1" if prompt_text(call.prompt).endswith("-") else writer(CARD)(call)

    function(ends).run(backend=ScriptedBackend(script), temperature=0, speculate=True)
    assert "speculation does not pay here" in caplog.text


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes"])
def test_a_limit_is_a_number_of_tokens(value: Any) -> None:
    with pytest.raises(InvalidCall, match="speculate"):
        function(speculate=value)(card)
    with pytest.raises(InvalidCall, match="speculate"):
        function(card).run(backend=ScriptedBackend("x"), speculate=value)


def test_a_program_has_its_own_setting_which_a_run_may_change() -> None:
    program = function(speculate=True)(card)
    for bound in (program, program.bind()):
        for settings, num_calls in (({}, 1), ({"speculate": False}, 3)):
            backend = ScriptedBackend(writer(CARD))
            bound.run(backend=backend, temperature=0, **settings)
            assert len(backend.calls) == num_calls
    states = program.run_batch([{}] * 3, backend=(backend := ScriptedBackend(writer(CARD))))
    assert [state["city"] for state in states] == ["London"] * 3
    assert len(backend.calls) == 3
