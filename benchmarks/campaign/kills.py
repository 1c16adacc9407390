"""Each process, each signal, each moment: what becomes of open calls, and how the service returns.

A fault strikes a server under streams, or a program with an engine of its own (`faults.backends`).
Every call must end once and soon, the service must be back soon (a server that was killed is
started again by this program, as by a supervisor), answers must be those of before, and no process
and no file may be left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from forkroot.benchmarks.campaign.faults import backends
from forkroot.benchmarks.campaign.faults.backends import Programs
from forkroot.benchmarks.campaign.faults.fault import (
    MATRIX,
    MODULES,
    RAISE,
    SECONDS_TO_COME,
    SECONDS_TO_END,
    SECONDS_TO_RETURN,
    SIGNALS,
    Fault,
    Outcome,
    slow_enum,
)
from forkroot.benchmarks.campaign.legal import CHAT, COMPLETION
from forkroot.benchmarks.campaign.runner import Bars, Plan, Verdict
from forkroot.benchmarks.common.processes import command_of, family
from forkroot.benchmarks.server.server_child import Served, serving
from forkroot.benchmarks.server.server_client import Answer, Line, request

_STREAMS, _STREAMS_FULL = 20, 100
_FAULTS_FULL = 200
_FEWEST = 5
_ANSWER_LEN, _ANSWER_LEN_FULL = 300, 100
_MIN_OPEN = 0.5  # of the calls, when a fault strikes
_SECONDS_STOPPED = 2.0  # of a stopped server, which nothing can replace
_DEATHS_OF_A_SERVER = 2  # of its engine: later ones would wait longer before each start
_OPTIONS = ("--on-engine-death", "restart", "--drain", "3")
_FIRST = (  # of the quick campaign
    Fault("engine", "KILL", "decode"),
    Fault("compiler", "KILL", "compile"),
    Fault("rank", "KILL", "decode"),
    Fault("server", "KILL", "decode"),
    Fault("engine", "STOP", "prefill", "child"),
    Fault("thread", RAISE, "decode", "program"),
    Fault("compiler", "STOP", "compile"),
)


def faults_of(plan: Plan) -> list[Fault]:
    """In the order in which they strike."""
    chance = random.Random(plan.seed)
    if not plan.is_full:
        rest = [it for it in MATRIX if it not in _FIRST]
        return [*_FIRST, *chance.sample(rest, len(rest))]
    found = list(MATRIX) * (_FAULTS_FULL // len(MATRIX) + 1)
    chance.shuffle(found)
    found.sort(key=lambda it: (it.where, it.ranks))  # each needs another one at work
    return found[slice(*plan.faults)] if plan.faults else found


def run(plan: Plan) -> Verdict:
    """The faults of the plan; in the quick campaign as many as the time allows."""
    end, chance = time.monotonic() + plan.seconds, random.Random(plan.seed)
    outcomes: list[Outcome] = []
    programs = Programs()
    faults = faults_of(plan)
    with Fleet() as fleet, closing(programs):
        for fault in faults:
            if len(outcomes) >= _FEWEST and not plan.is_full and time.monotonic() > end:
                break
            num = _STREAMS_FULL if plan.is_full else _STREAMS
            if fault.where == "server":
                programs.close()
                outcomes.append(asyncio.run(_struck(fleet, fault, num, chance)))
            else:
                fleet.close()
                outcomes.append(backends.struck(programs, fault, num, chance))
            print(outcomes[-1], file=sys.stderr, flush=True)
    return judged(outcomes, fleet.problems + programs.problems, len(faults))


def judged(outcomes: list[Outcome], problems: list[str], num_planned: int) -> Verdict:
    """The bars, over all faults that struck. problems: what was left behind."""
    bars = Bars()
    num_calls = sum(it.calls for it in outcomes)
    bars.note(faults=len(outcomes), calls=num_calls)
    bars.at_least("calls_open", sum(it.open for it in outcomes), _MIN_OPEN * num_calls)
    for name in ("ended", "back"):
        limit = SECONDS_TO_END if name == "ended" else SECONDS_TO_RETURN
        times: dict[str, list[float | None]] = {}
        for it in outcomes:
            times.setdefault(str(it.fault), []).append(getattr(it, name))
        known = [it for found in times.values() for it in found if it is not None]
        bars.note(**{f"last_{name}_s": max(known, default=None), f"{name}_s": times})
        late = [f for f, found in times.items() for it in found if it is None or it > limit]
        bars.equal(f"{name}_late", late, [])
    bars.equal("problems", [f"{it.fault}: {it.problem}" for it in outcomes if it.problem], [])
    bars.equal("processes_or_files_left", problems, [])
    bars.at_least("faults", len(outcomes), min(_FEWEST, num_planned))
    return bars.verdict("kills")


class Fleet:
    """The server at work, and its replacements. problems: what ended ones have left behind."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._stack = ExitStack()
        self._ranks, self._deaths = 0, 0
        self._served: Served | None = None
        self.answers: dict[int, list[str]] = {}  # by the number of ranks

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server."""
        self._stack.close()
        self._served = None

    def server(self, fault: Fault) -> Served:
        """A server that can bear this fault."""
        is_worn = self._deaths >= _DEATHS_OF_A_SERVER or fault.ranks != self._ranks
        if self._served is None or is_worn or self._served.process.poll() is not None:
            self.replace(fault.ranks)
        assert self._served is not None
        self._deaths += _DEATHS_OF_A_SERVER if fault.process == "spare" else fault.is_deadly
        return self._served

    def replace(self, ranks: int | None = None) -> Served:
        """Another server in the place of this one."""
        self._stack.close()
        self._ranks, self._deaths = ranks or self._ranks, 0
        self._served = self._stack.enter_context(self._clean(self._ranks))
        self.answers.setdefault(self._ranks, reference(self._served))
        return self._served

    @property
    def expected(self) -> list[str]:
        """The reference answers of such a server."""
        return self.answers[self._ranks]

    @contextmanager
    def _clean(self, ranks: int) -> Iterator[Served]:
        """A server, with a look at what it leaves behind."""
        with tempfile.TemporaryDirectory(prefix="forkroot-kills-") as folder:
            members: list[int] = []
            options = (*_OPTIONS, "--set", f"ranks={ranks}") if ranks > 1 else _OPTIONS
            slots = max(32_768, _STREAMS_FULL * 512)
            with serving(*options, num_slots=slots, environment={"TMPDIR": folder}) as served:
                yield served
                members = family(served.process.pid)
                shared = [path for pid in members for path in _shared_files(pid)]
                served.process.terminate()
                with suppress(Exception):
                    served.process.wait(SECONDS_TO_END)
                self.note_left(members, [*map(str, Path(folder).iterdir()), *shared])

    def note_left(self, members: list[int], files: list[str]) -> None:
        """Note processes that do not end soon, and files that are still there."""
        end = time.monotonic() + SECONDS_TO_RETURN
        while any(map(command_of, members)) and time.monotonic() < end:
            time.sleep(0.05)
        self.problems += [f"process {command_of(pid)[-80:]}" for pid in members if command_of(pid)]
        self.problems += [f"file {path}" for path in files if Path(path).exists()]


def _shared_files(pid: int) -> list[str]:
    """Files of shared memory that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    return sorted({line.split()[-1] for line in lines if " /dev/shm/" in line})


def reference(served: Served) -> list[str]:
    """Greedy answers, one of them constrained. Raises OSError or ValueError without an answer."""
    bodies: list[dict[str, Any]] = [
        {"prompt": "The capital of France is", "max_tokens": 6},
        {"prompt": "Once upon a time", "max_tokens": 12},
        {"prompt": "A word:", "regex": "[a-z]{3,9}!", "max_tokens": 24},
    ]
    texts = []
    for body in bodies:
        status, data = served.ask("POST", COMPLETION, {**body, "temperature": 0}, timeout=20)
        if status != 200:
            raise ValueError(f"{status} {data[-200:]!r}")
        texts.append(json.loads(data)["choices"][0]["text"])
    return texts


async def _struck(fleet: Fleet, fault: Fault, num: int, chance: random.Random) -> Outcome:
    """Open streams, strike at the moment, and watch."""
    served = fleet.server(fault)
    lines = [await Line.to(served.address) for _ in range(num)]
    compiled = slow_schema(chance) if fault.moment == "compile" else None
    answer_len = _ANSWER_LEN if num == _STREAMS else _ANSWER_LEN_FULL
    messages = [_stream(index, fault.moment, answer_len, chance) for index in range(num)]
    if compiled is not None:
        messages[0] = request(COMPLETION, compiled)
    calls = []
    if fault.process == "spare" and not await asyncio.to_thread(_wait, lambda: _has_spare(served)):
        return Outcome(fault, num, num, 0.0, 0.0, "no spare to strike")
    if fault.moment != "idle":
        calls = [asyncio.create_task(it.ask(m)) for it, m in zip(lines, messages, strict=True)]
        if not await _has_come(served, fault.moment, lines, chance):
            for line in lines:
                line.close()
            await asyncio.gather(*calls)
            return Outcome(fault, num, num, 0.0, 0.0, f"no {fault.moment} to strike at")
    members = family(served.process.pid)
    num_open = sum(not call.done() for call in calls)
    struck = time.perf_counter()
    _strike(served, fault)
    back = asyncio.create_task(asyncio.to_thread(_back, fleet, served, fault, struck, members))
    done, pending = await asyncio.wait(calls, timeout=SECONDS_TO_END) if calls else (set(), set())
    for line in lines:
        line.close()
    await asyncio.gather(*pending)
    seconds, problem = await back
    answers = [it.result() for it in done]
    twice = sum(not ends_once(it, fault.process == "server") for it in answers)
    problem = problem or (f"{twice} calls did not end once" if twice else "")
    if compiled is not None and not problem:
        problem = await asyncio.to_thread(_compiles, fleet, fault, compiled)
    ended = None if pending else max((it.ended - struck for it in answers), default=0.0)
    return Outcome(fault, len(calls), num_open, ended and round(ended, 2), seconds, problem)


def _has_spare(served: Served) -> bool:
    return len(served.processes(MODULES["spare"])) > 1


def _strike(served: Served, fault: Fault) -> None:
    if fault.process == "server":
        pids = [served.process.pid]
    else:
        pids = served.processes(MODULES[fault.process])
    for pid in pids[-1:] if fault.process == "spare" else pids[:1]:
        os.kill(pid, SIGNALS[fault.signal])
    if fault.process == "server" and fault.signal == "STOP":
        time.sleep(_SECONDS_STOPPED)
        os.kill(served.process.pid, signal.SIGCONT)


def _back(
    fleet: Fleet, served: Served, fault: Fault, struck: float, members: list[int]
) -> tuple[float | None, str]:
    """Seconds from the fault until all reference answers came, and what was wrong with them."""
    if fault.process == "server" and fault.signal != "STOP":
        served.process.wait()
        served = fleet.replace()
        fleet.note_left(members, [])
    elif fault.is_deadly and not _wait(lambda: _is_struck(served, fault)):
        return None, "the fault was not noticed"
    while time.perf_counter() - struck < SECONDS_TO_RETURN + SECONDS_TO_END:
        with suppress(OSError, ValueError):
            found = reference(served)
            seconds = round(time.perf_counter() - struck, 2)
            return seconds, "" if found == fleet.expected else f"other answers: {found}"
        time.sleep(0.05)
    return None, ""


def _is_struck(served: Served, fault: Fault) -> bool:
    """Whether a call fails or waits no more: a stopped engine is noticed while it has work."""
    with suppress(OSError):
        body = {"prompt": "a", "max_tokens": 1}
        return served.ask("POST", COMPLETION, body, timeout=SECONDS_TO_END)[0] >= 500 or (
            served.metrics().get("restarts_total", 0) > 0
        )
    return False


def _wait(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + SECONDS_TO_END
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _compiles(fleet: Fleet, fault: Fault, body: dict[str, Any]) -> str:
    """Whether the constraint that was being compiled can be used afterwards."""
    served = fleet.server(Fault("compiler", fault.signal, "compile"))
    with suppress(OSError):
        status, data = served.ask("POST", COMPLETION, body, timeout=60)
        return "" if status == 200 else f"the constraint is refused: {status} {data[-200:]!r}"
    return "the constraint is not answered in 60 s"


async def _has_come(served: Served, moment: str, lines: list[Line], chance: random.Random) -> bool:
    """Wait until streams are where the fault is to strike; whether they came there."""

    def is_here() -> bool:
        if moment == "decode":
            return any(line.has_text for line in lines)
        return moment != "compile" or bool(served.processes(MODULES["compiler"]))

    end = time.monotonic() + SECONDS_TO_COME
    while not is_here():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    await asyncio.sleep(chance.uniform(0.02, 1.0 if moment == "compile" else 0.2))
    return True


def _stream(index: int, moment: str, answer_len: int, chance: random.Random) -> bytes:
    words = 200 if moment == "prefill" else 4
    text = " ".join(str(chance.randrange(1000)) for _ in range(words))
    options = {"temperature": 0, "ignore_eos": True, "stream": True, "max_tokens": answer_len}
    messages = [{"role": "user", "content": f"{index} {text}"}]
    return request(CHAT, {"messages": messages, **options})


def slow_schema(chance: random.Random) -> dict[str, Any]:
    """A call whose schema takes a compiler about a second, and that nobody has used."""
    schema = slow_enum(chance)
    return {"prompt": "A:", "json_schema": schema, "max_tokens": 40, "temperature": 0}


def ends_once(answer: Answer, is_cut_allowed: bool) -> bool:
    """Whether there is exactly one end: the last event of a stream, an error, or a whole body. A
    call of a server that has died itself may be cut."""
    if not answer.is_whole:
        return is_cut_allowed
    if not answer.body.startswith(b"data:"):
        return bool(answer.body)
    errors = sum("error" in event for event in answer.events)
    return answer.body.count(b"data: [DONE]") + errors == 1
