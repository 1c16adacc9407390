"""`run_dataset`: a program over many items on a cluster, which survives the death of its driver."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from ...core.api.protocol import Backend, BackendClosed, CallFailed, InvalidCall
from ..connection import connect
from ..native.checkpoint import digest, source_of
from ..native.language.plain import decoded, encoded
from ..native.program import Program
from .cluster import NAMESPACE, Room, join
from .job import Job, Plan, Progress
from .shipping import packed
from .spool import Spool

_INTERVAL = 0.5  # seconds
_SHARD_LEN = 256


def run_dataset(
    program: Program,
    dataset: Any,
    *,
    out: str | os.PathLike[str],
    model: str | Callable[[], Backend] = "tiny",
    engine: Mapping[str, Any] | None = None,
    workers: int = 1,
    cpus: float = 1.0,
    gpus: float = 0.0,
    address: str = "ray:auto",
    shard_len: int = _SHARD_LEN,
    num_threads: int = 64,
    max_retries: int | None = None,
    progress_bar: bool | None = None,
    **settings: Any,
) -> Results:
    """Run a program once for each row of a Ray Dataset (or of any iterable of mappings), which are
    its keyword arguments; returns what came of them, also if a part was run before.

    out: the job's folder, which all machines of the cluster see. The items are written there first.
      Then workers run them in shards, each with an engine of its own, so that what the items of a
      shard share is computed once. They belong to the cluster: when the driver dies they go on, and
      the same call takes the job up again, wherever it is then. If the cluster ends, too, the items
      that had ended are not run again.
    model: what the workers run, as in `connect`, with `engine` as its settings; or a function that
      gives a backend, called in each worker. cpus, gpus: of each worker.
    shard_len: items of a shard. num_threads: programs at a time for each of a worker's two shards.
    max_retries: as in `run_batch`. progress_bar: None shows one on a terminal only.
    settings: of the program, such as temperature.

    Raises InvalidCall for items or a folder that are not allowed, BackendClosed where there is no
    cluster, and CallFailed if the job fails as a whole; an error of an item stays with its row.
    """
    if not isinstance(program, Program):
        raise InvalidCall("program", program, "a function with @function")
    for name, number in (("workers", workers), ("shard_len", shard_len)):
        if type(number) is not int or number < 1:
            raise InvalidCall(name, number, "an integer >= 1")
    join(address)
    spool = Spool(Path(out).resolve())
    spool.prepare(_rows(dataset), _identity(program, settings), shard_len)
    make = model if callable(model) else partial(connect, model, process=True, **(engine or {}))
    keywords = {**settings, "num_threads": num_threads, "max_retries": max_retries}
    room = Room(cpus, gpus)
    plan = Plan(str(spool.folder), packed(program), make, room, workers, keywords)
    _watch(plan, progress_bar)
    return Results(spool)


class Results:
    """What came of the items of a job, in their order. Each is a dictionary: `index`, `item`,
    `text`, `variables`, `returned` and `usage` of its program, and `error`, which is None or a
    text."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._spool.results():
            plain: dict[str, Any] = {
                name: decoded(row[name])
                for name in ("item", "variables", "returned")
                if name in row
            }
            yield {**row, **plain}

    def __len__(self) -> int:
        return self._spool.num_items

    @property
    def paths(self) -> list[str]:
        """The files, with one line of JSON for each item."""
        return [str(self._spool.results_path(it)) for it in range(self._spool.num_shards)]

    def dataset(self) -> Any:
        """The same as a Ray Dataset."""
        return ray.data.read_json(self.paths, lines=True)


def _rows(dataset: Any) -> Iterable[Mapping[str, Any]]:
    rows: Callable[[], Iterable[Mapping[str, Any]]] | None = getattr(dataset, "iter_rows", None)
    if rows is not None:
        return rows()
    if not isinstance(dataset, Iterable) or isinstance(dataset, str | Mapping):
        raise InvalidCall("dataset", dataset, "a Ray Dataset, or a list of mappings")
    return dataset


def _identity(program: Program, settings: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: settings[name] for name in sorted(settings)}
    return {
        "program": program.name,
        "source": digest(source_of(program.body)),
        "bound": encoded(dict(program.bound), "bound"),
        "settings": encoded(given, "settings"),
    }


def _watch(plan: Plan, progress_bar: bool | None) -> None:
    """Follow the job of this folder to its end; it is started if it is not at work."""
    name = "job-" + hashlib.sha256(plan.folder.encode()).hexdigest()[:16]
    options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}
    job = (
        ray.remote(Job)
        .options(**options, get_if_exists=True, num_cpus=0, max_concurrency=4, max_restarts=-1)
        .remote(plan)
    )
    try:
        found = _followed(job, progress_bar)
    except KeyboardInterrupt:
        ray.get(job.cancel.remote())
        ray.kill(job)
        raise
    except RayError as error:
        raise BackendClosed(f"the job {name} cannot be reached: {error!s:.300}") from error
    ray.kill(job)
    if found.error is not None:
        raise CallFailed(f"the job in {plan.folder} ended early: {found.error}")


def _followed(job: Any, progress_bar: bool | None) -> Progress:
    with _bar(progress_bar) as show:
        while True:
            found: Progress = ray.get(job.progress.remote())
            show(found)
            if found.is_over:
                return found
            time.sleep(_INTERVAL)


@contextmanager
def _bar(is_wanted: bool | None) -> Iterator[Callable[[Progress], object]]:
    if not (sys.stderr.isatty() if is_wanted is None else is_wanted):
        yield lambda progress: None
        return
    from tqdm import tqdm

    with tqdm(unit="item") as bar:

        def show(progress: Progress) -> None:
            bar.total, bar.n = progress.items, progress.done
            bar.set_postfix(failed=progress.failed, refresh=False)
            bar.refresh()

        yield show
