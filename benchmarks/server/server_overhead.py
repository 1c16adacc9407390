"""What HTTP adds to the engine: short streamed chats, round by round, by turns over three ways.

"in process": the engine in this process, called by asyncio tasks. "in a child": the same in a child
process. "http": the server, whose engine is in a child of its own. All three pay for a client that
writes each request as JSON and reads each chunk out of a server-sent event, so that what differs
is the server.

Four ways to arrive. "spread": each client begins at its own time, and so they stay. "at once": all
begin together, and so they stay, as equally long answers do. "four" and "one by one": so many
clients, to separate what a request takes by itself from what it waits for others.

Others may be at work on the machine: how many cores they took is recorded for each round, and
figures are given for all rounds and for those in which they took little.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from forkroot.benchmarks.common.processes import cpu_seconds
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.server.server_child import SLOTS, Served, serving
from forkroot.benchmarks.server.server_client import CHAT, Answer, Line, request
from forkroot.core.api.protocol import Backend, Call, Chat, Message, Sampling, Text
from forkroot.core.local import LocalBackend
from forkroot.core.process.client import ProcessBackend

AT_ONCE, ANSWER_LEN = 64, 24
TOPICS = ("the sea", "an old bridge", "a red kite", "bread", "winter", "a small dog", "maps")
LITTLE = 0.3  # cores of others in a quiet round
_TICK = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)  # columns of /proc/stat: idle, iowait


class Timed(NamedTuple):
    """One chat. first: seconds to its first text."""

    text: str
    first: float


class Round(NamedTuple):
    """Some chats of all clients. num: chats. speed: chats per second, while all clients were at
    work. seconds: of all. first: the median. cpu: seconds by process. others: cores that other
    programs took."""

    num: int
    speed: float
    seconds: float
    first: float
    cpu: dict[str, float]
    others: float
    texts: tuple[str, ...]


class Way(Protocol):
    """A way to send chats."""

    async def ask(self, client: int, text: str) -> Timed:
        """One chat."""

    async def prepare(self) -> None:
        """An empty cache."""

    def cpu(self) -> dict[str, float]:
        """Processor seconds so far, by process."""


def body_of(text: str) -> dict[str, Any]:
    """The request for one chat."""
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": ANSWER_LEN,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }


def line_of(text: str | None) -> bytes:
    """A chunk as an event of a chat; None: the end."""
    delta = {"content": text} if text is not None else {}
    ending = None if text is not None else "length"
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ending}
    event = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "tiny"}
    return b"data: %b\n\n" % json.dumps({**event, "choices": [choice]}).encode()


class Direct:
    """The engine, called by this process. pid: of the engine, where it has a process of its own."""

    def __init__(self, backend: Backend, clear: Callable[[], object], pid: int | None) -> None:
        self._backend = backend
        self._clear = clear
        self._pid = pid

    async def ask(self, client: int, text: str) -> Timed:
        """One chat, with a request and an answer like those of HTTP."""
        sampling = Sampling(max_tokens=ANSWER_LEN, temperature=0.0, ignore_eos=True)
        start = time.perf_counter()
        request(CHAT, body_of(text))
        chat = Chat((Message("user", (Text(text),)),))
        reply = self._backend.submit(Call(chat, sampling, stream=True))
        first, sse = None, bytearray()
        async for chunk in reply:
            sse += line_of(chunk.text)
            first = first or time.perf_counter()
        await reply
        sse += line_of(None) + b"data: [DONE]\n\n"
        answer = Answer(200, bytes(sse), start, first, time.perf_counter(), True)
        return _timed(answer)

    async def prepare(self) -> None:
        """An empty cache."""
        self._clear()

    def cpu(self) -> dict[str, float]:
        own = {"client": time.process_time()}
        return own if self._pid is None else own | {"engine": cpu_seconds(self._pid)[self._pid]}


class Remote:
    """The server, called over open connections."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._lines: list[Line] = []

    async def ask(self, client: int, text: str) -> Timed:
        """One chat."""
        return _timed(await self._lines[client].ask(request(CHAT, body_of(text))))

    async def prepare(self) -> None:
        """An empty cache, and new connections: idle ones are closed after a while."""
        for line in self._lines:
            line.close()
        self._served.ask("POST", "/flush_cache")
        self._lines = [await Line.to(self._served.address) for _ in range(AT_ONCE)]

    def cpu(self) -> dict[str, float]:
        return {"client": time.process_time(), **self._served.cpu()}


def _timed(answer: Answer) -> Timed:
    if answer.finish != "length" or answer.first is None:
        raise RuntimeError(f"a chat failed: {answer.status} {answer.body[-500:]!r}")
    return Timed(answer.text, answer.first - answer.sent)


async def one_round(
    way: Way, salt: str, each: int, spread: float = 0.0, clients: int = AT_ONCE
) -> Round:
    """So many chats of each client. spread: seconds over which the clients begin."""
    await way.prepare()
    timed: list[Timed] = []
    texts: dict[tuple[int, int], str] = {}
    ends: dict[tuple[int, int], float] = {}

    async def client(number: int) -> None:
        await asyncio.sleep(spread * number / clients)
        for index in range(each):
            topic = TOPICS[(number + index) % len(TOPICS)]
            found = await way.ask(number, f"{salt} {number}.{index}: a few words about {topic}.")
            timed.append(found)
            texts[number, index] = found.text
            ends[number, index] = time.perf_counter() - start

    before, others, start = way.cpu(), _others(), time.perf_counter()
    await asyncio.gather(*map(client, range(clients)))
    seconds = time.perf_counter() - start
    cpu = {name: value - before[name] for name, value in way.cpu().items()}
    all_texts = tuple(texts[key] for key in sorted(texts))
    speed = _steady(ends, spread, each) if spread else len(timed) / seconds
    first = median(it.first for it in timed)
    return Round(len(timed), speed, seconds, first, cpu, (_others() - others) / seconds, all_texts)


def _steady(ends: dict[tuple[int, int], float], start: float, each: int) -> float:
    """Chats per second from the last client's beginning to the first one's last ending; of all,
    where there is no such time."""
    end = min(when for (_, index), when in ends.items() if index == each - 1)
    num = sum(start < when <= end for when in ends.values())
    return num / (end - start) if num else len(ends) / max(ends.values())


def _others() -> float:
    """Processor seconds so far of all that is not this benchmark."""
    columns = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    busy = sum(ticks for column, ticks in enumerate(columns) if column not in _IDLE) / _TICK
    return busy - sum(cpu_seconds(os.getpid()).values())


async def measure(rounds: int, each: int) -> dict[str, Any]:
    """All rounds of all ways, for each way to arrive."""
    with (
        serving() as served,
        ProcessBackend("tiny", num_slots=SLOTS) as child,
        LocalBackend.from_folder("tiny", num_slots=SLOTS) as local,
    ):
        ways: dict[str, Way] = {
            "in process": Direct(local, local.clear_cache, None),
            "in a child": Direct(child, child.clear_cache, child.pid),
            "http": Remote(served),
        }
        for name, way in ways.items():
            single = await one_round(way, f"warm {name}", 1)
        return {
            "faster parts": [name for name in ("httptools", "uvloop") if find_spec(name)],
            "spread": await _arriving(ways, "spread", rounds, each, single.seconds),
            "at once": await _arriving(ways, "at once", rounds, each),
            "four": await _arriving(ways, "four", rounds, each * 2, clients=4),
            "one by one": await _arriving(ways, "one by one", rounds, each * 2, clients=1),
        }


async def _arriving(
    ways: dict[str, Way], salt: str, rounds: int, each: int, spread: float = 0.0, clients: int = 64
) -> dict[str, Any]:
    names = list(ways)
    found: list[dict[str, Round]] = []
    for number in range(rounds):
        turn = names[number % len(names) :] + names[: number % len(names)]
        timed = {
            name: await one_round(ways[name], f"{salt} {number}", each, spread, clients)
            for name in turn
        }
        found.append({name: timed[name] for name in names})
    quiet = [one for one in found if all(it.others < LITTLE for it in one.values())]
    return {"all rounds": _figures(found), "quiet rounds": _figures(quiet) if quiet else None}


def _figures(found: list[dict[str, Round]]) -> dict[str, Any]:
    """Medians over the rounds; ratios and differences within each."""
    by_way = {name: [one[name] for one in found] for name in found[0]}
    remote = by_way.pop("http")
    against = {name: list(zip(direct, remote, strict=True)) for name, direct in by_way.items()}
    by_way["http"] = remote
    return {
        "rounds": len(found),
        "chats": sum(it.num for it in remote),
        "others_cores": round(median(it.others for one in found for it in one.values()), 3),
        "chats_per_second": {name: _median(it.speed for it in own) for name, own in by_way.items()},
        "throughput_ratio": {
            name: _median(http.speed / own.speed for own, http in pairs)
            for name, pairs in against.items()
        },
        "first_ms": {name: _ms(it.first for it in own) for name, own in by_way.items()},
        "added_first_ms": {
            name: _ms(http.first - own.first for own, http in pairs)
            for name, pairs in against.items()
        },
        "cpu_ms_per_chat": {name: _cpu(own) for name, own in by_way.items()},
        "different_texts": sum(
            one != other
            for pairs in against.values()
            for own, http in pairs
            for one, other in zip(own.texts, http.texts, strict=True)
        ),
    }


def _median(values: Any) -> float:
    return round(median(values), 4)


def _ms(seconds: Any) -> float:
    return round(median(seconds) * 1000, 3)


def _cpu(found: list[Round]) -> dict[str, float]:
    num = sum(it.num for it in found)
    return {name: round(sum(it.cpu[name] for it in found) / num * 1000, 3) for name in found[0].cpu}


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--each", type=int, default=4, help="chats of each client in a round")
    chosen = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    loads = [os.getloadavg()[0]]
    figures = {"overhead": asyncio.run(measure(chosen.rounds, chosen.each))}
    loads.append(os.getloadavg()[0])
    fields = {name: getattr(chosen, name) for name in ("seed", "rounds", "each")}
    report("server", figures, chosen.out, **fields, load_average=loads)


if __name__ == "__main__":
    main()
