"""Joins scheduler, cache and output into an engine around a runner."""

from __future__ import annotations

from collections.abc import Callable

from .api.config import EngineConfig
from .engine.endings import Endings
from .engine.engine import Engine
from .engine.forks import Roots
from .engine.output import OutputProcessor
from .engine.overlap import Runner
from .engine.pictures.features import Features
from .engine.pictures.prompt import Picture
from .engine.queue import WaitingQueue
from .engine.scheduler import Scheduler
from .engine.sequence import Sequence
from .fsm.constraints import Constraints
from .radix.cache import RadixCache
from .radix.host import HostTier
from .text.tokenizer import Tokenizer


def build_engine(
    config: EngineConfig,
    tokenizer: Tokenizer,
    runner: Runner,
    constraints: Constraints | None = None,
    prepare: Callable[[Picture], object] | None = None,
) -> tuple[Engine, RadixCache]:
    """The engine of a resolved config around a runner, and its cache. prepare: makes pixels of
    pictures, see `Features`; None: the model takes none."""
    assert config.num_slots is not None and config.context_len is not None
    assert config.max_running is not None and config.chunk_tokens is not None
    host = HostTier.of(config.host_slots, config.host_policy)
    cache = RadixCache(config.num_slots, config.cache, host, config.logprob_bytes)
    waiting = WaitingQueue(
        config.order,
        ageing=config.ageing,
        context_len=config.context_len,
        hold_min=config.hold_min,
        seed=config.seed,
        hints=config.hints,
    )
    roots = Roots(cache, config.root_timeout, waiting.tenants.share)
    features: Features[Sequence] | None = None
    if prepare is not None:
        assert config.tower_tokens is not None
        features = Features(config.feature_slots, config.tower_tokens, prepare)
    scheduler = Scheduler(
        cache,
        roots,
        waiting,
        max_running=config.max_running,
        context_len=config.context_len,
        chunk_tokens=config.chunk_tokens,
        features=features,
        endings=Endings(cache, config.hints),
    )
    engine = Engine(
        scheduler,
        runner,
        cache,
        roots,
        OutputProcessor(tokenizer, constraints, config.jumps),
        max_waiting=config.max_waiting,
        hints=config.hints and config.cache,
        overlap=config.has_overlap,
    )
    return engine, cache
