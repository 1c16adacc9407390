"""What a constraint costs: compiling it, and a mask for each token, beside other libraries.

The same patterns, vocabulary and token sequences for all, in turn. `--vocabulary` is a tekken file
(the one in the package mistral-common if unset) or a Hugging Face `tokenizer.json` with byte-level
BPE. Answers are sampled at random from the automaton and written with the longest token that fits;
a cold mask is the first one of a state (its median over the rounds), a warm one any later. Times
are of this thread's processor. Rivals are named with `--rival llguidance --rival xgrammar --rival
outlines_core`, and must be installed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.common.drive import constraints_of
from forkroot.benchmarks.common.report import parser, report
from forkroot.benchmarks.common.vocabularies import Words
from forkroot.benchmarks.constraints.constrainers import PEERS, Forkroot, System, spell
from forkroot.core.api.protocol import Regex
from forkroot.core.fsm.regex.dfa import Dfa
from forkroot.core.fsm.regex.regex import compile_regex
from forkroot.core.fsm.tokens.regular import RegularGuide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary

TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
RECORD = (
    r'\{\n    "name": "[\w\d\s]{1,16}",\n    "house": "(Gryffindor|Slytherin|Ravenclaw|'
    r'Hufflepuff)",\n    "blood status": "(Pure-blood|Half-blood|Muggle-born)",\n    "occupation": '
    r'"(student|teacher|auror|ministry of magic|death eater|order of the phoenix)",\n    "wand": \{'
    r'\n        "wood": "[\w\d\s]{1,16}",\n        "core": "[\w\d\s]{1,16}",\n        "length": '
    r'[0-9]{1,2}\.[0-9]{0,2}\n    \},\n    "alive": "(Alive|Deceased)",\n    "patronus": '
    r'"[\w\d\s]{1,16}",\n    "bogart": "[\w\d\s]{1,16}"\n\}'
)
FIELDS = [rf'"field_{i}": {TEXT if i % 3 else "-?[0-9]{1,9}"}' for i in range(20)]
WORDS = (
    *("the", "a", "quick", "brown", "fox", "lazy", "dog", "jumps", "over", "under", "around"),
    *("river", "stone", "bright", "green", "slowly", "Harry", "Rowan", "phoenix", "feather"),
)
NUM_ANSWERS, NUM_WIDE, NUM_CALLS = 20, 20, 100


def patterns(random: Random) -> dict[str, str]:
    """Pattern by name."""
    options = [" ".join(random.choices(WORDS, k=18)) for _ in range(50)]
    return {"record": RECORD, "object": rf"\{{{', '.join(FIELDS)}\}}", "choices": "|".join(options)}


def sample_text(guide: RegularGuide, random: Random) -> str:
    """A text that the constraint accepts: words where the choice is wide, ended after a few."""
    dfa, text = guide.dfa, ""
    while not (cursor := guide.cursor(text.encode())).is_finished:
        chars = [c for c in map(chr, range(32, 127)) if dfa.step(cursor.state, ord(c))]
        if (forced := cursor.forced()) or len(chars) < NUM_WIDE:
            text += forced.decode() or random.choice(chars)
        elif '"' in chars and random.random() < 0.4:
            text += '"'
        else:
            text += longest_part(dfa, cursor.state, " " + random.choice(WORDS))
    return text


def path(guide: RegularGuide, answer: Sequence[int]) -> list[int]:
    """The state before each token."""
    cursor, states = guide.cursor(), []
    for token in answer:
        states.append(cursor.state)
        cursor.advance(token)
    return states


def longest_part(dfa: Dfa, state: int, text: str) -> str:
    """The longest beginning of the text, or of the text without its space, that is allowed."""
    text = text if dfa.run(state, text[:1].encode()) else text[1:]
    return next(text[:n] for n in range(len(text), 0, -1) if dfa.run(state, text[:n].encode()))


def time(action: Callable[[], Any]) -> float:
    """Microseconds of this thread's processor."""
    start = thread_time_ns()
    action()
    return (thread_time_ns() - start) / 1e3


@dataclass
class Times:
    """What one library took for one pattern, in microseconds.

    compile: of each round. cold: of each round, by state. warm: of all masks that came again.
    """

    compile: list[float] = field(default_factory=list)
    cold: dict[int, list[float]] = field(default_factory=dict)
    warm: list[float] = field(default_factory=list)

    def add(
        self, system: System, pattern: str, answers: Sequence[list[int]], states: list[list[int]]
    ) -> None:
        """Compile once, then follow all answers twice; states: those in which masks are
        computed."""
        self.compile.append(time(lambda: system.compile(pattern)))
        seen = set()
        for is_warm in (False, True):
            for answer, path in zip(answers, states, strict=True):
                system.begin()
                for token, state in zip(answer, path, strict=True):
                    taken = time(system.mask)
                    if state not in seen:
                        seen.add(state)
                        self.cold.setdefault(state, []).append(taken)
                    if is_warm:
                        self.warm.append(taken)
                    system.advance(token)

    def figures(self) -> dict[str, Any]:
        return {
            "compile_ms": round(median(self.compile) / 1e3, 2),
            "cold_us": spread([median(taken) for taken in self.cold.values()]),
            "warm_us": spread(self.warm),
            "states": len(self.cold),
        }


def spread(times: Sequence[float]) -> dict[str, float]:
    values = np.percentile(times, [50, 99, 100]).round(1).tolist()
    return dict(zip(("median", "p99", "max"), values, strict=True))


def run(words: Words, options: argparse.Namespace) -> dict[str, Any]:
    """Figures of each pattern, for forkroot and each rival; these take turns in every round."""
    vocabulary = Vocabulary(words.tokenizer.token_bytes, words.end_ids)
    systems: dict[str, System] = {"forkroot": Forkroot(vocabulary)}
    systems |= {name: PEERS[name](vocabulary) for name in options.rival}
    compile_regex(r"\w\d\s")  # the tables of Unicode, once for a process
    figures: dict[str, Any] = {}
    for name, pattern in patterns(Random(options.seed)).items():
        guide = RegularGuide(compile_regex(pattern), vocabulary)
        random = Random(options.seed)
        texts = [sample_text(guide, random) for _ in range(NUM_ANSWERS)]
        answers = [spell(vocabulary, text.encode()) for text in texts]
        states = [path(guide, answer) for answer in answers]
        times = {system: Times() for system in systems}
        for _ in range(options.rounds):
            for system, of in times.items():
                of.add(systems[system], pattern, answers, states)
        figures[name] = {system: of.figures() for system, of in times.items()}
        figures[name]["forkroot"]["megabytes"] = round(guide_size(systems["forkroot"]) / 1e6, 1)
    return figures


def compile_again(words: Words) -> dict[str, float]:
    """A hundred calls with one pattern: how often it is compiled, and what all of them take."""
    constraints = constraints_of(words)
    constraints.guide(Regex("a"))
    taken = time(lambda: [constraints.guide(Regex(RECORD)) for _ in range(NUM_CALLS)])
    compiled = constraints.guides.num_compiled - 1
    return {"calls": NUM_CALLS, "compiled": compiled, "ms": round(taken / 1e3, 2)}


def guide_size(system: System) -> int:
    assert isinstance(system, Forkroot)
    return system.guide.num_bytes


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--vocabulary", type=Path, help="unset: tekken")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--rival", action="append", default=[], choices=sorted(PEERS))
    chosen = options.parse_args()
    words = vocabularies.read(chosen.vocabulary) if chosen.vocabulary else vocabularies.tekken()
    figures = run(words, chosen) | {"one pattern": compile_again(words)}
    name = chosen.vocabulary.name if chosen.vocabulary else vocabularies.TEKKEN
    report("constraints", figures, chosen.out, seed=chosen.seed, vocabulary=name)


if __name__ == "__main__":
    main()
