"""One prompt of `/generate` at work: the calls that it takes, and the answers that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core.protocol import (
    Call,
    Completion,
    ForkHint,
    Output,
    Reply,
    Sampling,
    Text,
    Tokens,
    Usage,
)
from .runtime import Runtime
from .sglang_asks import Ask
from .sglang_reply import answer
from .sglang_scores import Scoring, scoring_of


@dataclass(frozen=True, slots=True)
class Shared:
    """What all calls of one request have in common."""

    hint: ForkHint | None
    stream: bool
    namespace: str
    priority: int
    deadline: float | None


@dataclass(slots=True)
class Work:
    """One prompt at work: its main call (none for a prompt that is only scored, or is empty), and
    the calls that score its own tokens."""

    ask: Ask
    ids: tuple[int, ...]
    main: Call | None
    scoring: Scoring | None
    replies: tuple[Reply, ...] = ()

    def submit(self, runtime: Runtime) -> tuple[Reply, ...]:
        """Submit all its calls."""
        main = () if self.main is None else (self.main,)
        calls = (*main, *(() if self.scoring is None else self.scoring.calls))
        self.replies = tuple(map(runtime.backend.submit, calls))
        return self.replies

    def answers(self, runtime: Runtime) -> list[dict[str, Any]]:
        """Its answers, once all of its calls have ended."""
        scored = [reply.result(0) for reply in self.replies[self.main is not None :]]
        found = [] if self.scoring is None else self.scoring.found(scored)
        completion = self._completion(scored)
        return [
            answer(runtime.texts, self.ask, index, output, self.usage(completion.usage), found)
            for index, output in enumerate(completion.outputs)
        ]

    def usage(self, told: Usage) -> Usage:
        """The usage of the prompt itself, also where it was not computed as a whole."""
        return Usage(len(self.ids), min(told.cached_tokens, len(self.ids)))

    def _completion(self, scored: Sequence[Completion]) -> Completion:
        if self.main is not None:
            return self.replies[0].result(0)
        usage = scored[0].usage if scored else Usage()
        return Completion((Output("", finish_reason="length"),), usage)


def prepare(runtime: Runtime, ask: Ask, shared: Shared) -> Work:
    """The calls of one prompt, cut into tokens here: every answer tells their number, and those
    that are scored are these very tokens. Raises InvalidCall."""

    def call(prompt: Sequence[Tokens], sampling: Sampling, options: tuple[str, ...] = ()) -> Call:
        is_main = sampling is ask.sampling
        return Call(
            tuple(prompt),
            sampling,
            ask.constraint if is_main else None,
            options,
            hint=shared.hint if is_main else None,
            stream=shared.stream and is_main,
            namespace=shared.namespace,
            priority=shared.priority,
            deadline=shared.deadline,
        )

    texts = runtime.texts
    ids = ask.prompt
    if isinstance(ids, str):
        ids = tuple(texts.encode_prompt((Text(ids),))) if ids else ()
    wish, is_plant = ask.logprobs, ask.sampling.max_tokens == 0
    scoring = None
    if wish is not None and wish.start is not None and ids:
        most = runtime.limits.max_answers
        scoring = scoring_of(texts, ids, wish.start, wish.num_top, most, call)
    is_only_scored = is_plant and scoring is not None and bool(scoring.calls)
    if is_only_scored or (is_plant and not ids):
        return Work(ask, ids, None, scoring)
    return Work(ask, ids, call((Tokens(ids),), ask.sampling), scoring)
