"""`forkroot.connect` with a URL."""

from __future__ import annotations

import pytest

import forkroot


def test_a_url_gives_the_backend_behind_it(server: str) -> None:
    with forkroot.connect(server) as backend:
        call = forkroot.Call((forkroot.Text("Hello"),), forkroot.Sampling(max_tokens=2))
        assert backend.submit(call).result(30).usage.completion_tokens == 2


def test_a_url_may_end_as_clients_of_openai_say_it(server: str) -> None:
    with forkroot.connect(f"{server}/v1") as backend:
        assert backend.info().model


def test_what_a_url_does_not_take_is_refused_by_name() -> None:
    with pytest.raises(forkroot.InvalidCall, match=r"num_slots=5 .* api_key"):
        forkroot.connect("http://127.0.0.1:1", num_slots=5)
    with pytest.raises(forkroot.InvalidCall, match="process=True"):
        forkroot.connect("http://127.0.0.1:1", process=True)
    with pytest.raises(forkroot.InvalidCall, match="process=2"):
        forkroot.connect("tiny", process=2)  # type: ignore[arg-type]


def test_no_server_is_a_typed_error() -> None:
    with forkroot.connect("http://127.0.0.1:1", connect_timeout=1.0) as backend:
        call = forkroot.Call((forkroot.Text("Hello"),))
        with pytest.raises(forkroot.BackendClosed, match="cannot be reached"):
            backend.submit(call).result(30)
