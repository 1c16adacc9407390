"""Rows of token ids for training: packed documents, and rows of random tokens that only copying can
predict.

A batch is a function of a seed and a step, so a training run can stop and go on without keeping any
data.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from .tasks.world import documents
from .tokenizer import CONTEXT_LEN, SPECIAL, VOCABULARY_SIZE
from .world.document import BOS, EOS, Document

PAD_ID, BOS_ID, EOS_ID = 0, SPECIAL.index(BOS), SPECIAL.index(EOS)
# Two byte tokens that mark a key's end and a pair's end.
COLON_LIKE, LINE_LIKE = len(SPECIAL), len(SPECIAL) + 1
# Of the documents, encoded part by part as a program that appends to its state does.
SPLIT_SHARE = 0.25
# A fixed shuffle of the vocabulary: rows to copy draw from its beginning.
SHUFFLED = random.Random(0).sample(
    range(len(SPECIAL) + 2, VOCABULARY_SIZE), VOCABULARY_SIZE - len(SPECIAL) - 2
)


class Row(NamedTuple):
    """Token ids, the weight of each as a target, and positions; lists of one length."""

    tokens: list[int]
    weights: list[float]
    positions: list[int]


class Batch(NamedTuple):
    """tokens and positions [rows, row_len]; `picked` [n] indexes the flat inputs whose next token
    is a target.
    """

    tokens: np.ndarray
    positions: np.ndarray
    picked: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


@dataclass(frozen=True, slots=True)
class Plan:
    """What the batch of one step is made of."""

    rows: int
    row_len: int
    copy_share: float  # of the rows

    @property
    def num_tokens(self) -> int:
        return self.rows * self.row_len


def plan(step: int) -> Plan:
    """Short rows and much to copy first; then longer rows, in the end some of a thousand tokens."""
    if step < 1200:
        return Plan(16, 256, 0.25)
    row_len = (256, 512, 256, 512)[step % 4] if step < 4500 else (256, 512, 512, 1024)[step % 4]
    return Plan(4096 // row_len, row_len, 0.12)


def make_batch(tokenizer: Tokenizer, seed: int, step: int, targets_share: float = 0.375) -> Batch:
    """The batch of a step: copy rows, then packed documents."""
    p, rng = plan(step), random.Random(f"{seed}/{step}")
    num_copy = round(p.rows * p.copy_share + rng.random() - 0.5)
    rows = [copy_row(rng, p.row_len) for _ in range(num_copy)]
    docs = documents(rng.getrandbits(60), held_out=False)
    rows += [packed_row(rng, tokenizer, docs, p.row_len) for _ in range(p.rows - num_copy)]
    return to_batch(rng, rows, int(p.num_tokens * targets_share))


def to_batch(rng: random.Random, rows: list[Row], num_targets: int) -> Batch:
    """Stack rows and pick `num_targets` targets, the heaviest first, at random among equals."""
    tokens, weights, positions = (np.array(part) for part in zip(*rows, strict=True))
    next_tokens = np.concatenate((tokens[:, 1:], np.zeros_like(tokens[:, :1])), axis=1).ravel()
    next_weights = np.concatenate((weights[:, 1:], np.zeros_like(weights[:, :1])), axis=1).ravel()
    noise = np.random.default_rng(rng.getrandbits(60)).random(next_weights.size) * 0.01
    picked = np.sort(np.argsort(-(next_weights + noise))[:num_targets])
    return Batch(
        tokens, positions, picked, next_tokens[picked], next_weights[picked].astype(np.float32)
    )


def encode(tokenizer: Tokenizer, doc: Document, by_part: bool) -> tuple[list[int], list[float]]:
    """Token ids with BOS and EOS, and weights: a token weighs what its last character does."""
    if by_part:
        pieces = tokenizer.encode_batch([text for text, _ in doc.parts], add_special_tokens=False)
        ids = [i for piece in pieces for i in piece.ids]
        weights = [
            kind.value
            for piece, (_, kind) in zip(pieces, doc.parts, strict=True)
            for _ in piece.ids
        ]
    else:
        whole = tokenizer.encode(doc.text, add_special_tokens=False)
        by_char = np.repeat(
            [kind.value for _, kind in doc.parts], [len(text) for text, _ in doc.parts]
        )
        ids, weights = whole.ids, [float(by_char[end - 1]) for _, end in whole.offsets]
    return [BOS_ID, *ids, EOS_ID], [0.0, *weights, 0.1]


def packed_row(
    rng: random.Random, tokenizer: Tokenizer, docs: Iterator[Document], row_len: int
) -> Row:
    """Whole documents, then padding; gaps in three rows of four let all positions occur."""
    tokens, weights, positions = list[int](), list[float](), list[int]()
    slack = CONTEXT_LEN - row_len if rng.random() < 0.75 else 0
    misses = 0
    while misses < 4:
        ids, worth = encode(tokenizer, next(docs), rng.random() < SPLIT_SHARE)
        if len(tokens) + len(ids) > row_len:
            misses += 1
            continue
        gap = rng.randint(0, slack) if rng.random() < 0.5 else 0
        slack -= gap
        start = (positions[-1] + 1 if positions else 0) + gap
        tokens += ids
        weights += worth
        positions += range(start, start + len(ids))
    rest = row_len - len(tokens)
    last = positions[-1] if positions else 0
    return Row(tokens + [PAD_ID] * rest, weights + [0.0] * rest, positions + [last] * rest)


def copy_row(rng: random.Random, row_len: int) -> Row:
    """A row of random tokens with something to copy: a repeated pattern, spans of a noise, or
    looked-up pairs.
    """
    pool = SHUFFLED[: rng.choice((256, 1024, VOCABULARY_SIZE))]
    tokens, weights = rng.choice((repeats, spans, pairs))(rng, pool, row_len - 1)
    start = rng.randint(0, CONTEXT_LEN - row_len)
    return Row([BOS_ID, *tokens], [0.0, *weights], list(range(start, start + row_len)))


def repeats(rng: random.Random, pool: list[int], length: int) -> tuple[list[int], list[float]]:
    """Patterns of 4 to 32 tokens, each repeated a few times."""
    tokens, weights = list[int](), list[float]()
    while len(tokens) < length:
        pattern, times = rng.choices(pool, k=rng.randint(4, 32)), rng.randint(2, 5)
        tokens += pattern * times
        weights += [0.0] * len(pattern) + [1.0] * len(pattern) * (times - 1)
    return tokens[:length], weights[:length]


def spans(rng: random.Random, pool: list[int], length: int) -> tuple[list[int], list[float]]:
    """A stretch of noise, then spans of it in any order; two tokens tell which one."""
    tokens = rng.choices(pool, k=rng.randint(16, length // 2))
    noise_len, weights = len(tokens), [0.0] * len(tokens)
    while len(tokens) < length:
        start, span_len = rng.randrange(noise_len - 6), rng.randint(4, 16)
        span = tokens[start : min(start + span_len, noise_len)]
        tokens += span
        weights += [0.0] * min(2, len(span)) + [1.0] * max(len(span) - 2, 0)
    return tokens[:length], weights[:length]


def pairs(rng: random.Random, pool: list[int], length: int) -> tuple[list[int], list[float]]:
    """Lists of `key colon value line`, each followed by the same keys in another order with their
    values to recall.
    """
    tokens, weights = list[int](), list[float]()
    while len(tokens) < length:
        count = rng.randint(2, 10)
        keys = {tuple(rng.choices(pool, k=rng.randint(1, 2))) for _ in range(count)}
        table = [(list(key), rng.choices(pool, k=rng.randint(1, 3))) for key in keys]
        for recalled in (0.0, 1.0):
            for key, value in rng.sample(table, len(table)):
                tokens += [*key, COLON_LIKE, *value, LINE_LIKE]
                weights += [0.0] * (len(key) + 1) + [recalled] * (len(value) + 1)
    return tokens[:length], weights[:length]
