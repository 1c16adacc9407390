"""Questions answered from passages that are looked up first, with LangChain: a RAG pipeline.

    python -m forkroot.examples.rag_langchain

`chain.batch` hands all prompts over at once: the worked example is computed once for all of them,
and each passage once for the questions that it answers. The embedded model is tiny: it reads one
passage at a time, about the people of its made-up world, and knows nothing of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console

from ..adapters.langchain import Forkroot
from .retrieval import Ranking, load_passages
from .savings import (
    Done,
    Options,
    RunContext,
    compare,
    needed,
    run_example,
    show_savings,
    show_table,
)

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import PromptTemplate
    from langchain_core.runnables import Runnable, RunnableLambda
except ImportError as error:
    needed("langchain", error)

PROMPT = PromptTemplate.from_template(
    "Anna lives in Lyon. Anna is 31 years old and works as a pilot. Anna belongs to the house of"
    " Frost.\nQuestion: How old is Anna?\nAnswer: 31\n\n"
    "{passage}\nQuestion: {question}\nAnswer:"
)
QUESTIONS = dict(item for passage in load_passages() for item in passage.questions.items())


@dataclass(frozen=True, slots=True)
class Answered:
    """A question, the name of the passage that was found for it, and what the model read there."""

    question: str
    passage: str
    answer: str


class Meter(BaseCallbackHandler):  # type: ignore[misc,unused-ignore]
    """Adds up the prompt tokens that the answers report."""

    def __init__(self) -> None:
        self.calls = self.prompt_tokens = self.cached_tokens = 0

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        """Count one answer."""
        usage = response.generations[0][0].generation_info["usage_metadata"]
        self.calls += 1
        self.prompt_tokens += usage["input_tokens"]
        self.cached_tokens += usage["input_token_details"]["cache_read"]


def retriever() -> Runnable[str, dict[str, str]]:
    """From a question to what the prompt is made of, and the passage's name."""
    ranking = Ranking(load_passages())

    def retrieve(question: str) -> dict[str, str]:
        best = ranking.best(question)[0]
        return {"question": question, "name": best.name, "passage": best.text}

    return RunnableLambda(retrieve)


def answer_all(context: RunContext, questions: Sequence[str]) -> Done[list[Answered]]:
    """Run the pipeline on all questions at once."""
    llm = Forkroot(
        model=context.backend, settings=context.settings, temperature=0, max_tokens=12, stop=["\n"]
    )
    meter = Meter()
    found = retriever().batch(list(questions))
    answers = (PROMPT | llm | StrOutputParser()).batch(
        found,
        {"callbacks": [meter], "metadata": {"forkroot": {"namespace": context.namespace}}},
    )
    answered = [
        Answered(it["question"], it["name"], text.strip())
        for it, text in zip(found, answers, strict=True)
    ]
    return Done(answered, meter.calls, meter.prompt_tokens, meter.cached_tokens)


def example(options: Options, console: Console) -> None:
    """Answer the questions with the cache and without, and print answers and savings."""
    questions = list(QUESTIONS)[: options.limit]
    compared = compare(options, lambda context: answer_all(context, questions))
    rows = [
        (it.question, it.passage, it.answer, "" if it.answer == QUESTIONS[it.question] else "wrong")
        for it in compared.answers
    ]
    show_table(console, "What was read", ("question", "passage", "answer", ""), rows)
    num_right = sum(not row[-1] for row in rows)
    console.print(f"{num_right} of {len(rows)} are right.")
    show_savings(console, compared)


main = partial(run_example, __doc__, example)


if __name__ == "__main__":
    sys.exit(main())
