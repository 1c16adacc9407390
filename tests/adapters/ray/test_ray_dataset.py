"""Jobs over datasets on a real cluster: killed drivers, killed workers, errors of items."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning:ray"),
]
NUM_ITEMS = 2000
DRIVER = """
import os, sys, threading, time
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from pathlib import Path
from forkroot import function, gen
from forkroot.adapters.ray import run_dataset
from forkroot.adapters.testing import ScriptedBackend, prompt_text

out, num_items, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])

@function
def tail(s, number):
    s += f"[{number}]"

@function
def ask(s, number):
    tail(s, number)
    s += gen("answer", max_tokens=8)
    return len(s["answer"])

def make():
    Path(f"{out}.{os.getpid()}").write_text(str(os.getpid()))
    os.replace(f"{out}.{os.getpid()}", f"{out}.pid")
    file = os.open(out + ".asked", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    def answer(call):
        text = prompt_text(call.prompt)
        os.write(file, (text + chr(10)).encode())
        return "to " + text
    return ScriptedBackend(answer, delay=delay)

import ray
ray.init(os.environ["RAY_ADDRESS"], namespace="forkroot", log_to_driver=False)
items = ray.data.from_items([{"number": number} for number in range(num_items)])
results = run_dataset(
    ask, items, out=out, model=make, workers=2, cpus=0.1, shard_len=100, num_threads=8
)
rows = list(results)
assert len(rows) == len(results) == num_items
print(sum(row["variables"]["answer"] == f"to [{row['item']['number']}]" for row in rows))
print(sorted(row["item"]["number"] for row in rows) == list(range(num_items)))
"""


@contextmanager
def driver(
    cluster: Any, out: Path, num_items: int, delay: float
) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the job, killed at the end."""
    script = out.with_suffix(".py")
    script.write_text(DRIVER)
    address = cluster.get_runtime_context().gcs_address
    process = subprocess.Popen(
        [sys.executable, str(script), str(out), str(num_items), str(delay)],
        env={**os.environ, "RAY_ADDRESS": address},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(out: Path) -> Counter[str]:
    path = Path(f"{out}.asked")
    return Counter(path.read_text().split()) if path.exists() else Counter()


def wait_until(holds: Any, seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_job_whose_driver_is_killed_goes_on_and_asks_every_item_once(
    cluster: Any, tmp_path: Path
) -> None:
    out = tmp_path / "job"
    with driver(cluster, out, NUM_ITEMS, 0.03) as first:
        wait_until(lambda: asked(out).total() > 300)
        first.send_signal(signal.SIGKILL)
        first.wait()
    assert asked(out).total() < NUM_ITEMS
    with driver(cluster, out, NUM_ITEMS, 0.03) as second:
        output, _ = second.communicate(timeout=600)
    assert output.split()[-2:] == [str(NUM_ITEMS), "True"]  # Ray prints there, too
    assert asked(out) == Counter({f"[{number}]": 1 for number in range(NUM_ITEMS)})


def test_a_job_whose_worker_is_killed_loses_no_item(cluster: Any, tmp_path: Path) -> None:
    out, num_items = tmp_path / "job", 400
    with driver(cluster, out, num_items, 0.03) as running:
        wait_until(lambda: asked(out).total() > 100)
        os.kill(int(Path(f"{out}.pid").read_text()), signal.SIGKILL)
        output, _ = running.communicate(timeout=600)
    assert output.split()[-2:] == [str(num_items), "True"]
    counts = asked(out)
    assert len(counts) == num_items
    in_flight = 2 * 8  # threads of the worker that was killed
    assert sum(count - 1 for count in counts.values()) <= in_flight


def test_an_error_of_an_item_stays_with_its_row(cluster: Any, tmp_path: Path) -> None:
    from forkroot import function, gen
    from forkroot.adapters.ray import run_dataset
    from forkroot.adapters.testing import ScriptedBackend

    @function
    def divide(s: Any, number: int) -> float:
        s += f"{12 // number} is " + gen("answer", max_tokens=4)
        return 12 / number

    items = [{"number": number} for number in (1, 0, 3)]
    results = run_dataset(
        divide, items, out=tmp_path, model=lambda: ScriptedBackend("so"), cpus=0.1
    )
    first, second, third = results
    assert (first["text"], first["variables"], first["returned"]) == (
        "12 is so",
        {"answer": "so"},
        12,
    )
    assert second["error"] == "ZeroDivisionError: integer division or modulo by zero"
    assert (third["index"], third["item"], third["error"]) == (2, {"number": 3}, None)
    assert results.dataset().count() == 3
