"""What a constraint costs: compiling it, and a mask for each token, beside other libraries.

The same patterns, vocabulary and token sequences for all. `--vocabulary` is a tekken file (it ships
in the package mistral-common) or a Hugging Face `tokenizer.json` with byte-level BPE. Answers are
drawn at random from the automaton and written with the longest token that fits; a cold mask is the
first one of a state, a warm one any later. Times are of this thread's processor. With a tokenizer
that can encode, also counts forward passes with and without jumping over forced text.

    python benchmarks/constraints.py --vocabulary tekken.json --rival llguidance --rival xgrammar
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import thread_time_ns
from typing import Any

import numpy as np
from common import parser, report
from constrainers import RIVALS, Forkroot, System, spell
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from forkroot.core.fsm.dfa import Dfa
from forkroot.core.fsm.regex import compile_regex
from forkroot.core.fsm.regular import RegularGuide
from forkroot.core.fsm.retokenize import Retokenizer
from forkroot.core.fsm.vocabulary import Vocabulary
from forkroot.core.tokenizer import Tokenizer as HubTokenizer

TEXT = r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt])*"'
RECORD = (
    r'\{\n    "name": "[\w\d\s]{1,16}",\n    "house": "(Gryffindor|Slytherin|Ravenclaw|'
    r'Hufflepuff)",\n    "blood status": "(Pure-blood|Half-blood|Muggle-born)",\n    "occupation": '
    r'"(student|teacher|auror|ministry of magic|death eater|order of the phoenix)",\n    "wand": \{'
    r'\n        "wood": "[\w\d\s]{1,16}",\n        "core": "[\w\d\s]{1,16}",\n        "length": '
    r'[0-9]{1,2}\.[0-9]{0,2}\n    \},\n    "alive": "(Alive|Deceased)",\n    "patronus": '
    r'"[\w\d\s]{1,16}"\n\}'
)
FIELDS = [rf'"field_{i}": {TEXT if i % 3 else "-?[0-9]{1,9}"}' for i in range(20)]
WORDS = (
    *("the", "a", "quick", "brown", "fox", "lazy", "dog", "jumps", "over", "under", "around"),
    *("river", "stone", "bright", "green", "slowly", "Harry", "Rowan", "phoenix", "feather"),
)
NUM_ANSWERS, NUM_WIDE = 20, 20


def patterns(random: Random) -> dict[str, str]:
    """Pattern by name."""
    options = [" ".join(random.choices(WORDS, k=18)) for _ in range(50)]
    return {"record": RECORD, "object": rf"\{{{', '.join(FIELDS)}\}}", "choices": "|".join(options)}


def draw(guide: RegularGuide, random: Random) -> str:
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


def measure(
    system: System, pattern: str, answers: Sequence[list[int]], states: Sequence[list[int]]
) -> dict[str, Any]:
    """Compile once, then follow all answers twice; states: those in which masks are asked for."""
    compile_us = time(lambda: system.compile(pattern))
    cold: dict[int, float] = {}
    warm: list[float] = []
    for times in (None, warm):
        for answer, path in zip(answers, states, strict=True):
            system.begin()
            for token, state in zip(answer, path, strict=True):
                taken = time(system.mask)
                cold.setdefault(state, taken)
                if times is not None:
                    times.append(taken)
                system.advance(token)
    return {
        "compile_ms": round(compile_us / 1e3, 2),
        "cold_us": spread([*cold.values()]),
        "warm_us": spread(warm),
        "states": len(cold),
    }


def spread(times: Sequence[float]) -> dict[str, float]:
    values = np.percentile(times, [50, 99, 100]).round(1).tolist()
    return dict(zip(("median", "p99", "max"), values, strict=True))


def count_passes(
    guide: RegularGuide, encode: Callable[[str], list[int]], texts: Sequence[str]
) -> dict[str, float]:
    """Forward passes, one for each token that is sampled, with and without jumps."""
    retokenizer = Retokenizer(encode, guide.vocabulary)
    table = guide.vocabulary.token_bytes
    plain = jumping = 0
    for text in texts:
        whole, ids = encode(text), list[int]()
        while len(ids) < len(whole):
            written = b"".join(table[token] for token in ids)
            forced = guide.cursor(written).forced()
            is_last = guide.cursor(written + forced).is_finished
            jump = retokenizer.jump(ids, forced, can_go_on=not is_last)
            ahead = [*ids[: jump.keep], *jump.ids]
            assert whole[: len(ahead)] == ahead, "a jump has changed the tokens"
            jumping += max(len(ids), len(ahead)) < len(whole)
            ids = whole[: max(len(ids), len(ahead)) + 1]
        plain += len(whole)
    return {"plain": plain / len(texts), "jumping": jumping / len(texts)}


def load(path: Path) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    """A vocabulary with its end token, and its encoder."""
    data = json.loads(path.read_text())
    if "config" not in data:
        known = HubTokenizer.from_folder(path.parent)
        return Vocabulary(known.token_bytes, [known.token_bytes.index(b"")]), known.encode
    num_special = data["config"]["default_num_special_tokens"]
    num_plain = data["config"]["default_vocab_size"] - num_special
    plain = [base64.b64decode(token["token_bytes"]) for token in data["vocab"][:num_plain]]
    core = byte_pairs(plain, data["config"]["pattern"])
    vocabulary = Vocabulary([b""] * num_special + plain, [2])
    return vocabulary, lambda text: [num_special + token for token in core.encode(text).ids]


def byte_pairs(pieces: Sequence[bytes], pattern: str) -> Tokenizer:
    """The encoder of tokens that come in the order in which they are merged."""
    rank = {piece: index for index, piece in enumerate(pieces)}
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letter = {byte: chr(byte) for byte in shown} | {b: chr(256 + i) for i, b in enumerate(hidden)}
    names = ["".join(letter[byte] for byte in piece) for piece in pieces]
    merges = []
    for piece, name in zip(pieces, names, strict=True):
        cuts = [n for n in range(1, len(piece)) if piece[:n] in rank and piece[n:] in rank]
        cuts.sort(key=lambda n: (rank[piece[:n]], rank[piece[n:]]))
        merges += [(name[:n], name[n:]) for n in cuts]
    model = models.BPE({name: i for i, name in enumerate(names)}, merges, ignore_merges=True)
    core = Tokenizer(model)
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    return core


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of each pattern, for forkroot and each rival."""
    vocabulary, encode = load(options.vocabulary)
    systems: dict[str, System] = {"forkroot": Forkroot(vocabulary)}
    systems |= {name: RIVALS[name](vocabulary) for name in options.rival}
    compile_regex(r"\w\d\s")  # the tables of Unicode, once for a process
    figures: dict[str, Any] = {}
    for name, pattern in patterns(Random(options.seed)).items():
        guide = RegularGuide(compile_regex(pattern), vocabulary)
        random = Random(options.seed)
        texts = [draw(guide, random) for _ in range(NUM_ANSWERS)]
        answers = [spell(vocabulary, text.encode()) for text in texts]
        states = [path(guide, answer) for answer in answers]
        figures[name] = {n: measure(it, pattern, answers, states) for n, it in systems.items()}
        figures[name]["passes"] = count_passes(guide, encode, texts)
        figures[name]["forkroot"]["megabytes"] = round(guide_size(systems["forkroot"]) / 1e6, 1)
    return figures


def guide_size(system: System) -> int:
    assert isinstance(system, Forkroot)
    return system.guide.num_bytes


def main() -> None:
    """Measure and print the row."""
    options = parser(__doc__)
    options.add_argument("--vocabulary", type=Path, required=True)
    options.add_argument("--rival", action="append", default=[], choices=sorted(RIVALS))
    chosen = options.parse_args()
    figures = run(chosen)
    report("constraints", figures, chosen.out, seed=chosen.seed, vocabulary=chosen.vocabulary.name)


if __name__ == "__main__":
    main()
