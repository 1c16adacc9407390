"""Arrays and pictures of batches as plain data, for the messages between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...api.batch import Batch
from ...api.media import Encode, Layout, MediaSpan, Pixels


class MediaMessages:
    """One end of a stream of batches: the pixels of a picture are sent with the first of its units,
    and kept at the other end until its last one, or until it is dropped."""

    def __init__(self) -> None:
        self._pixels: dict[bytes, Pixels] = {}

    def message(self, batch: Batch) -> Any:
        """The fields of a batch that concern pictures."""
        self._drop(batch.dropped)
        encodes = []
        for it in batch.encodes:
            is_new = it.digest not in self._pixels
            encodes.append((it.digest, it.units.start, it.units.stop, _pixels(it, is_new)))
            self._keep(it)
        media = [(span.start, span.end, span.digest, span.offset) for span in batch.media]
        parts = None if batch.parts is None else plain_of(batch.parts)
        return list(batch.dropped), encodes, media, parts

    def fields(self, message: Any) -> dict[str, Any]:
        """These fields at the other end."""
        dropped, plain_encodes, media, parts = message
        self._drop(dropped)
        encodes = []
        for digest, start, stop, plain in plain_encodes:
            pixels = self._pixels[digest] if plain is None else _pixels_of(plain)
            encodes.append(Encode(digest, pixels, range(start, stop)))
            self._keep(encodes[-1])
        return {
            "dropped": tuple(dropped),
            "encodes": tuple(encodes),
            "media": tuple(MediaSpan(*span) for span in media),
            "parts": None if parts is None else array_of(parts).reshape(3, -1),
        }

    def _drop(self, digests: Any) -> None:
        for digest in digests:
            self._pixels.pop(digest, None)

    def _keep(self, encode: Encode) -> None:
        self._pixels[encode.digest] = encode.pixels
        if encode.units.stop == len(encode.pixels.layout.unit_costs):
            del self._pixels[encode.digest]


def plain_of(array: np.ndarray[Any, Any]) -> tuple[str, bytes]:
    """An array of one dimension, or of a known shape, as plain data."""
    return array.dtype.str, np.ascontiguousarray(array).tobytes()


def array_of(plain: tuple[str, bytes]) -> np.ndarray[Any, Any]:
    """The numbers of such an array, in one dimension."""
    kind, data = plain
    return np.frombuffer(bytearray(data), kind)


def _pixels(encode: Encode, is_new: bool) -> Any:
    if not is_new:
        return None
    pixels = encode.pixels
    arrays = [(name, list(it.shape), plain_of(it)) for name, it in pixels.arrays.items()]
    return arrays, plain_of(pixels.layout.ids), list(pixels.layout.unit_costs)


def _pixels_of(plain: Any) -> Pixels:
    arrays, ids, unit_costs = plain
    found = {name: array_of(data).reshape(shape) for name, shape, data in arrays}
    return Pixels(found, Layout(array_of(ids), tuple(unit_costs)))
