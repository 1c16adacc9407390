"""Prompts of texts with {names} for arguments, as the tests of code movement write them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from forkroot.adapters.native.movement.cuts import cut
from forkroot.adapters.native.movement.parts import Piece, Placeholder, Stretch


def stretch_of(text: str, is_answered: bool = False) -> Stretch:
    """The parts of a text with {names}."""
    pieces: list[Piece] = []
    for index, piece in enumerate(re.split(r"\{(\w+)\}", text)):
        if index % 2:
            pieces.append(Placeholder(piece, len(pieces)))
        elif piece:
            pieces.append(piece)
    return cut(pieces, is_answered)


@pytest.fixture(scope="session")
def prompt() -> Callable[..., Stretch]:
    return stretch_of
