"""Programs of DSPy, unchanged: what our adapter's hints and the cache are worth to them.

Eight programs with demonstrations in their prompts, each with cache and hints, with the cache
alone, and with nothing, in turn in one process, from an empty cache each time. Without hints the
adapter tells the runtime nothing: no prefix is sent ahead or pinned, and `n` answers are asked for
one by one, as DSPy does. "siblings not held" is the cache alone, too, without the scheduler's
holding back of calls whose prefix another is computing: only its counts are told. In the two
"crowded" programs a pause of the program is used by others, whose prompts are more than the small
pool holds; told are the seconds of the program's own calls. The model has random weights, the
tokenizer is real; answers are constrained to their signatures in all modes. Prints one JSON row:
seconds, ratios within each round, whether the greedy programs gave the same answers, and of each
mode's last run the tokens that were computed, the forward passes, and how many of the shareable
prompt tokens were cached: all those that another prompt of the run begins with, too.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Literal, NamedTuple

import checkpoints
import dspy
import torch
from common import parser, report

from forkroot.adapters.connection import Lent
from forkroot.adapters.dspy import LM
from forkroot.core.local import LocalBackend
from forkroot.core.protocol import Call, Reply, Sampling, Text

MODES = {
    "cache + hints": {"cache": True, "hints": True},
    "cache": {"cache": True, "hints": False},
    "nothing": {"cache": False, "hints": False},
    "siblings not held": {"cache": True, "hints": False, "hold_min": 1 << 30},
}
COUNTED_ONLY = "siblings not held"
SLOTS, FEW_SLOTS = 65_536, 4_096
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] }}\n</>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}"
)
WORDS = "the room was clean and staff were kind but breakfast came late while music played"
Labels = Literal["food", "rooms", "staff", "noise", "price"]


class Review(dspy.Signature):
    """Read the guest's review of a hotel. Say what it is mostly about, how many stars the guest
    would give, and whether the manager should answer it today."""

    review: str = dspy.InputField(desc="What the guest wrote, word by word.")
    topic: Labels = dspy.OutputField(desc="The one thing that the review is mostly about.")
    stars: Literal[1, 2, 3, 4, 5] = dspy.OutputField(desc="One is bad, five is very good.")
    is_urgent: bool = dspy.OutputField(desc="Whether the manager should answer it today.")


class Response(dspy.Signature):
    """Choose how the hotel answers a review, given what it is about."""

    review: str = dspy.InputField()
    topic: str = dspy.InputField()
    tone: Literal["thankful", "sorry", "neutral"] = dspy.OutputField()
    offer: Literal["none", "voucher", "refund"] = dspy.OutputField()


class TwoSteps(dspy.Module):  # type: ignore[misc]
    """Judges a review, and then chooses how to answer."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.answer = dspy.Predict(Review), dspy.Predict(Response)

    def forward(self, review: str) -> Any:
        found = self.read(review=review)
        return self.answer(review=review, topic=found.topic)


class Program(NamedTuple):
    """run: gives its answers. is_greedy: these are the same in every mode. is_crowded: others use
    the pool, which is small, in its pauses."""

    run: Callable[[], list[str]]
    is_greedy: bool = True
    is_crowded: bool = False


class Recorder(Lent):
    """A backend that keeps what went through it, but for what others asked. seconds: of all calls,
    one after another."""

    def __init__(self, backend: LocalBackend, now: Callable[[], float]) -> None:
        super().__init__(backend)
        self._now = now
        self.replies: list[Reply] = []
        self.seconds = 0.0

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        started = self._now()
        reply = super().submit(call)
        self.replies.append(reply)
        reply.when_done(lambda _: self._add(self._now() - started))
        return reply

    def crowd(self, prompts: list[str]) -> None:
        """Let others ask, and wait for their answers."""
        sampling = Sampling(max_tokens=1, temperature=0)
        calls = [Call((Text(prompt),), sampling, namespace="others") for prompt in prompts]
        for reply in [super(Recorder, self).submit(call) for call in calls]:
            reply.result()

    def _add(self, seconds: float) -> None:
        self.seconds += seconds


def review(draw: random.Random, num_words: int = 30) -> str:
    """Some thirty words."""
    return " ".join(draw.choice(WORDS.split()) for _ in range(num_words)) + "."


def examples(count: int, seed: int) -> list[Any]:
    """Reviews with labels."""
    draw = random.Random(seed)
    return [
        dspy.Example(
            review=review(draw),
            topic=draw.choice(("food", "rooms", "staff")),
            stars=draw.randint(1, 5),
            is_urgent=draw.random() < 0.5,
            tone="sorry",
            offer="none",
        ).with_inputs("review")
        for _ in range(count)
    ]


def with_demos(module: Any, seed: int) -> Any:
    """The module with four demonstrations for each predictor."""
    for predictor in module.predictors():
        names = predictor.signature.fields
        predictor.demos = [
            {name: it.get(name, "rooms") for name in names} for it in examples(4, seed)
        ]
    return module


def told(prediction: Any) -> str:
    """A prediction as text."""
    return json.dumps(prediction.toDict(), sort_keys=True, default=str)


def programs(size: int, seed: int) -> dict[str, Program]:
    """The eight, where `size` is the number of examples of the largest."""
    data = examples(size, seed + 1)
    few = data[: max(4, size // 12)]
    judge, steps = with_demos(dspy.Predict(Review), seed), with_demos(TwoSteps(), seed)

    def is_food(example: Any, prediction: Any, trace: Any = None) -> float:
        return float(prediction.topic == example.topic)

    def evaluate() -> list[str]:
        found = dspy.Evaluate(devset=data, metric=is_food, num_threads=32)(judge)
        return [told(prediction) for _, prediction, _ in found.results]

    def parallel() -> list[str]:
        run = dspy.Parallel(num_threads=16, disable_progress_bar=True)
        return [told(it) for it in run([(steps, example) for example in data[: size // 2]])]

    def bootstrap() -> list[str]:
        optimizer = dspy.BootstrapFewShot(lambda *_: True, max_bootstrapped_demos=len(few) - 1)
        program = optimizer.compile(with_demos(dspy.Predict(Review), seed), trainset=few)
        return [told(program(review=example.review)) for example in few]

    def votes() -> list[str]:
        found = [judge(review=it.review, config={"n": 8, "temperature": 1.0}) for it in few]
        return [told(dspy.majority(it, field="topic")) for it in found]

    def best_of_n() -> list[str]:
        best = dspy.BestOfN(judge, N=4, reward_fn=lambda *_: 0.0, threshold=1.0)
        return [told(best(review=example.review)) for example in few]

    def agent() -> list[str]:
        def look_up(guest: str) -> str:
            """Look up a guest's earlier stays."""
            return f"{guest} was here before."

        react = dspy.ReAct("review -> is_known: bool", tools=[look_up], max_iters=2)
        config = {"num_threads": 8, "disable_progress_bar": True}
        return [told(it) for it in dspy.Parallel(**config)([(react, it) for it in few])]

    def others(*_: Any) -> float:
        draw = random.Random(seed + 2)
        prompts = [f"{number}: {review(draw, 600)}" for number in range(6)]
        dspy.settings.lm.runtime.connection().backend.crowd(prompts)
        return 0.0

    def crowded_best_of_n() -> list[str]:
        best = dspy.BestOfN(judge, N=4, reward_fn=others, threshold=1.0)
        return [told(best(review=example.review)) for example in few[:3]]

    def crowded_steps() -> list[str]:
        found = [(told(steps(review=it.review)), others()) for it in few[:8]]
        return [answer for answer, _ in found]

    return {
        "evaluate": Program(evaluate),
        "parallel": Program(parallel),
        "bootstrap": Program(bootstrap),
        "votes": Program(votes, is_greedy=False),
        "best of n": Program(best_of_n, is_greedy=False),
        "agent": Program(agent),
        "best of n, crowded": Program(crowded_best_of_n, is_greedy=False, is_crowded=True),
        "two steps, crowded": Program(crowded_steps, is_crowded=True),
    }


def common(first: list[int], second: list[int]) -> int:
    """Length of the common beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


def cached_share(backend: LocalBackend, replies: list[Reply]) -> float:
    """Cached prompt tokens of all that could have been: what a trie of the prompts has once."""
    prompts = sorted(backend.tokenizer.encode_prompt(reply.call.prompt) for reply in replies)
    shareable = sum(
        next(
            (i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), min(map(len, pair))
        )
        for pair in pairwise(prompts)
    )
    cached = sum(reply.result().usage.cached_tokens for reply in replies)
    return round(cached / shareable, 4) if shareable else 0.0


def measure(
    backends: dict[str, LocalBackend],
    program: Program,
    repeats: int,
    max_tokens: int,
    now: Callable[[], float],
) -> dict[str, Any]:
    """Seconds of each mode, ratios to "cache + hints" within each round, and counts."""
    rounds: dict[str, list[float]] = {mode: [] for mode in MODES}
    answers, shares = dict[str, list[str]](), dict[str, float]()
    counts: dict[str, dict[str, int]] = {}
    for _ in range(repeats):
        for mode, backend in backends.items():
            recorder = Recorder(backend, now)
            settings = {"hints": MODES[mode]["hints"], "cache": False, "max_tokens": max_tokens}
            lm = LM(recorder, temperature=0, **settings)
            backend.clear_cache()
            backend.reset_counters()
            with dspy.context(lm=lm):
                started = now()
                answers[mode] = program.run()
                seconds = now() - started
            rounds[mode].append(recorder.seconds if program.is_crowded else seconds)
            shares[mode] = cached_share(backend, recorder.replies)
            counts[mode] = counted(backend, recorder.replies)
    best = rounds["cache + hints"]
    del rounds[COUNTED_ONLY]
    return {
        "seconds": {mode: round(median(times), 3) for mode, times in rounds.items()},
        "times_faster_than": {
            mode: round(median(t / b for t, b in zip(times, best, strict=True)), 2)
            for mode, times in rounds.items()
            if mode != "cache + hints"
        },
        "same_answers": len({tuple(it) for it in answers.values()}) == 1
        if program.is_greedy
        else None,
        "cached_share": shares,
        "counts": counts,
    }


def counted(backend: LocalBackend, replies: list[Reply]) -> dict[str, int]:
    """What the engine computed, and in how many passes; and of the program's own prompts."""
    counters, usages = backend.info().counters, [reply.result().usage for reply in replies]
    return {
        "computed_tokens": int(counters["computed_tokens"]),
        "passes": int(counters["steps"]),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "cached_tokens": sum(usage.cached_tokens for usage in usages),
    }


def checkpoint(name: str, folder: Path, seed: int) -> Path:
    """The random model, with a chat template."""
    checkpoints.make(name, folder, seed)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "chat_template": TEMPLATE}, indent=2) + "\n")
    return folder


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--size", type=int, default=150, help="examples of the evaluation")
    options.add_argument("--max-tokens", type=int, default=128, help="of an answer")
    options.add_argument("--threads", type=int, default=1, help="of torch")
    options.add_argument("--model", default="56m", choices=checkpoints.MODELS)
    options.add_argument("--only", nargs="*", help="names of programs")
    args = options.parse_args()
    torch.set_num_threads(args.threads)
    dspy.disable_logging()
    now = process_time if args.busy else perf_counter
    folder = Path(tempfile.gettempdir()) / f"forkroot-dspy-{args.model}"
    model = checkpoint(args.model, folder, args.seed)
    chosen = programs(args.size, args.seed)
    figures = {}
    for is_crowded, num_slots in ((False, SLOTS), (True, FEW_SLOTS)):
        backends = {
            mode: LocalBackend.from_folder(model, num_slots=num_slots, **settings)
            for mode, settings in MODES.items()
        }
        for name, program in chosen.items():
            if program.is_crowded is is_crowded and (not args.only or name in args.only):
                figures[name] = measure(backends, program, args.repeats, args.max_tokens, now)
        for backend in backends.values():
            backend.close()
    settings = {name: getattr(args, name) for name in ("model", "seed", "size", "max_tokens")}
    report("dspy_programs", figures, args.out, **settings, clock=now.__name__)


if __name__ == "__main__":
    main()
