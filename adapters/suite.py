"""The suite that every adapter passes: subclass it in a test file, and define how to call a model.

It needs a fixture `backend` and runs on whatever backend that gives: in this process, in a child
process, behind a server. It knows the protocol; pytest only collects it.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import TestCase

from ..core.api.protocol import (
    Backend,
    Call,
    Chat,
    ForkrootError,
    InvalidCall,
    Message,
    Prompt,
    Reply,
    Sampling,
    Text,
)
from .connection import Lent
from .testing import ScriptedBackend

ENDLESS = 1500
TOPICS = ("cities", "rivers", "metals", "birds", "sums", "colours")


@dataclass(frozen=True, slots=True)
class Answer:
    """What an adapter's user learns of an answer."""

    text: str
    prompt_tokens: int
    cached_tokens: int


class AdapterSuite(ABC):
    """Tests of one adapter. A subclass gives the verbs; `Test` begins its name.

    max_tokens: of an answer, unless settings have another. bad_settings: that the adapter refuses,
    with bad_settings_error. closed_error: what a call to a closed backend ends in; None where the
    adapter cannot be made of a backend without a model. can_leave: whether what `stream` returns
    can be closed.
    """

    max_tokens = 12
    bad_settings: Mapping[str, Any] = {"temperature": -1.0}
    bad_settings_error: type[BaseException] = InvalidCall
    closed_error: type[BaseException] | None = ForkrootError
    can_leave = True

    # --- what a subclass gives ---------------------------------------------------------------

    @abstractmethod
    def make(self, backend: Backend) -> Any:
        """The adapter's model on a backend: greedy, of `max_tokens`, with no cache of its own."""

    @abstractmethod
    def ask(self, model: Any, text: str, **settings: Any) -> Answer:
        """The answer to one text. settings: `max_tokens`, and those of `bad_settings`."""

    @abstractmethod
    def stream(self, model: Any, text: str, **settings: Any) -> Iterable[str]:
        """The pieces of that answer, as they come; closing what is returned ends the call."""

    @abstractmethod
    def ask_all(self, model: Any, texts: Sequence[str]) -> Sequence[Answer]:
        """Answers to texts sent concurrently, in the framework's own way."""

    async def aask(self, model: Any, text: str) -> Answer:
        """`ask` in the framework's own asynchronous way; in a thread, where it has none."""
        return await asyncio.to_thread(self.ask, model, text)

    def prompt(self, text: str) -> Prompt:
        """What the adapter makes of a text."""
        return Chat((Message("user", (Text(text),)),))

    # --- answers -----------------------------------------------------------------------------

    def test_a_greedy_answer_is_the_backends_own(self, backend: Backend) -> None:
        model = self.make(backend)
        for topic in TOPICS:
            text = f"Tell me about {topic}."
            sampling = Sampling(max_tokens=self.max_tokens, temperature=0)
            found = backend.submit(Call(self.prompt(text), sampling)).result(60)
            answer = self.ask(model, text)
            assert answer.text == found.text
            assert answer.prompt_tokens == found.usage.prompt_tokens

    def test_what_is_streamed_adds_up_to_the_answer(self, backend: Backend) -> None:
        model = self.make(backend)
        text = "Tell me about the sea."
        assert "".join(self.stream(model, text)) == self.ask(model, text).text

    def test_concurrent_answers_equal_sequential_ones(self, backend: Backend) -> None:
        model = self.make(backend)
        texts = [self.long_text("together") + f" What of {topic}?" for topic in TOPICS]
        concurrent = [answer.text for answer in self.ask_all(model, texts)]
        assert concurrent == [self.ask(model, text).text for text in texts]

    def test_an_awaited_answer_is_the_same(self, backend: Backend) -> None:
        model = self.make(backend)
        texts = [f"Say something of {topic}." for topic in TOPICS]

        async def ask_all() -> list[Answer]:
            return await asyncio.gather(*(self.aask(model, text) for text in texts))

        awaited = [answer.text for answer in asyncio.run(ask_all())]
        assert awaited == [self.ask(model, text).text for text in texts]

    # --- sharing -----------------------------------------------------------------------------

    def test_a_second_call_with_the_same_beginning_reports_what_was_cached(
        self, backend: Backend
    ) -> None:
        model = self.make(backend)
        root = self.long_text("second")
        self.ask(model, root + " What is it about?")
        second = self.ask(model, root + " Who wrote it, and when?")
        assert 0.9 * second.prompt_tokens <= second.cached_tokens < second.prompt_tokens

    def test_a_batch_over_one_root_computes_it_once(self, backend: Backend) -> None:
        model = self.make(backend)
        root = self.long_text("batch")
        before = backend.info().counters["computed_tokens"]
        answers = self.ask_all(model, [f"{root} What of {topic}?" for topic in TOPICS])
        computed = backend.info().counters["computed_tokens"] - before
        longest = max(answer.prompt_tokens for answer in answers)
        assert computed < 2 * longest
        shared = [a for a in answers if a.cached_tokens >= 0.9 * a.prompt_tokens]
        assert len(shared) >= len(answers) - 1

    # --- endings -----------------------------------------------------------------------------

    def test_settings_that_are_not_allowed_end_in_a_typed_error(self, backend: Backend) -> None:
        model = self.make(backend)
        with TestCase().assertRaises(self.bad_settings_error):
            self.ask(model, "Hello", **self.bad_settings)
        assert self.ask(model, "Hello").text == self.ask(model, "Hello").text

    def test_a_stream_that_is_left_ends_its_call(self, backend: Backend) -> None:
        if not self.can_leave:
            return
        before = backend.info().counters["completion_tokens"]
        pieces = iter(self.stream(self.make(Endless(backend)), "Tell me a story."))
        next(pieces)
        getattr(pieces, "close", lambda: None)()
        wait_until_idle(backend)
        assert 0 < backend.info().counters["completion_tokens"] - before < ENDLESS

    def test_a_closed_backend_ends_a_call_in_a_typed_error(self) -> None:
        if self.closed_error is None:
            return
        backend = ScriptedBackend("never")
        model = self.make(backend)
        backend.close()
        with TestCase().assertRaises(self.closed_error):
            self.ask(model, "Hello")

    def long_text(self, topic: str) -> str:
        """Some hundred tokens that no other test has sent."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        lines = (
            f"In line {number} of {topic} stands number {number * 37}." for number in range(40)
        )
        return f"A text on {topic} for {name}. " + " ".join(lines)


class Endless(Lent):
    """A backend whose answers go on until they are cancelled, or to `ENDLESS` tokens."""

    def submit(self, call: Call) -> Reply:
        """A call that nothing but its length would end."""
        sampling = call.sampling
        if sampling.max_tokens != 0:
            sampling = replace(sampling, max_tokens=ENDLESS, ignore_eos=True, stop=())
        return super().submit(replace(call, sampling=sampling))


def wait_until_idle(backend: Backend, timeout: float = 30.0) -> None:
    """Wait until no call runs or waits. Raises AssertionError if one still does."""
    end = time.monotonic() + timeout
    while any(backend.info().load[name] for name in ("running", "waiting")):
        assert time.monotonic() < end, f"a call still runs after {timeout} s"
        time.sleep(0.02)
