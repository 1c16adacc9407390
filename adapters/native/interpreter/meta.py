"""The meta information of a variable: what `state.get_meta_info(name)` gives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

from ....core.api.protocol import Completion, Usage
from ..language.choices import Decision

_OF_RUN = (
    *("prompt_tokens", "cached_tokens", "root_tokens", "completion_tokens"),
    *("requests", "cost"),
)
_OF_ANSWER = ("finish_reason", "matched", "ids", "logprobs", "log_mass", "forced")


def gen_meta(completion: Completion, is_list: bool, is_scored: bool = False) -> dict[str, Any]:
    """Tokens used, and of the answer (of each, as lists, if `is_list`): why it ended and where,
    its token ids, its tokens' log-probabilities and its log-mass where they were requested, and
    which ranges of its characters the constraint forced. With `is_scored`, those of the prompt's
    tokens as `prompt_logprobs`."""
    answers = [
        {name: getattr(output, name) for name in _OF_ANSWER} for output in completion.outputs
    ]
    found = _usage(completion.usage)
    if is_scored:
        found["prompt_logprobs"] = completion.prompt_logprobs
    if not is_list:
        return {**found, **answers[0]}
    return {**found, **{key: [answer[key] for answer in answers] for key in answers[0]}}


def select_meta(completions: Sequence[Completion], decision: Decision) -> dict[str, Any]:
    """Tokens used, the index of the chosen option, and of each option in order: the figure that
    the method compared, its log-probability, and those of its tokens.

    completions: the scores after the prompt and, if the method needed them, without it.
    """
    scores = completions[0].scores
    found = {
        **_usage(reduce(add, (completion.usage for completion in completions))),
        "index": decision.index,
        "choices": [score.text for score in scores],
        "scores": list(decision.figures),
        "logprobs": [score.logprob for score in scores],
        "token_ids": [list(score.ids) for score in scores],
        "token_logprobs": [list(score.logprobs) for score in scores],
    }
    if any(score.bounds is not None for score in scores):
        found["bounds"] = [score.bounds for score in scores]
    if len(completions) > 1:
        alone = completions[1].scores
        found["unconditional_logprobs"] = [score.logprob for score in alone]
        found["unconditional_token_logprobs"] = [list(score.logprobs) for score in alone]
    return found


def choice_meta(completion: Completion, options: Sequence[str]) -> dict[str, Any]:
    """As `select_meta`, of an option that was chosen without scores."""
    return {
        **_usage(completion.usage),
        "index": options.index(completion.text),
        "choices": list(options),
        "scores": None,
        "logprobs": None,
    }


class Totals:
    """What the calls of a run used together; thread-safe. counters: by name."""

    def __init__(self) -> None:
        self.counters: dict[str, int | float] = dict.fromkeys(("calls", *_OF_RUN), 0)
        self._lock = threading.Lock()

    def add(self, usage: Usage) -> None:
        """Count a call that has ended."""
        self.count(calls=1, **{name: getattr(usage, name) for name in _OF_RUN})

    def count(self, **numbers: float) -> None:
        """Add to these counters; new ones begin at 0."""
        with self._lock:
            for name, number in numbers.items():
                self.counters[name] = self.counters.get(name, 0) + number


def _usage(usage: Usage) -> dict[str, Any]:
    names = ("prompt_tokens", "cached_tokens", "root_tokens", "completion_tokens")
    of_api = ("requests", "cost") if usage.requests else ()
    return {name: getattr(usage, name) for name in (*names, *of_api)}
