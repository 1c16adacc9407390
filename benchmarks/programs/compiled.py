"""Compiled programs beside interpreted ones: 64 judges that fork six ways over a constant root.

Each program has a rubric that is the same in all runs, a short text, six branches which each
answer a question in a few tokens, and a summary that reads all six.
Both run in this process on the embedded model, greedily, in rounds that take turns, each round with
another seed so that only the rubric is in the cache.

"hint_tokens_wrong" counts tokens of roots that a hint announces and that are not there: of a root
with which a call that names it does not begin, and of calls that are announced and not made (or
made and not announced). "rest_tokens_wrong" is the difference between the tokens that a call says
its program is still to generate and those of its other calls which had not ended when it began; a
program that is interpreted only guesses them, from its earlier runs. "equal" compares texts and
variables.
Prints one JSON row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import perf_counter, process_time
from typing import Any

from forkroot import function, gen
from forkroot.adapters.testing import prompt_text
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.api.protocol import Call, ForkHint, Reply
from forkroot.core.local import LocalBackend

NUM_PROGRAMS, NUM_BRANCHES, ROUNDS = 64, 6, 15
QUESTIONS = ("Is it clear", "Is it true", "Is it short", "Is it kind", "Is it new", "Is it calm")
RUBRIC = "You judge texts. Read the text, then answer each question in a few words.\n" * 4
WORDS = (
    *("the", "sea", "is", "calm", "and", "a", "red", "house"),
    *("stands", "near", "green", "hills", "where", "old", "birds", "sing"),
)


@function
def judge(s: Any, text: str) -> None:
    """Six answers about a text, and what they come to."""
    s += f"{RUBRIC}Text: {text}\n"
    branches = s.fork(NUM_BRANCHES)
    for branch, question in zip(branches, QUESTIONS, strict=True):
        branch += f"{question}?" + gen("answer", max_tokens=4, ignore_eos=True)
    for branch, question in zip(branches, QUESTIONS, strict=True):
        s += f"{question}:" + branch["answer"] + "\n"
    branches.join()
    s += "In all:" + gen("summary", max_tokens=4, ignore_eos=True)


@dataclass(slots=True)
class Seen:
    """A call, and when it began and ended, as numbers of events."""

    call: Call
    hint: ForkHint
    begun: int
    ended: int = 0


class Watched:
    """A backend that keeps the calls with hints."""

    def __init__(self, backend: LocalBackend) -> None:
        self._backend = backend
        self._events = count(1)
        self.seen: list[Seen] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def submit(self, call: Call) -> Reply:
        """As the backend's."""
        reply = self._backend.submit(call)
        if call.hint is not None:
            seen = Seen(call, call.hint, next(self._events))
            self.seen.append(seen)
            reply.when_done(lambda _: setattr(seen, "ended", next(self._events)))
        return reply


def wrong_rests(seen: list[Seen]) -> int:
    """By how many tokens what calls say is left differs from what was."""
    programs: dict[str | None, list[Seen]] = {}
    for it in seen:
        programs.setdefault(it.hint.program, []).append(it)
    found = 0
    for calls in programs.values():
        for it in calls:
            if it.hint.tokens_left is not None:
                beside = [other for other in calls if other is not it and other.ended > it.begun]
                left = sum(other.call.sampling.max_tokens or 0 for other in beside)
                found += abs(it.hint.tokens_left - left)
    return found


def wrong_tokens(seen: list[Seen], encode: Any) -> int:
    """Tokens that hints announce and that calls do not have."""
    by_root: dict[str, list[Call]] = {}
    for it in seen:
        if it.hint.root:
            by_root.setdefault(it.hint.root, []).append(it.call)
    found = 0
    for named in by_root.values():
        roots = [call for call in named if call.sampling.max_tokens == 0]
        others = [call for call in named if call.sampling.max_tokens != 0]
        if not roots:  # a root that the calls only have in common
            continue
        text = prompt_text(roots[0].prompt)
        num_tokens = len(encode(text))
        hint = roots[0].hint
        announced = hint.branches if hint is not None and hint.branches is not None else 0
        found += num_tokens * abs(announced - len(others))
        strangers = [call for call in others if not prompt_text(call.prompt).startswith(text)]
        found += num_tokens * len(strangers)
    return found


def items_of(seed: int) -> list[dict[str, str]]:
    """The arguments of one round."""
    source = random.Random(seed)
    return [{"text": " ".join(source.choices(WORDS, k=12))} for _ in range(NUM_PROGRAMS)]


def answers(states: list[Any]) -> list[Any]:
    """What the programs wrote."""
    return [(state.text(), state["answer"], state["summary"]) for state in states]


def measure(seed: int) -> dict[str, Any]:
    """The figures of a row."""
    seconds: dict[str, list[float]] = {"interpreted": [], "compiled": []}
    cpu: dict[str, list[float]] = {"interpreted": [], "compiled": []}
    wrong, wrong_rest = dict.fromkeys(seconds, 0), dict.fromkeys(seconds, 0)
    is_equal = True
    with LocalBackend.from_folder("tiny", dtype="float32") as engine:
        compiled = judge.compile()
        runners = {"interpreted": judge, "compiled": compiled}
        for number in range(ROUNDS + 1):  # the first one warms up
            items, found = items_of(seed * 1000 + number), {}
            order = list(runners) if number % 2 else list(reversed(runners))
            for name in order:
                backend = Watched(engine)
                settings = {"namespace": f"{name} {number}", "temperature": 0}
                began, began_cpu = perf_counter(), process_time()
                states = runners[name].run_batch(
                    items, backend=backend, raise_errors=True, progress_bar=False, **settings
                )
                if number:
                    seconds[name].append(perf_counter() - began)
                    cpu[name].append(process_time() - began_cpu)
                found[name] = answers(states)
                wrong[name] += wrong_tokens(backend.seen, engine.tokenizer.encode)
                wrong_rest[name] += wrong_rests(backend.seen)
            is_equal &= found["interpreted"] == found["compiled"]
    rates = {name: round(NUM_PROGRAMS / median(times), 2) for name, times in seconds.items()}
    ratios = [a / b for a, b in zip(seconds["interpreted"], seconds["compiled"], strict=True)]
    cpu_ratios = [a / b for a, b in zip(cpu["interpreted"], cpu["compiled"], strict=True)]
    return {
        "programs_per_second": rates,
        "ratio": round(median(ratios), 3),
        "ratio_of_processor_time": round(median(cpu_ratios), 3),
        "hint_tokens_wrong": wrong,
        "rest_tokens_wrong": wrong_rest,
        "equal": is_equal,
    }


def main() -> None:
    """Print the row."""
    options = parser(__doc__).parse_args()
    figures = measure(options.seed)
    size = {"programs": NUM_PROGRAMS, "branches": NUM_BRANCHES, "rounds": ROUNDS}
    report("compiled", figures, options.out, model="tiny", seed=options.seed, **size)


if __name__ == "__main__":
    main()
