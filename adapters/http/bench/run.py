"""Runs a load: sends each request when it is due, and keeps what became of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from .load import Load, Prompts
from .outcome import Outcome
from .target import LoadClient

_ANY = 1 << 30


@dataclass(slots=True)
class Record:
    """What came back so far. Mutable."""

    outcomes: list[Outcome] = field(default_factory=list)
    num_sent: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _computed: float = field(default_factory=time.process_time)

    def begin(self) -> None:
        """The load begins now."""
        self._began, self._computed = time.perf_counter(), time.process_time()

    def now(self) -> float:
        """Seconds since then."""
        return time.perf_counter() - self._began

    @property
    def busy(self) -> float:
        """Seconds that this process has computed since then."""
        return time.process_time() - self._computed

    @property
    def num_open(self) -> int:
        """Requests that have no end yet."""
        return self.num_sent - len(self.outcomes)


async def run(load: Load, client: LoadClient, prompts: Prompts, record: Record) -> None:
    """The whole load, until its last request has ended. A request's time begins when it is due,
    also where it has to wait for others; without a rate it is due when it is sent."""
    semaphore = asyncio.Semaphore(load.concurrency or _ANY)

    async def one(index: int, due: float) -> None:
        try:
            text = prompts.text(index)
            record.outcomes.append(await client.ask(index, due, text, load.max_tokens))
        finally:
            semaphore.release()

    record.begin()
    async with asyncio.TaskGroup() as group:
        for index, due in enumerate(load.due()):
            if due > record.now():
                await asyncio.sleep(due - record.now())
            await semaphore.acquire()
            if load.is_over(record.now()):
                return
            record.num_sent += 1
            group.create_task(one(index, record.now() if load.rate is None else due))
