"""`forkroot bench` against a stub with every fault, and against a server of ours."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response, StreamingResponse

from forkroot.__main__ import main
from forkroot.adapters.http.bench.figures import Figures, quantile, samples
from forkroot.adapters.http.bench.load import Load, Prompts, Scale
from forkroot.adapters.http.bench.outcome import Answer, Outcome, printable, refusal
from forkroot.adapters.http.bench.picture import load_svg, open_requests, tokens_per_second
from forkroot.adapters.http.bench.target import base_url
from forkroot.adapters.http.serve import AnnouncedServer
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.core.api.protocol import InvalidCall

from ..conftest import serving

SVG = "{http://www.w3.org/2000/svg}"


class Stub:
    """A server whose answers have three words. It keeps its requests; `answer` sets how the
    load's own requests (not the probes) are answered, by their number; None: well."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.most_at_once = self.at_once = 0
        self.answer: Callable[[int], Response | None] = lambda number: None
        self.has_usage = True
        self.pause = 0.0
        self.app = FastAPI()
        self.app.get("/v1/models")(self.models)
        self.app.post("/v1/chat/completions")(self.chat)
        self.app.post("/v1/completions")(self.chat)

    @property
    def load(self) -> list[dict[str, Any]]:
        """The requests without the probes."""
        return [body for body in self.requests if body["max_tokens"] > 1]

    async def models(self) -> Any:
        return {"data": [{"id": "stub-model"}, {"id": "other"}]}

    async def chat(self, body: dict[str, Any]) -> Response:
        self.requests.append(body)
        if body["max_tokens"] > 1 and (result := self.answer(len(self.load) - 1)) is not None:
            return result
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        if self.pause:
            await asyncio.sleep(self.pause)
        self.at_once -= 1
        if not body.get("stream"):
            choice = {"message": {"content": "one two three"}, "finish_reason": "stop"}
            return JSONResponse({"choices": [choice], "usage": self.usage(body)})
        return StreamingResponse(self.events(body), media_type="text/event-stream")

    async def events(self, body: dict[str, Any]) -> Any:
        yield event(choices=[{"delta": {"role": "assistant", "content": ""}}])
        for word in ("one", " two", " three"):
            yield event(choices=[{"delta": {"content": word}}])
            await asyncio.sleep(0.002)
        yield event(choices=[{"delta": {}, "finish_reason": "length"}])
        yield event(choices=[], usage=self.usage(body))
        yield b"data: [DONE]\n\n"

    def usage(self, body: dict[str, Any]) -> Any:
        """Two tokens a word and ten for the template; a quarter of them cached."""
        if not self.has_usage:
            return None
        tokens = 10 + 2 * len(prompt_of(body).split())
        details = {"cached_tokens": tokens // 4}
        return {"prompt_tokens": tokens, "completion_tokens": 3, "prompt_tokens_details": details}


def event(**fields: Any) -> bytes:
    return f"data: {json.dumps(fields)}\n\n".encode()


def prompt_of(body: dict[str, Any]) -> str:
    return str(body["prompt"] if "prompt" in body else body["messages"][0]["content"])


def error(status: int, **fields: Any) -> JSONResponse:
    return JSONResponse({"error": fields}, status)


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def url(stub: Stub) -> Iterator[str]:
    result: queue.Queue[str] = queue.Queue()
    config = uvicorn.Config(stub.app, port=0, log_config=None, access_log=False)
    server = AnnouncedServer(config, result.put)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield result.get(timeout=30)
    server.force_exit = server.should_exit = True
    thread.join()


def measured(tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a run, and what it wrote as JSON."""
    code = main(["bench", *options, "--json", str(tmp_path / "bench.json")])
    return code, json.loads((tmp_path / "bench.json").read_text())


def test_a_load_is_sent_whole_and_its_figures_add_up(
    stub: Stub, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, result = measured(tmp_path, url, "--requests", "30", "--concurrency", "4", "--seed", "5")
    figures = result["figures"]
    assert code == 0
    assert (figures["num_ok"], figures["num_failed"], figures["num_open"]) == (30, 0, 0)
    assert figures["completion_tokens"] == 90
    assert figures["cached_share"] == pytest.approx(0.25, abs=0.01)
    assert figures["output_tokens_per_second"] == pytest.approx(90 / figures["seconds"])
    assert set(figures["times"]) == {
        *("time to first token", "inter-token latency"),
        *("time per output token", "end-to-end latency"),
    }
    for found in figures["times"].values():
        assert 0 <= found["p50"] <= found["p90"] <= found["p99"] <= found["most"]
    assert [row["index"] for row in result["requests"]] == [*range(30)]
    assert (result["target"]["model"], result["load"]["seed"]) == ("stub-model", 5)
    printed = capsys.readouterr()
    assert "stub-model at http://127.0.0.1" in printed.out
    assert "output tokens/s" in printed.out and "p99" in printed.out and "25.0%" in printed.out
    assert "done" not in printed.err  # no progress where nobody looks


def test_prompts_have_the_wanted_length_in_the_servers_own_tokens(
    stub: Stub, url: str, tmp_path: Path
) -> None:
    _, result = measured(tmp_path, url, "--requests", "6", "--prompt-tokens", "300")
    assert {row["prompt_tokens"] for row in result["requests"]} == {300}
    assert len({prompt_of(body) for body in stub.load}) == 6
    assert all(body["stream_options"] == {"include_usage": True} for body in stub.load)


def test_prompts_share_one_of_the_prefixes(stub: Stub, url: str, tmp_path: Path) -> None:
    sizes = ("--prompt-tokens", "110", "--shared-prefix", "70", "--prefixes", "3")
    measured(tmp_path, url, "--requests", "40", *sizes)
    prompts = [prompt_of(body).split() for body in stub.load]
    assert {len(prompt) for prompt in prompts} == {50}
    assert len({tuple(prompt[:30]) for prompt in prompts}) == 3
    assert len({tuple(prompt[:31]) for prompt in prompts}) > 3


def test_the_same_seed_sends_the_same_and_none_sends_something_new(stub: Stub, url: str) -> None:
    for seed in (["--seed", "1"], ["--seed", "1"], ["--seed", "2"], [], []):
        assert main(["bench", url, "--requests", "3", "--concurrency", "1", *seed]) == 0
    first, again, *others = (
        tuple(map(prompt_of, stub.load[at : at + 3])) for at in range(0, 15, 3)
    )
    assert first == again
    assert len({first, *others}) == 4


def test_options_reach_the_server(stub: Stub, url: str, tmp_path: Path) -> None:
    options = ("--completions", "--no-stream", "--ignore-eos", "--model", "other")
    code, result = measured(
        tmp_path, url + "/v1/", "--requests", "2", "--max-tokens", "7", *options
    )
    assert code == 0
    for body in stub.load:
        assert (body["model"], body["max_tokens"], body["ignore_eos"]) == ("other", 7, True)
        assert "prompt" in body and "stream" not in body
    assert set(result["figures"]["times"]) == {"end-to-end latency"}


def test_no_more_requests_are_open_than_are_allowed(stub: Stub, url: str) -> None:
    stub.pause = 0.01
    for rate in ([], ["--rate", "1000"]):
        stub.most_at_once = 0
        assert main(["bench", url, "--requests", "20", "--concurrency", "3", *rate]) == 0
        assert stub.most_at_once == 3


def test_a_duration_ends_the_load(stub: Stub, url: str, tmp_path: Path) -> None:
    stub.pause = 0.01
    _, result = measured(tmp_path, url, "--duration", "0.3", "--concurrency", "2")
    dues = [row["due"] for row in result["requests"]]
    assert len(dues) > 2
    assert max(dues) < 0.3


def test_times_of_a_rate_count_from_when_a_request_was_due(
    stub: Stub, url: str, tmp_path: Path
) -> None:
    stub.pause = 0.02
    options = ("--rate", "10000", "--concurrency", "1", "--requests", "10")
    _, result = measured(tmp_path, url, *options)
    waits = [row["seconds"] for row in result["requests"]]
    assert waits == sorted(waits)
    assert waits[-1] >= 10 * 0.02


def test_failures_are_counted_by_reason_and_end_nothing(
    stub: Stub, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steer = "\x1b[31mred"
    answers: list[Response | None] = [
        error(503, code="overloaded", message="later"),
        error(503, code="overloaded", message="later"),
        error(429, type="rate_limit_error", message="slow down"),
        Response("<html>", 502),
        Response("not JSON"),
        JSONResponse([1, 2]),
        Response(event(choices=[{"delta": {"content": "x"}}]), media_type="text/event-stream"),
        Response(event(error={"code": "shutting_down"}), media_type="text/event-stream"),
        Response(event(choices=7), media_type="text/event-stream"),
        Response(event(usage="none", choices=[{"text": "x"}]) + b"data: [DONE]\n\n"),
        error(500, message=steer),
        None,
    ]
    stub.answer = lambda number: answers[number]
    code, result = measured(tmp_path, url, "--requests", "12", "--concurrency", "1")
    assert code == 0
    assert result["figures"]["failures"] == {
        "503 overloaded": 2,
        "cut off before its end": 3,
        "answer cannot be read": 1,
        "429 rate_limit_error": 1,
        "502": 1,
        "error in the answer: shutting_down": 1,
        "500 [31mred": 1,
    }
    assert result["figures"]["num_ok"] == 2
    printed = capsys.readouterr().out
    assert "429 rate_limit_error" in printed and "\x1b" not in printed


def test_a_server_that_hangs_is_timed_out(stub: Stub, url: str, tmp_path: Path) -> None:
    stub.pause = 30
    options = ("--requests", "3", "--timeout", "0.2")
    code, result = measured(tmp_path, url, *options)
    assert code == 1
    assert result["figures"]["failures"] == {"timed out": 3}
    assert result["figures"]["times"] == {}


def test_a_server_that_is_gone_is_counted_where_a_model_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = "http://127.0.0.1:9"
    code, result = measured(tmp_path, gone, "--requests", "3", "--model", "m")
    assert (code, result["figures"]["failures"]) == (1, {"cannot connect": 3})
    capsys.readouterr()
    assert main(["bench", gone]) == 2
    output = capsys.readouterr().err
    assert output.startswith("forkroot: the server at http://127.0.0.1:9 cannot be reached")
    assert len(output.splitlines()) == 1


def test_without_usage_pieces_count_and_the_guess_is_reported(
    stub: Stub, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stub.has_usage = False
    _, result = measured(tmp_path, url, "--requests", "2", "--prompt-tokens", "25")
    assert result["figures"]["completion_tokens"] == 6
    assert result["figures"]["cached_share"] is None
    assert [len(prompt_of(body).split()) for body in stub.load] == [25, 25]
    printed = capsys.readouterr()
    assert "not reported" in printed.out and "guess" in printed.err


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (["--requests", "0"], "requests=0"),
        (["--concurrency", "0"], "concurrency=0"),
        (["--prefixes", "-1"], "prefixes=-1"),
        (["--rate", "0"], "rate=0.0"),
        (["--rate", "nan"], "rate=nan"),
        (["--duration", "inf"], "duration=inf"),
        (["--timeout", "0"], "timeout=0.0"),
        (["--shared-prefix", "256"], "shared_prefix=256"),
    ],
)
def test_options_that_make_no_sense_are_refused_by_name(
    options: list[str], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "http://127.0.0.1:9", *options]) == 2
    assert f"invalid {field}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["127.0.0.1:30000", "ftp://h", "http://u:p@h", "http://h?x=1", ""])
def test_what_is_not_a_url_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(InvalidCall):
        base_url(text)


def test_a_url_may_end_in_v1_or_a_slash() -> None:
    for text in ("http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"):
        assert base_url(text) == "http://h:1"


OBEYING_CTRL_C = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
runpy.run_module("forkroot", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_prints_what_is_there(stub: Stub, url: str, tmp_path: Path) -> None:
    stub.pause = 0.02
    file = tmp_path / "bench.json"
    options = ["--requests", "100000", "--json", str(file), "--concurrency", "2"]
    command = [sys.executable, "-c", OBEYING_CTRL_C, "bench", url, *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, **pipes)
    while len(stub.load) < 9:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "end-to-end latency" in out and "still open when stopped" in out
    assert "Traceback" not in err
    assert json.loads(file.read_text())["figures"]["num_ok"] >= 6


def test_a_terminal_sees_how_far_it_is(
    stub: Stub,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stub.pause = 0.1
    monkeypatch.setenv("FORCE_COLOR", "1")
    for end in ("--requests", "5"), ("--duration", "0.4"):
        assert main(["bench", url, "--concurrency", "1", *end]) == 0
        assert "1 open" in capsys.readouterr().err


def test_the_picture_shows_curves_and_bars(stub: Stub, url: str, tmp_path: Path) -> None:
    path = tmp_path / "load.svg"
    assert main(["bench", url, "--requests", "12", "--svg", str(path), "--model", "<a>"]) == 0
    root = ElementTree.fromstring(path.read_text())
    assert len(root.findall(f"{SVG}polyline")) == 4  # three kinds of latency, open requests
    assert len(root.findall(f"{SVG}rect")) > 80
    assert any("<a> at " in (text.text or "") for text in root.findall(f"{SVG}text"))


def test_a_picture_of_nothing_is_a_picture() -> None:
    failed = Outcome(0, 0.0, 0.0, failure="cannot connect")
    for outcomes in ([], [failed]):
        root = ElementTree.fromstring(load_svg(outcomes, "nothing"))
        assert any(text.text == "no request ended well" for text in root.findall(f"{SVG}text"))


def test_our_own_server_is_measured_with_its_cache(server: str, tmp_path: Path) -> None:
    sizes = ("--prompt-tokens", "160", "--shared-prefix", "120", "--max-tokens", "8")
    options = ("--requests", "12", "--concurrency", "4", "--ignore-eos", *sizes)
    code, result = measured(tmp_path, server, *options)
    figures = result["figures"]
    assert (code, figures["num_ok"]) == (0, 12)
    assert figures["completion_tokens"] == 12 * 8
    assert figures["cached_share"] > 0.4
    lengths = [row["prompt_tokens"] for row in result["requests"]]
    assert 120 < sum(lengths) / len(lengths) < 200


def test_a_key_opens_our_own_server(runtime: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(runtime, Settings(keys=("secret",))) as url:
        assert main(["bench", url, "--requests", "2", "--api-key", "secret"]) == 0
        capsys.readouterr()
        assert main(["bench", url, "--requests", "2"]) == 2
        output = capsys.readouterr().err
        assert "does not list its models (401" in output
        assert "--api-key" in output


def test_a_whole_load_of_bad_requests_harms_nobody(server: str, tmp_path: Path) -> None:
    options = ("--requests", "6", "--model", "no-such", "--concurrency", "6")
    code, result = measured(tmp_path, server, *options)
    assert (code, result["figures"]["failures"]) == (1, {"404 model_not_found": 6})
    assert httpx.get(f"{server}/health").status_code == 200


def test_poisson_arrivals_have_the_rate_and_the_spread_of_such_a_process() -> None:
    times = [*Load(3, num_requests=4000, rate=50.0).due()]
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(1 / 50, rel=0.05)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(mean**2, rel=0.15)
    assert times == [*Load(3, num_requests=4000, rate=50.0).due()]
    assert max(Load(3, None, duration=2.0, rate=50.0).due()) < 2


def test_a_scale_is_the_line_through_two_prompts() -> None:
    scale = Scale.through((40, 70), (120, 190))
    assert scale == Scale(10.0, 1.5)
    assert (scale.words(160), scale.words(3)) == (100, 1)
    assert len(Prompts(Load(0, prompt_tokens=160), scale).text(7).split()) == 100


def test_quantiles_lie_between_their_neighbours() -> None:
    assert [quantile([1.0, 2.0, 4.0], share) for share in (0, 0.25, 0.5, 0.75, 1)] == [
        *(1, 1.5, 2, 3, 4)
    ]
    assert Figures.of([], 0, 0.0).times == {}
    figures = Figures.of([Outcome(0, 0.0, 3.0)], 0, 0.0)
    assert figures.times == {"end-to-end latency": (3, 3, 3, 3)}


def test_times_of_one_request_are_those_of_its_pieces() -> None:
    outcome = Outcome(0, 1.0, 3.0, (1.5, 2.0, 2.75), 9, 4, 6)
    assert (outcome.first, outcome.gaps, outcome.per_token) == (0.5, [0.5, 0.75], 0.25)
    assert outcome.seconds == 2
    failed = Outcome(1, 0.0, 9.0, (4.0,), failure="timed out")
    figures = Figures.of([outcome, failed], 0, 1.0)
    assert figures.times["end-to-end latency"] == (2, 2, 2, 2)
    assert (figures.num_ok, figures.failures, figures.seconds) == (1, {"timed out": 1}, 9)
    assert figures.cached_share == 4 / 9
    assert samples([outcome])["inter-token latency"] == [0.5, 0.75]


def test_bars_hold_every_token_and_lines_every_open_second() -> None:
    outcomes = [Outcome(0, 0.0, 2.0, (0.5, 1.5), 1, 0, 10), Outcome(1, 1.0, 4.0, (), 1, 0, 6)]
    assert tokens_per_second(outcomes, 4.0, 4) == [5, 5, 0, 6]
    assert open_requests(outcomes, 4.0, 4) == [1, 2, 1, 1]
    assert open_requests(outcomes, 4.0, 2) == [1.5, 1]


def test_an_answer_may_be_a_call_of_a_tool() -> None:
    answer = Answer()
    call = {"index": 0, "function": {"name": "f", "arguments": ""}}
    answer.take({"choices": [{"delta": {"tool_calls": [call]}}]}, 1.0)
    answer.take({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, 2.0)
    outcome = answer.outcome(0, 0.0, 2.0)
    assert (outcome.failure, outcome.first, outcome.completion_tokens) == (None, 1, 1)


def test_refusals_are_reported_briefly() -> None:
    assert refusal(400, b'{"error": {"code": null, "message": "no"}}') == "400 no"
    assert refusal(400, b'{"error": "bad"}') == "400 bad"
    assert refusal(404, b"[]") == refusal(404, b"{") == "404"
    assert printable("a\x1b[2Jb\n" + "c" * 99, 8) == "a[2Jbc"
