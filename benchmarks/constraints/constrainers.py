"""Libraries that constrain, behind one face, for the benchmark of constraints.

Each object serves one vocabulary; a library is imported when its class is called.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from forkroot.core.fsm.regex.regex import compile_regex
from forkroot.core.fsm.tokens.regular import RegularGuide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary


class System(Protocol):
    """A library that constrains. Each of its objects serves one vocabulary."""

    def compile(self, pattern: str) -> None: ...

    def begin(self) -> None: ...

    def mask(self) -> None: ...

    def advance(self, token: int) -> None: ...


class Forkroot:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def compile(self, pattern: str) -> None:
        self.guide = RegularGuide(compile_regex(pattern), self.vocabulary)

    def begin(self) -> None:
        self.cursor = self.guide.cursor()

    def mask(self) -> None:
        self.cursor.mask()

    def advance(self, token: int) -> None:
        self.cursor.advance(token)


class Llguidance:
    def __init__(self, vocabulary: Vocabulary) -> None:
        import llguidance

        class Wrapper:
            eos_token_id, bos_token_id = int(vocabulary.end_ids[0]), None
            tokens, special_token_ids = vocabulary.token_bytes, ()

            def __call__(self, data: bytes) -> list[int]:
                return spell(vocabulary, data)

        self.matcher = llguidance.LLMatcher
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapper()))

    def compile(self, pattern: str) -> None:
        self.first = self.matcher(self.tokenizer, self.matcher.grammar_from_regex(pattern))
        self.first.compute_bitmask()

    def begin(self) -> None:
        self.current = self.first.deep_copy()

    def mask(self) -> None:
        self.current.compute_bitmask()

    def advance(self, token: int) -> None:
        assert self.current.consume_token(token), self.current.get_error()


class Xgrammar:
    def __init__(self, vocabulary: Vocabulary) -> None:
        import xgrammar

        self.library = xgrammar
        self.info = xgrammar.TokenizerInfo(
            list(vocabulary.token_bytes), stop_token_ids=vocabulary.end_ids.tolist()
        )
        self.bits = np.zeros((1, vocabulary.num_words), np.int32)

    def compile(self, pattern: str) -> None:
        compiler = self.library.GrammarCompiler(self.info, max_threads=1, cache_enabled=False)
        self.grammar = compiler.compile_regex(pattern)

    def begin(self) -> None:
        self.current = self.library.GrammarMatcher(self.grammar)

    def mask(self) -> None:
        self.current.fill_next_token_bitmask(self.bits)

    def advance(self, token: int) -> None:
        assert self.current.accept_token(token)


class OutlinesCore:
    def __init__(self, vocabulary: Vocabulary) -> None:
        import outlines_core

        self.library = outlines_core
        ids: dict[bytes, list[int]] = {}
        for token, data in enumerate(vocabulary.token_bytes):
            if data:
                ids.setdefault(data, []).append(token)
        self.vocabulary = outlines_core.Vocabulary(int(vocabulary.end_ids[0]), ids)
        self.bits = np.zeros(vocabulary.num_words, np.int32)

    def compile(self, pattern: str) -> None:
        self.index = self.library.Index(pattern, self.vocabulary)

    def begin(self) -> None:
        self.current = self.library.Guide(self.index)

    def mask(self) -> None:
        self.current.write_mask_into(self.bits.ctypes.data, self.bits.size, 4)

    def advance(self, token: int) -> None:
        self.current.advance(token, False)


PEERS = {"llguidance": Llguidance, "xgrammar": Xgrammar, "outlines_core": OutlinesCore}


def spell(vocabulary: Vocabulary, data: bytes) -> list[int]:
    """Tokens of a text, the longest first."""
    ids = []
    while data:
        lengths = range(min(len(data), vocabulary.longest), 0, -1)
        piece = next(data[:n] for n in lengths if data[:n] in vocabulary.ids)
        ids.append(vocabulary.ids[piece])
        data = data[len(piece) :]
    return ids
