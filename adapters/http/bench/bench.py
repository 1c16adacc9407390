"""`forkroot bench`: puts load on any server with OpenAI's API, and reports latencies and
throughput."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ....core.api.protocol import BackendClosed, InvalidCall
from ...common.console import console
from .figures import Figures
from .load import Load, Prompts, Scale
from .outcome import Outcome, printable
from .picture import load_svg
from .target import Connections, LoadClient, Target, base_url, first_model

_SECONDS_BETWEEN_LOOKS = 0.25
_BUSY = 0.7  # share of the time from which on the client may be what is measured
_STOPPED = 130
_ANY = 1 << 30


def bench(options: argparse.Namespace) -> int:
    """Run a load, print and write what it showed. 0; 1 if no request ended well; 130 after Ctrl-C,
    which prints what is there. Raises InvalidCall for options that are not allowed, BackendClosed
    where no model is given or listed."""
    load = load_of(options)
    load.check()
    if not options.timeout > 0:
        raise InvalidCall("timeout", options.timeout, "more than 0")
    session = _Session(load)
    is_stopped = False
    try:
        asyncio.run(session.run(options))
    except KeyboardInterrupt:
        if session.target is None:
            raise
        is_stopped = True
    figures = session.report()
    session.write(options, figures)
    return _STOPPED if is_stopped else int(figures.num_ok == 0)


def load_of(options: argparse.Namespace) -> Load:
    """The load that the options set."""
    is_endless = options.requests is None and options.duration is not None
    is_waiting = options.concurrency is None and options.rate is None
    return Load(
        seed=secrets.randbelow(1_000_000) if options.seed is None else options.seed,
        num_requests=None if is_endless else 100 if options.requests is None else options.requests,
        duration=options.duration,
        concurrency=8 if is_waiting else options.concurrency,
        rate=options.rate,
        prompt_tokens=options.prompt_tokens,
        max_tokens=options.max_tokens,
        shared_prefix=options.shared_prefix,
        num_prefixes=options.prefixes,
    )


@dataclass(slots=True)
class _Session:
    """One run of the command. Mutable. target: None until the server is known. outcomes: of the
    requests that have ended."""

    load: Load
    target: Target | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    num_sent: int = 0
    _began: float = field(default_factory=time.perf_counter)
    _computed: float = field(default_factory=time.process_time)
    out: Console = field(default_factory=lambda: console(highlight=False))
    err: Console = field(default_factory=lambda: console(stderr=True, highlight=False))

    async def run(self, options: argparse.Namespace) -> None:
        """Find the model out, then the length of its prompts, and put the load on it."""
        connections = Connections(options.api_key)
        try:
            url = base_url(options.url)
            target = Target(
                url,
                options.model or await first_model(connections, url, options.timeout),
                not options.completions,
                options.stream,
                options.ignore_eos,
                options.timeout,
            )
            client = LoadClient(connections, target, self.now)
            prompts = Prompts(self.load, await self._scale(client))
            self.target = target
            async with self._progress():
                await self._send(client, prompts)
        finally:
            await connections.close()

    def now(self) -> float:
        """Seconds since the load began."""
        return time.perf_counter() - self._began

    @property
    def num_open(self) -> int:
        """Requests that have no end yet."""
        return self.num_sent - len(self.outcomes)

    def report(self) -> Figures:
        """Print the figures."""
        busy = time.process_time() - self._computed
        figures = Figures.of(self.outcomes, self.num_open, busy)
        self.out.print(Text(f"{self._title()}\n", "bold"))
        counts = _table("", "")
        for name, value in figures.lines():
            counts.add_row(Text(name), value)
        self.out.print(counts)
        times = _table("milliseconds", "p50", "p90", "p99", "longest")
        for name, found in figures.times.items():
            times.add_row(name, *(f"{seconds * 1000:,.1f}" for seconds in found))
        if figures.times:
            self.out.print(times)
        if figures.busy > _BUSY:
            message = f"this client computed {figures.busy:.0%} of the time: figures may be its own"
            self.err.print(Text(message, "yellow"))
        return figures

    def write(self, options: argparse.Namespace, figures: Figures) -> None:
        """Write the requested files."""
        assert self.target is not None
        outcomes = sorted(self.outcomes, key=lambda it: it.index)
        if options.json is not None:
            body = {
                "target": asdict(self.target),
                "load": asdict(self.load),
                "figures": figures.body(),
                "requests": [it.row() for it in outcomes],
            }
            options.json.write_text(json.dumps(body, indent=1) + "\n", "utf-8")
        if options.svg is not None:
            options.svg.write_text(load_svg(outcomes, self._title()), "utf-8")

    async def _send(self, client: LoadClient, prompts: Prompts) -> None:
        """The whole load, until its last request has ended. A request's time begins when it is due,
        also where it has to wait for others; without a rate it is due when it is sent."""
        load = self.load
        semaphore = asyncio.Semaphore(load.concurrency or _ANY)

        async def one(index: int, due: float) -> None:
            try:
                text = prompts.text(index)
                self.outcomes.append(await client.ask(index, due, text, load.max_tokens))
            finally:
                semaphore.release()

        self._began, self._computed = time.perf_counter(), time.process_time()
        async with asyncio.TaskGroup() as group:
            for index, due in enumerate(load.due()):
                if due > self.now():
                    await asyncio.sleep(due - self.now())
                await semaphore.acquire()
                if load.is_over(self.now()):
                    return
                self.num_sent += 1
                group.create_task(one(index, self.now() if load.rate is None else due))

    async def _scale(self, client: LoadClient) -> Scale:
        """How long prompts are; one token a word where the server does not report usage."""
        try:
            return await client.scale()
        except BackendClosed as error:
            self.err.print(Text(f"prompts are as long as a guess makes them: {error}", "dim"))
            return Scale()

    @asynccontextmanager
    async def _progress(self) -> AsyncIterator[None]:
        """Shown on a terminal meanwhile."""
        if not self.err.is_terminal:
            yield
            return
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=self.err, transient=True, auto_refresh=False) as bar:
            watch = asyncio.create_task(self._watch(bar))
            try:
                yield
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch

    async def _watch(self, bar: Progress) -> None:
        load, outcomes = self.load, self.outcomes
        task = bar.add_task("", total=load.num_requests or load.duration)
        while True:
            num_failed = sum(it.failure is not None for it in outcomes)
            message = f"{len(outcomes):,} done, {num_failed:,} failed, {self.num_open:,} open"
            done = len(outcomes) if load.num_requests else self.now()
            bar.update(task, completed=done, description=message, refresh=True)
            await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    def _title(self) -> str:
        assert self.target is not None
        load = self.load
        at_once = f"{load.concurrency or 'any number'} at a time"
        pace = at_once if load.rate is None else f"{load.rate:g} a second, {at_once}"
        name = printable(self.target.model)
        return f"{name} at {self.target.url}: {pace}, seed {load.seed}"


def _table(*names: str) -> Table:
    """A table whose columns but the first are numbers."""
    table = Table(box=None, pad_edge=False, show_header=any(names), padding=(0, 3, 0, 0))
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    return table
