"""Small vocabularies for tests, and what masks say, token by token."""

from __future__ import annotations

from random import Random

import numpy as np

from forkroot.core.fsm.regex.dfa import Dfa
from forkroot.core.fsm.tokens.vocabulary import Mask, Vocabulary

TEXT = (
    'the name is "Jürgen", 鱼 and 😀😁 like {"house": "Gryffindor", "born": 1980, "alive": true}\n'
    "aab abab cabc 0123456789 12 345 é ü ñ καλη"
)
END = 1


def vocabulary(seed: int, num_pieces: int = 300, has_bytes: bool = True) -> Vocabulary:
    """A special token, an end token, bytes, pieces of text cut anywhere, twins and broken UTF-8."""
    random = Random(seed)
    data = TEXT.encode()
    pieces = [b"", b"<end>"]
    if has_bytes:
        pieces += [bytes([byte]) for byte in range(256)]
    for _ in range(num_pieces):
        start = random.randrange(len(data))
        pieces.append(data[start : start + random.randint(1, 9)])
    pieces += [
        b"the",
        b"a\xff",
        b"\xc3\x28",
        b"\x80\x80\x80\x80",
        b'"\xe9',
        b"\xf0\x9f",
        b"\xed\xa0",
    ]
    return Vocabulary(pieces, [END])


def tokens_of(mask: Mask, vocabulary: Vocabulary) -> list[int]:
    """The tokens whose bits are set."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    assert not bits[vocabulary.size :].any()
    return np.flatnonzero(bits).tolist()


def allowed_one_by_one(dfa: Dfa, vocabulary: Vocabulary, state: int) -> list[int]:
    """The tokens that a state allows, each of them tried."""
    return [
        token
        for token, data in enumerate(vocabulary.token_bytes)
        if (dfa.is_accepting(state) if token == END else bool(data) and dfa.run(state, data))
    ]
