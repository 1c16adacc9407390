"""Log-probabilities of a prompt's own tokens, asked for through the door.

The tokens after the first few are scored as an option over these, where the option's text is cut
into these very tokens again; else each token by a call of its own, which is led to it and says what
the model thought of it. Both are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ...core.protocol import (
    Call,
    CallFailed,
    Completion,
    InvalidCall,
    Sampling,
    Text,
    TokenLogprob,
    Tokens,
)
from .runtime import Texts

Maker: TypeAlias = Callable[[tuple[Tokens, ...], Sampling, tuple[str, ...]], Call]
LOOK_BACK = 8
_FAR = 100.0


@dataclass(frozen=True, slots=True)
class Scoring:
    """How the tokens of `ids` after the first `start + 1` are scored.

    calls: one that scores an option, or one for each token.
    """

    ids: tuple[int, ...]
    start: int
    calls: tuple[Call, ...]

    def found(self, completions: Sequence[Completion]) -> list[TokenLogprob]:
        """The log-probability of each scored token, from what the calls gave; where start is 0 the
        prompt's first token comes before them, with NaN, as nothing comes before it."""
        first = [] if self.start else [TokenLogprob(self.ids[0], math.nan)]
        if completions and completions[0].scores:
            return first + self._of_option(completions[0])
        wanted = self.ids[self.start + 1 :]
        told = [completion.outputs[0].logprobs[0] for completion in completions]
        return first + [_as(token, one) for token, one in zip(wanted, told, strict=True)]

    def _of_option(self, completion: Completion) -> list[TokenLogprob]:
        score = completion.scores[0]
        wanted = self.ids[self.start + 1 :]
        if score.ids[-len(wanted) :] != wanted:
            raise CallFailed("the runtime cut the prompt into other tokens to score them")
        pairs = zip(wanted, score.logprobs[-len(wanted) :], strict=True)
        return [TokenLogprob(token, logprob) for token, logprob in pairs]


def scoring_of(
    texts: Texts,
    ids: Sequence[int],
    start: int,
    num_top: int,
    most: int,
    make: Maker,
) -> Scoring:
    """How to score the tokens of a prompt after the first `start + 1`.

    num_top: rivals of each that are wanted. most: calls that may be made. make: the call of a
    prompt, a sampling and options. Raises InvalidCall where there would be more.
    """
    ids = tuple(ids)
    if start + 1 >= len(ids):
        return Scoring(ids, start, ())
    split = None if num_top else _split(texts, ids, start + 1)
    if split is not None:
        option = texts.decode(ids[split:])
        sampling = Sampling(max_tokens=0, temperature=0)
        return Scoring(ids, start, (make((Tokens(ids[:split]),), sampling, (option,)),))
    count = len(ids) - start - 1
    if count > most:
        field = "top_logprobs_num" if num_top else "logprob_start_len"
        raise InvalidCall(field, f"{count} tokens to be scored one by one", f"at most {most}")
    calls = tuple(_led(ids, at, num_top, make) for at in range(start + 1, len(ids)))
    return Scoring(ids, start, calls)


def _split(texts: Texts, ids: tuple[int, ...], last: int) -> int | None:
    """Where the prompt may be cut, at `last` or before, so that the text of what comes after is cut
    into the same tokens again; None for nowhere."""
    places: Sequence[int] = (*range(last, max(0, last - LOOK_BACK), -1), 1)
    for at in places:
        text = texts.decode(ids[at:])
        if text and tuple(texts.encode_prompt((Tokens(ids[:at]), Text(text)))) == ids:
            return at
    return None


def _as(token: int, told: TokenLogprob) -> TokenLogprob:
    """What was told of the token; of one that is too unlikely to be led to (by more than e**100)
    that it is impossible."""
    return told if told.id == token else TokenLogprob(token, -math.inf, told.top)


def _led(ids: tuple[int, ...], at: int, num_top: int, make: Maker) -> Call:
    """A call whose one token is bound to be the prompt's own at this place."""
    led = Sampling(max_tokens=1, temperature=0, logit_bias={ids[at]: _FAR}, logprobs=num_top)
    return make((Tokens(ids[:at]),), replace(led, ignore_eos=True), ())
