"""What a router costs and gains on real engines: beside one engine, and before one server.

"engines": workload shapes on two replicas of one thread each, with affinity and round robin, beside
one engine with two threads, all in child processes. Each shape is run by several tenants, whose
programs come mixed; a replica caches less than all of them share. The one engine's cache is as
large as both. In each round every way runs the same programs from empty caches; ways begin by
turns. What was computed of prompts is counted beside: it does not depend on the machine.

"http": `forkroot route` before one `forkroot serve`, beside that server itself: chats one by one
(what a request takes longer), and 64 short chats at a time (chats per second), by turns.

Figures are medians over the rounds, ratios those within each round. Prints one JSON row.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import forkroot
from forkroot.adapters.router.policies import Replicas, policy_of
from forkroot.benchmarks.common.checkpoints import words
from forkroot.benchmarks.common.processes import cpu_seconds
from forkroot.benchmarks.common.programs import Driver, Workload
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.shapes import SHAPES
from forkroot.benchmarks.server.server_client import CHAT, Line, request
from forkroot.benchmarks.server.server_overhead import AT_ONCE, Timed, body_of, one_round
from forkroot.core.model.hub.folders import model_folder
from forkroot.core.text.tokenizer import Tokenizer

SHARING = ("5-shot", "react", "tree", "skeleton", "chat", "judge", "rag")
SLOTS = 60_000
CACHED, CACHED_BY_SHAPE = 9_000, {"skeleton": 3_000}  # tokens that a replica caches
TURNS = 20  # chats of one client, one by one, in a round


class Started(NamedTuple):
    """A server of the command line. pid: of its process, which may have children."""

    address: tuple[str, int]
    pid: int


@contextmanager
def command(*arguments: str) -> Iterator[Started]:
    """A server of the command line, in another process."""
    line = [sys.executable, "-m", "forkroot", *arguments, "--port", "0"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            parts = urlsplit(process.stdout.readline().strip())
            yield Started((parts.hostname or "", parts.port or 0), process.pid)
        finally:
            process.terminate()


class Server:
    """A way to send chats: to a server, over open connections. behind: by their names, the pids of
    all processes that work for an answer."""

    def __init__(self, address: tuple[str, int], behind: Mapping[str, int]) -> None:
        self._address, self._behind = address, behind
        self._lines: list[Line] = []

    async def ask(self, client: int, text: str) -> Timed:
        """One streamed chat."""
        answer = await self._lines[client].ask(request(CHAT, body_of(text)))
        if answer.finish != "length" or answer.first is None:
            raise RuntimeError(f"a chat failed: {answer.status} {answer.body[-500:]!r}")
        return Timed(answer.text, answer.first - answer.sent)

    async def prepare(self) -> None:
        """New connections: idle ones are closed after a while."""
        for line in self._lines:
            line.close()
        self._lines = [await Line.to(self._address) for _ in range(AT_ONCE)]

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far, by process."""
        own = {"client": time.process_time()}
        return own | {name: sum(cpu_seconds(pid).values()) for name, pid in self._behind.items()}


async def over_http(model: str, rounds: int) -> dict[str, Any]:
    """Chats through the router, and past it. model: with a chat template."""
    found: dict[str, list[float]] = {}
    with ExitStack() as at_end:
        direct = at_end.enter_context(command("serve", model, "--set", f"num_slots={SLOTS}"))
        url = "http://{}:{}".format(*direct.address)
        router = command("route", "--replica", url, "--tokenizer", model)
        routed = at_end.enter_context(router)
        server = {"server": direct.pid}
        ways = {
            "direct": Server(direct.address, server),
            "routed": Server(routed.address, {**server, "router": routed.pid}),
        }
        for way in ways.values():
            await one_round(way, "warm", 2)
        for number in range(rounds):
            turn = sorted(ways, reverse=number % 2 == 1)
            for name in turn:
                one = await one_round(ways[name], f"one {name} {number}", TURNS, clients=1)
                found.setdefault(f"{name} first", []).append(one.first)
                found.setdefault(f"{name} whole", []).append(one.seconds / one.num)
            for name in turn:
                many = await one_round(ways[name], f"many {name} {number}", 2)
                found.setdefault(f"{name} speed", []).append(many.speed)
                for process, seconds in many.cpu.items():
                    found.setdefault(f"{name} {process}", []).append(seconds / many.num)
    return {
        "faster parts": [name for name in ("httptools", "uvloop") if find_spec(name)],
        "direct_first_ms": _ms(found["direct first"]),
        "added_first_ms": _ms(_differences(found, "first")),
        "added_whole_ms": _ms(_differences(found, "whole")),
        "chats_per_s": round(median(found["direct speed"]), 1),
        "throughput_ratio": _ratio(found["routed speed"], found["direct speed"]),
        "cpu_ms_per_chat": {name: _ms(found[name]) for name in sorted(found) if _is_process(name)},
    }


def _is_process(name: str) -> bool:
    return name.endswith(("client", "server", "router"))


def _differences(found: dict[str, list[float]], what: str) -> list[float]:
    pairs = zip(found[f"routed {what}"], found[f"direct {what}"], strict=True)
    return [routed - direct for routed, direct in pairs]


def _ms(seconds: Sequence[float]) -> float:
    return round(median(seconds) * 1000, 2)


def _ratio(upper: Sequence[float], lower: Sequence[float]) -> float:
    return round(median(_ratios(upper, lower)), 3)


def _extremes(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    ratios = _ratios(upper, lower)
    return [round(min(ratios), 3), round(max(ratios), 3)]


def _ratios(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(upper, lower, strict=True)]


class Engines:
    """One engine with two threads, and two replicas of one thread each. slots: of a replica."""

    def __init__(self, model: str, slots: int, at_end: ExitStack) -> None:
        self.one: Any = at_end.enter_context(
            forkroot.connect(model, process=True, num_slots=2 * slots)  # type: ignore[arg-type]
        )
        self.two: Any = at_end.enter_context(
            forkroot.connect(model, replicas=2, num_slots=slots)  # type: ignore[arg-type]
        )

    def of(self, way: str) -> Any:
        """The backend of a way, with empty caches."""
        if way == "one engine":
            self.one.clear_cache()
            return self.one
        fleet = self.two.fleet
        self.two.clear_cache()
        fleet.policy = policy_of(
            way, Replicas(fleet.loads, fleet.work, fleet.tree, fleet.rendezvous)
        )
        return self.two

    def counted(self, way: str) -> list[dict[str, float]]:
        """The counters of the engines of a way."""
        replicas = [it.backend for it in self.two.fleet.replicas.values()]
        return [it.info().counters for it in ([self.one] if way == "one engine" else replicas)]


class Ran(NamedTuple):
    """How a way ran programs. speed: programs per second. computed: tokens of prompts that were not
    cached, for each engine. calls: of each engine."""

    speed: float
    computed: list[float]
    calls: list[float]


WAYS = ("one engine", "affinity", "round-robin")


def programs_of(
    name: str, vocabulary: Sequence[int], seed: int, scale: float, tenants: int
) -> Workload:
    """A shape's programs of so many tenants, in any order."""
    own = [
        SHAPES[name].workload(vocabulary, seed * 1009 + number, scale) for number in range(tenants)
    ]
    bodies = [body for workload in own for body in workload.bodies]
    random.Random(seed).shuffle(bodies)
    return Workload(name, bodies, own[0].width)


def run_once(engines: Engines, way: str, workload: Workload) -> Ran:
    """All programs, from empty caches."""
    backend, before = engines.of(way), engines.counted(way)
    start = time.perf_counter()
    Driver(backend.submit).run(workload.programs(True), workload.width)
    speed = len(workload.bodies) / (time.perf_counter() - start)
    after = engines.counted(way)

    def more(name: str) -> list[float]:
        return [one[name] - other[name] for one, other in zip(after, before, strict=True)]

    pairs = zip(more("prompt_tokens"), more("cached_tokens"), strict=True)
    return Ran(speed, [prompt - cached for prompt, cached in pairs], more("calls"))


def on_engines(options: Any) -> Any:
    """Programs per second of each shape."""
    tokenizer = Tokenizer.from_folder(Path(model_folder(options.model)))
    vocabulary = words(tokenizer)
    found: dict[str, Any] = {}
    for name in options.shapes:
        slots, ways = options.slots or CACHED_BY_SHAPE.get(name, CACHED), dict[str, list[Ran]]()
        with ExitStack() as at_end:
            engines = Engines(options.model, slots, at_end)
            for number in range(-1, options.rounds):
                given = vocabulary, options.seed + number, options.scale, options.tenants
                workload = programs_of(name, *given)
                for way in (*WAYS[number % 3 :], *WAYS[: number % 3]):
                    ran = run_once(engines, way, workload)
                    print(f"{name:10} {way:12} {ran}", file=sys.stderr, flush=True)
                    if number >= 0:  # the one before warms up
                        ways.setdefault(way, []).append(ran)
        found[name] = {"slots": slots, **_compared(ways)}
    return found


def _compared(found: dict[str, list[Ran]]) -> dict[str, Any]:
    speeds = {way: [it.speed for it in ran] for way, ran in found.items()}
    computed = {way: [sum(it.computed) for it in ran] for way, ran in found.items()}
    return {
        "one_engine": round(median(speeds["one engine"]), 2),
        "over_one_engine": _ratio(speeds["affinity"], speeds["one engine"]),
        "over_round_robin": _ratio(speeds["affinity"], speeds["round-robin"]),
        "least_and_most_over_round_robin": _extremes(speeds["affinity"], speeds["round-robin"]),
        "computed": {way: round(median(totals)) for way, totals in computed.items()},
        "calls": [round(it) for it in found["affinity"][-1].calls],
    }


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--model", default="tiny", help="of the engines")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--scale", type=float, default=1.0, help="of the number of programs")
    options.add_argument("--shapes", nargs="+", default=list(SHARING), choices=list(SHAPES))
    options.add_argument("--tenants", type=int, default=24, help="of each shape, on engines")
    options.add_argument("--slots", type=int, help="tokens that a replica caches; by shape")
    options.add_argument("--only", choices=("engines", "http"))
    args = options.parse_args()
    figures: dict[str, Any] = {}
    loads = [round(os.getloadavg()[0], 1)]
    if args.only != "http":
        figures["engines"] = on_engines(args)
    if args.only != "engines":
        figures["http"] = asyncio.run(over_http(args.model, args.rounds))
    loads.append(round(os.getloadavg()[0], 1))
    fixed = {"model": Path(args.model).name, "rounds": args.rounds}
    if args.only != "http":
        fixed |= {"scale": args.scale, "tenants": args.tenants}
    report("router_serving", figures, args.out, seed=args.seed, **fixed, load_average=loads)


if __name__ == "__main__":
    main()
