"""Engines without a thread: calls are taken in, computed and answered one after another.

The rooms are the runtime's own, joined as `core.local` joins them; only the runner may be another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forkroot.benchmarks.common.vocabularies import Words
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.protocol import Call, Completion, ForkrootError
from forkroot.core.api.reply import Mailbox
from forkroot.core.assembly import build_engine
from forkroot.core.common.counters import Counters
from forkroot.core.engine.engine import Runner
from forkroot.core.engine.input import InputProcessor
from forkroot.core.fsm.constraints import Constraints


class Drive:
    """An engine over one runner.

    vocabulary_size: of the model. constraints: shared with other engines, or None: its own.
    settings: as in EngineConfig; sizes are needed. num_sent_back: how often all was retracted.
    """

    def __init__(
        self,
        words: Words,
        runner: Runner,
        vocabulary_size: int,
        constraints: Constraints | None = None,
        **settings: Any,
    ) -> None:
        config = EngineConfig.from_settings(settings)
        assert config.context_len is not None and config.num_slots is not None
        config = config.resolve(config.context_len, 1, 0)
        tokenizer = words.tokenizer
        self.constraints = constraints or constraints_of(words)
        self._input_processor = InputProcessor(
            tokenizer,
            config.context_len,
            config.num_slots,
            vocabulary_size,
            words.end_ids,
            constraints=self.constraints,
        )
        self.num_sent_back = 0
        self._engine, _ = build_engine(config, tokenizer, runner, self.constraints)

    @property
    def counters(self) -> Counters:
        """The engine's totals."""
        return self._engine.counters

    def serve(self, calls: Sequence[Call], retract_every: int = 0) -> list[Mailbox]:
        """Take in all calls, run them to their ends, and check that slots are conserved.

        retract_every: all that runs is retracted after so many steps; 0: never.
        """
        replies = [self._take(call) for call in calls]
        steps = 0
        while self._engine.has_work:
            self._engine.step()
            steps += 1
            if retract_every and steps % retract_every == 0:
                self._engine.retract_all()
                self.num_sent_back += 1
        self._engine.check()
        return replies

    def answers(self, calls: Sequence[Call], retract_every: int = 0) -> list[Completion]:
        """As `serve`; raises the error of a call that failed."""
        return [reply.result() for reply in self.serve(calls, retract_every)]

    def clear_cache(self) -> None:
        """Forget all computed tokens."""
        self._engine.clear_cache()

    def _take(self, call: Call) -> Mailbox:
        mailbox = Mailbox(call)
        try:
            self._engine.admit(self._input_processor.job(call, mailbox))
        except ForkrootError as error:
            mailbox.fail(error)
        return mailbox


def constraints_of(words: Words) -> Constraints:
    """Constraints over a tokenizer, with nothing compiled yet."""
    tokenizer = words.tokenizer
    return Constraints(tokenizer.token_bytes, words.end_ids, tokenizer.encode_after)
