"""The audit log, and the client's name in log lines."""

from __future__ import annotations

import json
import logging
import os
import stat
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from forkroot.__main__ import main
from forkroot.adapters.http.server.audit import audited
from forkroot.adapters.http.server.keys import Keys, name_of
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.core.api.protocol import InvalidCall

from ....serving import serving

SETTINGS = Settings(keys=("one", "two"), admin_keys=("root",))
BODY = {"prompt": "A secret of the client", "max_tokens": 2, "temperature": 0}


def ask(url: str, key: str | None, path: str = "/v1/completions") -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}{path}", json=BODY, headers=headers).status_code


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def lines(path: Path, num: int) -> list[dict[str, Any]]:
    wait_for(lambda: path.exists() and path.read_text().count("\n") >= num)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_audit_log_has_a_line_for_each_request_and_nothing_of_its_text(
    runtime: Runtime, tmp_path: Path
) -> None:
    path = tmp_path / "audit.jsonl"
    before = datetime.now(UTC).replace(microsecond=0)
    with audited(str(path)), serving(runtime, SETTINGS) as url:
        statuses = [ask(url, key) for key in ("one", "two", "one", "three", None)]
        statuses.append(ask(url, "root", "/flush_cache"))
        found = lines(path, 6)
    assert [line["status"] for line in found] == statuses == [200, 200, 200, 401, 401, 200]
    one, two, root = (name_of(key) for key in (b"one", b"two", b"root"))
    assert [line["client"] for line in found] == [one, two, one, None, None, root]
    assert found[0]["route"] == "/v1/completions"
    assert (found[0]["prompt_tokens"] > 0, found[0]["completion_tokens"]) == (True, 2)
    assert found[0]["seconds"] > 0
    assert found[3]["error"] == "invalid_api_key"
    times = [datetime.fromisoformat(line["time"]) for line in found]
    assert times == sorted(times) and before <= times[0] <= datetime.now(UTC)
    text = path.read_text()
    assert all(secret not in text for secret in ("secret", '"one"', "three", "Bearer"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_log_line_names_the_client_by_a_hash_of_its_key(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "forkroot.http"), serving(runtime, SETTINGS) as url:
        for key in ("one", "nobody's"):
            ask(url, key)
        wait_for(lambda: len(caplog.records) >= 2)
    clients = [json.loads(record.getMessage())["client"] for record in caplog.records]
    assert clients == [name_of(b"one"), None]
    assert "one" not in str(clients[0])


def test_names_are_short_distinct_and_no_part_of_the_namespace() -> None:
    names = {name_of(f"key {i}".encode()) for i in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {12}
    client = Keys(SETTINGS).client("/v1/completions", "Bearer one")
    assert client.name is not None and client.name not in client.namespace


def test_clients_that_share_the_cache_have_names_of_their_own() -> None:
    keys = Keys(Settings(keys=("one", "two"), shares_cache=True))
    found = [keys.client("/v1/completions", f"Bearer {key}") for key in ("one", "two")]
    assert [client.namespace for client in found] == ["", ""]
    assert found[0].name != found[1].name


def test_the_audit_log_is_appended_to_and_made_anew_when_it_is_moved(
    runtime: Runtime, tmp_path: Path
) -> None:
    path, moved = tmp_path / "audit.jsonl", tmp_path / "audit.1"
    path.write_text('{"status": 0}\n')
    with audited(str(path)), serving(runtime, SETTINGS) as url:
        ask(url, "one")
        assert [line["status"] for line in lines(path, 2)] == [0, 200]
        path.rename(moved)
        ask(url, None)
        assert [line["status"] for line in lines(path, 1)] == [401]
        ask(url, "one")
        lines(path, 2)
    assert moved.read_text().count("\n") == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_harms_no_request_and_is_reported_once_a_second(
    runtime: Runtime, caplog: pytest.LogCaptureFixture
) -> None:
    with audited("/dev/full"), serving(runtime, SETTINGS) as url:
        begin = time.monotonic()
        assert [ask(url, "two") for _ in range(5)] == [200] * 5
        most = 1 + int(time.monotonic() - begin)
    reports = [it for it in caplog.records if "audit log could not be" in it.getMessage()]
    assert 1 <= len(reports) <= most + 1


def test_an_audit_log_that_cannot_be_written_is_refused_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, why in (
        ("no/file", "No such file"),
        (".", "Is a directory"),
        ("fifo", "No such dev"),
    ):
        with pytest.raises(InvalidCall, match=f"audit_log=.*{why}"), audited(str(tmp_path / name)):
            pass
    monkeypatch.setattr("forkroot.__main__.connect", None)
    assert main(["serve", "--port", "0", "--audit-log", str(tmp_path)]) == 2
    assert "invalid audit_log=" in capsys.readouterr().err
