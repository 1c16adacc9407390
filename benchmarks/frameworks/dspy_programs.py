"""Programs of DSPy, unchanged: what our adapter's hints and the cache are worth to them.

The programs are in `dspy_tasks.py`, the agent in `dspy_agent.py`. Each runs with cache and hints,
with the cache alone, and with nothing, in turn in one process, from an empty cache each time.
Without hints the adapter declares nothing: no prefix is sent ahead or pinned, and `n`
answers are requested one by one, as DSPy does. "siblings not held" is the cache alone, too, without
the scheduler's holding back of calls whose prefix another is computing: only its counts are
reported, and of programs whose calls come together. "all cached" is a greedy program at once again,
with cache and hints: what is left is decoding, the least that any sharing can come to. Of "crowded"
programs the seconds of the program's own calls are reported, and those of the others beside them;
what is computed ahead for the program while others call is in the others', and in the tokens
computed.

The model has random weights, the tokenizer is real; answers are constrained to their signatures in
all modes. Prints one JSON row: seconds, ratios within each round, whether the greedy programs gave
the same answers, and of each mode's last run the tokens that were computed and decoded, the forward
passes, and how many of the shareable prompt tokens were cached: all those that another prompt of
the run begins with, too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from forkroot.adapters.connection import Lent
from forkroot.benchmarks.common import checkpoints
from forkroot.benchmarks.common.packages import needs
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Call, ForkHint, Reply, Sampling, Text
from forkroot.core.local import LocalBackend

with needs("dspy-ai"):
    import dspy

    from forkroot.adapters.dspy import LM
    from forkroot.benchmarks.frameworks.dspy_tasks import Program, programs

MODES = {
    "cache + hints": {"cache": True, "hints": True},
    "cache": {"cache": True, "hints": False},
    "nothing": {"cache": False, "hints": False},
    "siblings not held": {"cache": True, "hints": False, "hold_min": 1 << 30},
}
CONTEXT_LEN = 8192
COUNTED_ONLY, HINTED, ALL_CACHED = "siblings not held", "cache + hints", "all cached"
TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>\n{{ message['content'] }}\n</>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant>\n{% endif %}"
)


class Recorder(Lent):
    """A backend that keeps what it answered, but not to others; and apart, what was sent ahead.

    seconds: of the program's own calls, one after another. others: of theirs.
    """

    def __init__(self, backend: LocalBackend, now: Callable[[], float]) -> None:
        super().__init__(backend)
        self._now = now
        self._roots = set[str]()
        self.replies, self.planted = list[Reply](), list[Reply]()
        self.seconds = self.others = 0.0

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        started = self._now()
        reply = super().submit(call)
        if call.hint is not None:
            self._roots.add(call.hint.root)
        if call.sampling.max_tokens == 0:
            self.planted.append(reply)
        else:
            reply.when_done(lambda reply: self._add(reply, self._now() - started))
        return reply

    def crowd(self, prompts: list[str]) -> None:
        """Let others call, and wait for their answers."""
        sampling, started = Sampling(max_tokens=1, temperature=0), self._now()
        calls = [Call((Text(prompt),), sampling, namespace="others") for prompt in prompts]
        for reply in [super(Recorder, self).submit(call) for call in calls]:
            reply.result()
        self.others += self._now() - started

    def end(self) -> None:
        """Unpin what is still pinned."""
        sampling = Sampling(max_tokens=0)
        for root in self._roots:
            hint = ForkHint(root, branches=0)
            super().submit(Call((Text("."),), sampling, hint=hint)).result()

    def _add(self, reply: Reply, seconds: float) -> None:
        self.seconds += seconds
        if reply.error() is None:
            self.replies.append(reply)


def cached_share(backend: LocalBackend, recorder: Recorder) -> float:
    """Cached prompt tokens of all that could have been: what a trie of the prompts has once."""
    replies = [*recorder.replies, *recorder.planted]
    prompts = sorted(backend.tokenizer.encode_prompt(reply.call.prompt) for reply in replies)
    shareable = sum(
        next(
            (i for i, (a, b) in enumerate(zip(*pair, strict=False)) if a != b), min(map(len, pair))
        )
        for pair in pairwise(prompts)
    )
    cached = sum(reply.result().usage.cached_tokens for reply in replies)
    return round(cached / shareable, 4) if shareable else 0.0


class Measured:
    """One program in all modes, over one backend each."""

    def __init__(self, backends: dict[str, LocalBackend], program: Program, max_tokens: int):
        self._backends, self._program, self._max_tokens = backends, program, max_tokens
        self._seconds: dict[str, list[float]] = {}
        self._answers = dict[str, list[str]]()
        self._shares = dict[str, float]()
        self._counts = dict[str, dict[str, float]]()

    def round(self, now: Callable[[], float], turn: int = 0) -> None:
        """Run it in each mode once, from another one on in each turn: the first one bears what a
        process does only once."""
        modes = list(self._backends)
        for mode in modes[turn % len(modes) :] + modes[: turn % len(modes)]:
            backend = self._backends[mode]
            if mode == COUNTED_ONLY and not self._program.has_siblings:
                continue
            backend.clear_cache()
            self._run(mode, mode, now)
            if mode == HINTED and self._program.is_greedy and not self._program.is_crowded:
                self._run(mode, ALL_CACHED, now)

    def _run(self, mode: str, name: str, now: Callable[[], float]) -> None:
        backend, program = self._backends[mode], self._program
        backend.reset_counters()
        recorder = Recorder(backend, now)
        settings = {"hints": MODES[mode]["hints"], "cache": False, "max_tokens": self._max_tokens}
        lm = LM(recorder, temperature=0, **settings)
        with dspy.context(lm=lm), redirect_stdout(sys.stderr):
            started = now()
            self._answers[name] = program.run()
            seconds = now() - started
        seconds = recorder.seconds if program.is_crowded else seconds
        self._seconds.setdefault(name, []).append(seconds)
        if name != ALL_CACHED:
            self._shares[name] = cached_share(backend, recorder)
        self._counts[name] = counted(backend, recorder)
        recorder.end()

    def figures(self) -> dict[str, Any]:
        """Medians of seconds, of ratios to "cache + hints" within each round, and counts."""
        timed = {mode: it for mode, it in self._seconds.items() if mode != COUNTED_ONLY}
        ratios = {
            mode: [t / b for t, b in zip(times, timed[HINTED], strict=True)]
            for mode, times in timed.items()
            if mode not in (HINTED, ALL_CACHED)
        }
        answers = {tuple(it) for it in self._answers.values()}
        return {
            "seconds": {mode: round(median(times), 3) for mode, times in timed.items()},
            "times_faster_than": {mode: round(median(it), 2) for mode, it in ratios.items()},
            "same_answers": len(answers) == 1 if self._program.is_greedy else None,
            "cached_share": self._shares,
            "counts": self._counts,
        }


def warm(backend: LocalBackend) -> None:
    """Call once, so that no mode pays for what a process does only once."""
    with dspy.context(lm=LM(backend, temperature=0, cache=False, max_tokens=64)):
        dspy.Predict("review -> is_urgent: bool")(review="The room was clean.")


def counted(backend: LocalBackend, recorder: Recorder) -> dict[str, float]:
    """What the engine computed, and in how many passes; and of the program's own calls."""
    counters = backend.info().counters
    usages = [reply.result().usage for reply in recorder.replies]
    return {
        "computed_tokens": int(counters["computed_tokens"]),
        "passes": int(counters["steps"]),
        "calls": len(usages),
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "cached_tokens": sum(usage.cached_tokens for usage in usages),
        "completion_tokens": sum(usage.completion_tokens for usage in usages),
        "others_seconds": round(recorder.others, 3),
    }


def checkpoint(name: str, folder: Path, seed: int) -> Path:
    """The random model, with a chat template, and with room for an agent's whole trajectory: where
    there is none, DSPy leaves the oldest look-ups out, and nothing behind them is a prefix."""
    checkpoints.make(name, folder, seed)
    changes: dict[str, dict[str, Any]] = {
        "tokenizer_config.json": {"chat_template": TEMPLATE},
        "config.json": {"max_position_embeddings": CONTEXT_LEN},
    }
    for name, change in changes.items():
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(config | change, indent=2) + "\n")
    return folder


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=1)
    options.add_argument("--size", type=int, default=150, help="examples of the evaluation")
    options.add_argument("--max-tokens", type=int, default=256, help="of an answer")
    options.add_argument("--threads", type=int, default=1, help="the number of torch's threads")
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
    pins = {"root_timeout": 120.0} if args.busy else {}  # pauses are longer on a busy machine
    wanted = [(name, chosen[name]) for name in args.only or chosen]
    for num_slots, group in groupby(wanted, key=lambda pair: pair[1].num_slots):
        backends = {
            mode: LocalBackend.from_folder(model, num_slots=num_slots, **pins, **settings)
            for mode, settings in MODES.items()
        }
        for backend in backends.values():
            warm(backend)
        for name, program in group:
            measured = Measured(backends, program, args.max_tokens)
            for turn in range(args.repeats):
                measured.round(now, turn)
            figures[name] = measured.figures()
            print(name, figures[name]["seconds"], file=sys.stderr)
        for backend in backends.values():
            backend.close()
    settings = {name: getattr(args, name) for name in ("model", "seed", "size", "max_tokens")}
    report("dspy_programs", figures, args.out, **settings, clock=now.__name__)


if __name__ == "__main__":
    main()
