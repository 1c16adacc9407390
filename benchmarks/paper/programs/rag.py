"""Retrieval-augmented generation as a DSPy program: not one of the native language."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import forkroot
from forkroot.adapters.connection import Lent
from forkroot.core.api.protocol import Backend, Call, Reply, Usage
from forkroot.examples.retrieval import Passage, Ranking

from ..engines import Engine
from . import sources
from .texts import Texts
from .workload import Outcome, Workload, is_equal

PASSAGES = Path(forkroot.__file__).parent / "examples" / "passages"
NUM_DEMOS, NUM_PASSAGES, MAX_TOKENS = 4, 3, 64


class Counting(Lent):
    """As the backend; sums up what its calls used."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.usage, self.num_calls = Usage(), 0

    def submit(self, call: Call) -> Reply:
        """As the backend's own."""
        reply = super().submit(call)
        if call.sampling.max_tokens != 0:
            reply.when_done(self._count)
        return reply

    def _count(self, reply: Reply) -> None:
        if reply.error() is None:
            self.usage += reply.result().usage
            self.num_calls += 1


class DspyWorkload(Workload):
    """A workload whose program is a DSPy module; an item is its keyword arguments."""

    __slots__ = ()

    def run(self, engine: Engine, width: int | None = None, is_cleared: bool = True) -> Outcome:
        """As `Workload.run`."""
        import dspy

        from forkroot.adapters.dspy import LM

        module, counting = self.program(), Counting(engine.for_program())
        lm = LM(counting, temperature=0, hints=engine.hints, cache=False, max_tokens=MAX_TOKENS)
        batch = dspy.Parallel(num_threads=width or self.width, disable_progress_bar=True)
        examples = [dspy.Example(**item).with_inputs(*item) for item in self.items]
        with (
            engine.awake() if is_cleared else nullcontext(),
            dspy.context(lm=lm),
            redirect_stdout(sys.stderr),
        ):
            before, started = engine.cpu(), time.perf_counter()
            found = batch([(module, example) for example in examples])
            seconds = time.perf_counter() - started
            cpu = engine.cpu() - before
        answers = [self.answer(it) for it in found]
        used = counting.usage
        usage = {
            "calls": counting.num_calls,
            "prompt_tokens": used.prompt_tokens,
            "cached_tokens": used.cached_tokens,
            "completion_tokens": used.completion_tokens,
        }
        return Outcome(seconds, cpu, answers, self._scores(answers), usage)


def rag(texts: Texts) -> Workload:
    """Questions about the passages in the box: three passages each, four demonstrations."""
    passages = [Passage.read(path) for path in sorted(PASSAGES.glob("*.txt"))]
    pairs = [(text, answer) for it in passages for text, answer in it.questions.items()]
    texts.rng.shuffle(pairs)
    demos, asked = pairs[:NUM_DEMOS], pairs[NUM_DEMOS:]
    some = asked[: texts.num(2, 12, 40)]
    return DspyWorkload(
        "dspy rag",
        "RAG, a DSPy program",
        _module(Ranking(passages), demos),
        [{"question": text} for text, _ in some],
        lambda found: str(found.answer),
        f"{sources.SYNTHETIC}: the passages in the box",
        [answer for _, answer in some],
        is_equal,
        frozenset({"regex"}),
    )


def _module(ranking: Ranking, demos: list[tuple[str, str]]) -> Callable[[], Any]:
    """What makes the program of DSPy's own example, with demonstrations."""

    def make() -> Any:
        import dspy

        class RAG(dspy.Module):  # type: ignore[misc]
            """Retrieves passages and answers from them."""

            def __init__(self) -> None:
                super().__init__()
                self.respond = dspy.Predict("context, question -> answer")
                self.respond.demos = [
                    {"context": context_of(text), "question": text, "answer": answer}
                    for text, answer in demos
                ]

            def forward(self, question: str) -> Any:
                return self.respond(context=context_of(question), question=question)

        return RAG()

    def context_of(question: str) -> str:
        return "\n".join(it.text.strip() for it in ranking.best(question, NUM_PASSAGES))

    return make
