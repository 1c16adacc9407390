"""`RemoteBackend`: the same protocol, behind a server; and what happens when either end goes
away."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn

from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.native import assistant, function, gen, image, select, user, video
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import (
    Backend,
    BackendClosed,
    Call,
    CallFailed,
    CallTooLarge,
    Chat,
    Choices,
    DeadlineExceeded,
    ForkHint,
    ForkrootError,
    Grammar,
    Image,
    InvalidCall,
    JsonSchema,
    Message,
    Overloaded,
    Regex,
    Sampling,
    Text,
    Tokens,
    UnsupportedCall,
    Video,
)
from forkroot.core.local import LocalBackend

Serve = Callable[..., RemoteBackend]


@contextmanager
def serving(runtime: Runtime, settings: Settings | None = None) -> Iterator[str]:
    """A server in a thread of this process; gives its URL."""
    config = uvicorn.Config(build_app(runtime, settings), log_config=None)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield "http://{}:{}".format(*listening.getsockname())
        server.should_exit = True
        server.force_exit = True
        thread.join(60)


@pytest.fixture(scope="module")
def remote(server: str) -> Iterator[RemoteBackend]:
    with RemoteBackend(server) as remote:
        yield remote


@pytest.fixture(scope="module")
def hurried() -> Iterator[LocalBackend]:
    """The same model, whose unfinished roots stay pinned for half a second, not for ten."""
    sizes = {"dtype": "float32", "num_slots": 20_000, "root_timeout": 0.5}
    with LocalBackend.from_folder("tiny", **sizes) as backend:
        yield backend


@pytest.fixture
def serve(runtime: Runtime) -> Iterator[Serve]:
    """Serves another backend, and gives the client of it."""
    with ExitStack() as stack:

        def start(
            backend: Backend,
            limits: Limits | None = None,
            settings: Settings | None = None,
            **options: Any,
        ) -> RemoteBackend:
            served = replace(runtime, backend=backend, limits=limits or Limits())
            url = stack.enter_context(serving(served, settings))
            return stack.enter_context(RemoteBackend(url, **options))

        yield start


def ask(text: str, max_tokens: int | None = 8, **options: Any) -> Call:
    names = set(Sampling.__slots__)
    sampling = {key: value for key, value in options.items() if key in names}
    rest = {key: value for key, value in options.items() if key not in names}
    return Call(
        (Text(text),), Sampling(**{"temperature": 0, **sampling}, max_tokens=max_tokens), **rest
    )


ENDLESS = ask("Once", 1500, ignore_eos=True, stream=True)
CHAT = Chat((Message("system", (Text("Be brief."),)), Message("user", (Text("Hi"),))))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALLS = [
    ask("The capital of France is"),
    ask("The capital of France is", stream=True),
    ask("The capital of France is", stream=True, logprobs=2),
    ask("The capital of France is", stop=(".",)),
    ask("The capital of France is", n=3, temperature=1.5, seed=3, logprobs=2, stream=True),
    ask("The capital of France is", None),
    ask("Ein Ü, ein 日本 und", 12, stream=True, logit_bias={5: 3.0}, temperature=1.0, seed=1),
    ask("root", 0),
    ask("Answer: ", constraint=Choices(("yes", "no"))),
    ask("Answer: ", 30, constraint=Regex("[0-9]{2}-[0-9]{2}"), log_mass=True),
    ask("Answer: ", 40, constraint=JsonSchema({"enum": ["x", 2]}), stream=True),
    ask("Answer: ", 40, constraint=Grammar('root ::= "a" | "bc"', "gbnf")),
    ask("Answer: ", options=("yes", "no")),
    ask("Answer: ", options=("yes", "no"), scoring="exact"),
    ask("Answer: ", options=("yes", "no"), scoring="canonical"),
    Call(
        (Tokens((1, 518, 715)), Text(" of"), Text(" France", (2915,))), Sampling(5, temperature=0)
    ),
    Call(CHAT, Sampling(6, temperature=0), stream=True),
    Call(replace(CHAT, tools=(TOOL,)), Sampling(6, temperature=0)),
    Call(replace(CHAT, open_last=True), Sampling(6, temperature=0), priority=3, deadline=30.0),
]


# --- the same answers --------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS, ids=range(len(CALLS)))
def test_answers_are_those_of_the_backend_that_is_served(remote, backend, call) -> None:
    here, from_server = backend.submit(call), remote.submit(call)
    one, two = here.result(30), from_server.result(30)
    assert [o.text for o in one.outputs] == [o.text for o in two.outputs]
    for first, second in zip(one.outputs, two.outputs, strict=True):
        assert replace(first, logprobs=(), log_mass=None) == replace(
            second, logprobs=(), log_mass=None
        )
        assert [p.id for p in first.logprobs] == [p.id for p in second.logprobs]
        assert [p.logprob for p in first.logprobs] == pytest.approx(
            [p.logprob for p in second.logprobs], abs=1e-3
        )
        assert (first.log_mass is None) is (second.log_mass is None)
    for first, second in zip(one.scores, two.scores, strict=True):
        assert (first.text, first.ids, first.segments) == (second.text, second.ids, second.segments)
        assert first.logprob == pytest.approx(second.logprob, abs=1e-3)
        assert (first.bounds is None) is (second.bounds is None)
    assert one.usage.prompt_tokens == two.usage.prompt_tokens
    assert one.usage.completion_tokens == two.usage.completion_tokens
    for index in range(len(one.outputs)):
        text = "".join(chunk.text for chunk in from_server if chunk.index == index)
        assert text == (two.outputs[index].text if call.stream else "")


def test_it_is_a_backend_and_reports_what_it_runs(remote, backend) -> None:
    assert isinstance(remote, Backend)
    here, from_server = backend.info(), remote.info()
    assert from_server.model == "tiny"
    assert (here.context_len, here.vocabulary_size, here.features | {"programs", "relay"}) == (
        from_server.context_len,
        from_server.vocabulary_size,
        from_server.features,
    )
    assert set(here.counters) == set(from_server.counters)


def test_every_field_of_a_call_comes_through(serve) -> None:
    scripted = ScriptedBackend("yes")
    remote = serve(scripted)
    call = Call(
        replace(CHAT, tools=(TOOL,), open_last=True),
        Sampling(
            3, 1, 0.5, 0.9, 5, 0.1, 0.2, 0.3, 1.1, {4: -1.5}, 9, ("x",), (7,), True, 2, 3, True
        ),
        JsonSchema({"type": "object", "x": [1, {"type": "Text"}]}),
        hint=ForkHint("r", 2, 1),
        stream=True,
        namespace="n",
        priority=-3,
        deadline=20.0,
        tenant="t",
        weight=2.0,
    )
    images = Call((Image(b"\x00\xff"),), options=("a", "b"), scoring="exact")
    remote.submit(call).result(60)
    remote.submit(images).result(60)
    assert scripted.calls == [call, replace(images, tenant="")]  # the server names who sent it


def test_images_and_videos_come_through_with_the_features_that_say_so(serve) -> None:
    seen = frozenset({"tokens", "options", "images", "videos"})
    scripted = ScriptedBackend("A cat.", features=seen)
    remote = serve(scripted)
    assert remote.info().features == seen | {"programs", "relay"}
    data = bytes(range(256)) * 4000  # a megabyte, of every byte
    content = (Text("In "), Image(data), Text(" and "), Video(data[::-1], 16), Text("?"))
    call = Call(Chat((Message("user", content),)), hint=ForkHint("r", 2, 1))
    assert remote.submit(call).result(60).text == "A cat."
    assert scripted.calls == [replace(call, tenant="")]


def test_programs_show_a_remote_backend_what_it_takes(serve) -> None:
    @function
    def look(s):
        s += user(image(b"png") + "What?") + assistant(gen("x") + gen("y"))

    @function
    def watch(s):
        s += user(video(b"mp4", 8) + "What?") + assistant(gen("x"))

    scripted = ScriptedBackend("cat", features=frozenset({"images"}))
    remote = serve(scripted)
    assert look.run(backend=remote)["y"] == "cat"
    with pytest.raises(UnsupportedCall, match="videos are not supported by this model"):
        watch.run(backend=remote)
    assert len(scripted.calls) == 2
    with pytest.raises(UnsupportedCall, match="a video"):  # the server refuses a bare call itself
        remote.submit(Call((Video(b"mp4", 8),))).result(60)


def test_a_video_without_a_number_of_frames_is_refused_here_and_there(runtime) -> None:
    with serving(replace(runtime, backend=ScriptedBackend("yes"))) as url, RemoteBackend(url) as it:
        for frames in (0, -1, "8", None):
            with pytest.raises(InvalidCall, match="num_frames"):
                it.submit(Call((Video(b"mp4", frames),))).result(60)
            data = {"type": "bytes", "base64": "AAAA"}
            prompt = [{"type": "Video", "data": data, "num_frames": frames}]
            answer = httpx.post(f"{url}/v1/forkroot/calls", json={"type": "Call", "prompt": prompt})
            assert "num_frames as an integer >= 1" in answer.text


def test_hints_do_what_they_do_here(remote, backend) -> None:
    backend.clear_cache()
    root = "A root that several calls have in common, and that is planted before they fork."
    hint = ForkHint("a root", branches=2)
    remote.submit(ask(root, 0, hint=hint)).result(30)
    for question in ("Why?", "How?"):
        assert locked(backend) > 0
        usage = remote.submit(ask(f"{root} {question}", hint=hint)).result(30).usage
        assert usage.cached_tokens > 5
    assert locked(backend) == 0


@pytest.mark.parametrize(
    "hint",
    [ForkHint(""), ForkHint("x" * 5000, -3, 10**9), ForkHint("\ud800"), ForkHint("r", 0, -1)],
)
def test_no_hint_makes_a_call_fail(remote, backend, hint) -> None:
    call = ask("The capital of France is", 2)
    expected = remote.submit(call).result(30).text
    assert remote.submit(replace(call, hint=hint)).result(30).text == expected
    release = replace(hint, branches=0)
    remote.submit(replace(call, sampling=Sampling(max_tokens=0), hint=release)).result(30)
    assert locked(backend) == 0


def test_a_namespace_keeps_its_tokens_to_itself(remote, backend) -> None:
    backend.clear_cache()
    for namespace in ("a", "b", ""):
        call = ask("Something that nobody else has asked before.", 2, namespace=namespace)
        assert remote.submit(call).result(30).usage.cached_tokens == 0
        assert remote.submit(call).result(30).usage.cached_tokens > 0


# --- many at once ------------------------------------------------------------------------------


def test_threads_and_tasks_use_one_backend_at_once(remote, backend) -> None:
    texts = [f"The number {number} is" for number in range(16)]
    calls = [ask(text, 9, stream=True) for text in texts]
    expected = [backend.submit(call).result(30).text for call in calls]

    def in_thread(call: Call) -> str:
        return "".join(chunk.text for chunk in remote.submit(call))

    async def in_task(call: Call) -> str:
        reply = remote.submit(call)
        chunks = [chunk.text async for chunk in reply]
        assert (await reply).text == "".join(chunks)
        return "".join(chunks)

    async def in_tasks() -> list[str]:
        return await asyncio.gather(*map(in_task, calls))

    with ThreadPoolExecutor(9) as pool:
        tasks = pool.submit(lambda: asyncio.run(in_tasks()))
        assert list(pool.map(in_thread, calls)) == tasks.result(30) == expected


def test_an_action_at_the_end_may_call_the_backend_again(remote) -> None:
    texts: list[str] = []
    finished = threading.Event()

    def again(reply: Any) -> None:
        texts.append(reply.result().text)
        assert remote.info().model == "tiny"
        if len(texts) == 3:
            finished.set()
        else:
            remote.submit(ask(f"call {len(texts)}")).when_done(again)

    remote.submit(ask("call")).when_done(again)
    assert finished.wait(60)


@pytest.mark.parametrize("is_closed_early", [True, False])
def test_whatever_threads_do_each_call_ends_once(serve, hurried, is_closed_early) -> None:
    remote = serve(hurried)
    endings: dict[object, int] = {}

    def count(reply: Any) -> None:
        endings[reply] = endings.get(reply, 0) + 1

    def busy(seed: int) -> list[Any]:
        rng, replies = random.Random(seed), []
        for _ in range(12):
            call = ask(
                rng.choice(("root a ", "root b ", "")) + "".join(rng.choices("abc", k=8)),
                rng.choice((0, 1, 5, 20)),
                n=rng.choice((1, 2)),
                hint=rng.choice((None, ForkHint("root", 2, 1))),
                deadline=rng.choice((None, None, 0.002)),
                stream=rng.choice((True, False)),
            )
            replies.append(remote.submit(call))
            replies[-1].when_done(count)
            if rng.random() < 0.3:
                time.sleep(rng.choice((0, 0.001, 0.01)))
                replies[-1].cancel()
        return replies

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(busy, seed) for seed in range(5)]
        if is_closed_early:
            futures[0].result(30)
            remote.close()
        replies = [reply for future in futures for reply in future.result(30)]
    for reply in replies:
        try:
            reply.result(30)
        except ForkrootError:
            assert reply.error() is not None
    remote.close()
    assert [endings[reply] for reply in replies] == [1] * 60
    release = ask("root", 0, hint=ForkHint("root", branches=0))

    def is_free() -> bool:
        hurried.submit(release).result(30)
        return locked(hurried) == 0

    wait_until(is_free)
    hurried.check()


# --- endings -----------------------------------------------------------------------------------


def test_bad_calls_get_their_errors_and_harm_no_other(remote, backend) -> None:
    no_json = ask("x", constraint=JsonSchema({"a": object()}))
    bad = [
        Call((Text(""),)),
        ask("x " * 5000),
        ask("x", deadline=-1.0),
        ask("x", constraint=Regex("(")),
        ask("x", constraint=Regex("(?=a)")),
        ask("x", temperature=-1),
        no_json,
        Call((Tokens((99999,)),)),
        Call((Image(b"x"),)),
        Call(3),  # type: ignore[arg-type]
    ]
    for call in bad:
        expected = backend.submit(call).error()
        found = remote.submit(call)
        with pytest.raises(InvalidCall) as caught:
            found.result(30)
        if isinstance(expected, InvalidCall) and call is not no_json:
            kinds = (InvalidCall, UnsupportedCall, CallTooLarge)
            assert [isinstance(caught.value, kind) for kind in kinds] == [
                isinstance(expected, kind) for kind in kinds
            ]
            assert caught.value.field == expected.field
            assert str(caught.value) == str(expected)
    assert remote.submit(CALLS[0]).result(30).text


@pytest.mark.parametrize(
    "error",
    [
        InvalidCall("stop", "x", "no x"),
        UnsupportedCall("prompt", "an image", "text"),
        CallTooLarge("prompt", "9 tokens", "8"),
        DeadlineExceeded("deadline=1 s is over"),
        Overloaded("3 wait already"),
        CallFailed("it broke"),
        BackendClosed("it died"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("delay", [0.0, 0.05], ids=["at once", "later"])
def test_errors_come_through_with_their_type(serve, error, delay) -> None:
    remote = serve(ScriptedBackend([error], delay=delay))
    with pytest.raises(type(error)) as caught:
        remote.submit(ask("a")).result(60)
    if not isinstance(error, CallFailed | BackendClosed):
        assert str(caught.value) == str(error)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_call_that_is_cancelled_gives_what_it_has(remote, backend, is_streamed) -> None:
    reply = remote.submit(replace(ENDLESS, stream=is_streamed))
    if is_streamed:
        next(iter(reply))
    else:
        wait_until(lambda: locked(backend) > 0)
    reply.cancel()
    output = reply.result(30).outputs[0]
    assert output.finish_reason == "abort"
    if is_streamed:
        assert output.text == "".join(chunk.text for chunk in reply)
        assert output.text
    wait_until(lambda: locked(backend) == 0)


def test_a_call_that_is_cancelled_at_once_ends_and_leaves_nothing(remote, backend) -> None:
    for _ in range(5):
        reply = remote.submit(replace(ENDLESS, sampling=replace(ENDLESS.sampling, n=3)))
        reply.cancel()
        assert [one.finish_reason for one in reply.result(30).outputs] == ["abort"] * 3
    reply = remote.submit(ask("Answer: ", options=("yes", "no"), scoring="exact"))
    reply.cancel()
    assert reply.result(30).outputs == ()
    wait_until(lambda: locked(backend) == 0)


def test_closing_ends_open_calls_here_and_there(server, backend) -> None:
    remote = RemoteBackend(server)
    replies = [remote.submit(ENDLESS) for _ in range(3)]
    next(iter(replies[0]))
    remote.close()
    remote.close()
    late = remote.submit(ENDLESS)
    for reply in [*replies, late]:
        outcome = "already closed when it was called" if reply is late else "before the call ended"
        with pytest.raises(BackendClosed, match=outcome):
            reply.result(60)
        reply.cancel()
    with pytest.raises(BackendClosed, match="already closed when it was called"):
        remote.info()
    wait_until(lambda: locked(backend) == 0)


def test_an_action_may_close_the_backend(server) -> None:
    remote = RemoteBackend(server)
    other = remote.submit(ENDLESS)
    remote.submit(ask("one", 1)).when_done(lambda _: remote.close())
    with pytest.raises(BackendClosed):
        other.result(60)
    remote.close()


@pytest.mark.parametrize("url", ["", "localhost:3", "ftp://a", "http://", "http://a:b", 3])
def test_what_is_not_a_url_is_refused(url) -> None:
    with pytest.raises(InvalidCall) as caught:
        RemoteBackend(url)
    assert caught.value.field == "url"


def test_where_no_server_is_calls_end_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = "http://{}:{}".format(*taken.getsockname())
        with RemoteBackend(url) as remote:
            with pytest.raises(BackendClosed, match="cannot be reached"):
                remote.submit(ask("a")).result(60)
            with pytest.raises(BackendClosed, match="cannot be reached"):
                remote.info()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b'HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\ndata: {"accepted": "a"}\n\n',
        b'HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\ndata: {"accepted": "abc"}\n\n',
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ndata: x\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\ndata: {}\n\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}",
        b"SSH-2.0-nonsense\r\n",
    ],
    ids=["nothing", "half", "no end", "no JSON", "no event", "no stream", "404", "500", "no HTTP"],
)
def test_a_server_that_talks_nonsense_ends_the_call(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            for _ in range(2):
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                with line:
                    line.recv(65536)
                    line.sendall(answer)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        url = "http://{}:{}".format(*listening.getsockname())
        with RemoteBackend(url) as remote, pytest.raises(BackendClosed):
            remote.submit(ask("a")).result(60)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(60)


def test_a_server_that_falls_silent_ends_the_call() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = "http://{}:{}".format(*listening.getsockname())
        with RemoteBackend(url, silence=0.1) as remote, pytest.raises(BackendClosed):
            remote.submit(ask("a")).result(60)


def test_a_backend_that_dies_behind_the_server_ends_every_open_call(runtime) -> None:
    held = ScriptedBackend("a", is_held=True)
    with ExitStack() as stack:
        url = stack.enter_context(serving(replace(runtime, backend=held)))
        remote = stack.enter_context(RemoteBackend(url))
        replies = [remote.submit(ask("a")) for _ in range(5)]
        held.wait_for(5)
        held.close()
        for reply in replies:
            with pytest.raises(BackendClosed):
                reply.result(60)


def test_a_call_that_takes_long_is_not_taken_for_dead(serve, monkeypatch) -> None:
    monkeypatch.setattr("forkroot.adapters.http.forkroot.calls.SILENCE", 0.02)
    remote = serve(ScriptedBackend("late", delay=0.6), silence=0.2)
    assert remote.submit(ask("a")).result(60).text == "late"


# --- programs ----------------------------------------------------------------------------------


def test_a_program_of_the_native_language_runs_over_it(remote, backend) -> None:
    @function
    def program(s):
        s += "The capital of France is" + select("city", [" Rome", " Paris", " London"])
        branches = s.fork(3)
        branches += lambda index: f" Point {index}: " + gen("point", max_tokens=5, temperature=0)
        s += "; ".join(branch["point"] for branch in branches)

    here, from_server = (program.run(backend=one) for one in (backend, remote))
    assert from_server["city"] == " Paris"
    assert from_server.text() == here.text()
    wait_until(lambda: locked(backend) == 0)


# --- what a server allows ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (ask("a", n=3), "n"),
        (ask("a", stop=("a", "b", "c")), "stop"),
        (ask("a", logprobs=3), "logprobs"),
        (ask("a", options=("a", "b", "c")), "options"),
        (ask("a", constraint=Regex("a" * 99)), "constraint"),
        (ask("a", constraint=JsonSchema({"a": "a" * 99})), "constraint"),
        (ask("a", constraint=Choices(("a" * 99,))), "constraint"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_limits_of_the_server_are_reported(serve, call, field) -> None:
    limits = Limits(max_n=2, max_stops=2, max_top_logprobs=2, max_answers=2, max_constraint=50)
    scripted = ScriptedBackend("a")
    with pytest.raises(InvalidCall) as caught:
        serve(scripted, limits).submit(call).result(60)
    assert caught.value.field == field
    assert scripted.calls == []


def test_a_body_that_is_too_large_is_reported(serve) -> None:
    remote = serve(ScriptedBackend("a"), Limits(max_body=1000))
    with pytest.raises(CallTooLarge):
        remote.submit(ask("a" * 2000)).result(60)


def test_a_full_server_is_overloaded(serve) -> None:
    held = ScriptedBackend("a", is_held=True)
    remote = serve(held, Limits(max_streams=1))
    first = remote.submit(ask("a"))
    held.wait_for(1)
    with pytest.raises(Overloaded):
        remote.submit(ask("a")).result(60)
    held.release()
    assert first.result(60).text == "a"


def test_a_key_is_needed_where_there_are_keys(serve, backend) -> None:
    keys = Settings(keys=("one", "two"))
    for key in (None, "three"):
        remote = serve(backend, settings=keys, api_key=key)
        with pytest.raises(InvalidCall) as caught:
            remote.submit(ask("a")).result(60)
        assert caught.value.field == "api_key"
        with pytest.raises(InvalidCall):
            remote.info()
    remote = serve(backend, settings=keys, api_key="two")
    assert remote.submit(ask("The capital of France is", 2)).result(60).text == " Paris."
    assert remote.info().counters == {}


def test_keys_share_no_token(serve, backend) -> None:
    backend.clear_cache()
    keys = Settings(keys=("one", "two"))
    call = ask("Something that only one of two has asked before.", 2)
    for key in keys.keys:
        remote = serve(backend, settings=keys, api_key=key)
        assert remote.submit(call).result(60).usage.cached_tokens == 0
        assert remote.submit(call).result(60).usage.cached_tokens > 0


def wait_until(is_so: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 30  # an unfinished root stays pinned for 10 s
    while not is_so() and time.monotonic() < ends_at:
        time.sleep(0.005)
    assert is_so()


def locked(backend: Any) -> int:
    """Nodes of the tree that are held by a call or a pin."""
    return sum(view.lock_count > 0 for view in backend.snapshot() if view.parent >= 0)
