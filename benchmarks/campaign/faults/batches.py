"""A batch with a checkpoint whose process is killed again and again: each item is answered once.

Each process is killed (SIGKILL) while some of its items are being answered and others wait; the
last one ends by itself. The answers are compared with those of a batch that nobody killed.

    python -m forkroot.benchmarks.campaign.faults.batches --items 2000 --kills 20 [--model tiny]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from forkroot.adapters.connection import connect
from forkroot.adapters.native import function, gen
from forkroot.adapters.testing import ScriptedBackend, prompt_text
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Call

SCRIPTED = "scripted"
FAULTS = ("wrong", "answered_twice", "asked_after_answer")
_SIZES, _SIZES_FULL = (100, 3), (2000, 20)  # items and kills
_THREADS = 8
_LONGEST_START = 120.0  # seconds


def run(plan: Plan) -> Verdict:
    """A batch of answers without a model, killed as often as the plan says."""
    items, kills = _SIZES_FULL if plan.is_full else _SIZES
    bars, figures = Bars(), batch_killed(plan.seed, items, kills)
    expected = {"kills": kills, "runs": kills + 1, "answered": items, **dict.fromkeys(FAULTS, 0)}
    for name, value in expected.items():
        bars.equal(name, figures[name], value)
    bars.note(items=items, asked=figures["asked"])
    return bars.verdict("batches")


def batch_killed(seed: int, items: int, kills: int, model: str = SCRIPTED) -> dict[str, Any]:
    """Kill the process of a batch of so many items `kills` times, and let it end; what was seen.

    model: of the engine in a child process of the batch's; "scripted": answers without a model.
    answered: items whose answer came at last. wrong: answers that differ from those of a batch that
    was not killed. answered_twice: items with two lines in the file. asked_after_answer: items that
    were asked again though the file had them. asked: all calls; those above `items` were open when
    a process was killed.
    """
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder, alone = Path(name, "killed"), Path(name, "alone")
        for it in (folder, alone):
            it.mkdir()
        _Process(alone, items, items, model).join()
        done, started_again = set[int](), 0
        for left in range(kills, -1, -1):
            num_left = items - len(done)
            limit = rng.randint(1, max(1, 2 * num_left // (left + 1) - 1)) if left else items
            process = _Process(folder, items, min(limit, num_left - 1) if left else items, model)
            process.kill(rng.random() * 0.02) if left else process.join()
            started_again += len(done & set(process.started()))
            done = set(_answered(folder))
        found, expected = _answers(folder), _answers(alone)
        return {
            "kills": kills,
            "runs": len(list(folder.glob("asked.*"))),
            "items": items,
            "answered": len(found),
            "wrong": sum(found.get(item) != answer for item, answer in expected.items()),
            "answered_twice": sum(n > 1 for n in Counter(_answered(folder)).values()),
            "asked_after_answer": started_again,
            "asked": sum(len(path.read_text().split()) for path in folder.glob("asked.*")),
        }


class _Process:
    """A process that runs the batch of a folder; it begins `limit` items and holds the others."""

    def __init__(self, folder: Path, items: int, limit: int, model: str) -> None:
        number = len(list(folder.glob("asked.*")))
        self._log = folder / f"asked.{number:03}"
        self._log.touch()
        command = [sys.executable, "-m", __spec__.name, "--child", str(self._log)]
        options = ["--items", str(items), "--limit", str(limit), "--model", model]
        self._popen = subprocess.Popen(command + options)

    def started(self) -> list[int]:
        """The items that it has asked for."""
        return [int(line) for line in self._log.read_text().split()]

    def join(self) -> None:
        """Wait for its end. Raises RuntimeError for another one than a good one."""
        if self._popen.wait() != 0:
            raise RuntimeError(f"the batch ended with {self._popen.returncode}")

    def kill(self, delay: float) -> None:
        """Kill it `delay` seconds after it began to hold items."""
        held = _held(self._log)
        ends_at = time.monotonic() + _LONGEST_START
        while not held.exists():
            if self._popen.poll() is not None or time.monotonic() > ends_at:
                raise RuntimeError("the batch ended before it could be killed")
            time.sleep(0.005)
        time.sleep(delay)
        self._popen.kill()
        self._popen.wait()


def _held(log: Path) -> Path:
    """What is there once a process holds items."""
    return log.with_name(log.name.replace("asked", "held"))


def _answered(folder: Path) -> list[int]:
    """The items of the whole lines of a checkpoint."""
    _, *lines = (folder / "checkpoint").read_bytes().split(b"\n")[:-1]
    return [json.loads(line)["item"] for line in lines]


def _answers(folder: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((folder / "answers").read_text())
    return found


class _Gate:
    """Lets `limit` items of this process pass, and notes them; holds the others for ever."""

    def __init__(self, log: Path, limit: int) -> None:
        self._log, self._left = log, limit
        self._lock = threading.Lock()

    def enter(self, number: int) -> None:
        with self._lock:
            self._left -= 1
            is_held = self._left < 0
            if not is_held:
                with self._log.open("a") as opened:
                    opened.write(f"{number}\n")
        if is_held:
            _held(self._log).touch()
            threading.Event().wait()


def _child(log: Path, items: int, limit: int, model: str) -> None:
    gate = _Gate(log, limit)

    @function
    def capital(s: Any, number: int) -> None:
        gate.enter(number)
        s += f"Item {number}: the capital of Japan is" + gen("answer", max_tokens=4)

    def echo(call: Call) -> str:
        return prompt_text(call.prompt)[::-1]

    is_scripted = model == SCRIPTED
    backend = ScriptedBackend(echo, delay=0.002) if is_scripted else connect(model, process=True)
    with closing(backend):
        states = capital.run_batch(
            [{"number": number} for number in range(items)],
            backend=backend,
            temperature=0,
            num_threads=_THREADS,
            checkpoint=log.parent / "checkpoint",
            raise_errors=True,
        )
    found = {str(number): state["answer"] for number, state in enumerate(states)}
    (log.parent / "answers").write_text(json.dumps(found))


def arguments() -> argparse.Namespace:
    """The options of the command line."""
    options = parser(__doc__)
    options.add_argument("--items", type=int, default=2000)
    options.add_argument("--kills", type=int, default=20)
    options.add_argument("--model", default=SCRIPTED)
    options.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    options.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return options.parse_args()


def main() -> int:
    """Run the batch, and print its row; 1 if an item was lost, or asked again once answered."""
    options = arguments()
    if options.child:
        _child(options.child, options.items, options.limit, options.model)
        return 0
    figures = batch_killed(options.seed, options.items, options.kills, options.model)
    report("batches", figures, options.out, model=options.model, seed=options.seed)
    return int(figures["answered"] != options.items or any(figures[name] for name in FAULTS))


if __name__ == "__main__":
    sys.exit(main())
