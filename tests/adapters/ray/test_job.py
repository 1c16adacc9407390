"""A worker of a job, without a cluster: what it runs and keeps, and which programs reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray")

from forkroot import function, gen
from forkroot.adapters.native.checkpoint import digest, source_of
from forkroot.adapters.native.program import Program
from forkroot.adapters.ray.cluster import Room
from forkroot.adapters.ray.dataset import Results
from forkroot.adapters.ray.job import Plan, Worker
from forkroot.adapters.ray.shipping import packed, unpacked
from forkroot.adapters.ray.spool import Spool
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.core.api.protocol import Call, CallFailed

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
ITEMS = [{"number": number} for number in range(7)]


def program() -> Program:
    """A program that no module has by its name, and that calls another one."""

    @function
    def head(s: Any, number: int) -> None:
        s += f"<{number}>"

    @function
    def ask(s: Any, number: int) -> list[int]:
        head(s, number)
        s += gen("answer", max_tokens=8)
        return [number, len(s["answer"])]

    return ask


def plan(folder: Path, backend: ScriptedBackend) -> Plan:
    Spool(folder).prepare(ITEMS, {"program": "ask"}, 3)
    keywords = {"temperature": 0.0, "num_threads": 2}
    return Plan(str(folder), packed(program()), lambda: backend, Room(), 1, keywords)


def test_a_program_of_no_module_arrives_with_those_that_it_calls() -> None:
    sent = program()
    found = unpacked(packed(sent.bind(number=5)))
    state = found.run(backend=ScriptedBackend("so"))
    assert (state.text(), state.ret_value, found.name) == ("<5>so", [5, 2], "ask")
    assert digest(source_of(found.body)) == digest(source_of(sent.body))


def test_a_shard_is_run_and_its_rows_are_kept_in_order(tmp_path: Path) -> None:
    worker = Worker(plan(tmp_path, ScriptedBackend(lambda call: "to " + prompt_text(call.prompt))))
    assert [worker.run(shard) for shard in (2, 0, 1)] == [0, 0, 0]
    rows = list(Results(Spool(tmp_path)))
    assert [row["index"] for row in rows] == [*range(7)]
    assert [row["item"] for row in rows] == ITEMS
    assert rows[3]["variables"] == {"answer": "to <3>"}
    assert (rows[3]["returned"], rows[3]["text"], rows[3]["error"]) == ([3, 6], "<3>to <3>", None)
    assert rows[3]["usage"]["calls"] == 1


def test_a_shard_that_is_done_is_not_asked_again_where_its_worker_died_before_it_said_so(
    tmp_path: Path,
) -> None:
    backend = ScriptedBackend("so")
    Worker(plan(tmp_path, backend)).run(1)
    assert not Spool(tmp_path).running_path(1).exists()
    assert Worker(plan(tmp_path, backend)).run(1) == 0
    assert len(backend.calls) == 3


def test_items_that_had_ended_are_not_asked_again_by_another_worker(tmp_path: Path) -> None:
    def broken(call: Call) -> Any:
        return CallFailed("broken") if "<1>" in prompt_text(call.prompt) else "so"

    first = ScriptedBackend(broken)
    worker = Worker(plan(tmp_path, first))
    spool = Spool(tmp_path)
    spool.running_path(0).parent.mkdir()
    unpacked(packed(program())).run_batch(
        spool.items(0), backend=first, checkpoint=spool.running_path(0), temperature=0.0
    )
    assert len(first.calls) == 3
    second = ScriptedBackend("so")
    assert Worker(plan(tmp_path, second)).run(0) == 0
    assert [prompt_text(call.prompt) for call in second.calls] == ["<1>"]
    assert worker.run(1) == 0


def test_errors_of_items_are_counted_and_kept_with_their_rows(tmp_path: Path) -> None:
    worker = Worker(plan(tmp_path, ScriptedBackend(lambda call: CallFailed("no answer"))))
    assert worker.run(2) == 1
    (row,) = Results(Spool(tmp_path))
    assert (row["index"], row["error"]) == (6, "CallFailed: no answer")
