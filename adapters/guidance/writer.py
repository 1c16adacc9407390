"""Answers the one question of Guidance's loop: which token comes next, under this mask?

Most answers come from a draft: a call that has gone ahead, under as much of the grammar
as one call can have. Where there is none, or it went another way than the parser, one token
is sampled under the very mask. So the distribution is that of Guidance's own engines, whatever the
drafts were; only the number of calls depends on them. One thing differs: where forced text lies
between sampled tokens, a draft's tokens are those of the runtime, which may join the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.api.protocol import (
    Call,
    CallTooLarge,
    Constraint,
    ForkHint,
    ForkrootError,
    InvalidCall,
    Regex,
    Reply,
    Sampling,
    TokenLogprob,
    UnsupportedCall,
    Usage,
)
from .draft import Draft, after, prompt_of, sampling_of
from .grammar.patterns import pattern_until
from .grammar.plan import Plan, Step
from .tokens import FolderTokenizer

BIAS = 100.0  # the largest that a call may have
MOST_AHEAD = 16  # tokens of a draft that nothing limits
MOST_OPEN = 24  # tokens requested, so that the end of the budget does not distort the first ones
LONGEST_END = 4  # tokens that may be needed to end a text at its stop: bytes of a character, and it
LEAST_REST = 2  # tokens of a text whose limit the parser counts otherwise
MOST_AWAITED = 64  # tokens of a text that may end sooner, which are waited for as a whole
KIND = "guidance"  # of program, where it has no name of its own

Allowed = bytes | None


@dataclass(frozen=True, slots=True)
class Sampled:
    """A token, with its log-probability and the top alternatives where these were requested."""

    id: int
    logprob: TokenLogprob | None = None


class Writer:
    """Draws the tokens of one grammar.

    submit: takes a call. tokenizer: Guidance's view of the runtime's. prompt: the text before the
    grammar. num_logprobs: None: log-probabilities are not requested. is_watched: tokens are wanted
    as soon as they are there. kind: of program, in hints.
    """

    def __init__(
        self,
        submit: Callable[[Call], Reply],
        tokenizer: FolderTokenizer,
        plan: Plan,
        prompt: bytes,
        *,
        namespace: str = "",
        num_logprobs: int | None = None,
        is_watched: bool = True,
        kind: str = KIND,
    ) -> None:
        self._submit = submit
        self._tokenizer = tokenizer
        self._plan = plan
        self._prompt = prompt
        self._namespace = namespace
        self._num_logprobs = num_logprobs
        self._is_watched = is_watched
        self._kind = kind
        self._draft: Draft | None = None
        self._drafted: Sampling | None = None
        self._last_settings: tuple[float, Mapping[str, Any]] | None = None
        self._settings = Sampling()
        self._ids: list[int] = []
        self._data = b""
        self._last = self._num_sampled = self._num_before = 0
        self._replies: list[Reply] = []

    def sample(
        self, tokens: list[int], allowed: Allowed, temperature: float, params: Mapping[str, Any]
    ) -> Sampled:
        """The token after these, which may be any that the mask allows (a byte for each token, 0:
        not allowed); None: any at all. Raises the typed error of a call."""
        if self._last_settings != (temperature, params):
            self._settings = sampling_of(temperature, params)
            self._last_settings = temperature, params
        try:
            return self._sampled(tokens, allowed)
        except CallTooLarge as error:
            if not self._num_sampled:
                raise
            allowed_values = "an answer that ends within the context: a stop, a pattern, max_tokens"
            value = f"{self._num_sampled} tokens"
            raise CallTooLarge("answer", value, f"{allowed_values} ({error})") from error

    def _sampled(self, tokens: list[int], allowed: Allowed) -> Sampled:
        written = self._written(tokens)
        found = self._continued(written, allowed)
        if found is None:
            self._begin(tokens, written, allowed)
            found = self._continued(written, allowed)
        if found is None:
            found = self._single(tokens, allowed)
        self._last = len(written)
        self._num_sampled += 1
        return found

    def close(self) -> Usage:
        """End what still runs. What the first call used, whose prompt is all that was there before,
        and how many tokens were sampled."""
        self._drop()
        with suppress(ForkrootError):
            used = self._replies[0].result().usage if self._replies else Usage()
            return replace(used, completion_tokens=self._num_sampled)
        return Usage()

    @property
    def num_calls(self) -> int:
        """How many calls it took."""
        return len(self._replies)

    # --- drafts ------------------------------------------------------------------------------

    def _continued(self, written: bytes, allowed: Allowed) -> Sampled | None:
        """The next token of the draft, if it has one that is allowed here."""
        draft = self._draft
        if draft is None:
            return None
        found = None
        if self._settings is self._drafted and len(written) >= draft.start:
            found = self._judged(draft, written[draft.start :], allowed)
        if found is None:
            self._drop()
        return found

    def _judged(self, draft: Draft, written: bytes, allowed: Allowed) -> Sampled | None:
        try:
            after = draft.after(written)
        except (InvalidCall, UnsupportedCall):
            if not draft.is_masked:
                raise
            self._forget(draft.reply)
            return None
        if after is None:
            return None
        if isinstance(after, bytes):  # what is left of another token: one that begins it
            begins = self._tokenizer.encode(after)[:1]
            return next((Sampled(it) for it in begins if allowed is None or allowed[it]), None)
        token, logprob = after
        if allowed is not None:
            return Sampled(token, logprob) if allowed[token] else None
        if not draft.is_masked:
            return Sampled(token, logprob)
        if self._settings.temperature or logprob is None or not logprob.top:
            return None  # sampled under a mask where there is none
        best, value = logprob.top[0]
        return Sampled(best, TokenLogprob(best, value, logprob.top))

    def _drop(self) -> None:
        if self._draft is not None:
            self._draft.reply.cancel()
        self._draft = None

    def _forget(self, reply: Reply) -> None:
        """A constraint that the runtime refuses: it is not tried again."""
        self._replies.remove(reply)
        if reply.call.constraint is not None:
            self._plan.route.refused.add(reply.call.constraint)

    def _begin(self, tokens: list[int], written: bytes, allowed: Allowed) -> None:
        """Start a draft that may well give the next token, if there is one."""
        start = len(self._prompt)
        step = self._plan.step(written[start:], max(0, self._last - start))
        if step is None or not step.is_rest:
            self._num_before = self._num_sampled
        elif step.max_tokens is not None:
            num_left = step.max_tokens - (self._num_sampled - self._num_before)
            step = replace(step, max_tokens=max(LEAST_REST, num_left))
        self._drafted = self._settings
        if step is not None and not (step.is_open and self._settings.temperature):
            if step.constraints and self._constrained(tokens, step):
                return
            if not step.constraints and self._patterned(tokens, written, step):
                return
        if allowed is None or allowed.count(0) * 2 < len(allowed):
            self._free(tokens, step, allowed)

    def _constrained(self, tokens: list[int], step: Step) -> bool:
        """Ask for a step of the plan, from where it begins; False where that is refused."""
        begin = len(self._prompt) + step.start
        head, pending = self._split(tokens, begin)
        num_logprobs, most = self._num_logprobs, None
        max_tokens = step.max_tokens
        if step.is_open:
            most = MOST_AHEAD if max_tokens is None else min(MOST_AHEAD, max_tokens)
            num_logprobs, max_tokens = max(1, num_logprobs or 0), most + MOST_OPEN - MOST_AHEAD
        sampling = replace(self._settings, max_tokens=max_tokens, logprobs=num_logprobs)
        for candidate in step.constraints:
            constraint = after(candidate, pending)
            start = begin - len(pending)
            if constraint is not None and self._drafts(
                head, sampling, constraint, step, start, most
            ):
                return True
        return False

    def _patterned(self, tokens: list[int], written: bytes, step: Step) -> bool:
        """Request a step of any text under its own mask, so that no token goes past its stop and
        bytes before it that are to be sampled again are; False where that is not known, or refused.
        """
        pattern = self._pattern(step)
        head, pending, start = tokens, b"", len(written)
        begin, lead = len(self._prompt) + step.start, step.lead.encode()
        if begin + len(lead) > len(written):
            head, pending = self._split(tokens, begin)
            start = begin - len(pending)
            pending += lead
        constraint = None if pattern is None else after(Regex(pattern), pending)
        if constraint is None or (step.is_open and not pending):
            return False
        num_logprobs, most, max_tokens = self._num_logprobs, step.max_tokens, None
        if step.is_open:
            num_logprobs = max(1, num_logprobs or 0)
            most = MOST_AHEAD if most is None else most
        if most is not None:
            most += len(self._tokenizer.encode(pending))
            max_tokens = most + LONGEST_END
        sampling = replace(self._settings, max_tokens=max_tokens, logprobs=num_logprobs)
        return self._drafts(head, sampling, constraint, step, start, most)

    def _pattern(self, step: Step) -> str | None:
        """What the text of a step matches; None where tokens may go on behind its stop."""
        if step.follows is None or (
            step.stop and step.follows and self._tokenizer.is_spelled(step.stop + step.follows)
        ):
            return None
        return pattern_until(step.stop)

    def _drafts(
        self,
        head: list[int],
        sampling: Sampling,
        constraint: Constraint,
        step: Step,
        start: int,
        most: int | None,
    ) -> bool:
        """Follow a call with this constraint; False if it is refused, now or before."""
        if constraint in self._plan.route.refused:
            return False
        reply = self._call(head, sampling, constraint, self._is_watched and not step.is_open)
        if isinstance(reply.error(), InvalidCall | UnsupportedCall):
            self._forget(reply)
            return False
        self._follow(reply, start, most)
        return True

    def _follow(self, reply: Reply, start: int, most: int | None = None) -> None:
        tokenizer = self._tokenizer
        self._draft = Draft(reply, start, tokenizer.spell, tokenizer.encode, most)

    def _free(self, tokens: list[int], step: Step | None, allowed: Allowed) -> None:
        """Let the runtime write on; the mask is nearly full."""
        is_known = step is not None and not step.constraints
        max_tokens = step.max_tokens if step is not None and is_known else MOST_AHEAD
        stop = (step.stop,) if step is not None and step.stop else ()
        banned = {}
        if allowed is not None:
            ends = [self._tokenizer.eos_token_id]
            banned = {token: -BIAS for token in ends if not allowed[token]}
        sampling = replace(
            self._settings,
            max_tokens=max_tokens,
            stop=stop,
            logit_bias=banned,
            logprobs=self._num_logprobs,
        )
        is_long = max_tokens is None or max_tokens > MOST_AWAITED
        reply = self._call(tokens, sampling, None, self._is_watched or is_long)
        self._follow(reply, len(self._data))

    # --- single tokens -----------------------------------------------------------------------

    def _single(self, tokens: list[int], allowed: Allowed) -> Sampled:
        """One token, sampled under the mask."""
        bias: dict[int, float] = {}
        if allowed is not None:
            mask = np.frombuffer(allowed, np.uint8) != 0
            is_rare = np.count_nonzero(mask) * 2 <= len(mask)
            chosen = np.flatnonzero(mask if is_rare else ~mask).tolist()
            bias = dict.fromkeys(chosen, BIAS if is_rare else -BIAS)
        sampling = replace(
            self._settings, max_tokens=1, logit_bias=bias, logprobs=self._num_logprobs
        )
        output = self._call(tokens, sampling, None).result().outputs[0]
        return Sampled(output.ids[0], output.logprobs[0] if output.logprobs else None)

    # --- calls -------------------------------------------------------------------------------

    def _call(
        self,
        tokens: list[int],
        sampling: Sampling,
        constraint: Constraint | None,
        is_streamed: bool = False,
    ) -> Reply:
        call = Call(
            prompt_of(tokens, self._tokenizer),
            sampling,
            constraint,
            hint=ForkHint("", kind=self._kind),
            stream=is_streamed,
            namespace=self._namespace,
        )
        reply = self._submit(call)
        self._replies.append(reply)
        return reply

    def _written(self, tokens: list[int]) -> bytes:
        """The text of the tokens, the start token not in it; what was known before is kept."""
        known = self._ids
        size = len(known)
        if tokens[:size] != known:
            pairs = zip(known, tokens, strict=False)
            size = next((i for i, (a, b) in enumerate(pairs) if a != b), min(size, len(tokens)))
            num_back = sum(len(self._tokenizer.spell(token)) for token in known[size:])
            self._data = self._data[: len(self._data) - num_back] if size else b""
        first = 1 if not size and tokens[:1] == [self._tokenizer.bos_token_id] else size
        if first < len(tokens):
            self._data += bytes(self._tokenizer.decode(tokens[first:]))
        self._ids = tokens.copy()
        return self._data

    def _split(self, tokens: list[int], end: int) -> tuple[list[int], bytes]:
        """The tokens that lie before this byte, and the bytes between them and it."""
        data = self._data
        size, num_back = len(data), 0
        while size > end:
            num_back += 1
            size -= len(self._tokenizer.spell(tokens[-num_back]))
        wanted = data[size:end] + self._prompt[len(data) : end]
        return tokens[: len(tokens) - num_back], wanted
