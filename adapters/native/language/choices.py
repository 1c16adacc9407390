"""How `select` picks one of several scored options: pure functions over their scores.

A method is looked up by name:

    token_length_normalized               the mean log-probability of the option's tokens (default)
    greedy_token_selection                token by token, the likeliest next token wins
    unconditional_likelihood_normalized   the mean gain over the option without any prompt
    exact                                 the probability that the answer begins with the option,
                                          summed over all ways to cut it into tokens
    canonical                             the same, over the tokens that the tokenizer gives

The first three are the paper's; their figures are log-probabilities per token. Those of the last
two are log-probabilities: exp of them are shares of the model's distribution, and an option that
begins another one counts only where the answer does not go on as the longer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ....core.api.protocol import (
    InvalidCall,
    OptionScore,
    Reply,
    Sampling,
    Scoring,
    UnsupportedCall,
)
from ....core.common.suggestions import did_you_mean

Scores: TypeAlias = Sequence[OptionScore]
_AROUND = 64  # tokens for what an API writes around an option


@dataclass(frozen=True, slots=True)
class Decision:
    """The index of the chosen option, and the figure that decided for each option."""

    index: int
    figures: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Method:
    """A way to choose. `decide` gets the scores, and those without a prompt where it needs them.

    scoring: requested of the runtime, as in `Call.scoring`.
    """

    name: str
    decide: Callable[[Scores, Scores], Decision]
    needs_unconditional: bool = False
    scoring: Scoring = "tokens"


def token_length_normalized(scores: Scores, _: Scores = ()) -> Decision:
    """The option whose tokens have the highest mean log-probability; the first of equals."""
    return _best([mean_logprob(score) for score in scores])


def greedy_token_selection(scores: Scores, _: Scores = ()) -> Decision:
    """Token by token, keep the options that go on with the likeliest token.

    An option that has ended competes with its mean against the next tokens of the longer ones. Of
    options that stay equal to the end the first is chosen. Figures: the value at the step where
    the option dropped out, or at the last one.
    """
    figures = [0.0] * len(scores)
    remaining = list(range(len(scores)))
    for step in range(max(len(score.ids) for score in scores)):
        for index in remaining:
            figures[index] = _value_at(scores[index], step)
        best = max(remaining, key=lambda index: figures[index])
        remaining = [
            index
            for index in remaining
            if figures[index] == figures[best] or _same_token(scores[index], scores[best], step)
        ]
        if len(remaining) == 1:
            break
    return Decision(remaining[0], tuple(figures))


def unconditional_likelihood_normalized(scores: Scores, unconditional: Scores) -> Decision:
    """The option that the prompt makes likelier than it is by itself, per token.

    unconditional: scores of the same options after an empty prompt.
    """
    return _best(
        [
            (score.logprob - alone.logprob) / max(len(score.logprobs), 1)
            for score, alone in zip(scores, unconditional, strict=True)
        ]
    )


def most_likely(scores: Scores, _: Scores = ()) -> Decision:
    """The option with the highest log-probability; the first of equals."""
    return _best([score.logprob for score in scores])


METHODS = {
    method.name: method
    for method in (
        Method("token_length_normalized", token_length_normalized),
        Method("greedy_token_selection", greedy_token_selection),
        Method("unconditional_likelihood_normalized", unconditional_likelihood_normalized, True),
        Method("exact", most_likely, scoring="exact"),
        Method("canonical", most_likely, scoring="canonical"),
    )
}


def find_method(name: str | Method) -> Method:
    """The method of this name, or the one given. Raises InvalidCall if there is none."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str) or name not in METHODS:
        suggestion = did_you_mean(str(name), METHODS)
        raise InvalidCall("choices_method", name, " | ".join(METHODS) + suggestion)
    return METHODS[name]


def is_unscored(reply: Reply) -> bool:
    """Whether a backend refused a call because it scores no options, as API models do."""
    error = reply.error() if reply.done() else None
    return isinstance(error, UnsupportedCall) and error.field == "options"


def unscored(method: str | Method, options: Sequence[str]) -> Sampling:
    """How such a backend is to write one of the options: greedily. Raises UnsupportedCall for a
    method that cannot do without scores."""
    found = find_method(method)
    if found.needs_unconditional or found.scoring != "tokens":
        allowed = "token_length_normalized, which an API model replaces by writing an option"
        raise UnsupportedCall("choices_method", found.name, allowed)
    longest = max(len(option.encode()) for option in options)
    return Sampling(max_tokens=longest + _AROUND, temperature=0)


def mean_logprob(score: OptionScore) -> float:
    """Mean log-probability of the option's tokens; 0 if the prompt left it none of its own."""
    return score.logprob / max(len(score.logprobs), 1)


def _best(figures: list[float]) -> Decision:
    return Decision(figures.index(max(figures)), tuple(figures))


def _value_at(score: OptionScore, step: int) -> float:
    return score.logprobs[step] if step < len(score.logprobs) else mean_logprob(score)


def _same_token(one: OptionScore, other: OptionScore, step: int) -> bool:
    return one.ids[step : step + 1] == other.ids[step : step + 1] != ()
