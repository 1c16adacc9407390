"""The report of programs over HTTP: every client reads its own, an admin all, a router the sum."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import httpx
import numpy as np
import pytest

import forkroot
from forkroot.__main__ import main
from forkroot.adapters.http.client import RemoteBackend
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.program_report import Guesses, KindUsage, ProgramReport
from forkroot.core.api.protocol import Call, ForkHint, Reply, Sampling, Text
from forkroot.core.engine.accounting.programs import ProgramCounts
from forkroot.core.local import LocalBackend

from ....serving import serving
from ..conftest import Letters

KEYS = Settings(keys=("one", "two"), admin_keys=("boss",))
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


class Counting(ScriptedBackend):
    """A backend that counts programs as an engine does."""

    def __init__(self) -> None:
        super().__init__("an answer")
        self._counts, self._numbers = ProgramCounts(), count()

    def submit(self, call: Call) -> Reply:
        number = next(self._numbers)
        self._counts.begin(number, call, np.zeros(4, np.int32), float(number))
        reply = super().submit(call)
        reply.when_done(lambda it: self._counts.end(number, it.result(0).usage, 0, number + 0.5))
        return reply

    def program_report(self, tenant: str | None = None) -> ProgramReport:
        return self._counts.report(lambda tokens, pairs: 0.0, 0.0, tenant)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def url(counting: Counting) -> Iterator[str]:
    with serving(Runtime(counting, Letters(), ("m",)), KEYS) as url:
        yield url


def submit(url: str, key: str | None, kind: str, program: str = "p") -> None:
    hint = ForkHint("", program=program, kind=kind, calls_left=0)
    with RemoteBackend(url, key) as remote:
        remote.submit(Call((Text("Hi"),), Sampling(2), hint=hint)).result(10)


def kinds(url: str, key: str | None = None) -> dict[str, KindUsage]:
    with RemoteBackend(url, key) as remote:
        return {it.kind: it for it in remote.program_report().kinds}


def test_each_key_reads_its_own_programs_and_an_admin_reads_all(url: str) -> None:
    submit(url, "one", "writer")
    submit(url, "two", "secret plan")
    own = kinds(url, "one")
    assert set(own) == {"writer"}
    assert (own["writer"].tenant, own["writer"].calls) == (None, 1)
    assert own["writer"].calls_left == Guesses(1, 1)
    assert set(kinds(url, "two")) == {"secret plan"}
    everything = kinds(url, "boss")
    assert set(everything) == {"writer", "secret plan"}
    assert everything["writer"].tenant != everything["secret plan"].tenant


def test_a_key_cannot_name_another_tenant(url: str) -> None:
    submit(url, "two", "secret plan")
    tenant = kinds(url, "boss")["secret plan"].tenant
    with RemoteBackend(url, "one") as remote:
        assert remote.program_report(tenant) == ProgramReport()
    with RemoteBackend(url, "boss") as remote:
        assert [it.kind for it in remote.program_report(tenant).kinds] == ["secret plan"]
        assert remote.program_report("nobody") == ProgramReport()


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("wrong", 401)])
def test_without_a_key_nothing_is_reported(url: str, key: str | None, status: int) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    assert httpx.get(f"{url}/v1/forkroot/report", headers=headers).status_code == status


def test_a_request_of_openais_api_can_name_its_kind(url: str) -> None:
    headers = {"Authorization": "Bearer one"}
    body = {**CHAT, "forkroot": {"kind": "chat bot", "program": "7", "calls_left": 0}}
    assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers).is_success
    assert httpx.post(f"{url}/v1/chat/completions", json=CHAT, headers=headers).is_success
    assert kinds(url, "one")["chat bot"].calls == 1
    body["forkroot"]["kind"] = "two\nlines"
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "forkroot.kind"


def test_a_backend_without_programs_says_so() -> None:
    with serving(Runtime(ScriptedBackend("x"), Letters(), ("m",))) as url:
        assert httpx.get(f"{url}/v1/forkroot/report").status_code == 404


def test_a_router_adds_up_its_replicas_and_keeps_its_clients_apart() -> None:
    replicas = [Counting(), Counting()]
    runtimes = [Runtime(it, Letters(), ("m",)) for it in replicas]
    with serving(runtimes[0], KEYS) as first, serving(runtimes[1], KEYS) as second:
        backend = forkroot.connect([first, second], api_key="boss", policy="round-robin")
        with serving(Runtime(backend, Letters(), ("m",)), KEYS) as url, backend:
            for number in range(4):
                submit(url, "one", "writer", f"{number}")
            submit(url, "two", "secret plan")
            assert [len(it.calls) for it in replicas] == [3, 2]
            own = kinds(url, "one")
            assert set(own) == {"writer"}
            assert (own["writer"].calls, own["writer"].programs) == (4, 4)
            assert own["writer"].calls_left == Guesses(4, 4)
            assert set(kinds(url, "boss")) == {"writer", "secret plan"}
            body = {**CHAT, "model": "m", "forkroot": {"kind": "passed on", "program": "8"}}
            headers = {"Authorization": "Bearer two"}
            assert httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers).is_success
            assert set(kinds(url, "two")) == {"secret plan", "passed on"}
            assert set(kinds(url, "one")) == {"writer"}


def test_a_router_with_a_clients_key_shows_no_client_what_another_one_runs() -> None:
    with serving(Runtime(Counting(), Letters(), ("m",)), KEYS) as replica:
        backend = forkroot.connect([replica], api_key="one")  # the very key of one of its clients
        with serving(Runtime(backend, Letters(), ("m",)), KEYS) as url, backend:
            submit(url, "one", "writer")
            submit(url, "two", "secret plan")
            assert kinds(url, "one") == kinds(url, "two") == {}
            assert set(kinds(url, "boss")) == {"writer", "secret plan"}


def test_an_engine_behind_a_server_reports_its_programs(server: str, backend: LocalBackend) -> None:
    submit(server, None, "over the wire")
    found = kinds(server)["over the wire"]
    assert (found.calls, found.programs) == (1, 1)
    assert found == next(it for it in backend.program_report().kinds if it.kind == found.kind)


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_what_programs_saved(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(url, "one", "writer")
    submit(url, "two", "[red]plan[/red]")
    assert main(["report", url, "--api-key", "boss"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    for word in ("program", "prompt", "writer", "[red]plan[/red]", "calls left", "0%"):
        assert word in text
    assert main(["report", url, "--api-key", "one"]) == 0
    text = capsys.readouterr().out
    assert "writer" in text
    assert "plan" not in text


def test_the_command_prints_json(
    url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORKROOT_API_KEYS", "two one")
    submit(url, "two", "writer")
    assert main(["report", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (kind,) = found["kinds"]
    assert (kind["kind"], kind["calls"], kind["tenant"]) == ("writer", 1, None)
    assert kind["calls_left"] == {"made": 1, "right": 1, "early": 0, "late": 0, "never": 0}
    assert found["total"]["prompt_tokens"] == kind["prompt_tokens"]


def test_the_command_says_where_nothing_is_known(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", url, "--api-key", "one"]) == 0
    assert capsys.readouterr().out.startswith("No call with a hint has ended yet")


def test_the_command_says_where_no_hint_has_guessed(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with forkroot.connect(url, api_key="one") as backend:
        hint = ForkHint("", program="run", kind="writer")
        backend.submit(Call((Text("a"),), Sampling(max_tokens=1), hint=hint)).result(60)
    assert main(["report", url, "--api-key", "one"]) == 0
    text = capsys.readouterr().out
    assert "writer" in text
    assert "No hint guessed what follows yet" in text
    assert "early" not in text


@pytest.mark.parametrize("key", ["wrong", "", "two words"])
def test_the_command_names_a_key_that_is_not_known(
    url: str, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", url, "--api-key", key]) == 2
    assert "key" in capsys.readouterr().err


def test_the_command_says_that_no_server_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "http://127.0.0.1:1"]) == 2
    assert "http://127.0.0.1:1" in capsys.readouterr().err
    assert main(["report", "tiny"]) == 2
    assert "url='tiny'" in capsys.readouterr().err
