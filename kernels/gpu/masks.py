"""What constraints allow, as packed bits on logits, in place."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from .launch import Launch

BLOCK = 4096


@triton.jit
def _mask(logits, rows, words, logits_row, words_row, size, num_words, BLOCK: tl.constexpr):
    index = tl.program_id(0)
    row = tl.load(rows + index).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    word = column // 32
    is_element = (column < size) & (word < num_words)
    bits = tl.load(words + index.to(tl.int64) * words_row + word, mask=is_element, other=0)
    is_allowed = ((bits >> (column % 32)) & 1) != 0
    tl.store(
        logits + row * logits_row + column,
        -float("inf"),
        mask=(column < size) & (is_allowed == 0),
    )


def mask(logits: Tensor, rows: Tensor, words: Tensor) -> None:
    """Set to -inf, in the given rows [M] of logits [N, vocabulary], every token whose bit is 0 in
    words [M, words] (int32, 32 tokens each), and those behind the words."""
    size = logits.shape[1]
    Launch(num_warps=8, num_stages=1)(
        _mask,
        (len(rows), -(-size // BLOCK)),
        *(logits, rows, words, logits.stride(0), words.stride(0), size, words.shape[1]),
        BLOCK=BLOCK,
    )
