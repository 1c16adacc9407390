"""Structured outputs: a record by a regular expression, cities, three fields by an API model."""

from __future__ import annotations

import json
import re
from typing import Any

from forkroot.benchmarks.constraints.constraints import RECORD
from forkroot.benchmarks.programs import speculation
from forkroot.models.training.world.people import reading_json, reading_question

from . import native, sources
from .texts import Texts
from .workload import Workload

FIELDS = ("name", "age", "job", "city", "house")
EXTRACTED = ("job", "city", "house")
CITY_FIELDS = ("name", "country", "latitude", "population", "top 3 landmarks")


def character(texts: Texts) -> Workload:
    """A record of eleven fields by one regular expression, each about another text."""
    documents = texts.documents(reading_question, texts.num(1, 8, 50))
    items = [{"text": texts.cut(it.text, 80), "pattern": RECORD} for it in documents]
    return Workload(
        "json character",
        "JSON by a regular expression",
        native.character,
        items,
        lambda state: str(state["record"]),
        sources.SYNTHETIC,
        [RECORD] * len(items),
        lambda text, pattern: float(re.fullmatch(pattern, text) is not None),
        frozenset({"regex"}),
        16,
        paper="1.6× by the compressed FSM",
    )


def city(texts: Texts) -> Workload:
    """Five fields of a document."""
    count = texts.num(1, 8, 40)
    found = sources.lines(texts.settings.data, "questions.jsonl")
    documents = [item["document"] for item in found if "document" in item][:count]
    if documents:
        source, fields, truths = f"documents in {texts.settings.data}", CITY_FIELDS, []
        shown = [texts.cut(text, texts.context_len - 200) for text in documents]
    else:
        source, fields = sources.SYNTHETIC, FIELDS
        exams = texts.exams(reading_json, count)
        shown = [prompt.removesuffix("JSON:").rstrip() for prompt, _ in exams]
        truths = [answer for _, answer in exams]
    items = [{"document": text, "fields": list(fields), "length": 24} for text in shown]
    return Workload(
        "json city",
        "JSON of a document, five fields",
        native.city,
        items,
        lambda state: str(state.text()).rpartition("JSON: ")[2],
        source,
        truths,
        share_of_fields if truths else None,
        width=16,
    )


def share_of_fields(text: str, truth: str) -> float:
    """The share of the right record's fields that a text has."""
    right: dict[str, Any] = json.loads(truth)
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return 0.0
    return sum(bool(found.get(name) == value) for name, value in right.items()) / len(right)


def extraction(texts: Texts) -> Workload:
    """Three fields of a passage, as the paper extracts them with an API model."""
    passages = speculation.passages(texts.settings.seed)[: texts.num(1, 8, 40)]
    items = [
        {"example": speculation.EXAMPLE, **{name: it[name] for name in ("passage", "name", "age")}}
        for it in passages
    ]
    return Workload(
        "extraction",
        "Extraction of three fields",
        native.extraction,
        items,
        lambda state: "; ".join(state[name] for name in EXTRACTED),
        sources.SYNTHETIC,
        [it["passage"] for it in passages],
        lambda text, passage: sum(part in passage for part in text.split("; ")) / 3,
        width=16,
    )
