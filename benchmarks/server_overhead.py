"""What HTTP adds to an engine in a child process: short streamed chats, round by round, by turns
without and with the server between.

Three ways to arrive. "spread": each asker begins at its own time, and so they stay. "at once": all
begin together, and so they stay, as equally long answers do. "one by one": a single asker, to tell
what a request takes by itself from what it waits for others.
"""

from __future__ import annotations

import asyncio
import time
from statistics import median
from typing import Any, NamedTuple

from processes import cpu_seconds
from server_child import SLOTS, Served, serving
from server_client import CHAT, Line, request

from forkroot.core.process import ProcessBackend
from forkroot.core.protocol import Call, Chat, Message, Sampling, Text

AT_ONCE, ANSWER_LEN = 64, 24
_LONE = 5  # chats of a single asker, for each of one among many
TOPICS = ("the sea", "an old bridge", "a red kite", "bread", "winter", "a small dog", "maps")


class Told(NamedTuple):
    """One chat. first: seconds to its first text."""

    text: str
    first: float


class Round(NamedTuple):
    """Some chats of all askers. num: chats. speed: chats per second, while all askers were at
    work. seconds: of all. first: the median. cpu: seconds by process."""

    num: int
    speed: float
    seconds: float
    first: float
    cpu: dict[str, float]
    texts: tuple[str, ...]


class Direct:
    """The engine, asked by this process."""

    def __init__(self, backend: ProcessBackend) -> None:
        self._backend = backend

    async def ask(self, asker: int, text: str) -> Told:
        """One chat."""
        sampling = Sampling(max_tokens=ANSWER_LEN, temperature=0.0, ignore_eos=True)
        chat = Chat((Message("user", (Text(text),)),))
        start = time.perf_counter()
        reply = self._backend.submit(Call(chat, sampling, stream=True))
        first, said = None, []
        async for chunk in reply:
            first = first or time.perf_counter()
            said.append(chunk.text)
        assert first is not None
        return Told("".join(said), first - start)

    async def prepare(self) -> None:
        """An empty cache."""
        self._backend.clear_cache()

    def cpu(self) -> dict[str, float]:
        return {"client": time.process_time(), "engine": cpu_seconds(self._backend.pid)[self._pid]}

    @property
    def _pid(self) -> int:
        return self._backend.pid


class Remote:
    """The server, asked over open connections."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._lines: list[Line] = []

    async def ask(self, asker: int, text: str) -> Told:
        """One chat."""
        body = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": ANSWER_LEN,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        answer = await self._lines[asker].ask(request(CHAT, body))
        if answer.finish != "length" or answer.first is None:
            raise RuntimeError(f"a chat failed: {answer.status} {answer.body[-500:]!r}")
        return Told(answer.text, answer.first - answer.sent)

    async def prepare(self) -> None:
        """An empty cache, and new connections: idle ones are closed after a while."""
        for line in self._lines:
            line.close()
        self._served.ask("POST", "/flush_cache")
        self._lines = [await Line.to(self._served.address) for _ in range(AT_ONCE)]

    def cpu(self) -> dict[str, float]:
        return {"client": time.process_time(), **self._served.cpu()}


async def one_round(
    way: Direct | Remote, salt: str, each: int, spread: float, askers: int = AT_ONCE
) -> Round:
    """So many chats of each asker. spread: seconds over which the askers begin."""
    await way.prepare()
    told: list[Told] = []
    texts: dict[tuple[int, int], str] = {}
    ends: dict[tuple[int, int], float] = {}

    async def asker(number: int) -> None:
        await asyncio.sleep(spread * number / askers)
        for index in range(each):
            topic = TOPICS[(number + index) % len(TOPICS)]
            found = await way.ask(number, f"{salt} {number}.{index}: a few words about {topic}.")
            told.append(found)
            texts[number, index] = found.text
            ends[number, index] = time.perf_counter() - start

    before, start = way.cpu(), time.perf_counter()
    await asyncio.gather(*map(asker, range(askers)))
    seconds = time.perf_counter() - start
    cpu = {name: value - before[name] for name, value in way.cpu().items()}
    said = tuple(texts[key] for key in sorted(texts))
    speed = len(told) / seconds if not spread else _steady(ends, spread, each)
    return Round(len(told), speed, seconds, median(it.first for it in told), cpu, said)


def _steady(ends: dict[tuple[int, int], float], start: float, each: int) -> float:
    """Chats per second from the last asker's beginning to the first one's last ending."""
    end = min(when for (_, index), when in ends.items() if index == each - 1)
    return sum(start < when <= end for when in ends.values()) / (end - start)


async def measure(rounds: int, each: int) -> dict[str, Any]:
    """All rounds of both ways to arrive."""
    figures: dict[str, Any] = {}
    with (
        serving() as served,
        ProcessBackend("tiny", num_slots=SLOTS) as backend,
    ):
        ways = (Direct(backend), Remote(served))
        for way in ways:
            lone = await one_round(way, "warm", 1, 0.0)
        arrivals = (
            ("spread", lone.seconds, AT_ONCE),
            ("at once", 0.0, AT_ONCE),
            ("one by one", 0.0, 1),
        )
        for name, spread, askers in arrivals:
            num = each if askers > 1 else each * _LONE
            found: tuple[list[Round], list[Round]] = ([], [])
            for number in range(rounds):
                for index in (0, 1) if number % 2 else (1, 0):
                    salt = f"{name} {number}"
                    found[index].append(await one_round(ways[index], salt, num, spread, askers))
            figures[name] = _compared(*found)
    return figures


def _compared(direct: list[Round], remote: list[Round]) -> dict[str, Any]:
    """Medians over the rounds; ratios and differences within each."""
    pairs = list(zip(direct, remote, strict=True))
    return {
        "chats_per_second": {"direct": _speed(direct), "http": _speed(remote)},
        "throughput_ratio": round(median(b.speed / a.speed for a, b in pairs), 4),
        "first_ms": {"direct": _ms(it.first for it in direct), "http": _ms(_firsts(remote))},
        "added_first_ms": _ms(b.first - a.first for a, b in pairs),
        "cpu_ms_per_chat": {"direct": _cpu(direct), "http": _cpu(remote)},
        "different_texts": sum(
            one != other for a, b in pairs for one, other in zip(a.texts, b.texts, strict=True)
        ),
        "chats": sum(it.num for it in remote),
    }


def _firsts(found: list[Round]) -> list[float]:
    return [it.first for it in found]


def _speed(found: list[Round]) -> float:
    return round(median(it.speed for it in found), 2)


def _ms(seconds: Any) -> float:
    return round(median(seconds) * 1000, 3)


def _cpu(found: list[Round]) -> dict[str, float]:
    num = sum(it.num for it in found)
    return {name: round(sum(it.cpu[name] for it in found) / num * 1000, 3) for name in found[0].cpu}
