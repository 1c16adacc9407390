"""How far constrained sampling is from the model's own distribution, and what corrects it.

A constraint that masks tokens divides by the allowed share at each step, so that an answer whose
beginning is unlikely comes too often. For lists of options on the embedded model the right shares
are known: the exact probabilities over all tokenizations, of those that end as one of the options.
Measured is the total variation distance from them: of masked sampling, of the same samples drawn
again by their log-mass, and of shares that are right but for the size of the sample. No option
begins another one: where it does, exact probabilities count what else follows it, and sampling the
end token only. Prints one JSON row.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import mean

import numpy as np

from forkroot import Backend, Call, Sampling, Text, connect
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Choices

TEMPERATURE = 1.0
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "grades": ("\nGrade:", (" A", " B", " C", " D")),
    "openings": ("First, ", ("clean rivers", "city bees", "clear skies", "small markets")),
    "yes or no": ("\nRelated:", (" yes", " no", " it is", " perhaps")),
    "styles": ("\nStyle:", (" good, the essay is calm", " poor, the essay shouts", " poor, it is")),
    "numbers": ("a survey counts ", ("12", "35", "9 children", "74")),
}


def right_shares(backend: Backend, prompt: str, options: tuple[str, ...]) -> dict[str, float]:
    """Exact probabilities of the options, as parts of their sum."""
    call = Call((Text(prompt),), options=options, scoring="exact")
    scores = backend.submit(call).result().scores
    total = math.fsum(math.exp(score.logprob) for score in scores)
    return {score.text: math.exp(score.logprob) / total for score in scores}


def sampled(
    backend: Backend, prompt: str, options: tuple[str, ...], count: int, seed: int
) -> list[tuple[str, float]]:
    """Answers and their log-masses."""
    found = []
    for start in range(0, count, 128):
        sampling = Sampling(
            32, temperature=TEMPERATURE, n=min(128, count - start), seed=seed + start, log_mass=True
        )
        call = Call((Text(prompt),), sampling, constraint=Choices(options))
        outputs = backend.submit(call).result().outputs
        found += [(output.text, output.log_mass or 0.0) for output in outputs]
    return found


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Total variation distance of two distributions."""
    return sum(abs(one.get(text, 0.0) - other.get(text, 0.0)) for text in {*one, *other}) / 2


def shares(texts: Sequence[str], weights: Sequence[float] | None = None) -> dict[str, float]:
    counts: Counter[str] = Counter()
    for text, weight in zip(texts, weights or [1.0] * len(texts), strict=True):
        counts[text] += weight
    total = sum(counts.values())
    return {text: count / total for text, count in counts.items()}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--samples", type=int, default=4096)
    chosen = options.parse_args()
    rng = np.random.default_rng(chosen.seed)
    figures = {}
    with connect("tiny") as backend:
        for name, (prompt, texts) in CASES.items():
            right = right_shares(backend, prompt, texts)
            found = sampled(backend, prompt, texts, chosen.samples, chosen.seed)
            answers = [text for text, _ in found]
            weights = np.exp([log_mass for _, log_mass in found])
            ideal = rng.choice(list(right), chosen.samples, p=list(right.values())).tolist()
            figures[name] = {
                "masked": round(distance(shares(answers), right), 4),
                "weighted": round(distance(shares(answers, weights.tolist()), right), 4),
                "sampling_error": round(distance(shares(ideal), right), 4),
                "effective": round(float(weights.sum() ** 2 / (weights**2).sum()) / len(found), 3),
            }
    summary = {key: round(mean(it[key] for it in figures.values()), 4) for key in figures["grades"]}
    report("distortion", {"mean": summary, **figures}, chosen.out, samples=chosen.samples)


if __name__ == "__main__":
    main()
