"""The folder of a job: what is written, in which order, and what another run of it finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forkroot.adapters.ray.spool import LineCounter, Spool
from forkroot.core.api.protocol import InvalidCall

WHO: dict[str, Any] = {"program": "ask", "source": "abc"}
ITEMS = [{"number": index, "tag": ("a", b"\xff")} for index in range(10)]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    found = Spool(tmp_path / "job")
    assert found.prepare(iter(ITEMS), WHO, 4) == 10
    return found


def test_items_are_kept_in_shards_with_their_types(spool: Spool) -> None:
    assert (spool.num_items, spool.num_shards, spool.left()) == (10, 3, [0, 1, 2])
    assert [item for shard in range(3) for item in spool.items(shard)] == ITEMS
    assert [spool.first_index(shard) for shard in range(3)] == [0, 4, 8]


def test_a_shard_is_done_once_its_results_are_there(spool: Spool) -> None:
    spool.running_path(1).parent.mkdir()
    spool.running_path(1).write_text("header\n")
    spool.finish(1, [{"index": index} for index in range(4, 8)])
    assert spool.left() == [0, 2]
    assert not spool.running_path(1).exists()
    spool.finish(0, [{"index": index} for index in range(4)])
    assert [row["index"] for row in spool.results()] == [*range(8)]


def test_the_same_job_is_taken_up_again_in_any_order_of_its_items(spool: Spool) -> None:
    spool.finish(0, [])
    assert spool.prepare(reversed(ITEMS), WHO, 4) == 10
    assert spool.prepare(ITEMS, WHO, 7) == 10  # its own length of shards stays
    assert (spool.left(), spool.num_shards) == ([1, 2], 3)


@pytest.mark.parametrize(
    ("items", "identity"),
    [
        (ITEMS[:-1], WHO),
        ([*ITEMS[:-1], ITEMS[0]], WHO),
        ([*ITEMS, ITEMS[0]], WHO),
        (ITEMS, {**WHO, "source": "abd"}),
    ],
)
def test_another_job_in_the_same_folder_is_refused(
    spool: Spool, items: list[Any], identity: dict[str, Any]
) -> None:
    with pytest.raises(InvalidCall, match=r"invalid out=.*a new folder, or the one of this job"):
        spool.prepare(items, identity, 4)


def test_a_driver_that_was_killed_while_it_wrote_begins_anew(tmp_path: Path) -> None:
    spool = Spool(tmp_path)

    def killed() -> Any:
        yield from ITEMS[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        spool.prepare(killed(), WHO, 4)
    assert spool.num_shards == 0
    spool.prepare(ITEMS, WHO, 4)
    assert [item for shard in range(3) for item in spool.items(shard)] == ITEMS


@pytest.mark.parametrize("item", [3, {"x": object()}])
def test_items_that_cannot_be_kept_are_named(tmp_path: Path, item: Any) -> None:
    with pytest.raises(InvalidCall, match="dataset"):
        Spool(tmp_path).prepare([{"x": 1}, item], WHO, 4)


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("mine")
    with pytest.raises(InvalidCall, match="one that run_dataset wrote"):
        Spool(tmp_path).prepare(ITEMS, WHO, 4)
    assert (tmp_path / "job.json").read_text() == "mine"


def test_two_jobs_do_not_work_on_one_folder(spool: Spool) -> None:
    with spool.held():
        other = Spool(spool.folder)
        with pytest.raises(InvalidCall, match="no other job"), other.held():
            pass
    with spool.held():
        pass


def test_lines_are_counted_while_files_grow(tmp_path: Path) -> None:
    counter, path = LineCounter(), tmp_path / "lines"
    assert counter.num_lines(path) == 0
    path.write_text("a\nb\nhal")
    assert counter.num_lines(path) == 2
    with path.open("a") as file:
        file.write("f\nc\n")
    assert [counter.num_lines(path), counter.num_lines(path)] == [4, 4]


def test_rows_are_lines_of_json(spool: Spool) -> None:
    first = spool.items_path(0).read_text().splitlines()[0]
    assert json.loads(first)["item"]["number"] == 0
