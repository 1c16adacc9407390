"""Faults of an API: every call ends in an answer or in one typed error, and no key is shown."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import logging
import pickle
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

import forkroot
from forkroot.adapters.api import failures
from forkroot.adapters.api.sse import EventReader
from forkroot.core.api.protocol import (
    BackendClosed,
    Call,
    CallFailed,
    CallTooLarge,
    Chat,
    DeadlineExceeded,
    ForkrootError,
    InvalidCall,
    InvalidModel,
    Message,
    NotPicklable,
    Overloaded,
    Sampling,
    Text,
)

from .wires import Anthropic, ApiServer, Exchange, api_server, chat_body, chat_events

KEY = "sk-proj-do-not-show-0123456789"
CALL = Call(Chat((Message("user", (Text("x"),)),)))
STREAMED = Call(CALL.prompt, stream=True)
NOW = {"Retry_After": "0"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses before retries that tests can wait for."""
    monkeypatch.setattr(failures, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(failures, "LONGEST_PAUSE", 0.05)


def test_pauses_double_with_jitter_and_are_not_shorter_than_the_server_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failures, "FIRST_PAUSE", 0.5)
    monkeypatch.setattr(failures, "LONGEST_PAUSE", 30.0)
    source = random.Random(1)
    found = failures.Failure(CallFailed("x"), is_passing=True)
    for number, longest in ((0, 0.5), (1, 1.0), (3, 4.0), (20, 30.0)):
        pauses = {found.pause(number, source) for _ in range(50)}
        assert len(pauses) == 50
        assert longest / 2 <= min(pauses) <= max(pauses) <= longest
    assert failures.Failure(CallFailed("x"), True, 9.0).pause(0, source) == 9.0


def connected(server: ApiServer, **settings: Any) -> Any:
    given = {"base_url": server.url, "api_key": KEY, "max_retries": 3, **settings}
    return forkroot.connect("openai:m", **given)


def refusal(status: int, message: str = "no", **headers: str) -> Callable[[Exchange], object]:
    return lambda exchange: exchange.json({"error": {"message": message}}, status, **headers)


def in_turn(*answers: Callable[[Exchange], object]) -> Callable[[Exchange], object]:
    found, lock = iter(answers), threading.Lock()

    def answer(exchange: Exchange) -> object:
        with lock:
            chosen = next(found)
        return chosen(exchange)

    return answer


def good(exchange: Exchange) -> None:
    exchange.json(chat_body("well"))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_errors_that_pass_are_retried(status: int) -> None:
    with api_server(in_turn(refusal(status), good)) as server, connected(server) as backend:
        completion = backend.submit(CALL).result(60)
    assert completion.text == "well"
    assert completion.usage.requests == len(server.requests) == 2


def test_connections_that_are_reset_before_an_answer_are_made_again() -> None:
    answer = in_turn(lambda it: it.reset(), lambda it: it.reset(), good)
    with api_server(answer) as server, connected(server) as backend:
        assert backend.submit(CALL).result(60).text == "well"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidCall),
        (401, InvalidCall),
        (403, InvalidCall),
        (404, InvalidModel),
        (413, CallTooLarge),
        (422, InvalidCall),
        (418, CallFailed),
        (302, CallFailed),
    ],
)
def test_errors_that_stay_are_not_retried(status: int, kind: type[ForkrootError]) -> None:
    headers = {"Location": "http://127.0.0.1:9/"} if status == 302 else {}
    with api_server(refusal(status, **headers)) as server, connected(server) as backend:
        with pytest.raises(kind):
            backend.submit(CALL).result(60)
        assert len(server.requests) == 1


def test_a_used_up_quota_is_not_retried() -> None:
    error = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    with api_server(lambda it: it.json(error, 429)) as server, connected(server) as backend:
        with pytest.raises(CallFailed, match="exceeded your quota"):
            backend.submit(CALL).result(60)
        assert len(server.requests) == 1


def test_a_storm_of_429_ends_in_answers_and_at_the_last_retry_in_overloaded() -> None:
    numbers = itertools.count()

    def answer(exchange: Exchange) -> None:
        (refusal(429, **NOW) if next(numbers) % 3 else good)(exchange)

    with api_server(answer) as server, connected(server, max_retries=30) as backend:
        replies = [backend.submit(CALL) for _ in range(12)]
        assert {reply.result(60).text for reply in replies} == {"well"}
    with api_server(refusal(429, **NOW)) as server, connected(server, max_retries=2) as backend:
        with pytest.raises(Overloaded):
            backend.submit(CALL).result(60)
        assert len(server.requests) == 3


def test_retry_after_is_honoured_within_the_deadline() -> None:
    with (
        api_server(in_turn(refusal(429, Retry_After="0.7"), good)) as server,
        connected(server) as backend,
    ):
        start = time.monotonic()
        assert backend.submit(CALL).result(60).text == "well"
        assert time.monotonic() - start >= 0.7
    with api_server(refusal(429, Retry_After="30")) as server, connected(server) as backend:
        with pytest.raises(Overloaded):  # at once: the deadline comes before the server is ready
            backend.submit(Call(CALL.prompt, deadline=20.0)).result(60)
        assert len(server.requests) == 1


def test_a_deadline_ends_a_call_whatever_the_server_does() -> None:
    def sleep(exchange: Exchange) -> None:
        time.sleep(1.0)

    with (
        api_server(sleep) as server,
        connected(server) as backend,
        pytest.raises(DeadlineExceeded, match=r"deadline=0\.2"),
    ):
        backend.submit(Call(CALL.prompt, deadline=0.2)).result(60)


def test_no_more_requests_are_open_than_max_concurrency() -> None:
    def slow(exchange: Exchange) -> None:
        time.sleep(0.05)
        good(exchange)

    with api_server(slow) as server, connected(server, max_concurrency=3) as backend:
        replies = [backend.submit(CALL) for _ in range(12)]
        assert {reply.result(60).text for reply in replies} == {"well"}
        assert server.most_running == 3


EVENTS = chat_events("Hel", "lo")


def broken_stream(*pieces: bytes) -> Callable[[Exchange], object]:
    return lambda exchange: exchange.stream(*pieces)


def reset_in_stream(exchange: Exchange) -> None:
    exchange.stream(EVENTS[0])
    time.sleep(0.1)
    exchange.reset()


@pytest.mark.parametrize(
    "answer",
    [
        broken_stream(EVENTS[0], b"data: {not json\n\n"),
        broken_stream(EVENTS[0], b"data: [1, 2]\n\n"),
        broken_stream(
            EVENTS[0], b'data: {"choices": [{"index": 99, "delta": {"content": "x"}}]}\n\n'
        ),
        broken_stream(EVENTS[0], b'data: {"choices": 5}\n\n'),
        broken_stream(EVENTS[0], b'data: {"other": 5}\n\n'),
        broken_stream(EVENTS[0], b"data: \xff\xfe\n\n"),
        broken_stream(EVENTS[0], b'data: {"error": {"message": "the model crashed"}}\n\n'),
        broken_stream(EVENTS[0]),
        reset_in_stream,
    ],
)
def test_a_stream_that_breaks_ends_in_one_error_after_the_text_before(answer: Any) -> None:
    with api_server(answer) as server, connected(server) as backend:
        reply, texts, endings = backend.submit(STREAMED), list[str](), list[Any]()
        reply.when_done(endings.append)
        with pytest.raises(CallFailed):
            for chunk in reply:
                texts.append(chunk.text)
        assert texts == ["Hel"]
        assert len(endings) == 1
        assert len(server.requests) == 1  # a reader has seen text of this answer


def test_a_stream_that_breaks_before_its_first_text_starts_again() -> None:
    answer = in_turn(broken_stream(), lambda it: it.stream(*EVENTS))
    with api_server(answer) as server, connected(server) as backend:
        reply = backend.submit(STREAMED)
        assert "".join(chunk.text for chunk in reply) == "Hello"
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>bad gateway</html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"index": 0}]}',
        b'{"choices": "x"}',
        b"[" * 100_000,
        json.dumps({**chat_body("x"), "usage": 5}).encode(),
    ],
)
def test_a_body_that_is_not_an_answer_is_one_error(data: bytes) -> None:
    with (
        api_server(lambda it: it.raw(data)) as server,
        connected(server, max_retries=0) as backend,
        pytest.raises(CallFailed),
    ):
        backend.submit(CALL).result(60)


def test_a_body_that_is_cut_off_or_too_large_is_one_error() -> None:
    def cut(exchange: Exchange) -> None:
        exchange.raw(b'{"choices"', Content_Length="100")
        exchange.handler.close_connection = True

    with (
        api_server(cut) as server,
        connected(server, max_retries=0) as backend,
        pytest.raises(CallFailed),
    ):
        backend.submit(CALL).result(60)
    large = json.dumps(chat_body("x" * 100_000)).encode()
    packed = gzip.compress(large)
    answers = (lambda it: it.raw(large), lambda it: it.raw(packed, Content_Encoding="gzip"))
    for answer in answers:
        with api_server(answer) as server, connected(server, max_body=50_000) as backend:
            with pytest.raises(CallFailed, match="max_body=50000"):
                backend.submit(CALL).result(60)
            assert len(server.requests) == 1


def test_a_body_that_falls_silent_is_one_error_and_not_retried() -> None:
    def slow(exchange: Exchange) -> None:
        exchange.stream(EVENTS[0], b"", pause=0.8)

    with api_server(slow) as server, connected(server, silence=0.3) as backend:
        with pytest.raises(CallFailed, match=r"silence=0\.3"):
            backend.submit(STREAMED).result(60)
        assert len(server.requests) == 1


def test_an_answer_that_comes_drop_by_drop_is_one_error() -> None:
    def trickle(exchange: Exchange) -> None:
        exchange.stream(EVENTS[0], *[b": wait\n\n"] * 20, pause=0.05)

    with api_server(trickle) as server, connected(server, silence=5, longest=0.3) as backend:
        for call in (STREAMED, CALL):
            with pytest.raises(CallFailed, match=r"longest=0\.3"):
                backend.submit(call).result(10)
        assert len(server.requests) == 2


def test_a_whole_answer_to_who_wants_a_stream_is_read_as_one() -> None:
    def answer(exchange: Exchange) -> None:
        exchange.json(chat_body("well"), Content_Type="application/json; charset=utf-8")

    with api_server(answer) as server, connected(server) as backend:
        reply = backend.submit(STREAMED)
        assert "".join(chunk.text for chunk in reply) == reply.result(5).text == "well"
        assert len(server.requests) == 1


def test_a_server_that_refuses_options_of_streams_is_asked_without_them() -> None:
    def strict(exchange: Exchange) -> None:
        options = exchange.body.get("stream_options")
        if options is None:
            exchange.stream(*EVENTS[:-2], EVENTS[-1])
        else:
            exchange.json({"error": {"message": f"extra fields: {sorted(options)}"}}, 422)

    with api_server(strict) as server, connected(server) as backend:
        for num in (3, 4):  # it is learnt once
            completion = backend.submit(STREAMED).result(10)
            assert completion.text == "Hello"
            assert len(server.requests) == num
        assert completion.usage.completion_tokens == 2  # pieces, as none were reported
        assert completion.usage.prompt_tokens == 0


@pytest.mark.parametrize("number", [-5, "5", 1e999, True, [1], 10**30])
def test_tokens_that_are_no_number_are_one_error(number: Any) -> None:
    found = {"prompt_tokens": number, "completion_tokens": 1}
    answers = [lambda it: it.raw(json.dumps({**chat_body("x"), "usage": found}).encode())]
    with api_server(answers[0]) as server, connected(server, max_retries=0) as backend:
        with pytest.raises(CallFailed, match="not of its wire"):
            backend.submit(CALL).result(10)
        assert backend.info().counters["prompt_tokens"] == 0


@pytest.mark.parametrize("value", [5, True, {"a": 1}, ["a"]])
@pytest.mark.parametrize("field", ["text", "message"])
def test_a_text_that_is_none_is_one_error(field: str, value: Any) -> None:
    choice = {"index": 0, "finish_reason": "stop"}
    choice[field] = value if field == "text" else {"role": "assistant", "content": value}
    body = json.dumps({**chat_body("x"), "choices": [choice]}).encode()
    with (
        api_server(lambda it: it.raw(body)) as server,
        connected(server, max_retries=0) as backend,
        pytest.raises(CallFailed, match="not of its wire"),
    ):
        backend.submit(CALL).result(10)


def test_halves_of_a_character_in_two_pieces_are_one() -> None:
    def piece(text: str) -> bytes:
        choice = f'{{"index": 0, "delta": {{"content": "{text}"}}, "finish_reason": null}}'
        return f'data: {{"choices": [{choice}]}}\n\n'.encode()

    pieces = (piece("a\\ud83d"), piece("\\ude00b"), piece("\\ude00"), piece("\\ud83d"))
    with (
        api_server(lambda it: it.stream(*pieces, *EVENTS[2:])) as server,
        connected(server) as backend,
    ):
        text = backend.submit(STREAMED).result(10).text
    assert text == "a😀b\ufffd"
    text.encode()


def test_a_server_that_does_not_exist_is_one_error() -> None:
    with (
        forkroot.connect(
            "openai:m", base_url="http://127.0.0.1:9", api_key=KEY, max_retries=1
        ) as backend,
        pytest.raises(CallFailed, match="cannot be reached"),
    ):
        backend.submit(CALL).result(60)


def test_a_cancelled_call_ends_with_what_has_come() -> None:
    with (
        api_server(lambda it: it.stream(EVENTS[0], b"", pause=1.0)) as server,
        connected(server) as backend,
    ):
        reply = backend.submit(STREAMED)
        next(iter(reply))
        reply.cancel()
        output = reply.result(60).outputs[0]
        assert (output.text, output.finish_reason) == ("Hel", "abort")
        waiting = backend.submit(Call(CALL.prompt, Sampling(n=2)))
        waiting.cancel()
        assert len(waiting.result(60).outputs) == 2


def test_closing_ends_every_call_once() -> None:
    def sleep(exchange: Exchange) -> None:
        time.sleep(0.5)

    with api_server(sleep) as server:
        backend, endings = connected(server, max_concurrency=2), list[Any]()
        replies = [backend.submit(CALL) for _ in range(6)]
        for reply in replies:
            reply.when_done(endings.append)
        backend.close()
        backend.close()
        for reply in (*replies, backend.submit(CALL)):
            with pytest.raises(BackendClosed):
                reply.result(60)
        assert len(endings) == 6
        with pytest.raises(BackendClosed):
            backend.info()


def test_a_backend_is_pickled_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with api_server(good) as server:
        with forkroot.connect("openai:m", base_url=server.url) as backend:
            data = pickle.dumps(backend)
            assert KEY.encode() not in data
            with pickle.loads(data) as other:
                assert other.submit(CALL).result(60).text == "well"
        with connected(server) as backend, pytest.raises(NotPicklable) as caught:
            pickle.dumps(backend)
        assert KEY not in str(caught.value)


def test_no_key_is_in_any_log_error_traceback_or_repr(capfd: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    found: list[str] = []
    echo = f"Incorrect API key provided: {KEY}"
    try:
        answers = [
            refusal(401, echo),
            refusal(403, echo),
            refusal(400, echo),
            refusal(500, echo),
            refusal(429, echo, **NOW),
            lambda it: it.raw(KEY.encode()),
            lambda it: it.json({"choices": KEY}),
            lambda it: it.stream(f"data: {KEY}\n\n".encode()),
            lambda it: it.stream(f'data: {{"error": {{"message": "{KEY}"}}}}\n\n'.encode()),
            lambda it: it.json(chat_body(None, refusal=KEY)),
            lambda it: it.reset(),
            *(lambda it, num=num: it.raw(b"x" * num + KEY.encode()) for num in (60, 75)),
            *(lambda it, num=num: it.json({"x" * num: KEY}) for num in (60, 70)),
            refusal(400, quote(f"in a URL: {KEY}/", safe="")),
            refusal(400, "x" * 290 + KEY),
        ]
        wires = [("openai:m", answer) for answer in answers]
        wires.append(("anthropic:m", Anthropic(lambda body: "x")))
        wires.append(("anthropic:m", lambda it: it.reset()))
        for name, answer in wires:
            with (
                api_server(answer) as server,
                forkroot.connect(name, base_url=server.url, api_key=KEY, max_retries=1) as backend,
            ):
                for call in (CALL, STREAMED):
                    error = backend.submit(call)
                    with pytest.raises(ForkrootError) as caught:
                        error.result(60)
                    found += traceback.format_exception(caught.value)
                    found += with_locals(caught.value)
                    found += [repr(caught.value), repr(caught.value.args)]
                    found += map(repr, _chain(caught.value))
                settings = backend.settings
                found += [repr(backend), repr(settings), repr(backend.info()), str(settings)]
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
    out, err = capfd.readouterr()
    text = "\n".join((*found, stream.getvalue(), out, err))
    assert "Incorrect API key provided: ..." in text
    assert KEY not in text
    assert KEY[:12] not in text
    assert "retry 1 of 1" in text


def _chain(error: BaseException | None) -> list[dict[str, Any]]:
    """The attributes of an error and of all that it came from."""
    found = []
    while error is not None:
        found.append({**vars(error), "request": getattr(error, "request", None)})
        error = error.__cause__ or error.__context__
    return found


def with_locals(error: BaseException) -> list[str]:
    """A traceback as tools print it that show local variables; not those of this file."""
    found: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        frames = traceback.walk_tb(seen.__traceback__)
        for frame in (it for it, _ in frames if it.f_code.co_filename != __file__):
            found += [f"{name}={value!r}" for name, value in frame.f_locals.items()]
        seen = seen.__cause__ or seen.__context__
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"unknown": 1},
        {"silence": -1},
        {"base_url": "http://127.0.0.1:9/?key=" + KEY},
        {"base_url": f"http://u:{KEY}@127.0.0.1:9"},
        {"api_key": KEY + "\n"},
        {"prices": {"input": "x"}},
        {"process": True},
    ],
)
def test_settings_that_are_refused_show_no_key(settings: dict[str, Any]) -> None:
    names = ["openai:m", "anthropic:m"]
    for name in names if "base_url" in settings else [*names, "http://127.0.0.1:9"]:
        given = {"api_key": KEY, **settings}
        with pytest.raises(InvalidCall) as caught:
            forkroot.connect(name, **given)
        assert KEY not in "\n".join(traceback.format_exception(caught.value))
        if "base_url" not in settings:
            assert KEY not in "\n".join(with_locals(caught.value))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_the_same_however_their_bytes_come(size: int) -> None:
    data = "data: a\n\n: comment\ndata: b\r\ndata: ü\u2028\r\n\r\nevent: x\ndata:c\r\rdata: last"
    raw, reader, found = data.encode(), EventReader(), list[str]()
    for start in range(0, len(raw), size):
        found += reader.push(raw[start : start + size])
    found += reader.end()
    assert found == ["a", "b\nü\u2028", "c", "last"]
