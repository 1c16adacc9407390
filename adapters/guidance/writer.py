"""Answers the one question of Guidance's loop: which token comes next, under this mask?

Most answers come out of a draft: a call of ours that has gone ahead, under as much of the grammar
as one call can be asked for. Where there is none, or it went another way than the parser, one token
is drawn under the very mask. So the distribution is that of Guidance's own engines, whatever the
drafts were; only the number of calls depends on them. One thing differs: where forced text lies
between what is drawn, a draft's tokens are those of the runtime, which may join the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.protocol import (
    Call,
    CallTooLarge,
    Constraint,
    ForkrootError,
    InvalidCall,
    Reply,
    Sampling,
    TokenLogprob,
    UnsupportedCall,
    Usage,
)
from .asking import after, sampling_of
from .draft import Draft
from .plan import Plan, Step
from .prompts import prompt_of

BIAS = 100.0  # the most that a call may ask for
MOST_AHEAD = 16  # tokens of a draft that nothing limits
MOST_OPEN = 24  # tokens asked for, so that the end of the budget does not bend the first ones

Allowed = NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A token, with its log-probability and best rivals where these were asked for."""

    id: int
    logprob: TokenLogprob | None = None


class Writer:
    """Draws the tokens of one grammar.

    submit: takes a call. tokenizer: Guidance's view of the runtime's. prompt: the text before the
    grammar. num_logprobs: None: log-probabilities are not asked for.
    """

    def __init__(
        self,
        submit: Callable[[Call], Reply],
        tokenizer: Any,
        plan: Plan,
        prompt: bytes,
        *,
        namespace: str = "",
        num_logprobs: int | None = None,
    ) -> None:
        self._submit = submit
        self._tokenizer = tokenizer
        self._plan = plan
        self._prompt = prompt
        self._namespace = namespace
        self._num_logprobs = num_logprobs
        self._draft: Draft | None = None
        self._settings: Sampling | None = None
        self._last = self._num_drawn = 0
        self._replies: list[Reply] = []

    def draw(
        self, tokens: list[int], allowed: Allowed, temperature: float, params: Mapping[str, Any]
    ) -> Drawn:
        """The token after these, which may be any that the mask allows; None: any at all. Raises
        the typed error of a call."""
        try:
            return self._drawn(tokens, allowed, sampling_of(temperature, params))
        except CallTooLarge as error:
            if not self._num_drawn:
                raise
            allowed_values = "an answer that ends within the context: a stop, a pattern, max_tokens"
            value = f"{self._num_drawn} tokens"
            raise CallTooLarge("answer", value, f"{allowed_values} ({error})") from error

    def _drawn(self, tokens: list[int], allowed: Allowed, settings: Sampling) -> Drawn:
        written = self._written(tokens)
        found = self._continued(written, allowed, settings)
        if found is None:
            self._begin(tokens, written, allowed, settings)
            found = self._continued(written, allowed, settings)
        if found is None:
            found = self._single(tokens, allowed, settings)
        self._last = len(written)
        self._num_drawn += 1
        return found

    def close(self) -> Usage:
        """End what still runs. What the first call used, whose prompt is all that was there before,
        and how many tokens were drawn."""
        self._drop()
        with suppress(ForkrootError):
            used = self._replies[0].result().usage if self._replies else Usage()
            return replace(used, completion_tokens=self._num_drawn)
        return Usage()

    @property
    def num_calls(self) -> int:
        """How many calls it took."""
        return len(self._replies)

    # --- drafts ------------------------------------------------------------------------------

    def _continued(self, written: bytes, allowed: Allowed, settings: Sampling) -> Drawn | None:
        """The next token of the draft, if it has one that may stand here."""
        draft = self._draft
        if draft is None:
            return None
        found = None
        if settings == self._settings and len(written) >= draft.start:
            found = self._judged(draft, written[draft.start :], allowed, settings)
        if found is None:
            self._drop()
        return found

    def _judged(
        self, draft: Draft, written: bytes, allowed: Allowed, settings: Sampling
    ) -> Drawn | None:
        try:
            after = draft.after(written)
        except (InvalidCall, UnsupportedCall):
            if not draft.is_masked:
                raise
            self._replies.remove(draft.reply)  # a constraint that the runtime does not take
            return None
        if after is None:
            return self._end if allowed is None and draft.has_stopped(written) else None
        if isinstance(after, bytes):
            return self._part(after, allowed)
        token, logprob = after
        if allowed is not None:
            return Drawn(token, logprob) if allowed[token] else None
        if not draft.is_masked:
            return Drawn(token, logprob)
        if settings.temperature or logprob is None or not logprob.top:
            return None  # drawn under a mask where there is none
        return Drawn(token, logprob) if logprob.top[0][0] == token else self._end

    @cached_property
    def _end(self) -> Drawn:
        return Drawn(self._tokenizer.eos_token_id)

    def _part(self, data: bytes, allowed: Allowed) -> Drawn | None:
        """A token that begins what is left of another."""
        for token in self._tokenizer.encode(data)[:1]:
            if allowed is None or allowed[token]:
                return Drawn(token)
        return None

    def _drop(self) -> None:
        if self._draft is not None:
            self._draft.close()
        self._draft = None

    def _begin(
        self, tokens: list[int], written: bytes, allowed: Allowed, settings: Sampling
    ) -> None:
        """Start a draft that may well give the next token, if there is one."""
        start = len(self._prompt)
        step = self._plan.step(written[start:], max(0, self._last - start))
        self._settings = settings
        if step is not None and step.constraint is not None:
            is_known = not (step.is_open and settings.temperature)
            if is_known and self._constrained(tokens, step, settings):
                return
        if allowed is None or np.count_nonzero(allowed) * 2 > len(allowed):
            self._free(tokens, step, allowed, settings)

    def _constrained(self, tokens: list[int], step: Step, settings: Sampling) -> bool:
        """Ask for a step of the plan, from where it begins; False where that is refused."""
        begin = len(self._prompt) + step.start
        head, pending = self._cut(tokens, begin)
        constraint = after(step.constraint, pending)
        if constraint is None:
            return False
        num_logprobs, most = self._num_logprobs, None
        max_tokens = step.max_tokens
        if step.is_open:
            num_logprobs, most, max_tokens = max(1, num_logprobs or 0), MOST_AHEAD, MOST_OPEN
        sampling = replace(settings, max_tokens=max_tokens, logprobs=num_logprobs)
        reply = self._call(head, sampling, constraint, is_streamed=not step.is_open)
        if isinstance(reply.error(), InvalidCall | UnsupportedCall):
            self._replies.remove(reply)
            return False
        start = begin - len(pending)
        self._draft = Draft(reply, start, self._spell, self._tokenizer.encode, most)
        return True

    def _free(
        self, tokens: list[int], step: Step | None, allowed: Allowed, settings: Sampling
    ) -> None:
        """Let the runtime write on; the mask is nearly full."""
        is_known = step is not None and step.constraint is None
        max_tokens = step.max_tokens if step is not None and is_known else MOST_AHEAD
        stop = (step.stop,) if step is not None and step.stop else ()
        banned = {}
        if allowed is not None:
            ends = [self._tokenizer.eos_token_id]
            banned = {token: -BIAS for token in ends if not allowed[token]}
        sampling = replace(
            settings,
            max_tokens=max_tokens,
            stop=stop,
            logit_bias=banned,
            logprobs=self._num_logprobs,
        )
        reply = self._call(tokens, sampling, None, is_streamed=True)
        start = len(self._written(tokens))
        self._draft = Draft(reply, start, self._spell, self._tokenizer.encode)

    # --- single tokens -----------------------------------------------------------------------

    def _single(self, tokens: list[int], allowed: Allowed, settings: Sampling) -> Drawn:
        """One token, drawn under the mask."""
        bias: dict[int, float] = {}
        if allowed is not None:
            is_rare = np.count_nonzero(allowed) * 2 <= len(allowed)
            chosen = np.flatnonzero(allowed if is_rare else ~allowed).tolist()
            bias = dict.fromkeys(chosen, BIAS if is_rare else -BIAS)
        sampling = replace(settings, max_tokens=1, logit_bias=bias, logprobs=self._num_logprobs)
        output = self._call(tokens, sampling, None).result().outputs[0]
        return Drawn(output.ids[0], output.logprobs[0] if output.logprobs else None)

    # --- calls -------------------------------------------------------------------------------

    def _call(
        self,
        tokens: list[int],
        sampling: Sampling,
        constraint: Constraint | None,
        is_streamed: bool = False,
    ) -> Reply:
        prompt = prompt_of(tokens, self._tokenizer)
        call = Call(
            prompt,
            sampling,
            constraint,
            stream=is_streamed,
            namespace=self._namespace,
        )
        reply = self._submit(call)
        self._replies.append(reply)
        return reply

    def _written(self, tokens: list[int]) -> bytes:
        """The text of the tokens, the start token not in it."""
        first = 1 if tokens[:1] == [self._tokenizer.bos_token_id] else 0
        return bytes(self._tokenizer.decode(tokens[first:]))

    def _cut(self, tokens: list[int], end: int) -> tuple[list[int], bytes]:
        """The tokens that lie before this byte, and the bytes between them and it."""
        data = self._written(tokens)
        size, num_back = len(data), 0
        while size > end:
            num_back += 1
            size -= len(self._spell(tokens[-num_back]))
        if size >= len(self._prompt) or not num_back:
            wanted = data[size:end] + self._prompt[len(data) : end]
        else:
            wanted = data[size:end]
        return tokens[: len(tokens) - num_back], wanted

    def _spell(self, token: int) -> bytes:
        return bytes(self._tokenizer.decode([token]))
