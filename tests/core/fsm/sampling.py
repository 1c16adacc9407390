"""Answers of random bytes, and whether an answer is taken, by a vocabulary of single bytes."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import numpy as np

from forkroot.core.api.protocol import CallFailed, JsonSchema
from forkroot.core.fsm.constraints import Constraints
from forkroot.core.fsm.guide import Guide

END = 256
TOKENS = [*(bytes([byte]) for byte in range(END)), b""]
CONSTRAINTS = Constraints(TOKENS, [END], lambda text: list(text.encode()))


def json_of(text: object) -> str:
    return json.dumps(text, ensure_ascii=False, separators=(",", ":"))


def takes(guide: Guide, text: str) -> bool:
    try:
        return guide.cursor(text.encode()).is_accepting
    except CallFailed:
        return False


def sampled(guide: Guide, random: Random, count: int, budget: int = 60) -> list[str]:
    """Texts of random bytes, of those that are allowed."""
    found = []
    for _ in range(count):
        cursor, data = guide.cursor(), b""
        for left in range(budget, 0, -1):
            bits = np.unpackbits(cursor.mask_within(left).view(np.uint8), bitorder="little")
            token = random.choice(np.flatnonzero(bits).tolist() or [END])
            if token == END:
                break
            cursor.advance(token)
            data += TOKENS[token]
        if cursor.is_accepting:
            found.append(data.decode())
    return found


def check_schema(
    schema: dict[str, Any], good: list[Any], bad: list[Any], random: Random, budget: int
) -> None:
    """Of these values the schema's answers may be the good ones, and all answers are valid."""
    guide = CONSTRAINTS.guide(JsonSchema(schema))
    validator = jsonschema.Draft202012Validator(schema)
    assert [it for it in good if not validator.is_valid(it)] == []
    assert [it for it in (*good, *bad) if takes(guide, json_of(it))] == good
    for text in sampled(guide, random, 6, budget):
        assert validator.is_valid(json.loads(text)), text
