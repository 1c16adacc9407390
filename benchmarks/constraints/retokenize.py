"""Jumps over forced text, tried on thousands of random tokenizers: does any continuation ever
change a token that was taken for sure?

Byte-level BPE tokenizers, half of them trained on random text, half with random merges,
each with one of six ways to cut text first. For each: texts, forced texts after them, and what may
follow, of words, spaces, digits, marks, several scripts and emoji, and of the rests of tokens that
would join with the end of what is forced. A jump is wrong where the tokens of the whole, encoded at
once, do not begin with those of the jump. Beside it, as a measure of how hard the trials are, two
plainer rules: to keep all tokens of the forced text, and all but the last; and the same trials on
the tokenizers of `vocabularies.py`. Prints one JSON row.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from random import Random
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from forkroot.benchmarks.common import vocabularies
from forkroot.benchmarks.common.report import parser, report
from forkroot.core.fsm.tokens.retokenize import Retokenizer
from forkroot.core.fsm.tokens.vocabulary import Vocabulary
from forkroot.core.text.tokenizer import Tokenizer, byte_alphabet
from forkroot.models.training.tokenizer import WORDS as EMBEDDED

PIECES = (
    *("the", "then", "there", "name", "names", "house", '"name": "', '", "age": ', "12", "345"),
    *("é", "née", "鱼", "鱼鱼", "😀", "👍🏽", "слово", "ab", "ba", "aab", "aaaa", "{", "}", '"}'),
    *("\n", "\n\n", "\r\n", "\t", "'s", "don't", "  ", "   ", "x.y", "...", "1.5", "A", "Ab"),
    *("AB", "], [", " - ", '":', '","', ":", ",", '"', " ", "true", "null", "\u00a0", "e\u0301"),
    *("#!/", "__init__"),
)
CUTS = (
    EMBEDDED,
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)
AFTER, NUM_JOINING = (0, 1, 2, 5), 4


def text(random: Random, num_pieces: int) -> str:
    """Random pieces, some of them with a space behind."""
    pieces = random.choices(PIECES, k=num_pieces)
    return "".join(piece + random.choice(("", "", " ")) for piece in pieces)


def cutter(random: Random) -> pre_tokenizers.PreTokenizer:
    """A way to cut text before it is encoded."""
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ways = [
        plain,
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain]),
        pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "merged_with_next"), plain]),
    ]
    for cut in CUTS:
        split = pre_tokenizers.Split(Regex(cut), "isolated")
        ways.append(pre_tokenizers.Sequence([split, plain]))
    return random.choice(ways)


def trained(random: Random, size: int) -> tokenizers.Tokenizer:
    """A tokenizer trained on random text."""
    core = tokenizers.Tokenizer(models.BPE())
    core.pre_tokenizer = cutter(random)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator([text(random, 60) for _ in range(8)], trainer)
    return core


def random_tokenizer(random: Random, size: int) -> tokenizers.Tokenizer:
    """A tokenizer whose merges join, in random order, random parts of random text."""
    letter = {byte: char for char, byte in byte_alphabet().items()}
    sample = "".join(letter[byte] for byte in text(random, 200).encode())
    known = dict(byte_alphabet())
    merges = []
    for _ in range(20 * size):
        start, length = random.randrange(len(sample)), random.randint(2, 12)
        part = sample[start : start + length]
        cuts = [n for n in range(1, len(part)) if part[:n] in known and part[n:] in known]
        if cuts and part not in known:
            cut = random.choice(cuts)
            merges.append((part[:cut], part[cut:]))
            known[part] = len(known)
        if len(merges) == size:
            break
    core = tokenizers.Tokenizer(models.BPE(known, merges))
    core.pre_tokenizer = cutter(random)
    return core


def make(random: Random) -> Tokenizer:
    """A random tokenizer."""
    kind, size = random.choice((trained, random_tokenizer)), random.choice((10, 40, 120, 300))
    core = kind(random, size)
    core.decoder = decoders.ByteLevel()
    return Tokenizer(core, None)


def joining(random: Random, vocabulary: Vocabulary, written: str) -> list[str]:
    """Continuations by which some token would span the end of what is written."""
    data, found = written.encode(), []
    for start in range(max(0, len(data) - vocabulary.longest), len(data)):
        for token in vocabulary.beginning_with(data[start:]):
            rest = vocabulary.token_bytes[token][len(data) - start :]
            if rest and rest[0] & 0xC0 != 0x80:
                found.append(rest.decode("utf-8", "ignore"))
    chosen = random.sample(found, min(len(found), NUM_JOINING))
    return [rest + text(random, random.choice((0, 1))) for rest in chosen]


class Tally:
    """Trials, and those that went wrong. plainer: rule -> how often it was wrong."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("jumps", "continuations", "violations", "taken_back"), 0)
        self.plainer = dict.fromkeys(("keep all", "drop the last"), 0)
        self.wrong: list[dict[str, Any]] = []
        self.num_sure = self.num_all = 0

    def add(self, tokenizer: Tokenizer, trials: int, random: Random, name: str) -> None:
        """Try a tokenizer."""
        vocabulary = Vocabulary(tokenizer.token_bytes, [])
        retokenizer = Retokenizer(tokenizer.encode, vocabulary)
        for _ in range(trials):
            before, forced = text(random, random.choice((0, 3, 30))), text(random, 4)
            ids = tokenizer.encode(before)
            jump = retokenizer.jump_forward(ids, forced.encode())
            sure, whole = [*ids[: jump.keep], *jump.ids], tokenizer.encode(before + forced)
            self.counts["jumps"] += 1
            self.counts["taken_back"] += jump.keep < len(ids)
            self.num_sure += len(sure) - len(ids)
            self.num_all += len(whole) - len(ids)
            rests = [text(random, num_pieces) for num_pieces in AFTER]
            for rest in rests + joining(random, vocabulary, before + forced):
                after = tokenizer.encode(before + forced + rest)
                self.counts["continuations"] += 1
                self.plainer["keep all"] += not begins(after, whole)
                self.plainer["drop the last"] += not begins(after, whole[:-1])
                if not begins(after, sure):
                    self.counts["violations"] += 1
                    self.wrong.append({"tokenizer": name, "text": [before, forced, rest]})

    def figures(self) -> dict[str, Any]:
        share = round(self.num_sure / self.num_all, 4)
        figures = {**self.counts, "share_of_forced_tokens": share}
        return {**figures, "violations_of_plainer_rules": self.plainer, "wrong": self.wrong[:5]}


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Try all tokenizers."""
    random, tally = Random(options.seed), Tally()
    for index in range(options.tokenizers):
        tally.add(make(random), options.trials, random, str(index))
    figures = {"random": {"tokenizers": options.tokenizers, **tally.figures()}}
    for known in (vocabularies.embedded, vocabularies.made, vocabularies.tekken):
        tally = Tally()
        tally.add(known().tokenizer, options.known_trials, random, known.__name__)
        figures[known.__name__] = {"tokenizers": 1, **tally.figures()}
    return figures


def begins(ids: Sequence[int], start: Sequence[int]) -> bool:
    """Whether the tokens begin with these."""
    return list(ids[: len(start)]) == list(start)


def main() -> None:
    """Try and print the row."""
    options = parser(__doc__)
    options.add_argument("--tokenizers", type=int, default=10_000)
    options.add_argument("--trials", type=int, default=2, help="for each tokenizer")
    options.add_argument("--known-trials", type=int, default=3000, help="for each known tokenizer")
    args = options.parse_args()
    report("retokenize", run(args), args.out, seed=args.seed)


if __name__ == "__main__":
    main()
