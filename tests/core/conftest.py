"""An engine stepped by hand, for every test of these rooms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from forkroot.benchmarks.common import fake_media
from forkroot.benchmarks.common.fake_runner import FakeRunner, LateRunner, byte_tokenizer
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, Completion, ForkrootError, Sampling, Text
from forkroot.core.api.reply import Mailbox
from forkroot.core.engine.endings import Endings
from forkroot.core.engine.engine import Engine
from forkroot.core.engine.forks import Roots
from forkroot.core.engine.input import InputProcessor
from forkroot.core.engine.output import OutputProcessor
from forkroot.core.engine.pictures.features import Features
from forkroot.core.engine.pictures.pool import PicturePool
from forkroot.core.engine.pictures.prompt import Picture
from forkroot.core.engine.queue import WaitingQueue
from forkroot.core.engine.scheduler import Scheduler
from forkroot.core.engine.sequence import Job
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.radix.cache import RadixCache
from forkroot.core.radix.host import HostTier

END = 256
TOKENIZER = byte_tokenizer()


class Bench:
    """An engine over a runner without a model, under a clock that is set by hand.

    Every step is followed by `engine.check()`. retract_every: all that runs is retracted after
    every so many steps; 0: never. processor: of pictures; None: there are none.
    """

    def __init__(
        self,
        runner: Any = None,
        retract_every: int = 0,
        end_ids: Iterable[int] = (END,),
        processor: Any = None,
        **settings: Any,
    ) -> None:
        sizes = {"num_slots": 600, "context_len": 256, "max_running": 8, "chunk_tokens": 64}
        config = EngineConfig.from_settings(sizes | settings)
        self.now = 0.0
        self.steps = 0
        self.retract_every = retract_every
        self.config = config
        self.runner = runner or FakeRunner(config.num_slots, num_host=config.host_slots)
        if config.has_overlap and isinstance(self.runner, FakeRunner):
            self.runner = LateRunner(self.runner)
        self.tokenizer, self.processor, self.features, pictures = TOKENIZER, processor, None, None
        if processor is not None:
            self.tokenizer = byte_tokenizer()
            self.tokenizer.take_pictures(processor)
            pictures = PicturePool(processor, fake_media.load, 257, config.feature_slots)
            tower_tokens = config.tower_tokens or config.chunk_tokens
            self.features = Features(
                config.feature_slots, tower_tokens, lambda it: self.prepare(it)
            )
        self.constraints = Constraints(TOKENIZER.token_bytes, [END], TOKENIZER.encode_after)
        host = HostTier.of(config.host_slots, config.host_policy)
        self.cache = RadixCache(config.num_slots, config.cache, host, config.logprob_bytes)
        self.queue = WaitingQueue(
            config.order,
            ageing=config.ageing,
            context_len=config.context_len,
            hold_min=config.hold_min,
            hints=config.hints,
        )
        self.roots = Roots(self.cache, config.root_timeout, self.queue.tenants.share)
        self.scheduler = Scheduler(
            self.cache,
            self.roots,
            self.queue,
            max_running=config.max_running,
            context_len=config.context_len,
            chunk_tokens=config.chunk_tokens,
            features=self.features,
            endings=Endings(self.cache, config.hints),
        )
        self.engine = Engine(
            self.scheduler,
            self.runner,
            self.cache,
            self.roots,
            OutputProcessor(TOKENIZER, self.constraints, config.jumps),
            max_waiting=config.max_waiting,
            hints=config.hints and config.cache,
            overlap=config.has_overlap,
            clock=lambda: self.now,
        )
        self.pending_calls = InputProcessor(
            *(self.tokenizer, config.context_len, config.num_slots, 257, frozenset({END})),
            pictures=pictures,
        )
        self.endings: dict[Mailbox, int] = {}
        self.jobs: dict[Mailbox, Job] = {}

    def prepare(self, picture: Picture) -> None:
        """Make pixels at once."""
        picture.pixels = self.processor.pixels(fake_media.load(picture.source))

    def submit(self, call: Call) -> Mailbox:
        """Let a call wait; one that is refused has ended."""
        mailbox = Mailbox(call)
        self.endings[mailbox] = 0
        mailbox.when_done(self._count_ending)
        try:
            job = self.pending_calls.job(call, mailbox)
        except ForkrootError as error:
            mailbox.fail(error)
        else:
            self.jobs[mailbox] = job
            self.engine.admit(job)
        return mailbox

    def cancel(self, reply: Mailbox) -> None:
        """End a call early."""
        if reply in self.jobs:
            self.engine.abort(self.jobs[reply])
        self.engine.check()

    def step(self) -> None:
        """One step of the engine; its slots are conserved."""
        self.steps += 1
        self.engine.step()
        self.engine.check()
        if self.retract_every and self.steps % self.retract_every == 0:
            self.engine.retract_all()
            self.engine.check()

    def drain(self, max_steps: int = 20_000) -> None:
        """Step until no call is open; it then holds no lease but those of pinned roots."""
        for _ in range(max_steps):
            if not self.engine.has_work:
                break
            self.step()
        assert not self.engine.has_work, f"calls are open after {max_steps} steps"
        assert not self.scheduler.running and not self.scheduler.num_waiting
        assert all(count == 1 for count in self.endings.values())

    def run(self, calls: Iterable[Call]) -> list[Completion | BaseException]:
        """What every call ended in, all submitted together."""
        replies = [self.submit(call) for call in calls]
        self.drain()
        return [reply.error() or reply.result() for reply in replies]

    def _count_ending(self, reply: Mailbox) -> None:
        self.endings[reply] += 1


def make_call(text: str, **options: Any) -> Call:
    """A call for the greedy continuation of a text; sampling and call options by name."""
    names = set(Sampling.__slots__)
    sampling = {"temperature": 0.0, "max_tokens": 5}
    sampling |= {key: value for key, value in options.items() if key in names}
    rest = {key: value for key, value in options.items() if key not in names}
    return Call((Text(text),) if text else (), Sampling(**sampling), **rest)


def texts(results: Iterable[Completion]) -> list[list[str]]:
    """What each of these calls wrote."""
    return [[output.text for output in result.outputs] for result in results]


@pytest.fixture(scope="session")
def bench() -> type[Bench]:
    return Bench


@pytest.fixture
def constrained(bench: type[Bench]) -> Callable[..., Bench]:
    """A bench whose engine knows constraints, made with these settings."""

    def make(**settings: Any) -> Bench:
        made = bench(**settings)
        made.pending_calls.constraints = made.constraints
        return made

    return make


@pytest.fixture(scope="session")
def call() -> Callable[..., Call]:
    return make_call
