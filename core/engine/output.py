"""One token's effect on a sequence: text grows, stop rules are checked, chunks and outputs are
made.

Text is bytes until it is shown: a stop string is found wherever it begins, also across tokens, and
what is shown never splits a character nor shows the beginning of a stop. It knows nothing of
scheduling, caches or tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import accumulate, repeat

from ..api.protocol import Chunk, Completion, OptionScore, Output, Segment, Text, TokenLogprob
from ..fsm.constraints import Constraints
from ..fsm.tokens.retokenize import JumpForward
from ..text.tokenizer import Tokenizer
from .sequence import Ending, Job, Sequence

MAX_REFUSED = 64  # tokens for one place, each of which takes a step


class OutputProcessor:
    """Applies tokens to sequences with one tokenizer's bytes."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        constraints: Constraints | None = None,
        has_jump_forward: bool = True,
    ) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._constraints = constraints
        self._has_jump_forward = has_jump_forward

    def begin(self, sequence: Sequence) -> None:
        """Give a new sequence the text that its constraint forces at the start; all of it may be
        forced, and nothing may be allowed."""
        if sequence.cursor is not None and sequence.cursor.is_finished:
            sequence.ending = Ending("stop", None, 0)
        self._jump_forward(sequence)

    def advance(self, sequence: Sequence, token: int, logprob: TokenLogprob | None) -> None:
        """Append a sampled token and the tokens that it forces (mutates the sequence); sets its
        `ending` if an end was reached. A token after which the constraint could not be met in time
        is refused: another is sampled; not without end, as an answer is better cut off."""
        if sequence.ending is not None:
            return
        cursor, left = sequence.cursor, sequence.rules.max_new - sequence.num_new
        may_refuse = cursor is not None and sequence.num_refused < MAX_REFUSED
        if cursor is not None and may_refuse and not cursor.fits(token, left):
            sequence.resample()
            return
        if logprob is not None:
            sequence.logprobs.append(logprob)
        if cursor is None:
            self._append(sequence, token)
            return
        del sequence.planned[:1]
        self._append(sequence, token)
        if not sequence.planned:
            self._jump_forward(sequence)

    def _append(self, sequence: Sequence, token: int) -> None:
        num_new, rules = sequence.append(token), sequence.rules
        if token in rules.end_ids and num_new > rules.min_new and _may_end(sequence):
            sequence.ending = Ending("stop", token, len(sequence.text))
            return
        before = len(sequence.text)
        sequence.text += self._bytes_of(token)
        if rules.stops and num_new >= rules.min_new:
            ending = _find_stop(sequence, before)
            if ending is not None and _is_valid_end(sequence, ending.text_len):
                sequence.ending = ending
        if sequence.cursor is not None:
            sequence.cursor.advance(token)
            if sequence.ending is None and sequence.cursor.is_finished:
                sequence.ending = Ending("stop", None, len(sequence.text))
        if num_new >= rules.max_new and sequence.ending is None:
            sequence.ending = Ending("length", None, len(sequence.text))

    def _jump_forward(self, sequence: Sequence) -> None:
        """Jump forward: append the forced tokens (paper, section 4), or plan them one by one where
        jump-forward is off or their log-probabilities are requested. Both give the same tokens.
        Tokens that merge with forced text are removed (paper, appendix B, retokenization)."""
        if sequence.cursor is None or sequence.ending is not None or self._constraints is None:
            return
        forced = sequence.cursor.forced()
        if not forced:
            return
        sequence.add_forced_range(len(forced))
        if sequence.job.call.sampling.log_mass:
            return
        ids = sequence.generated.tolist()
        jump = self._constraints.jump_forward(ids, forced, sequence.cursor.after(forced))
        if not jump.ids or jump.required or not self._can_finish(sequence, jump, forced):
            return
        self._truncate(sequence, jump.keep)
        if not self._has_jump_forward or sequence.job.call.sampling.logprobs is not None:
            sequence.plan(jump.ids)
            return
        for token in jump.ids:
            if sequence.ending is None:
                self._append(sequence, token)
                sequence.num_forced += 1

    def _can_finish(self, sequence: Sequence, jump: JumpForward, forced: bytes) -> bool:
        """Whether the answer can still be finished within its budget after this jump."""
        assert sequence.cursor is not None
        left = sequence.rules.max_new - jump.keep - len(jump.ids)
        num_removed = self._num_bytes(sequence.generated[jump.keep :].tolist())
        reached = sequence.cursor.after(forced[: self._num_bytes(jump.ids) - num_removed])
        return left >= 0 and reached.shortest_finish() <= left

    def _truncate(self, sequence: Sequence, keep: int) -> None:
        """Remove all but the first `keep` generated tokens, and the text of the others."""
        if keep == sequence.num_new:
            return
        assert sequence.job.guide is not None
        num_removed = self._num_bytes(sequence.generated[keep:].tolist())
        del sequence.text[len(sequence.text) - num_removed :]
        sequence.cursor = sequence.job.guide.cursor(bytes(sequence.text))
        sequence.truncate(keep)

    def _num_bytes(self, ids: Iterable[int]) -> int:
        return sum(len(self._bytes_of(token)) for token in ids)

    def chunk(self, sequence: Sequence) -> Chunk | None:
        """The text that can be sent now and was not sent yet; None for nothing."""
        is_last, end = sequence.ending is not None, len(sequence.text)
        if sequence.ending is not None:
            end = sequence.ending.text_len
        elif sequence.rules.stops:
            end -= _num_held_back(sequence)
        text = sequence.decoder.push(bytes(sequence.text[sequence.num_emitted : end]), is_last)
        if end > sequence.num_emitted:
            sequence.num_emitted = end
        if not text and not (is_last and sequence.num_sent < sequence.num_new):
            return None
        if sequence.cursor is not None and not is_last:
            return Chunk(text, sequence.index)  # its tokens may still be removed
        sent, sequence.num_sent = sequence.num_sent, sequence.num_new
        ids = sequence.ids[sequence.prompt_len + sent : sequence.num_ids].tolist()
        logprobs = tuple(sequence.logprobs[sent:]) if sequence.logprobs else ()
        return Chunk(text, sequence.index, tuple(ids), logprobs)

    def output(self, sequence: Sequence) -> Output:
        """The answer of an ended sequence."""
        ending = sequence.ending or Ending("abort", None, len(sequence.text))
        ids = tuple(sequence.generated.tolist())
        text = bytes(sequence.text[: ending.text_len]).decode("utf-8", "replace")
        kept = ids[:-1] if isinstance(ending.matched, int) else ids
        has_log_mass = sequence.job.call.sampling.log_mass
        return Output(
            text=text,
            ids=ids,
            finish_reason=ending.reason,
            matched=ending.matched,
            segments=self._segments(text, kept, ending.text_len),
            logprobs=tuple(sequence.logprobs),
            forced=tuple(_char_ranges(sequence.forced, sequence.text[: ending.text_len])),
            log_mass=math.fsum(sequence.log_masses) if has_log_mass else None,
        )

    def option(self, sequence: Sequence, text: str) -> OptionScore:
        """The score of an ended scoring sequence."""
        assert sequence.score_start is not None
        ids = tuple(sequence.tokens[sequence.score_start :].tolist())
        return OptionScore(text, ids, tuple(sequence.scores), (Text(text),))

    def prompt_logprobs(self, sequence: Sequence) -> tuple[TokenLogprob, ...]:
        """What was found of the prompt's own tokens."""
        if sequence.score_start is None:
            return ()
        ids = sequence.tokens[sequence.score_start :].tolist()
        count = sequence.num_top_logprobs
        tops = [top[:count] for top in sequence.score_tops] if count else repeat(())
        return tuple(map(TokenLogprob, ids, sequence.scores, tops))

    def completion(self, job: Job) -> Completion:
        """The completion of a call whose sequences have all ended."""
        usage = job.usage()
        if job.call.options:
            if any(sequence.is_aborted for sequence in job.sequences):
                return Completion(usage=usage)
            if job.search is not None:
                found = zip(job.call.options, job.search.bounds(), strict=True)
                scores = tuple(
                    OptionScore(text, (), (), (Text(text),), bounds) for text, bounds in found
                )
                return Completion(usage=usage, scores=scores)
            pairs = zip(job.sequences, job.call.options, strict=True)
            scores = tuple(self.option(sequence, text) for sequence, text in pairs)
            return Completion(usage=usage, scores=scores)
        outputs = tuple(map(self.output, job.sequences))
        return Completion(outputs, usage, (), self.prompt_logprobs(job.sequences[0]))

    def _segments(self, text: str, ids: tuple[int, ...], text_len: int) -> tuple[Segment, ...]:
        """Tokens that lie wholly within the text keep their ids; a cut token's rest is text."""
        if not ids:
            return (Text(text),) if text else ()
        ends = [*accumulate((len(self._bytes_of(token)) for token in ids), initial=0)]
        if ends[-1] <= text_len:
            return (Text(text, ids),)
        data = b"".join([self._bytes_of(token) for token in ids])[:text_len]
        for count in range(len(ids), -1, -1):
            head, tail = data[: ends[count]], data[ends[count] :]
            if ends[count] <= text_len and _is_text(head) and _is_text(tail):
                first = (Text(head.decode(), ids[:count]),) if count else ()
                return (*first, Text(tail.decode())) if tail else first
        return (Text(text),)

    def _bytes_of(self, token: int) -> bytes:
        return self._token_bytes[token] if token < len(self._token_bytes) else b""


def _may_end(sequence: Sequence) -> bool:
    """Whether its constraint, if it has one, lets the answer end here."""
    return sequence.cursor is None or sequence.cursor.is_accepting


def _is_valid_end(sequence: Sequence, text_len: int) -> bool:
    """Whether its constraint, if it has one, lets the answer end after these bytes of it: a
    stop string must not leave an invalid answer."""
    guide = sequence.job.guide
    if sequence.cursor is None or guide is None:
        return True
    return guide.cursor(bytes(sequence.text[:text_len])).is_accepting


def _find_stop(sequence: Sequence, before: int) -> Ending | None:
    """The earliest stop that ends in what came after `before`."""
    stops = sequence.rules.stops
    found = [(sequence.text.find(stop, max(0, before - len(stop) + 1)), stop) for stop in stops]
    matches = [(offset, -len(stop), stop) for offset, stop in found if offset >= 0]
    if not matches:
        return None
    offset, _, stop = min(matches)
    return Ending("stop", stop.decode(), offset)


def _char_ranges(ranges: Iterable[tuple[int, int]], data: bytearray) -> Iterator[tuple[int, int]]:
    """Ranges of bytes as ranges of whole characters, as far as the text goes."""
    for start, end in ranges:
        while start < len(data) and data[start] & 0xC0 == 0x80:
            start += 1
        first, last = (len(data[:offset].decode("utf-8", "ignore")) for offset in (start, end))
        if first < last:
            yield first, last


def _num_held_back(sequence: Sequence) -> int:
    """Number of last bytes that may be the beginning of a stop."""
    tail = bytes(sequence.text[-sequence.rules.longest_stop :])
    starts = (stop[:size] for stop in sequence.rules.stops for size in range(1, len(stop)))
    return max((len(start) for start in starts if tail.endswith(start)), default=0)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
