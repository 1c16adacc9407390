"""Conversations of four turns, with short and with long answers."""

from __future__ import annotations

from . import native, sources
from .texts import Texts
from .workload import Workload

TURNS, SHORTEST, LONGEST = 4, 256, 512


def chat(texts: Texts) -> Workload:
    """Answers of 8 tokens."""
    return _chat(texts, "chat short", "Chat, short answers", 8, texts.num(1, 6, 20))


def long_chat(texts: Texts) -> Workload:
    """Answers of 256 tokens, or 64 in a quick run, where the context has room for them."""
    length = min(texts.num(256, 64, 256), texts.context_len // (2 * TURNS))
    return _chat(texts, "chat long", "Chat, long answers", length, texts.num(1, 1, 12))


def _chat(texts: Texts, name: str, title: str, length: int, count: int) -> Workload:
    source, known = sources.code_prompts()
    pieces = known or [str(texts.rng.random()) * 20 for _ in range(200)]
    room = texts.context_len // TURNS - length - 16
    low, high = min(SHORTEST, room // 2), min(LONGEST, room)
    turns = [
        [_turn(texts, pieces, texts.rng.randint(low, high)) for _ in range(TURNS)]
        for _ in range(count)
    ]
    note = f"{source}: turns of {low} to {high} tokens"
    return Workload(
        name,
        title,
        native.chat,
        [{"turns": it, "length": length} for it in turns],
        lambda state: str(state.text()),
        note,
        width=20,
    )


def _turn(texts: Texts, pieces: list[str], length: int) -> str:
    """A text of about so many tokens that no other turn has."""
    text = ""
    while texts.size(text) < length:
        text += texts.rng.choice(pieces)
    return texts.cut(text, length)
