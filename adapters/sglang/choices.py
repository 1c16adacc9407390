"""SGLang's methods of `select`: the objects of its frontend, and how the native language uses them.

A method is called with the choices and their log-probabilities in SGLang's form, and returns its
decision with meta information. The three that SGLang has run as the native methods of these names;
any other object with the same call may be given too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...core.api.protocol import InvalidCall, OptionScore
from ..native.language.choices import Decision, Method, Scores, find_method

_ALLOWED = (
    "token_length_normalized, greedy_token_selection, unconditional_likelihood_normalized, or an"
    " object that is called as these are"
)


@dataclass
class ChoicesDecision:
    """The chosen text, and the meta information of the method."""

    decision: str
    meta_info: dict[str, Any] | None = None


class ChoicesSamplingMethod:
    """One of the three methods, by its name in `native.choices`. A subclass may override
    `__call__`, and `requires_unconditional_logprobs` if it needs these."""

    def __init__(self, name: str = "token_length_normalized") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<choices method {self.name}>"

    @property
    def requires_unconditional_logprobs(self) -> bool:
        """Whether it needs the choices' log-probabilities without the prompt."""
        return find_method(self.name).needs_unconditional

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[Sequence[Sequence[Any]]],
        output_token_logprobs: Sequence[Any],
        unconditional_token_logprobs: Sequence[Sequence[Sequence[Any]]] | None = None,
    ) -> ChoicesDecision:
        """The decision. Tokens are triples of log-probability, id and text. Raises InvalidCall if
        the method needs unconditional log-probabilities and gets none."""
        if self.requires_unconditional_logprobs and unconditional_token_logprobs is None:
            allowed = f"a list of tokens for each choice: {self.name} compares with them"
            raise InvalidCall("unconditional_token_logprobs", None, allowed)
        scores = _scores(choices, input_token_logprobs)
        alone = _scores(choices, unconditional_token_logprobs or input_token_logprobs)
        decision = find_method(self.name).decide(scores, alone)
        meta = {
            "normalized_prompt_logprobs": list(normalized_prompt_logprobs),
            "input_token_logprobs": input_token_logprobs,
            "output_token_logprobs": output_token_logprobs,
            "scores": list(decision.figures),
        }
        if unconditional_token_logprobs is not None:
            meta["unconditional_token_logprobs"] = unconditional_token_logprobs
        return ChoicesDecision(choices[decision.index], meta)


token_length_normalized = ChoicesSamplingMethod("token_length_normalized")
greedy_token_selection = ChoicesSamplingMethod("greedy_token_selection")
unconditional_likelihood_normalized = ChoicesSamplingMethod("unconditional_likelihood_normalized")


def native_method(method: object) -> Method:
    """What the native language runs for a method. Raises InvalidCall for what is none.

    Accepts the names of the native language and SGLang's own objects as well.
    """
    if method is None:
        return find_method("token_length_normalized")
    if isinstance(method, str):
        return find_method(method)
    if type(method) is ChoicesSamplingMethod:
        return find_method(method.name)
    if not callable(method):
        raise InvalidCall("choices_method", method, _ALLOWED)
    needs = bool(getattr(method, "requires_unconditional_logprobs", False))

    def decide(scores: Scores, alone: Scores) -> Decision:
        found = method(
            choices=[score.text for score in scores],
            normalized_prompt_logprobs=[normalized(score.logprobs) for score in scores],
            input_token_logprobs=[_triples(score) for score in scores],
            output_token_logprobs=[[] for _ in scores],
            unconditional_token_logprobs=[_triples(score) for score in alone] if needs else None,
        )
        texts = [score.text for score in scores]
        if getattr(found, "decision", None) not in texts:
            raise InvalidCall("choices_method", found, "a decision that is one of the choices")
        index = texts.index(found.decision)
        return Decision(index, tuple(float(it == index) for it in range(len(texts))))

    return Method(type(method).__name__, decide, needs)


def normalized(logprobs: Sequence[float]) -> float:
    """The mean of a choice's log-probabilities; 0 if it has no tokens of its own."""
    return sum(logprobs) / len(logprobs) if logprobs else 0.0


def _triples(score: OptionScore) -> list[list[Any]]:
    pairs = zip(score.logprobs, score.ids, strict=True)
    return [[logprob, token, None] for logprob, token in pairs]


def _scores(choices: Sequence[str], tokens: Sequence[Sequence[Sequence[Any]]]) -> list[OptionScore]:
    """A first token without a log-probability (None) counts as 0, as SGLang takes it."""
    return [
        OptionScore(text, tuple(it[1] for it in found), tuple(it[0] or 0.0 for it in found))
        for text, found in zip(choices, tokens, strict=True)
    ]
