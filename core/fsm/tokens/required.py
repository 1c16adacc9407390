"""Bytes that the next tokens must spell: what a token leaves of them, and which tokens can."""

from __future__ import annotations

from .vocabulary import Mask, Vocabulary


def left_over(required: bytes, data: bytes) -> bytes | None:
    """What is still required after a token of these bytes; None where it does not fit."""
    if data.startswith(required):
        return b""
    return required[len(data) :] if required.startswith(data) else None


def spelling(mask: Mask, required: bytes, vocabulary: Vocabulary) -> Mask:
    """Of the tokens in a mask, those by which the required bytes can come next."""
    return mask & vocabulary.pack(vocabulary.compatible(required)) if required else mask


def beginnings(data: bytes, vocabulary: Vocabulary) -> dict[int, bytes]:
    """The tokens that are a beginning of these bytes, and what each leaves of them."""
    sizes = range(1, min(len(data), vocabulary.longest) + 1)
    ids = vocabulary.ids
    return {ids[data[:size]]: data[size:] for size in sizes if data[:size] in ids}
