"""The folder of a job: what is to be asked, in shards, and what came of it.

`job.json` says which job it is; `items/N.jsonl` has the items of a shard, `running/N.jsonl` the
ended ones of a shard that is not done yet, `results/N.jsonl` all of a shard that is. A file appears
whole or not at all, so that a killed process leaves nothing half done. It knows no cluster.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...core.api.protocol import InvalidCall
from ..native.language.plain import decoded, encoded

_KIND = {"forkroot": "dataset", "version": 1}
_MODULUS = 1 << 128


@dataclass(frozen=True, slots=True)
class Spool:
    """The folder of one job, which all machines of the cluster see."""

    folder: Path

    def prepare(
        self, items: Iterable[Mapping[str, Any]], identity: Mapping[str, Any], shard_len: int
    ) -> int:
        """Write all items, in shards, and then what the job is; returns how many there are. Where
        that was done before, only checks that it is the same job: the same items, in any order.
        Raises InvalidCall for another job's folder, and for items that are not plain data."""
        (self.folder / "items").mkdir(parents=True, exist_ok=True)
        known = self._known()
        rows, digest, num = self._digested(items, digests := [0]), digests, 0
        for shard in iter(lambda: list(islice(rows, shard_len)), []):
            if known is None:
                self._write(self.items_path(num // shard_len), shard)
            num += len(shard)
        job = {**_KIND, **identity, "num_items": num, "items": f"{digest[0]:032x}"}
        if known is None:
            self._write(self.folder / "job.json", [{**job, "shard_len": shard_len}])
            return num
        for name, value in job.items():
            if known.get(name) != value:
                allowed = f"a new folder, or the one of this job ({name} is {known.get(name)!r:.80}"
                raise InvalidCall("out", str(self.folder), f"{allowed} there, {value!r:.80} here)")
        return num

    @property
    def num_shards(self) -> int:
        """Of a prepared job."""
        job = self._known() or {"num_items": 0, "shard_len": 1}
        return -(-int(job["num_items"]) // int(job["shard_len"]))

    @property
    def num_items(self) -> int:
        """Of a prepared job."""
        return int((self._known() or {"num_items": 0})["num_items"])

    def left(self) -> list[int]:
        """The shards that are not done."""
        return [it for it in range(self.num_shards) if not self.results_path(it).exists()]

    def items(self, shard: int) -> list[dict[str, Any]]:
        """The items of a shard."""
        return [decoded(row["item"]) for row in _rows(self.items_path(shard))]

    def first_index(self, shard: int) -> int:
        """The number of its first item among all."""
        return shard * int((self._known() or {"shard_len": 0})["shard_len"])

    def finish(self, shard: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write what came of a shard: it is done."""
        self._write(self.results_path(shard), rows)
        self.running_path(shard).unlink(missing_ok=True)

    def num_failed(self, shard: int) -> int | None:
        """The items of a shard that ended in an error, once it is done; else None."""
        try:
            return sum(row["error"] is not None for row in _rows(self.results_path(shard)))
        except FileNotFoundError:
            return None

    def results(self) -> Iterator[dict[str, Any]]:
        """The rows of all shards that are done, in the order of their items."""
        for shard in range(self.num_shards):
            if self.results_path(shard).exists():
                yield from _rows(self.results_path(shard))

    def items_path(self, shard: int) -> Path:
        """Where the items of a shard are."""
        return self.folder / "items" / f"{shard:06d}.jsonl"

    def running_path(self, shard: int) -> Path:
        """The checkpoint of a shard that is not done."""
        return self.folder / "running" / f"{shard:06d}.jsonl"

    def results_path(self, shard: int) -> Path:
        """Where the results of a shard are, once it is done."""
        return self.folder / "results" / f"{shard:06d}.jsonl"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """While this runs nobody else works on the job. Raises InvalidCall if somebody does."""
        with (self.folder / "job.lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                allowed = "a folder on which no other job works now"
                raise InvalidCall("out", str(self.folder), allowed) from error
            yield

    def _known(self) -> dict[str, Any] | None:
        try:
            (found,) = _rows(self.folder / "job.json")
        except FileNotFoundError:
            return None
        except ValueError as error:
            allowed = "a new folder, or one that run_dataset wrote"
            raise InvalidCall("out", str(self.folder), allowed) from error
        return found

    def _digested(
        self, items: Iterable[Mapping[str, Any]], total: list[int]
    ) -> Iterator[dict[str, Any]]:
        """The items as rows; `total[0]` is their digest, in whichever order they come."""
        for index, item in enumerate(items):
            if not isinstance(item, Mapping):
                raise InvalidCall("dataset", item, "rows that are the program's keyword arguments")
            row = encoded(dict(item), f"dataset[{index}]")
            text = json.dumps(row, sort_keys=True).encode()
            number = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
            total[0] = (total[0] + number) % _MODULUS
            yield {"item": row}

    def _write(self, path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        with temporary.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)


class LineCounter:
    """Counts the lines of files that grow; each is read once."""

    def __init__(self) -> None:
        self._seen: dict[Path, tuple[int, int]] = {}

    def num_lines(self, path: Path) -> int:
        """So far; 0 if there is no such file (any more)."""
        offset, num = self._seen.get(path, (0, 0))
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return 0
        self._seen[path] = offset + len(data), num + data.count(b"\n")
        return self._seen[path][1]


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
