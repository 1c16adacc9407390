"""Replicas in actors of a real cluster: calls, streams, deaths, and as many as the load wants."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Call, CallFailed, InvalidCall, InvalidModel, Text

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore::ResourceWarning")]
SMALL = 0.1  # processors of an actor


def answer(call: Call) -> Any:
    text = prompt_text(call.prompt)
    return CallFailed("no answer") if text == "fail" else f"an answer to {text}"


def scripted(delay: float = 0.0, pids: Path | None = None) -> Callable[[], ScriptedBackend]:
    """What makes the backend of an actor; it goes there as it is, and not by its name. pids: where
    it writes in which process it is."""

    def make() -> ScriptedBackend:
        if pids is not None:
            (pids / str(os.getpid())).touch()
        return ScriptedBackend(answer, delay=delay, chunk_len=3)

    return make


@pytest.fixture(scope="module", autouse=True)
def by_value(cluster: Any) -> None:
    """Workers cannot import this module."""
    cluster.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def routers(cluster: Any) -> Iterator[Callable[..., Any]]:
    """Makes routers over actors, closed at the end."""
    from forkroot.adapters.ray.cluster import Room, Starter
    from forkroot.adapters.ray.replicas import RayRouter
    from forkroot.adapters.ray.scaling import Bounds

    made = []

    def make(
        least: int, most: int, delay: float = 0.0, pids: Path | None = None, **settings: Any
    ) -> Any:
        bounds = {
            it: settings.pop(it)
            for it in ("busy", "patience_up", "patience_down")
            if it in settings
        }
        starter = Starter(scripted(delay, pids), Room(SMALL), timeout=300)
        made.append(RayRouter(starter, Bounds(least, most, **bounds), heartbeat=0.2, **settings))
        return made[-1]

    yield make
    for router in made:
        router.close()


def call(text: str, **fields: Any) -> Call:
    return Call((Text(text),), **fields)


def wait_until(holds: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_calls_through_actors_end_as_they_do_here(routers: Callable[..., Any]) -> None:
    router = routers(1, 1)
    assert router.submit(call("x")).result(300).text == "an answer to x"
    streamed = router.submit(call("y", stream=True))
    assert [chunk.text for chunk in streamed][:2] == ["an ", "ans"]
    assert streamed.result(1).text == "an answer to y"
    with pytest.raises(CallFailed, match="no answer"):
        router.submit(call("fail")).result(300)
    many = [router.submit(call(str(number))) for number in range(300)]
    assert [it.result(300).text for it in many] == [f"an answer to {it}" for it in range(300)]
    assert router.info().model == "scripted"
    with pytest.raises(InvalidCall, match="invalid n=0"):
        from forkroot.core.api.protocol import Sampling

        router.submit(call("x", sampling=Sampling(n=0))).result(300)


@pytest.mark.slow
def test_the_calls_of_a_killed_actor_are_answered_by_another_and_it_comes_back(
    tmp_path: Path, routers: Callable[..., Any]
) -> None:
    router = routers(2, 2, delay=2.0, pids=tmp_path)
    replies = [router.submit(call(str(number))) for number in range(60)]
    killed, _ = (int(path.name) for path in tmp_path.iterdir())
    os.kill(killed, signal.SIGKILL)
    assert [it.result(300).text for it in replies] == [f"an answer to {it}" for it in range(60)]
    assert router.info().counters["deaths"] >= 1
    assert router.info().counters["resent"] >= 1
    wait_until(lambda: [it.state for it in router.replicas] == ["ready"] * 2)
    wait_until(lambda: len([*tmp_path.iterdir()]) == 3)
    replies = [router.submit(call(f"new {number}")) for number in range(40)]
    assert all(it.result(300).text.startswith("an answer to new") for it in replies)
    assert all(it.sent > 0 for it in router.replicas)


@pytest.mark.slow
def test_replicas_come_and_go_while_programs_run(routers: Callable[..., Any]) -> None:
    router = routers(1, 2, delay=0.1, busy=4, patience_up=0.5, patience_down=1, interval=0.1)
    numbers, is_over = iter(range(100_000)), threading.Event()
    lock, wrong = threading.Lock(), list[str]()

    def program() -> None:
        while not is_over.is_set():
            with lock:
                number = next(numbers)
            text = router.submit(call(str(number))).result(300).text
            if text != f"an answer to {number}":
                wrong.append(text)

    with ThreadPoolExecutor(17) as pool:
        running = [pool.submit(program) for _ in range(16)]
        wait_until(lambda: len(router.replicas) == 2)
        wait_until(lambda: all(it.sent > 20 for it in router.replicas))
        is_over.set()
        for one in running:
            one.result(300)
        is_over.clear()
        quiet = pool.submit(program)
        wait_until(lambda: len(router.replicas) == 1)
        is_over.set()
        quiet.result(300)
    assert wrong == []
    assert next(numbers) > 50


@pytest.mark.slow
def test_what_cannot_start_is_named_and_leaves_nothing_behind(cluster: Any) -> None:
    from forkroot.adapters.connection import connect
    from forkroot.adapters.ray.cluster import Room, Starter

    with pytest.raises(InvalidModel, match="no-such-folder"):
        connect("ray:auto", model="./no-such-folder", cpus=SMALL)
    with pytest.raises(InvalidCall, match=r"each replica needs .*CPU.*are free"):
        Starter(scripted(), Room(64.0), timeout=0.5).start("0")
    with pytest.raises(InvalidCall, match="invalid model=None: expected what the replicas run"):
        connect("ray:auto", replicas=2)
    with pytest.raises(InvalidCall, match="invalid num_slot"):
        connect("ray:auto", model="tiny", num_slot=2)
    free = partial(cluster.available_resources)
    wait_until(lambda: free().get("CPU") == 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [{"replicas": 2}, {"replicas": 4}, {"ranks": 2}], ids=["two", "four", "ranks"]
)
def test_greedy_answers_through_actors_are_those_of_one_engine(
    cluster: Any, shape: dict[str, int]
) -> None:
    from forkroot import connect, function, gen

    @function
    def program(s: Any, word: str) -> None:
        s += f"A list of three words that begin like {word}: " + gen("first", max_tokens=8)
        for branch in s.fork(3):
            branch += f" and {word}" + gen("next", max_tokens=6)

    settings: dict[str, Any] = {"num_slots": 4000, "dtype": "float32"}
    items = [{"word": word} for word in ("apple", "stone", "river", "cloud")]
    with connect("tiny", **settings) as one:
        wanted = [state.text() for state in program.run_batch(items, backend=one, temperature=0)]
    many = connect("ray:auto", model="tiny", cpus=SMALL, **shape, **settings)
    with many:
        assert "tokenizer" in dir(type(many))
        found = [state.text() for state in program.run_batch(items, backend=many, temperature=0)]
        assert many.tokenizer.encode("apple")
    assert found == wanted
