"""Importance resampling: answers resampled so that they follow the model's own distribution.

A constraint keeps at each step only the tokens that can still become valid, and divides by their
share of the probability. An answer x is so proposed with q(x) = p(x) / exp(log_mass(x)), where p is
the model's distribution, and a beginning that the model hardly believes in comes as often as one
that it does. Resampled in proportion to exp(log_mass), the answers follow p among the valid ones,
the better the more there are.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....core.api.protocol import Completion, UnsupportedCall


def resampled(completion: Completion, seed: int | None) -> tuple[Completion, dict[str, Any]]:
    """The completion with as many of its outputs, sampled with replacement, and its meta
    information.

    seed: the same gives the same; None: a new one. The meta information has `candidates` (the texts
    that were sampled from), their `candidate_log_masses`, `chosen` (the index of each output's
    candidate) and `effective_sample_size`. Raises UnsupportedCall if the backend gave no
    log-masses.
    """
    outputs = completion.outputs
    found = [output.log_mass for output in outputs]
    log_masses = [log_mass for log_mass in found if log_mass is not None]
    if len(log_masses) < len(outputs):
        raise UnsupportedCall("resample", True, "a backend that gives the log-mass of its answers")
    weights = relative_weights(log_masses)
    source = random.Random(None if seed is None else f"resampling {seed}")
    chosen = source.choices(range(len(outputs)), weights, k=len(outputs))
    meta = {
        "candidates": [output.text for output in outputs],
        "candidate_log_masses": log_masses,
        "chosen": chosen,
        "effective_sample_size": effective_sample_size(weights),
    }
    return replace(completion, outputs=tuple(outputs[index] for index in chosen)), meta


def relative_weights(log_masses: Sequence[float]) -> list[float]:
    """exp(log_mass) of each, divided by the largest one; all equal where none is above zero."""
    largest = max(log_masses)
    if largest == -math.inf:
        return [1.0] * len(log_masses)
    return [math.exp(log_mass - largest) for log_mass in log_masses]


def effective_sample_size(weights: Sequence[float]) -> float:
    """How many equally weighted answers are worth as much: (Σw)² / Σw², from 1 to their number."""
    return math.fsum(weights) ** 2 / math.fsum(weight * weight for weight in weights)
