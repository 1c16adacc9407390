"""Speculative execution: one call for several gens (paper, section 5).

A call goes on past the stop of its gen. What it wrote beyond is matched against the constants and
the stops of what the stream has queued: a gen whose text is there makes no call, and text that does
not match is dropped. It knows texts and nodes, no streams.

What such calls write beyond single ones is bounded by the queued constants: a call ends at a text
that only its last gen is followed by, and its stream is left where the answer is of no use further
(`template.Follower`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....core.api.protocol import (
    Chat,
    Chunk,
    Completion,
    ProgramError,
    Prompt,
    Reply,
    Sampling,
    Text,
    UnsupportedCall,
)
from ..language.expressions import Constant, Gen, ScopeBegin, ScopeEnd
from .template import Follower, Template

_CHARACTERS = 2.5  # of a token of a constant, at least on average
_MOST_USELESS = 2  # calls in a row of which no gen behind the first was used
_DEARER = 4.0  # what an output token costs in input tokens, where nothing else is known


@dataclass(frozen=True, slots=True)
class Plan:
    """A call for several gens. sampling: with the stop and the limit of the whole. template: what
    the call is to write."""

    sampling: Sampling
    template: Template


@dataclass(frozen=True, slots=True)
class Reused:
    """The text of a gen, and the stop that ended it; None: the call's own end."""

    text: str
    matched: str | None


class Speculation:
    """What the model of one stream wrote beyond what was used. Mutable.

    limit: tokens by which a call may go on; True: as many as the queued gens may have.
    """

    def __init__(self, limit: int | bool) -> None:
        self._limit = limit
        self._text = ""
        self._num_gens = 0
        self._is_cut = False
        self._sampling: Sampling | None = None
        self._closings: tuple[str, ...] = ()
        self._tokens_per_character = 0.0
        self._prompt_tokens = 0.0
        self._wasted = 0.0
        self._num_counted = 0
        self._num_reused = 0
        self._saved = 0.0
        self._num_useless = 0

    def plan(
        self, sampling: Sampling, queued: Iterable[object], defaults: Mapping[str, Any]
    ) -> Plan | None:
        """The call for a gen of this sampling and for those behind it; None: there are none that
        it can write, or the calls before were of no use. queued: the nodes behind it. defaults:
        sampling of gens that set none."""
        if not sampling.stop or sampling.max_tokens is None or not is_plain(sampling):
            return None
        if self._num_useless >= _MOST_USELESS:
            return None
        gens, constants = [sampling], [""]
        for node in queued:
            if isinstance(node, Constant):
                constants[-1] += node.text
                continue
            if isinstance(node, ScopeBegin | ScopeEnd):
                continue
            found = _sampling_of(node, defaults)
            if found is None or not constants[-1] or _common(found) != _common(sampling):
                break
            gens.append(found)
            constants.append("")
        return self._planned(gens, constants) if len(gens) > 1 else None

    def keep(self, plan: Plan, completion: Completion, lead: str = "") -> None:
        """Take what a planned call wrote. lead: what the program wrote of it before. Raises
        ProgramError where the answer begins with another text."""
        output, usage = completion.outputs[0], completion.usage
        if not output.text.startswith(lead):
            found = output.text[: len(lead) + 20]
            message = f"the answer begins with {found!r}; expected the program's own {lead!r}"
            raise ProgramError(f"{message}, as the API continues no message")
        self._tokens_per_character = usage.completion_tokens / max(1, len(output.text))
        self._text, self._num_gens = output.text[len(lead) :], len(plan.template.gens)
        self._is_cut = output.finish_reason != "stop"
        self._sampling = plan.sampling
        matched = output.matched
        self._closings = (matched,) if isinstance(matched, str) else plan.sampling.stop
        self._prompt_tokens = float(usage.prompt_tokens)
        self._wasted += len(self._text) * self._tokens_per_character
        self._num_useless += 1

    def fill(self, text: str) -> None:
        """The program wrote this: it is matched, or what the model wrote is dropped."""
        if not self._text:
            return
        if self._text.startswith(text):
            self._use(len(text))
        elif text.startswith(self._text) and not self._num_gens:
            self._use(len(self._text))
        else:
            self.drop()

    def take(self, sampling: Sampling) -> Reused | None:
        """The text of the next gen, if the model wrote it whole; else None."""
        if not self._text:
            return None
        known = self._sampling
        self._num_gens -= 1
        if known is None or self._num_gens < 0 or _common(sampling) != _common(known):
            return None
        ends = {stop: self._text.find(stop) for stop in sampling.stop if stop in self._text}
        matched = min(ends, key=lambda stop: (ends[stop], -len(stop)), default=None)
        if matched is None and not self._ends(sampling):
            return None
        end = len(self._text) if matched is None else ends[matched]
        num_tokens = end * self._tokens_per_character
        if sampling.max_tokens is not None and num_tokens > sampling.max_tokens:
            return None
        found = Reused(self._text[:end], matched)
        self._use(end)
        return found

    def count_reused(self) -> None:
        """Count a gen that made no call."""
        self._num_useless = 0
        self._num_reused += 1
        self._saved += self._prompt_tokens

    def refuse(self) -> None:
        """Its first gen had to be asked for again: plan no further call."""
        self._num_useless = _MOST_USELESS
        self.drop()

    def drop(self) -> None:
        """Forget what was not used."""
        self._text, self._num_gens = "", 0

    def taken(self) -> dict[str, int]:
        """What is to be added to the totals of the run: gens without a call, prompt tokens of the
        calls that these would have been, and tokens that are of no use so far."""
        num_wasted = round(self._wasted) - self._num_counted
        self._num_counted += num_wasted
        found = {
            "reused": self._num_reused,
            "saved_tokens": round(self._saved),
            "wasted_tokens": num_wasted,
        }
        self._num_reused, self._saved = 0, 0.0
        return found

    def _ends(self, sampling: Sampling) -> bool:
        """Whether the end of the call is that of a gen, too: it was not cut, and whatever ended it
        begins with a stop of the gen, or is the model's own end."""
        is_stop = all(text.startswith(sampling.stop) for text in self._closings)
        return not self._is_cut and (is_stop or not self._num_gens)

    def _use(self, num: int) -> None:
        num_tokens = num * self._tokens_per_character
        self._prompt_tokens += num_tokens
        self._wasted -= num_tokens
        self._text = self._text[num:]

    def _planned(self, gens: Sequence[Sampling], constants: Sequence[str]) -> Plan:
        """The call that writes all gens, and the constants between them."""
        template = Template(tuple(gens), tuple(constants))
        overrun = sum(gen.max_tokens or 0 for gen in gens[1:])
        overrun += sum(round(len(text) / _CHARACTERS) + 1 for text in constants[:-1])
        if self._limit is not True:
            overrun = min(overrun, self._limit)
        most = (gens[0].max_tokens or 0) + overrun
        return Plan(replace(gens[0], stop=template.closings(), max_tokens=most), template)


def is_unopened(reply: Reply) -> bool:
    """Whether a backend refused a call because it continues no message."""
    error = reply.error() if reply.done() else None
    return isinstance(error, UnsupportedCall) and error.field == "prompt.open_last"


def without_opening(prompt: Prompt) -> tuple[Chat, str]:
    """The chat with its last message empty, and the text that this had: the model is to write it
    anew."""
    assert isinstance(prompt, Chat)
    *before, last = prompt.messages
    lead = "".join(segment.text for segment in last.content if isinstance(segment, Text))
    return replace(prompt, messages=(*before, replace(last, content=()))), lead


def leave_when(follower: Follower, reply: Reply) -> None:
    """Cancel a reply once its follower has no use for more. One whose chunks cannot be followed
    ends by itself."""

    def take(chunks: Sequence[Chunk]) -> None:
        if not is_left and any(follower.take(chunk.text) for chunk in chunks):
            is_left.append(True)
            reply.cancel()

    is_left = list[bool]()
    follow: Callable[[Callable[[Sequence[Chunk]], None]], None] | None
    follow = getattr(reply, "follow", None)
    if follow is not None:
        follow(take)


def is_plain(sampling: Sampling) -> bool:
    """Whether the answers of such gens may be parts of a longer one."""
    is_measured = sampling.logprobs is not None or sampling.log_mass
    return not (sampling.n > 1 or is_measured or sampling.min_tokens or sampling.ignore_eos)


def is_speculative(node: Gen) -> bool:
    """Whether a gen's answer may be a part of a longer one."""
    is_bare = node.constraint is None and node.split is None and node.scored_from is None
    return is_bare and not node.resample and not node.stream


def pays(totals: Mapping[str, float]) -> bool:
    """Whether a run's speculation saved more than it cost, an output token being four input
    tokens."""
    return totals.get("wasted_tokens", 0) * _DEARER <= totals.get("saved_tokens", 0)


def _sampling_of(node: object, defaults: Mapping[str, Any]) -> Sampling | None:
    """The sampling of a queued gen that may be a part of a longer answer; None of other nodes."""
    if not isinstance(node, Gen) or node.backend is not None or not is_speculative(node):
        return None
    found = Sampling(**{**defaults, **node.sampling})
    return found if is_plain(found) and found.max_tokens is not None else None


def _common(sampling: Sampling) -> Sampling:
    """What all gens of one call share."""
    return replace(sampling, stop=(), max_tokens=None)
