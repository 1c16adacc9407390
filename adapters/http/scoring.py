"""Log-probabilities of a prompt's own tokens, with their best rivals, as `echo` asks for them.

The door scores what a model writes, not what it reads. So each token is written again after those
before it, by a bias that leaves it no choice and that the told log-probabilities do not contain;
the prompt is computed once, and read from the cache by all of these calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.protocol import Call, Output, Sampling, Tokens
from .logprobs import TokenScore
from .runtime import Runtime
from .work import Work, complete

_BIAS = 100.0  # the largest that the door takes
_AT_A_TIME = 128


async def prompt_scores(
    runtime: Runtime, ids: Sequence[int], num_top: int, namespace: str
) -> list[TokenScore]:
    """One score for each token; the first has none. A token that is less likely than the best one
    by more than a factor of e**100 has minus infinity. Raises InvalidCall and its kin."""
    whole = tuple(ids)
    plant = Call((Tokens(whole),), Sampling(max_tokens=0), namespace=namespace)
    await complete(runtime, Work((plant,), {}))
    scores = [TokenScore(whole[0], None)]
    for start in range(1, len(whole), _AT_A_TIME):
        places = range(start, min(start + _AT_A_TIME, len(whole)))
        calls = tuple(_again(whole, place, num_top, namespace) for place in places)
        found = await complete(runtime, Work(calls, {}))
        pairs = zip(places, found, strict=True)
        scores += [_score(whole[place], it.outputs[0]) for place, it in pairs]
    return scores


def _again(ids: tuple[int, ...], place: int, num_top: int, namespace: str) -> Call:
    """The call that writes the token at this place."""
    sampling = Sampling(
        max_tokens=1, temperature=0.0, logprobs=num_top, logit_bias={ids[place]: _BIAS}
    )
    return Call((Tokens(ids[:place]),), sampling, namespace=namespace)


def _score(token: int, output: Output) -> TokenScore:
    written = output.logprobs[0]
    logprob = written.logprob if written.id == token else -math.inf
    return TokenScore(token, logprob, written.top)
