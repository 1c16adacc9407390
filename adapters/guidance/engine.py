"""Guidance's engine on our runtime: its own loop and parser, and tokens sampled in batches; and the
state of a program, with what our runtime adds to it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from copy import copy
from math import exp, nan
from typing import Any

import numpy as np
from guidance._ast import GrammarNode
from guidance._schema import (
    EngineResponse,
    GenToken,
    GenTokenExtra,
    SamplingParams,
    StepConfig,
    TokenUsage,
)
from guidance.models._engine import Engine, LogitsOutput
from guidance.models._engine._state import EngineState

from ...core.api.protocol import Call, Sampling, Usage
from ..connection import Connection
from .draft import prompt_of
from .grammar.plan import Plan, Route
from .grammars import Grammars
from .loop import Loop, Part
from .tokens import FolderTokenizer
from .writer import KIND, Sampled, Writer

TOP_K = 5
_OVERRIDDEN = ("get_logits", "get_next_token_with_top_k")
MAX_TOP_LOGPROBS = 64


class ForkrootState(EngineState):
    """As Guidance's.

    node: the grammar that is running; None between grammars. used: prompt tokens of all grammars
    so far, how many of them were cached, and the tokens that were written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.node: GrammarNode | None = None
        self.used = Usage()

    def __deepcopy__(self, memo: dict[int, Any]) -> ForkrootState:
        """A state that goes its own way. What no run changes in place is shared: captured values,
        the grammar, and usage."""
        other = copy(self)
        other.captures = {
            name: list(value) if isinstance(value, list) else value
            for name, value in self.captures.items()
        }
        other.images, other.audio = list(self.images), list(self.audio)
        other.videos = list(self.videos)
        memo[id(self)] = other
        return other


class ForkrootEngine(Engine):
    """Runs grammars for any number of threads at once.

    has_probabilities: tokens come with their probabilities and best rivals.
    """

    tokenizer: FolderTokenizer

    def __init__(
        self,
        connection: Connection,
        tokenizer: FolderTokenizer,
        *,
        namespace: str = "",
        has_probabilities: bool = False,
    ) -> None:
        super().__init__(
            tokenizer,
            enable_monitoring=False,
            enable_token_probabilities=has_probabilities,
            enable_top_k=has_probabilities,
            top_k=TOP_K,
        )
        self.connection = connection
        self._size = tokenizer.vocabulary_size
        self.namespace = namespace
        self.grammars = Grammars(tokenizer)
        self._writer: Writer | None = None
        self._num_seen = 0
        self._no_logits = np.zeros((1, self._size), np.float32)
        self._no_logits.flags.writeable = False

    def __call__(
        self,
        state: EngineState,
        grammar: str,
        ensure_bos_token: bool = True,
        sampling_params: SamplingParams | None = None,
        step_config: StepConfig | None = None,
    ) -> Generator[EngineResponse, None, TokenUsage]:
        """As Guidance's engines: run a grammar on a state, a response for each step of the parser.

        Raises the typed errors of calls.
        """
        run = copy(self)  # what belongs to one grammar is not seen by other threads
        route = Route(state.node if isinstance(state, ForkrootState) else None)
        run._writer = writer = self._writer_of(route, state.prompt)
        try:
            usage: TokenUsage = yield from super(ForkrootEngine, run).__call__(
                state, grammar, ensure_bos_token, sampling_params, step_config
            )
        finally:
            used = writer.close()
        if isinstance(state, ForkrootState):
            state.used += used
        usage.cached_input_tokens += used.cached_tokens
        usage.round_trips = writer.num_calls
        return usage

    @property
    def shows_tokens(self) -> bool:
        """Whether somebody looks at single tokens: they come with their probabilities, or
        methods that Guidance's loop calls were overridden."""
        given = {**vars(type(self)), **vars(self)}
        is_ours = all(given.get(name) is vars(ForkrootEngine)[name] for name in _OVERRIDDEN)
        return bool(self._enable_token_probabilities) or not is_ours

    def run(
        self,
        state: ForkrootState,
        node: GrammarNode,
        params: Mapping[str, Any],
        is_watched: bool = True,
        kind: str = KIND,
    ) -> Iterator[Part]:
        """Run a grammar on a state, whose usage grows, for a program whose single tokens nobody
        looks at. is_watched: its text is wanted as it comes. kind: of the program, for reports.

        Raises the typed errors of calls.
        """
        parser, route = self.grammars.start(node)
        writer = self._writer_of(route, state.prompt, is_watched, kind)
        loop = Loop(parser, self.tokenizer, writer, params)
        try:
            yield from loop.run(state.prompt)
        finally:
            used = writer.close()
        state.used += used
        loop.usage.cached_input_tokens += used.cached_tokens
        loop.usage.round_trips = writer.num_calls
        state.add_usage(loop.usage)

    def _writer_of(
        self, route: Route, prompt: str, is_watched: bool = True, kind: str = KIND
    ) -> Writer:
        return Writer(
            self.connection.prefixes.submit,
            self.tokenizer,
            Plan(route),
            prompt.encode(),
            namespace=self.namespace,
            num_logprobs=TOP_K if self._enable_token_probabilities else None,
            is_watched=is_watched,
            kind=kind,
        )

    def get_logits(
        self, token_ids: list[int], include_all_uncached_tokens: bool = False
    ) -> LogitsOutput:
        """The log-probabilities of the likeliest tokens after these; of all others, minus infinity.

        Guidance's loop does not need them: its tokens are sampled by the runtime.
        """
        size = len(token_ids)
        if self._writer is not None:
            num_seen, self._num_seen = self._num_seen, size
            return {
                "logits": self._no_logits,
                "n_tokens": size,
                "n_cached": min(num_seen, size - 1),
            }
        call = Call(
            prompt_of(token_ids, self.tokenizer),
            Sampling(max_tokens=1, temperature=0, logprobs=MAX_TOP_LOGPROBS),
            namespace=self.namespace,
        )
        found = self.connection.prefixes.submit(call).result()
        logits = np.full((1, self._size), -np.inf, np.float32)
        for token, logprob in found.outputs[0].logprobs[0].top:
            logits[0, token] = logprob
        return {"logits": logits, "n_tokens": size, "n_cached": found.usage.cached_tokens}

    def get_next_token_with_top_k(
        self,
        logits: Any,
        logits_lat_ms: float,
        token_ids: list[int],
        mask: bytes | None,
        temperature: float,
        k: int,
        compute_unmasked_probs: bool,
        sampling_params: SamplingParams | None,
    ) -> GenTokenExtra:
        """The next token, sampled by the runtime; for callers of Guidance's engine interface."""
        if self._writer is None:
            found: GenTokenExtra = super().get_next_token_with_top_k(
                *(logits, logits_lat_ms, token_ids, mask, temperature),
                *(k, compute_unmasked_probs, sampling_params),
            )
            return found
        sampled = self._writer.sample(token_ids, mask, temperature, dict(sampling_params or {}))
        top = sampled.logprob.top[:k] if sampled.logprob is not None else ()
        return GenTokenExtra(
            token_id=sampled.id,
            prob=exp(sampled.logprob.logprob) if sampled.logprob is not None else nan,
            bytes=self.tokenizer.decode([sampled.id]),
            is_generated=True,
            top_k=self._top_tokens(sampled, top, mask),
        )

    def _top_tokens(
        self, sampled: Sampled, top: Sequence[tuple[int, float]], mask: bytes | None
    ) -> list[GenToken]:
        """The likeliest tokens, and the sampled one among them or after them."""
        logprobs = dict(top)
        logprobs.setdefault(sampled.id, nan if sampled.logprob is None else sampled.logprob.logprob)
        return [
            GenToken(
                token_id=token,
                prob=exp(logprob),
                bytes=self.tokenizer.decode([token]),
                is_generated=True,
                is_masked=mask is not None and not mask[token],
            )
            for token, logprob in logprobs.items()
        ]
