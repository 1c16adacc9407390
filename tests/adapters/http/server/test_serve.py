"""`forkroot serve` as a process: it starts, obeys signals, and ends as it should."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from forkroot.__main__ import main
from forkroot.adapters.http.serve import check_address, exposure, serve
from forkroot.adapters.http.server.runtime import Limits, Runtime
from forkroot.adapters.http.server.settings import Settings, tokenizer_info
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import InvalidModel
from forkroot.core.process.liveness import descendants

from ....preloaded import start
from ....preloader import Forks
from ....quiet import unexpected
from ..conftest import Letters, serving

LONG = {"prompt": [1, 2, 3], "max_tokens": 400, "ignore_eos": True, "stream": True}
ENDLESS = {**LONG, "prompt": [[number, 7] for number in range(8)], "max_tokens": 1900}
KEY = {"Authorization": "Bearer k2"}
SLOTS = ("--set", "num_slots=4000")


Serve: TypeAlias = Callable[..., AbstractContextManager[tuple[subprocess.Popen[str], str]]]


@contextmanager
def serving_process(
    start: Callable[..., subprocess.Popen[str]], options: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the URL that it prints."""
    command = [sys.executable, "-m", "forkroot", "serve", "--port", "0", *SLOTS, *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "FORKROOT_API_KEYS": "k1 k2"}
    process = start(command, env=environment, **pipes)
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def forkroot_serve(forks: Forks | None) -> Serve:
    """`forkroot serve` with these options, as a fork of a process that has imported it."""
    return lambda *options: serving_process(partial(start, forks), options)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it logged."""
    _, log = process.communicate(timeout=60)
    return process.returncode, log


def test_a_server_says_where_it_is_and_open_streams_end_well_after_sigterm() -> None:
    """New requests are not taken then."""
    options = "--in-process", "--served-name", "mine"
    with serving_process(subprocess.Popen, options) as (process, url):
        assert httpx.get(f"{url}/health").json() == {"status": "ok"}
        assert httpx.get(f"{url}/v1/models").status_code == 401
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, headers=KEY) as response:
            lines = response.iter_lines()
            first = next(lines)
            process.send_signal(signal.SIGTERM)
            events = [line for line in lines if line]
        assert json.loads(first[6:])["model"] == "mine"
        assert events[-1] == "data: [DONE]"
        assert json.loads(events[-2][6:])["choices"][0]["finish_reason"] == "length"
        code, log = ended(process)
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/health")
    assert code == 0
    where = f"mine is served at {url} (to OpenAI's clients: base_url={url}/v1); Ctrl-C stops the"
    assert unexpected(log).splitlines()[0] == f"{where} server"
    *_, line = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    assert (line["status"], line["completion_tokens"]) == (200, 400)


def test_a_dead_engine_ends_its_calls_and_then_the_server() -> None:
    with serving_process(subprocess.Popen, ()) as (process, url):
        engine = engine_of(process)
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, headers=KEY) as response:
            lines = response.iter_lines()
            assert "error" not in next(lines)
            os.kill(engine, signal.SIGKILL)
            events = [line for line in lines if line]
        error = json.loads(events[-1][6:])["error"]
        assert (error["type"], error["code"]) == ("server_error", "engine_dead")
        assert error["message"] == "the engine has died; the server ends, too"
        code, log = ended(process)
    assert code == 1
    assert "the backend has ended" in log


def test_a_dead_engine_is_started_again_if_that_is_wanted(forkroot_serve: Serve) -> None:
    with forkroot_serve("--on-engine-death", "restart") as (process, url):
        engine = engine_of(process)
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, headers=KEY) as response:
            lines = response.iter_lines()
            next(lines)
            os.kill(engine, signal.SIGKILL)
            events = [line for line in lines if line]
        short = {**LONG, "stream": False, "max_tokens": 3}
        refused = httpx.post(f"{url}/v1/completions", json=short, headers=KEY)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        looks = [httpx.get(f"{url}/{path}") for path in ("health", "ready")]
        assert [look.status_code for look in looks] == [503] * 2
        for error in (json.loads(events[-1][6:]), refused.json(), *(it.json() for it in looks)):
            assert error["error"]["code"] == "engine_dead"
            outcome = "the engine has died; another takes its place: try again soon"
            assert error["error"]["message"] == outcome
        end = time.monotonic() + 60
        while httpx.get(f"{url}/health").status_code == 503:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert httpx.get(f"{url}/ready").status_code == 200
        outcome = httpx.post(f"{url}/v1/completions", json=short, headers=KEY).json()
        assert outcome["usage"]["completion_tokens"] == 3
        assert outcome["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert engine_of(process) != engine
        process.send_signal(signal.SIGTERM)
        code, log = ended(process)
    assert code == 0
    assert "died (signal 9); another is started" in log


def test_a_dead_rank_of_an_idle_server_brings_another_engine(forkroot_serve: Serve) -> None:
    options = "--on-engine-death", "restart", "--set", "ranks=2"
    with forkroot_serve(*options) as (process, url):
        engine = engine_of(process)
        (rank,) = (pid for pid in descendants(engine) if b"core.rank" in cmdline(pid))
        os.kill(rank, signal.SIGKILL)
        for status in (503, 200):
            end = time.monotonic() + 60
            while httpx.get(f"{url}/health").status_code != status:
                assert time.monotonic() < end
                time.sleep(0.02)
        short = {**LONG, "stream": False, "max_tokens": 3}
        outcome = httpx.post(f"{url}/v1/completions", json=short, headers=KEY, timeout=60)
        assert outcome.json()["usage"]["completion_tokens"] == 3
        assert engine_of(process) != engine
        assert not cmdline(engine)


@pytest.mark.parametrize("options", [(), ("--in-process",)], ids=["child", "in process"])
def test_a_second_ctrl_c_ends_the_server_at_once_and_quietly(
    forkroot_serve: Serve, options: tuple[str, ...]
) -> None:
    with forkroot_serve(*options) as (process, url):
        engine = None if options else engine_of(process)
        with httpx.stream("POST", f"{url}/v1/completions", json=ENDLESS, headers=KEY) as response:
            lines = response.iter_lines()
            assert next(lines)
            process.send_signal(signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):  # it drains
                process.wait(0.5)
            process.send_signal(signal.SIGINT)
            code, log = ended(process)
            outcome = "open requests: 1; they have 30 s, Ctrl-C ends them at once"
            assert (code, unexpected(log).splitlines()[1:]) == (130, [outcome])
    end = time.monotonic() + 60
    while engine is not None and cmdline(engine):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_ctrl_c_lets_open_streams_end(forkroot_serve: Serve) -> None:
    with forkroot_serve() as (process, url):
        with httpx.stream("POST", f"{url}/v1/completions", json=LONG, headers=KEY) as response:
            lines = response.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        code, log = ended(process)
    assert code == 130
    assert "Traceback" not in log


def test_an_engine_in_the_servers_own_process_cannot_be_restarted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["serve", "--in-process", "--on-engine-death", "restart"]) == 2
    assert "on_engine_death" in capsys.readouterr().err


def test_calls_that_take_longer_than_the_drain_are_ended_and_reported(
    runtime: Runtime,
) -> None:
    body = {**LONG, "prompt": [[number, 7] for number in range(30)], "max_tokens": 1900}
    with serving(replace(runtime, limits=Limits(drain=1))) as url:
        stream = httpx.stream("POST", f"{url}/v1/completions", json=body)
        response = stream.__enter__()
        lines = response.iter_lines()
        assert next(lines)
    *_, last = (line for line in lines if line)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    stream.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "Hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
        ("/v1/responses", {"input": "Hello"}),
        ("/generate", {"text": "Hello"}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_a_shutdown_cuts_off_ends_in_an_error_on_openais_routes(
    path: str, fields: dict[str, Any], stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    backend = ScriptedBackend("Hello", is_held=True)
    runtime = Runtime(backend, Letters(), ("tiny",), Limits(drain=0.05))
    with caplog.at_level(logging.INFO, "forkroot.http"), ThreadPoolExecutor(1) as others:
        with serving(runtime) as url:
            body = {**fields, "stream": stream}
            waiting = others.submit(httpx.post, f"{url}{path}", json=body, timeout=30)
            while not backend.calls:
                time.sleep(0.01)
        outcome = waiting.result(30)
        lines = [it.getMessage() for it in caplog.records if it.name == "forkroot.http"]
    line = next(json.loads(text) for text in lines if text.startswith('{"id"'))
    assert line["error"] == "shutting_down"
    if path == "/generate":  # as SGLang does
        assert (outcome.status_code, line["status"]) == (200, 200)
        assert '"type":"abort"' in outcome.text
        assert ("[DONE]" in outcome.text) == stream
    else:
        assert '"code":"shutting_down"' in outcome.text.replace(" ", "")
        assert "abort" not in outcome.text and "[DONE]" not in outcome.text
        assert (outcome.status_code, outcome.headers["Retry-After"]) == (
            503,
            "5",
        )  # nothing was sent


def test_who_binds_beyond_loopback_without_keys_is_warned() -> None:
    for host, keys, is_warned in (
        ("127.0.0.1", (), False),
        ("localhost", (), False),
        ("::1", (), False),
        ("0.0.0.0", (), True),
        ("::", (), True),
        ("example.org", (), True),
        ("0.0.0.0", ("k",), False),
    ):
        assert bool(exposure(host, Settings(keys=keys))) is is_warned


def test_a_model_that_cannot_be_run_is_reported_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", str(tmp_path / "nothing")]) == 2
    assert "is not a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "allowed"),
    [
        ("--port=99999", "an integer from 0 to 65,535"),
        ("--port=x", "an integer from 0 to 65,535"),
        ("--max-streams=0", "an integer, 1 or more"),
        ("--drain=0", "a number from 1 to 86,400"),
        ("--drain=nan", "a number from 1 to 86,400"),
    ],
)
def test_an_option_that_is_not_allowed_is_named_with_what_is(
    option: str, allowed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["serve", option])
    name, _, value = option.partition("=")
    outcome = f"error: argument {name}: invalid value {value!r}: expected {allowed}\n"
    assert capsys.readouterr().err.endswith(outcome)


@pytest.mark.parametrize("option", ["--api-key", "--admin-key"])
@pytest.mark.parametrize("key", ["", " ", " k1", "schlüssel", "a\nb"])
def test_a_key_that_opens_to_all_or_to_nobody_is_refused(
    option: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--port", "0", option, key]) == 2
    output = capsys.readouterr().err
    assert output.startswith(f"forkroot: invalid {option[2:].replace('-', '_')}=")
    assert "expected a text of visible ASCII characters" in output
    assert not key.strip() or key not in output


def test_what_is_a_server_already_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", "http://127.0.0.1:9"])
    assert "http://127.0.0.1:9 is a server already; expected " in capsys.readouterr().err


def test_a_port_that_is_taken_is_reported(runtime: Runtime, server: str) -> None:
    taken = int(server.rpartition(":")[2])
    with pytest.raises(OSError, match=f"port={taken}: Address .*; expected .* --port 0 to pick"):
        serve(runtime, Settings(), "127.0.0.1", taken)


def test_a_port_that_is_taken_is_reported_before_a_model_is_loaded(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("forkroot.__main__.connect", None)
    assert main(["serve", "--port", server.rpartition(":")[2]]) == 2
    assert "Address already in use; expected a free port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (["tiny", "--set", "max_runing=4"], "invalid max_runing=4: "),
        (["tiny", "--set", "chunk_tokens"], "invalid set='chunk_tokens': "),
        (["tiny", "--set", "attention=tritn"], "invalid attention='tritn': "),
        (["tiny", "--api-key", " "], "invalid api_key="),
        (["tinny"], "model='tinny' is not a folder here"),
        (["EMPTY"], "config.json is missing; a checkpoint folder holds it"),
        (["no-such/model"], "model='no-such/model' is not a folder here, and "),
        (["tiny", "--in-process", "--replicas", "2"], "invalid replicas=2: "),
        (["tiny", "--audit-log", "EMPTY"], "EMPTY"),
    ],
)
def test_settings_keys_and_the_models_folder_are_checked_before_the_port(
    given: list[str],
    refused: str,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("forkroot.__main__.connect", None)
    given = [str(tmp_path) if it == "EMPTY" else it for it in given]
    assert main(["serve", "--port", server.rpartition(":")[2], *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert refused.replace("EMPTY", str(tmp_path)) in line


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (["--replica", "nowhere"], "invalid replica='nowhere': "),
        (["--replica", "http://127.0.0.1:9", "--tokenizer", "tinny"], "model='tinny' is not "),
        (["--replica", "http://127.0.0.1:9"], "Address already in use; expected a free port"),
    ],
)
def test_arguments_of_a_router_are_checked_before_its_port(
    given: list[str], refused: str, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["route", "--port", server.rpartition(":")[2], *given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert refused in line


def test_a_host_that_is_not_here_is_reported() -> None:
    with pytest.raises(OSError, match=r"host=192\.0\.2\.1, .*; expected a --host of this machine"):
        check_address("192.0.2.1", 0)


def test_facts_of_the_tokenizer_come_from_the_checkpoint(tmp_path: Path) -> None:
    assert tokenizer_info(tmp_path) == {}
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<e>", "chat_template": "old"}')
    (tmp_path / "chat_template.jinja").write_text("new")
    assert tokenizer_info(tmp_path) == {"eos_token": "<e>", "chat_template": "new"}
    (tmp_path / "tokenizer_config.json").write_text("[")
    with pytest.raises(InvalidModel):
        tokenizer_info(tmp_path)


def engine_of(process: subprocess.Popen[str]) -> int:
    """The process id of its engine."""
    children = Path(f"/proc/{process.pid}/task").glob("*/children")
    found = [int(pid) for path in children for pid in path.read_text().split()]
    return next(pid for pid in found if b"core.child" in cmdline(pid))


def cmdline(pid: int) -> bytes:
    """What it runs; nothing for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_threads_of_a_server_switch_each_millisecond() -> None:
    """The event loop takes the interpreter back soon from a thread that reads a large body."""
    runtime = Runtime(ScriptedBackend("x"), Letters(), ("scripted",))
    seen: list[float] = []

    def started(url: str) -> None:
        seen.append(sys.getswitchinterval())
        signal.raise_signal(signal.SIGTERM)

    before = sys.getswitchinterval()
    assert serve(runtime, Settings(), "127.0.0.1", 0, started) == 0
    assert seen == [pytest.approx(0.001)]
    assert sys.getswitchinterval() == before
