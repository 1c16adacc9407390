"""The server as an application of Ray Serve, as a line of its config names it."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest

from forkroot.core.api.protocol import InvalidCall

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_the_application_of_a_config_answers_openai_requests_and_streams(cluster: Any) -> None:
    from ray import serve

    from forkroot.adapters.ray import deployment

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        args = {"model": "tiny", "api_keys": ["one"], "num_slots": 4000, "served_names": ["mine"]}
        serve.run(deployment({**args, "ray_actor_options": {"num_cpus": 0.1}}), name="forkroot")
        url = f"http://127.0.0.1:{port}"
        body = {"prompt": "Hello", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
        assert httpx.post(f"{url}/v1/completions", json=body).status_code == 401
        keyed: dict[str, Any] = {"headers": {"Authorization": "Bearer one"}, "timeout": 60}
        whole = httpx.post(f"{url}/v1/completions", json=body, **keyed).json()
        assert (whole["model"], whole["usage"]["completion_tokens"]) == ("mine", 3)
        lines = httpx.post(f"{url}/v1/completions", json={**body, "stream": True}, **keyed).text
        events = [line[6:] for line in lines.splitlines() if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        pieces = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
        assert "".join(pieces) == whole["choices"][0]["text"]
        assert httpx.get(f"{url}/ready").json() == {"status": "ready"}
    finally:
        serve.shutdown()


def test_arguments_that_are_not_allowed_are_named(cluster: Any) -> None:
    from forkroot.adapters.ray import deployment

    with pytest.raises(InvalidCall, match="invalid api_keys='one': expected a list of texts"):
        deployment({"api_keys": "one"})
