"""The adapter to llguidance: compiles grammars in its Lark, and matches tokens or bytes.

The library is imported for the first grammar. Each of its failures becomes a typed error: of the
grammar before a call starts, of the call while it runs. Knows nothing of schemas or syntaxes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cached_property
from time import thread_time
from typing import Any, TypeAlias, TypeVar

import numpy as np

from ...api.protocol import CallFailed, ForkrootError, InvalidCall
from ..tokens.vocabulary import Mask, Vocabulary

FIELD = "grammar"
MAX_LENGTH = 2_000_000
MAX_SHALLOW = 20_000  # characters of a grammar that every stack has room for
STACK = 512 << 20  # bytes, of which only those in use take memory
MAX_ERROR = 200
MAX_ITEMS = 4_000
NUM_TRIED = 3
MAX_SECONDS = 0.25
_DETAILS = re.compile(r"<state>|<backtrace>|<non-verbose|\n *1 \| ")
OPTIONS = '\n%llguidance {"no_forcing": true, "allow_invalid_utf8": false}\n'

Matcher: TypeAlias = Any  # llguidance.LLMatcher
MakeError: TypeAlias = Callable[[str], Exception]
T = TypeVar("T")


class Library:
    """Compiles grammars for one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._starting = threading.Lock()

    def compile(self, source: str, field: str) -> tuple[Matcher, Matcher]:
        """Matchers at the start of a grammar: of tokens, and of single bytes.

        Tokens of the first are those of the vocabulary, then one for each byte; of the second 0 to
        255. Raises InvalidCall for `field` where the grammar is not sound, or too large.
        """
        return self._matcher(self._token_tokenizer, source, field), self.byte_matcher(source, field)

    def byte_matcher(self, source: str, field: str) -> Matcher:
        """A matcher of bytes, as `compile`."""
        return self._matcher(self._byte_tokenizer, source, field)

    @cached_property
    def usable(self) -> int:
        """Bits of the bytes that tokens can spell."""
        single_bytes = [data for data in self.vocabulary.ids if len(data) == 1]
        if len(single_bytes) < 256:
            ids, is_end = self.vocabulary.ids, self.vocabulary.is_end
            single_bytes = [data for data, token in ids.items() if not is_end[token]]
        return sum(1 << byte for byte in set().union(*single_bytes))

    @cached_property
    def _byte_tokenizer(self) -> Any:
        return _tokenizer([bytes([byte]) for byte in range(256)])

    @cached_property
    def _token_tokenizer(self) -> Any:
        vocabulary = self.vocabulary
        texts = [
            b"" if vocabulary.is_end[token] or b"\xff" in data else data
            for token, data in enumerate(vocabulary.token_bytes)
        ]
        return _tokenizer([*texts, *(bytes([byte]) for byte in range(256))])

    def _matcher(self, tokenizer: Any, source: str, field: str) -> Matcher:
        if len(source) > MAX_LENGTH:
            value = source if field == FIELD else "#"
            raise InvalidCall(field, value, f"grammars of at most {MAX_LENGTH} characters")
        if len(source) <= MAX_SHALLOW:
            return self._compiled(tokenizer, source, field)
        return self._on_large_stack(lambda: self._compiled(tokenizer, source, field))

    def _on_large_stack(self, work: Callable[[], T]) -> T:
        """What a function returns or raises, called in a thread of its own: to compile a grammar
        the library descends into its rules by recursion."""
        future = Future[T]()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        thread = threading.Thread(target=run, name="forkroot-grammar", daemon=True)
        with self._starting:
            before = threading.stack_size(STACK)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
        return future.result()

    def _compiled(self, tokenizer: Any, source: str, field: str) -> Matcher:
        import llguidance

        value = source if field == FIELD else "#"

        def refuse(message: str) -> Exception:
            return InvalidCall(
                field, value, f"a grammar that compiles ({_explained(message, source)})"
            )

        with library_errors(refuse):
            limits = llguidance.LLParserLimits(verbose_errors=False, max_items_in_row=MAX_ITEMS)
            grammar = llguidance.LLMatcher.grammar_from_lark(source + OPTIONS)
            matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
            tried, start = matcher.deep_copy(), thread_time()
            for _ in range(NUM_TRIED):
                bits = np.frombuffer(tried.compute_bitmask(), np.uint8)
                tokens = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
                tried.try_consume_tokens(tokens[:1].tolist())
            seconds = thread_time() - start
        check(tried, refuse)
        if seconds > MAX_SECONDS:
            raise InvalidCall(field, value, f"a grammar whose first tokens take {MAX_SECONDS} s")
        return matcher


class Bits:
    """What a matcher of tokens allows, as masks of a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._last_word = np.int32(-1)
        if vocabulary.size % 32:
            self._last_word = np.int32((1 << vocabulary.size % 32) - 1)
        self._ends = vocabulary.mask_of(vocabulary.end_ids)

    def mask(self, matcher: Matcher, is_accepting: bool) -> Mask:
        """[words] tokens allowed next, the end included where the answer may end. Raises
        CallFailed."""
        with library_errors(call_error):
            data = matcher.compute_bitmask()
        check(matcher, call_error)
        words = self._vocabulary.num_words
        mask: Mask = np.frombuffer(data, np.int32, words).copy()
        mask[-1] &= self._last_word
        mask &= ~self._ends
        if is_accepting:
            mask |= self._ends
        return mask

    def of(self, tokens: list[int], is_accepting: bool) -> Mask:
        """[words] these tokens, and the end where the answer may end."""
        mask = self._vocabulary.mask_of(tokens)
        return mask | self._ends if is_accepting else mask


@contextmanager
def library_errors(make_error: MakeError) -> Iterator[None]:
    """Turn exceptions and panics of the library into the error that `make_error` makes."""
    try:
        yield
    except ForkrootError:
        raise
    except Exception as error:
        raise make_error(str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise make_error(str(error)) from error


def check(matcher: Matcher, make_error: MakeError) -> None:
    """Raise the error of a matcher that has failed."""
    if matcher.is_error():
        raise make_error(matcher.get_error())


def call_error(message: str) -> Exception:
    """The error of a matcher that fails while its call runs."""
    return CallFailed(f"the constraint could not be followed ({one_line(message)})")


def _explained(message: str, source: str) -> str:
    """What is wrong with a grammar, for those who wrote it."""
    if "NoExtensionBias" in message:
        return "its start rule derives no text that ends"
    is_bnf = "Expected token" in message and "::=" in source
    hint = '; rules with ::= are of the syntax "ebnf" or "gbnf"' if is_bnf else ""
    return one_line(message) + hint


def one_line(message: str) -> str:
    """The beginning of a message, without its line breaks."""
    shown = re.sub(r"\s+", " ", _DETAILS.split(message)[0]).strip()
    return shown if len(shown) <= MAX_ERROR else shown[: MAX_ERROR - 3] + "..."


def _tokenizer(texts: list[bytes]) -> Any:
    """A tokenizer of these tokens and one more, which ends."""
    import llguidance

    class Source:
        tokens = (*texts, b"")
        eos_token_id = len(texts)
        bos_token_id = None
        special_token_ids = (len(texts),)

        def __call__(self, data: bytes) -> list[int]:
            """Never needed: forced text becomes tokens elsewhere."""
            return []

    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Source()))
