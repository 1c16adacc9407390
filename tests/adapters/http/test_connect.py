"""`forkroot.connect` with a URL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import forkroot
from forkroot.__main__ import main
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.http.wire.callwire import value_of
from forkroot.core.api.protocol import BackendInfo, Call, JsonSchema, Text

from ...serving import serving


@pytest.fixture
def keyed(runtime: Runtime) -> Iterator[str]:
    """A server for who has the right key."""
    with serving(runtime, Settings(("right",))) as url:
        yield url


def test_a_url_gives_the_backend_behind_it(server: str) -> None:
    with forkroot.connect(server) as backend:
        call = forkroot.Call((forkroot.Text("Hello"),), forkroot.Sampling(max_tokens=2))
        assert backend.submit(call).result(30).usage.completion_tokens == 2


def test_a_url_may_end_as_clients_of_openai_say_it(server: str) -> None:
    with forkroot.connect(f"{server}/v1") as backend:
        assert backend.info().model


def test_what_a_url_does_not_take_is_refused_by_name() -> None:
    with pytest.raises(forkroot.InvalidCall, match=r"num_slots=5: .* api_key"):
        forkroot.connect("http://127.0.0.1:1", num_slots=5)
    with pytest.raises(forkroot.InvalidCall, match="process=True"):
        forkroot.connect("http://127.0.0.1:1", process=True)
    with pytest.raises(forkroot.InvalidCall, match="process=2"):
        forkroot.connect("tiny", process=2)  # type: ignore[arg-type]


@pytest.mark.parametrize("connect", [forkroot.connect, RemoteBackend])
def test_no_server_is_reported_at_once_or_by_the_first_call(
    connect: Callable[..., forkroot.Backend],
) -> None:
    message = (
        r"the server at http://127.0.0.1:1 cannot be reached: .*start one with `forkroot serve`"
    )
    with pytest.raises(forkroot.BackendClosed, match=message):
        backend = connect("http://127.0.0.1:1", connect_timeout=1.0)
        with closing(backend):
            backend.submit(forkroot.Call((forkroot.Text("Hello"),))).result(30)


def test_a_connection_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    with pytest.raises(forkroot.BackendClosed):
        forkroot.connect("http://127.0.0.1:1")
    assert threading.active_count() == before


class Site(BaseHTTPRequestHandler):
    """Any site: it says no JSON, or something else, sends on, or has nothing."""

    def do_GET(self) -> None:
        status = {"a": 404, "b": 200, "c": 200, "d": 301}[self.path[1]]
        self.send_response(status)
        if status == 301:
            self.send_header("Location", f"https://secure{self.path}")
        self.end_headers()
        self.wfile.write(b"<html>" if self.path[1] == "b" else b"{}")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/a", "the server answered with status 404; expected one that `forkroot serve` started"),
        ("/b", r"its answer cannot be read \(JSONDecodeError"),
        ("/c", "its answer cannot be read"),
        ("/d", "it sends on to https://secure/d;"),
    ],
)
def test_a_site_that_is_not_a_server_of_ours_is_reported(path: str, message: str) -> None:
    with HTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{site.server_port}{path}"
        with pytest.raises(forkroot.BackendClosed, match=f"^{url} is not a server .*{message}"):
            forkroot.connect(url)
        site.shutdown()


def test_https_where_http_is_spoken_is_reported(server: str) -> None:
    with pytest.raises(forkroot.BackendClosed, match=rf"; did you mean {server}\?$"):
        forkroot.connect(server.replace("http://", "https://"))


def test_http_where_nothing_is_said_may_be_https() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def hang_up() -> None:
            taken, _ = listener.accept()
            taken.recv(1024)
            taken.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with pytest.raises(forkroot.BackendClosed, match=f"did you mean https://127.0.0.1:{port}"):
            forkroot.connect(f"http://127.0.0.1:{port}")


def test_check_shows_what_a_server_reports(
    runtime: Runtime, server: str, keyed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", server]) == 0
    message = " ".join(capsys.readouterr().out.split())
    assert message.startswith(
        "model tiny context length 2,048 tokens vocabulary 4,096 tokens takes "
    )
    assert "KV cache 20,000 tokens, " in message
    assert (
        "requests running 0, waiting 0 trial run 8 tokens generated in " in message
    )  # no version: no command
    assert message.endswith("It answers.")
    assert main(["check", keyed, "--set", "api_key=right"]) == 0
    assert "KV cache" not in capsys.readouterr().out  # what concerns all clients
    with serving(replace(runtime, version="1.2.3")) as url:
        assert main(["check", url]) == 0
    here = forkroot.__version__
    assert f"forkroot 1.2.3 (here: {here})" in " ".join(capsys.readouterr().out.split())


def test_check_of_a_url_without_a_server_says_what_to_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "http://127.0.0.1:1"]) == 2
    assert "cannot be reached" in (message := capsys.readouterr().err)
    assert "start one with `forkroot serve`" in message


def test_a_server_may_report_more_than_this_client_knows() -> None:
    message = {"type": "BackendInfo", "model": "m", "context_len": 8, "colour": "red"}
    assert value_of(message) == BackendInfo("m", 8)


def test_a_wrong_key_is_refused_when_connecting(keyed: str) -> None:
    with pytest.raises(forkroot.InvalidCall, match=r"^invalid api_key="):
        forkroot.connect(keyed, api_key="wrong")
    forkroot.connect(keyed, api_key="right").close()


def test_ignored_keywords_of_a_schema_are_logged_once_by_the_client_of_a_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(RemoteBackend("http://127.0.0.1:9")) as backend:  # no server: the client's own log
        for schema in ({"propertis": {}}, {"propertis": {}}, {"requird": []}, {"title": "t"}):
            backend.submit(Call((Text("a"),), constraint=JsonSchema(schema)))
    assert caplog.messages == [
        f"json_schema: ignored unknown keywords and formats: #/{given}; did you mean {meant}?"
        for given, meant in (("propertis", "properties"), ("requird", "required"))
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_text_is_not_a_call(server: str) -> None:
    refusal = "^invalid call='Once upon a time': expected a Call, as Call"
    with forkroot.connect(server) as backend, pytest.raises(forkroot.InvalidCall, match=refusal):
        backend.submit("Once upon a time")  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["check", "chat"])
@pytest.mark.parametrize(("given", "shown"), [((), "None"), (("--set", "api_key=no"), "...")])
def test_a_client_without_a_key_gets_a_hint_how_to_give_one(
    keyed: str,
    command: str,
    given: tuple[str, ...],
    shown: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([command, keyed, *given]) == 2
    output = capsys.readouterr().err
    assert f"invalid api_key={shown}: expected " in output
    assert "connect(URL, api_key=...)" in output
    assert "--set api_key=..." in output
    assert "api_key=no" not in output


def test_a_key_that_looks_like_a_number_is_still_a_text(runtime: Runtime) -> None:
    with serving(runtime, Settings(("1e5",))) as url:
        assert main(["check", url, "--set", "api_key=1e5"]) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("api_key", 3),
        ("api_key", ""),
        ("api_key", "schlüssel"),
        ("api_key", "a\nb"),
        ("connect_timeout", "x"),
        ("connect_timeout", -1),
        ("connect_timeout", True),
        ("silence", 0),
        ("silence", "x"),
    ],
)
def test_a_setting_of_a_url_whose_value_is_not_allowed_is_named(name: str, value: object) -> None:
    with pytest.raises(forkroot.InvalidCall) as caught:
        forkroot.connect("http://127.0.0.1:1", **{name: value})  # type: ignore[arg-type]
    assert caught.value.field == name
    assert (
        name != "api_key" or not value or str(value) == "3" or str(value) not in str(caught.value)
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("apikey", r"did you mean api_key\?$"),
        ("conect_timeout", r"did you mean connect_timeout\?$"),
        ("num_slots", "num_slots is of the engine there: forkroot serve --set num_slots=...$"),
    ],
)
def test_a_misspelled_setting_of_a_url_gets_a_suggestion(name: str, message: str) -> None:
    with pytest.raises(forkroot.InvalidCall, match=message):
        forkroot.connect("http://127.0.0.1:1", **{name: 1})  # type: ignore[arg-type]


def test_a_port_that_there_is_not_is_refused() -> None:
    with pytest.raises(forkroot.InvalidCall, match=r"url='http://127\.0\.0\.1:99999'"):
        forkroot.connect("http://127.0.0.1:99999")


def test_a_url_of_one_of_a_servers_routes_is_reported_with_the_servers(server: str) -> None:
    with pytest.raises(forkroot.BackendClosed, match=rf"did you mean {server}\?"):
        forkroot.connect(f"{server}/v1/models")
