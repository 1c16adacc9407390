"""Programs that fork: trees and skeletons of thought, judges."""

from __future__ import annotations

from typing import Any

from forkroot.examples.essay_judge import DIMENSIONS, RUBRIC
from forkroot.models.training.world.judging import essay_judge
from forkroot.models.training.world.knowledge import tips, word_problem

from . import native, sources
from .few_shot import problems, same_number
from .texts import Texts
from .workload import Workload, is_equal


def tree_of_thought(texts: Texts) -> Workload:
    """Plans, solutions of each, judgements of each of these: three each; two in short runs."""
    source, pairs = sources.gsm8k(texts.settings.data)
    count = texts.num(1, 3, 16)
    shots = "".join(it.text.strip() + "\n\n" for it in texts.documents(word_problem, 2))
    made, answers = problems(texts, count)
    if texts.settings.data and pairs:
        made = [{"question": f"Question: {question}\nAnswer:"} for question, _ in pairs[:count]]
        answers = [answer for _, answer in pairs[:count]]
    else:
        source = sources.SYNTHETIC
    widths = (3, 3, 3) if texts.settings.mode == "full" else (2, 2, 2)
    items = [{"shots": shots, "widths": widths, "length": 48, **item} for item in made]
    return Workload(
        "tree of thought",
        "Tree of thought",
        native.tree_of_thought,
        items,
        lambda state: str(state.text()).rpartition("The answer is")[2],
        source,
        answers,
        same_number,
        width=4,
    )


def skeleton_of_thought(texts: Texts) -> Workload:
    """Tips about a topic, each expanded."""
    count = texts.num(1, 8, 32)
    found = sources.lines(texts.settings.data, "topic.jsonl")
    topics = [item["topic"] for item in found[:count]]
    source = f"topics in {texts.settings.data}/topic.jsonl" if topics else sources.SYNTHETIC
    documents = texts.documents(tips, 400)
    known = list(dict.fromkeys(it.text.partition("\n")[0][7:] for it in documents))
    head = next(it.text.strip() for it in documents if "Expand tip" in it.text) + "\n\n"
    topics = topics or (known * count)[:count]
    items = [{"shots": head, "topic": topic, "num": 3, "short": 16, "long": 64} for topic in topics]
    return Workload(
        "skeleton of thought",
        "Skeleton of thought",
        native.skeleton_of_thought,
        items,
        lambda state: str(state.text()),
        source,
        width=16,
    )


def judge(texts: Texts) -> Workload:
    """Essays judged along dimensions in branches, then graded."""
    count = texts.num(1, 8, 25)
    articles = sources.lines(texts.settings.data, "articles.jsonl")
    if articles:
        source, truths = f"articles in {texts.settings.data}/articles.jsonl", []
        essays = [f"Topic: an article\nEssay: {_cut(texts, text)}" for text in articles[:count]]
    else:
        source, found = sources.SYNTHETIC, list[tuple[str, str]]()
        while len(found) < count:
            found += _graded(texts.documents(essay_judge, count))
        essays, truths = map(list, zip(*found[:count], strict=True))
    items = [
        {"rubric": RUBRIC, "essay": essay, "dimensions": list(DIMENSIONS), "length": 32}
        for essay in essays
    ]
    return Workload(
        "llm judge",
        "LLM judge, branch-solve-merge",
        native.judge,
        items,
        lambda state: str(state["grade"]),
        source,
        truths,
        is_equal if truths else None,
        width=16,
    )


def _cut(texts: Texts, article: Any) -> str:
    return texts.cut(article if isinstance(article, str) else article["text"], 800)


def _graded(documents: list[Any]) -> list[tuple[str, str]]:
    """Essays with their grades, of those that are about their topic."""
    found = []
    for document in documents:
        for text in document.text.split("\n\n"):
            essay, _, rest = text.partition("\nRelated: yes")
            grade = rest.partition("\nGrade: ")[2][:1]
            if grade and essay.startswith("Topic:"):
                found.append((essay, grade))
    return found
