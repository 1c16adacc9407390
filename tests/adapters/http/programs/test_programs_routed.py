"""Programs through a server before servers: whole, in their client's name, and again elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forkroot.adapters.http.server.settings import Settings
from forkroot.adapters.native import CompiledProgram
from forkroot.adapters.router.router import Router
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import CallFailed, EngineDied, InvalidCall

from .conftest import Served, answering
from .test_programs import ITEMS, reading

pytestmark = [
    pytest.mark.timeout(60),
    # FastAPI silences it by `catch_warnings`, which other threads of the process undo
    pytest.mark.filterwarnings("ignore:The 'alias' attribute"),
]
Client = Callable[..., Any]


class Routed:
    """A server over a router over servers of these backends; `url` is its address."""

    def __init__(
        self,
        served: Served,
        client: Client,
        *backends: Any,
        heartbeat: float = 1e6,
        **settings: Any,
    ) -> None:
        admin = Settings(keys=("other",), admin_keys=("admin",))
        urls = [served(it, settings=admin) for it in backends]
        replicas = {url: client(url, api_key="admin") for url in urls}
        self.router = Router(replicas, heartbeat=heartbeat, hang_timeout=1e6)
        self.url = served(self.router, **settings)


@pytest.mark.parametrize("name", sorted(ITEMS))
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_through_a_router_reads_as_a_run_here(
    programs: dict[str, CompiledProgram], served: Served, client: Client, name: str, stream: bool
) -> None:
    arguments, names = ITEMS[name]
    here = ScriptedBackend(answering)
    there = [ScriptedBackend(answering, chunk_len=2 if stream else None) for _ in range(2)]
    routed = Routed(served, client, *there)
    own = programs[name].run(backend=here, **arguments)
    settings = {"backend": client(routed.url), "remote": True}
    run = programs[name].stream if stream else programs[name].run
    mine = run(**settings, **arguments)
    assert reading(mine, names) == reading(own, names)
    assert sorted(len(it.calls) for it in there) == [0, len(here.calls)]
    assert routed.router.info().counters["placed"] == 1


@pytest.mark.parametrize("remote", [True, False], ids=["whole", "call by call"])
@pytest.mark.parametrize("is_routed", [False, True], ids=["server", "router"])
def test_calls_know_what_follows_them_wherever_their_program_runs(
    programs: dict[str, CompiledProgram],
    served: Served,
    client: Client,
    is_routed: bool,
    remote: bool,
) -> None:
    here, there = ScriptedBackend(answering), ScriptedBackend(answering)
    programs["judge"].run(essay="tea", backend=here)
    url = Routed(served, client, there).url if is_routed else served(there)
    programs["judge"].run(essay="tea", backend=client(url), remote=remote)
    expected = sorted(map(known, here.calls))
    assert expected[0][1:4] == (0, 0, 0)  # the last call
    assert sorted(map(known, there.calls)) == expected
    (root,) = [call.hint for call in there.calls if call.sampling.max_tokens == 0]
    named = [call for call in there.calls if call.hint and call.hint.root == root.root]
    assert len(named) == 1 + root.branches == 5  # the root itself, three branches and the grade


def known(call: Any) -> tuple[Any, ...]:
    """What a call says of the calls behind it."""
    hint = call.hint
    priority = call.priority
    is_root = call.sampling.max_tokens == 0
    return (
        is_root,
        hint.calls_left,
        hint.tokens_left,
        hint.next_use,
        priority,
        prompt_text(call.prompt),
    )


def test_a_program_of_a_dead_engine_is_run_by_another_replica(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    def dying(call: Any) -> Any:
        is_last = "\nGrade" in prompt_text(call.prompt)
        return EngineDied("it died", is_replaced=True) if is_last and dead else answering(call)

    dead = [1]
    there = [ScriptedBackend(dying), ScriptedBackend(dying)]
    routed = Routed(served, client, *there, heartbeat=0.1)
    backend = client(routed.url)
    with pytest.raises(EngineDied):
        programs["judge"].run(essay="tea", backend=backend, remote=True)
    assert all(it.calls for it in there)  # both were tried
    dead.clear()  # it waits until they are trusted again
    assert programs["judge"].run(essay="tea", backend=backend, remote=True)["grade"]


def test_runs_through_a_router_keep_their_client_apart(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering)
    settings = Settings(keys=("a", "b"), weights={"b": 2.0})
    routed = Routed(served, client, there, settings=settings)
    for key in ("a", "b", "a"):
        backend = client(routed.url, api_key=key)
        programs["ask"].run(question="?", backend=backend, remote=True, namespace="mine")
    found = [(call.namespace, call.tenant, call.weight) for call in there.calls]
    assert found[0] == found[2] and found[0][0] != found[1][0] and found[0][1] != found[1][1]
    assert [weight for _, _, weight in found] == [1.0, 2.0, 1.0]
    assert all(space.endswith("/mine") and str(tenant) in space for space, tenant, _ in found)


def test_errors_through_a_router_are_those_of_the_run(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    def failing(call: Any) -> Any:
        is_last = "\nGrade" in prompt_text(call.prompt)
        return CallFailed("it broke") if is_last else answering(call)

    routed = Routed(served, client, ScriptedBackend(failing), ScriptedBackend(failing))
    backend = client(routed.url)
    (state,) = programs["judge"].run_batch([{"essay": "tea"}], backend=backend, remote=True)
    with pytest.raises(CallFailed):
        state["grade"]
    assert state["topic"] and state["verdict"]
    with pytest.raises(InvalidCall, match="arguments"):
        backend_run(programs["ask"], backend)
    assert routed.router.info().counters["deaths"] == 0


def backend_run(program: CompiledProgram, backend: Any) -> Any:
    """A run whose argument is a mapping that the program cannot append."""
    return program.run(question={"a": object()}, backend=backend, remote=True)


def test_who_leaves_ends_the_run_at_the_replica(
    programs: dict[str, CompiledProgram], served: Served, client: Client
) -> None:
    there = ScriptedBackend(answering, is_held=True)
    routed = Routed(served, client, there)
    backend = client(routed.url)
    programs["ask"].stream(question="a", backend=backend, remote=True)
    there.wait_for(1)
    backend.close()
    there.replies[0].result(10)  # it was cancelled there
    assert routed.router.replicas[0].state == "ready"
