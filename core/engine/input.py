"""From a call to the sequences that run it: checked, tokenized, sized.

Runs in the caller's thread, so that a long prompt delays no other call. Every refusal is a typed
error that names the field, its value and what is allowed. It knows nothing of batches.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..api.protocol import (
    Call,
    CallTooLarge,
    Chat,
    InvalidCall,
    Prompt,
    Sampling,
    Shown,
    Text,
    Tokens,
    UnsupportedCall,
    check_call,
)
from ..api.reply import Mailbox
from ..fsm.cache import GuideRequest
from ..fsm.constraints import Constraints
from ..fsm.guide import Cursor, Guide
from ..text.pictures import PromptIds
from ..text.tokenizer import Tokenizer
from .pictures.pool import PicturePool, PictureRequest
from .pictures.prompt import Filled, Picture, fill
from .sequence import Job, Sequence, StopRules

_EMPTY = Text(""), Tokens(())
_NO_TOKENS = StopRules(frozenset(), (), 0, 0)
_GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: spreads consecutive numbers


class Prepared(NamedTuple):
    """A call on its way. guide, pictures: that it waits for; None where it needs none."""

    job: Job
    prompt: PromptIds
    guide: GuideRequest | None
    pictures: PictureRequest | None = None

    @property
    def awaited(self) -> list[GuideRequest | PictureRequest]:
        """What it waits for."""
        return [it for it in (self.guide, self.pictures) if it is not None]


@dataclass(slots=True)
class InputProcessor:
    """Turns calls into jobs, within the limits of a runtime.

    context_len: tokens of a sequence at most. num_slots: of the whole pool.
    vocabulary_size: of the model. end_ids: its own end tokens.
    constraints: where they are compiled; None: calls that have one are refused.
    exact_nodes: as in EngineConfig.
    seed: from which calls without a seed derive theirs.
    pictures: where they are decoded; None: the model takes none.
    """

    tokenizer: Tokenizer
    context_len: int
    num_slots: int
    vocabulary_size: int
    end_ids: frozenset[int]
    seed: int = 0
    constraints: Constraints | None = None
    exact_nodes: int = 1024
    pictures: PicturePool | None = None
    _num_seeds: Iterator[int] = field(default_factory=itertools.count)

    def job(self, call: Call, mailbox: Mailbox) -> Job:
        """The job of a call; waits for its constraint. Raises InvalidCall or a subclass."""
        return self.finish(self.prepare(call, mailbox))

    def prepare(self, call: Call, mailbox: Mailbox) -> Prepared:
        """A call whose prompt is tokenized, and whose constraint may still be compiled. Raises
        InvalidCall or a subclass."""
        check_call(call)
        self._check_ids("logit_bias", call.sampling.logit_bias)
        self._check_ids("stop_token_ids", call.sampling.stop_token_ids)
        num_new = int(call.sampling.max_tokens != 0 and not call.options)
        prompt = self._encode(call.prompt, call.namespace, num_new)
        if not isinstance(call.prompt, Chat) and not any(it not in _EMPTY for it in call.prompt):
            prompt = PromptIds([])
        self._check_ids("prompt", prompt.ids)
        guide = self._request(call, prompt.ids)
        if not prompt.placeholders:
            return Prepared(Job(call, mailbox), prompt, guide)
        assert self.pictures is not None, "the tokenizer takes pictures that nobody decodes"
        pictures = self.pictures.request(call, [it.segment for it in prompt.placeholders])
        return Prepared(Job(call, mailbox), prompt, guide, pictures)

    def finish(self, prepared: Prepared) -> Job:
        """The job of a prepared call; waits for its constraint and its pictures. Raises InvalidCall
        or a subclass."""
        job, call = prepared.job, prepared.job.call
        pictures = [] if prepared.pictures is None else prepared.pictures.result()
        prompt = fill(prepared.prompt, pictures)
        if call.options and call.scoring != "tokens":
            self._add_search(job, prompt)
        elif call.options:
            self._add_options(job, prompt, pictures)
        else:
            self._add_samples(job, prompt, prepared.guide)
        job.num_open = len(job.sequences)
        job.root_len = self._root_len(call, prompt.ids, pictures)
        return job

    def _encode(self, prompt: Prompt, namespace: str, num_new: int = 0) -> PromptIds:
        """A prompt's tokens. Raises CallTooLarge, without encoding all of it, for one that does not
        fit; the error leaves room for `num_new` tokens."""
        try:
            return self.tokenizer.encode_pictures(prompt, self.context_len, namespace)
        except CallTooLarge as error:
            raise self._too_long(error.value, self.context_len - num_new) from None

    def _request(self, call: Call, prompt: list[int]) -> GuideRequest | None:
        """The constraint of a call that generates. Raises InvalidCall for a prompt that does not
        fit."""
        if call.options:
            return None
        if not prompt:
            raise InvalidCall("prompt", "", "at least one token")
        if call.constraint is None or self._max_new(call.sampling, len(prompt)) == 0:
            return None
        if self.constraints is None:
            kind = type(call.constraint).__name__
            raise UnsupportedCall("constraint", kind, "None (not supported by this runtime)")
        return self.constraints.request(call)

    def _add_samples(self, job: Job, prompt: Filled, request: GuideRequest | None) -> None:
        sampling = job.call.sampling
        max_new = self._max_new(sampling, len(prompt.ids))
        guide = job.guide = None if request is None else _checked(request.result(), max_new)
        rules = StopRules(
            end_ids=frozenset(sampling.stop_token_ids)
            | (frozenset() if sampling.ignore_eos and guide is None else self.end_ids),
            stops=tuple(stop.encode() for stop in sampling.stop),
            min_new=sampling.min_tokens,
            max_new=max_new,
        )
        seed = self._seed(sampling.seed)
        start = _score_start(job.call, prompt)
        for index in range(sampling.n):
            cursor = None if guide is None else guide.cursor()
            sample_seed = (seed + index * _GOLDEN) % 2**63
            self._add(job, prompt, rules, sample_seed, None if index else start, cursor)

    def _add_options(self, job: Job, prompt: Filled, pictures: list[Picture]) -> None:
        """One sequence for each option; all are scored from the first token that any of them, or
        the bare prompt, does not share with the others."""
        encoded = [self._encode_option(job.call, text) for text in job.call.options]
        filled = [fill(it, pictures) for it in encoded]
        start = min(_common_prefix_len(prompt.ids, it.ids) for it in filled)
        if start == 0:
            start_token = self._start_token()
            if any(it.ids[:1] != start_token for it in encoded):
                filled = [fill(it.behind(start_token), pictures) for it in encoded]
            start = 1
        for option, it in zip(encoded, filled, strict=True):
            self._check_ids("options", option.ids)
            first = max(1, min(start, len(it.ids) - 1), it.end_of_features)
            self._add(job, it, _NO_TOKENS, score_start=first)

    def _add_search(self, job: Job, prompt: Filled) -> None:
        """One sequence, after which the first token of every option comes; others follow."""
        call = job.call
        if self.constraints is None:
            raise UnsupportedCall("scoring", call.scoring, "tokens (of this runtime)")
        prompt = prompt if prompt.ids else Filled(self._start_token())
        self._check_size(len(prompt.ids) + max(len(text.encode()) for text in call.options), 0)
        is_canonical = call.scoring == "canonical"
        job.search = self.constraints.search(call.options, is_canonical, self.exact_nodes)
        (root,) = job.search.wanted()
        self._add(job, prompt, _NO_TOKENS)
        job.sequences[0].node = root

    def _start_token(self) -> list[int]:
        """The token that a text without a prompt begins with. Raises InvalidCall where the model
        has no such token."""
        start_token = [*self.tokenizer.start_ids, *sorted(self.end_ids)][:1]
        if not start_token:
            raise InvalidCall("prompt", "", "at least one token")
        return start_token

    def _encode_option(self, call: Call, text: str) -> PromptIds:
        prompt, namespace = call.prompt, call.namespace
        if not isinstance(prompt, Chat):
            return self._encode((*prompt, Text(text)), namespace)
        last = prompt.messages[-1]
        if prompt.open_last:
            opened = replace(last, content=(*last.content, Text(text)))
            messages = (*prompt.messages[:-1], opened)
            return self._encode(replace(prompt, messages=messages), namespace)
        before = self._encode(prompt, namespace)
        ids = before.ids + self.tokenizer.encode_after(text, self.context_len, namespace)
        return before._replace(ids=ids)

    def _add(
        self,
        job: Job,
        prompt: Filled,
        rules: StopRules,
        seed: int = 0,
        score_start: int | None = None,
        cursor: Cursor | None = None,
    ) -> None:
        ids = prompt.ids
        self._check_size(len(ids), rules.max_new)
        ids_buffer = np.empty(len(ids) + rules.max_new, np.int32)
        ids_buffer[: len(ids)] = ids
        job.sequences.append(
            Sequence(
                job=job,
                index=len(job.sequences),
                ids=ids_buffer,
                num_ids=len(ids),
                prompt_len=len(ids),
                rules=rules,
                seed=seed,
                is_plain_greedy=_is_plain_greedy(job.call.sampling),
                score_start=score_start,
                spans=prompt.spans,
                parts=prompt.parts,
                cursor=cursor,
            )
        )

    def _max_new(self, sampling: Sampling, prompt_len: int) -> int:
        """Tokens to generate at most: as many as requested, as far as the context holds them."""
        available = self.context_len - prompt_len
        if available <= 0 and sampling.max_tokens != 0:
            raise self._too_long(f"{prompt_len} tokens", self.context_len - 1)
        if sampling.max_tokens is None:
            return max(1, min(available, self.num_slots - prompt_len + 1))
        return min(sampling.max_tokens, available)

    def _check_size(self, prompt_len: int, max_new: int) -> None:
        if prompt_len > self.context_len:
            raise self._too_long(f"{prompt_len} tokens", self.context_len)
        needed = prompt_len + max(0, max_new - 1)
        if needed > self.num_slots:
            raise CallTooLarge(
                "prompt",
                Shown(f"{prompt_len} tokens and {max_new} to generate"),
                f"{self.num_slots} slots in all (num_slots), {needed} would be needed",
            )

    def _too_long(self, found: object, most: int) -> CallTooLarge:
        """The error for a prompt that the context does not hold. found: its length in words."""
        allowed = (
            f"at most {most} tokens, as the context (context_len) has {self.context_len}; a shorter"
            " prompt, fewer messages, or a model with a longer context"
        )
        return CallTooLarge("prompt", Shown(str(found)), allowed)

    def _check_ids(self, field: str, ids: Collection[int]) -> None:
        for token in (min(ids, default=0), max(ids, default=0)):
            if not 0 <= token < self.vocabulary_size:
                raise InvalidCall(field, token, f"token ids 0 to {self.vocabulary_size - 1}")

    def _root_len(self, call: Call, prompt: list[int], pictures: list[Picture]) -> int:
        """Tokens of the shared prefix that the call's hint marks in its prompt; 0 for none."""
        hint = call.hint
        if hint is None or hint.prefix_end is None or hint.prefix_end <= 0:
            return 0
        if isinstance(call.prompt, Chat):
            messages = call.prompt.messages[: hint.prefix_end]
            shared: Prompt = replace(call.prompt, messages=messages, open_last=True)
        else:
            shared = call.prompt[: hint.prefix_end]
        try:
            root = PromptIds([])
            if shared:
                root = self.tokenizer.encode_pictures(shared, namespace=call.namespace)
            return _common_prefix_len(fill(root, pictures[: len(root.placeholders)]).ids, prompt)
        except InvalidCall:  # the chat template takes no such beginning of a chat
            return 0

    def _seed(self, seed: int | None) -> int:
        return _splitmix64(_splitmix64(self.seed) + next(self._num_seeds)) if seed is None else seed


def _checked(guide: Guide, max_new: int) -> Guide:
    """The guide. Raises InvalidCall where its shortest answer takes more than `max_new` tokens."""
    shortest = guide.cursor().shortest_finish()
    if shortest > max_new:
        allowed = f">= {shortest}, the tokens of the shortest valid answer"
        raise InvalidCall("max_tokens", max_new, allowed)
    return guide


def _score_start(call: Call, prompt: Filled) -> int | None:
    """The position of the first token to be scored; None: none. Raises InvalidCall where that comes
    before a picture, whose features have no probability."""
    start = call.scored_from
    if start is None or start >= len(prompt.ids):
        return None
    if start < prompt.end_of_features:
        allowed = f"at least {prompt.end_of_features}, as what comes before is or ends in a picture"
        raise InvalidCall("scored_from", start, allowed)
    return max(1, start)


def _splitmix64(number: int) -> int:
    """A number in 0 .. 2**63 - 1 that is unrelated to its neighbours' (splitmix64)."""
    number = number * _GOLDEN % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return (number ^ number >> 31) % 2**63


def _is_plain_greedy(sampling: Sampling) -> bool:
    """Whether nothing but the likeliest token is wanted of the logits."""
    is_penalised = sampling.frequency_penalty or sampling.presence_penalty
    is_changed = is_penalised or sampling.repetition_penalty != 1 or sampling.logit_bias
    return sampling.temperature == 0 and not is_changed and sampling.logprobs is None


def _common_prefix_len(first: list[int], second: list[int]) -> int:
    """Length of the common prefix."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
