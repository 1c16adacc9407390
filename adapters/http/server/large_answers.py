"""Large JSON answers, such as log-probabilities of long prompts: made in a thread, and encoded a
piece at a time, so that no other request waits for them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastapi.responses import JSONResponse, Response

from ....core.api.protocol import Completion
from .workers import SMALL, Workers

_BYTES_OF_SCORE = 64  # of a token's log-probability in JSON, about
_ITEMS = 256  # that are encoded at a time: the encoder holds the interpreter lock
_PIECE = 1 << 15  # characters, after which other threads have their turn
_REST = 0.0005  # seconds
_encode = json.JSONEncoder(separators=(",", ":")).encode


class Answer(JSONResponse):
    """A body in ASCII: it can also hold what a client sent that is not text."""

    def render(self, content: Any) -> bytes:
        """The body's bytes."""
        return _encode(content).encode("ascii")


async def answer(
    workers: Workers, completions: Iterable[Completion], make: Callable[[], Any]
) -> Response:
    """The response with what `make` makes of these completions: at once, or in a thread where they
    have many log-probabilities."""
    size = _BYTES_OF_SCORE * sum(map(_num_scores, completions))
    if size <= SMALL:
        return Answer(make())
    body = await workers.run(size, lambda: _encoded(make()))
    return Response(body, media_type=Answer.media_type)


def json_pieces(value: Any) -> Iterator[str]:
    """The JSON of a value, in pieces that take little time each."""
    if isinstance(value, dict) and value:
        sign = "{"
        for key, item in value.items():
            yield f"{sign}{_encode(key)}:"
            yield from json_pieces(item)
            sign = ","
        yield "}"
    elif isinstance(value, list) and value:
        sign = "["
        for item in _parts(value):
            yield sign
            yield from item
            sign = ","
        yield "]"
    else:
        yield _encode(value)


def _parts(values: list[Any]) -> Iterator[Iterable[str]]:
    """Items that may be large one by one, others many at a time."""
    if isinstance(values[0], dict) and any(isinstance(it, dict) for it in values[0].values()):
        yield from map(json_pieces, values)
        return
    for start in range(0, len(values), _ITEMS):
        yield (_encode(values[start : start + _ITEMS])[1:-1],)


def _encoded(content: Any) -> bytes:
    pieces: list[str] = []
    size = 0
    for piece in json_pieces(content):
        pieces.append(piece)
        size += len(piece)
        if size >= _PIECE:
            size = 0
            time.sleep(_REST)
    return "".join(pieces).encode("ascii")


def _num_scores(completion: Completion) -> int:
    own = sum(len(it.logprobs) for it in completion.outputs)
    return own + len(completion.prompt_logprobs) * max(1, len(completion.outputs))
