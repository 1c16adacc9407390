"""A router whose replicas come later than it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

import forkroot
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.router import joining
from forkroot.adapters.router.joining import Joining, over_servers
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend
from forkroot.core.api.protocol import Backend, BackendClosed, InvalidCall

from ...serving import serving
from ..http.conftest import Letters


class Closing(ScriptedBackend):
    """Knows whether it was closed."""

    was_closed = False

    def close(self) -> None:
        self.was_closed = True
        super().close()


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_replica_joins_once_it_is_there_and_is_tried_until_then() -> None:
    tries = 0

    def start() -> Backend:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise BackendClosed("not there")
        return ScriptedBackend("b")

    with Router([ScriptedBackend("a")]) as router:
        joining = Joining(router, {"late": start}, interval=0.01)
        wait_until(lambda: not joining.absent)
        assert [it.name for it in router.replicas] == ["0", "late"]
        assert tries == 3
        joining.close()


def test_a_replica_with_another_model_is_left_out_and_closed() -> None:
    other = ScriptedBackend("b", model="another")
    with Router([ScriptedBackend("a")]) as router:
        joining = Joining(router, {"late": lambda: other}, interval=0.01)
        wait_until(lambda: not joining.absent)
        assert [it.name for it in router.replicas] == ["0"]
        joining.close()


def test_nobody_is_tried_after_the_router_is_closed() -> None:
    router = Router([ScriptedBackend("a")])
    router.close()
    joining = Joining(router, {"late": lambda: ScriptedBackend("b")}, interval=0.01)
    joining.close()
    assert joining.absent == ("late",)


def test_a_router_starts_over_the_servers_that_are_there() -> None:
    runtime = Runtime(ScriptedBackend("a"), Letters(), ("scripted",))
    with serving(runtime) as url:
        with over_servers([url, "http://127.0.0.1:9"], "affinity") as router:
            assert [it.name for it in router.replicas] == [url]
        with pytest.raises(BackendClosed, match=r"127\.0\.0\.1:9"):
            over_servers(["http://127.0.0.1:9"], "affinity")
        with pytest.raises(InvalidCall, match="policy"):
            over_servers([url], "best")
        with pytest.raises(InvalidCall, match="policy='lmp': expected none without replicas"):
            forkroot.connect(url, policy="lmp")


def test_a_server_that_never_answers_does_not_keep_a_router_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "_SECONDS_FOR_OTHERS", 0.1)
    runtime = Runtime(ScriptedBackend("a"), Letters(), ("scripted",))
    with serving(runtime) as url, socket.create_server(("127.0.0.1", 0)) as silent:
        other = f"http://127.0.0.1:{silent.getsockname()[1]}"
        start = time.monotonic()
        with over_servers([other, url], "affinity", silence=30.0) as router:
            assert [it.name for it in router.replicas] == [url]
        assert time.monotonic() - start < 20


def test_a_replica_that_starts_too_late_is_closed_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joining, "_SECONDS_FOR_OTHERS", 0.05)
    gate, late = threading.Event(), list[Closing]()

    def connect(url: str) -> Backend:
        if url != "http://late":
            return ScriptedBackend(url)
        gate.wait(60)
        late.append(Closing(url))
        return late[-1]

    monkeypatch.setattr(joining, "connect", connect)
    with over_servers(["http://late", "http://b"], "affinity", interval=0.02) as router:
        assert [it.name for it in router.replicas] == ["http://b"]
        gate.set()
        wait_until(lambda: len(router.replicas) == 2)
        wait_until(lambda: [it.was_closed for it in late].count(True) == 1)
        assert len(late) == 2


def test_a_wrong_key_is_an_error_at_the_start() -> None:
    runtime = Runtime(ScriptedBackend("a"), Letters(), ("scripted",))
    keyed = Settings(keys=("one",))
    with serving(runtime) as url, serving(runtime, keyed) as other:
        urls = [url, other]
        with pytest.raises(InvalidCall, match="api_key"):
            over_servers(urls, "affinity", api_key="two")
