"""Features of pictures on a device: encoded unit by unit, kept by digest until they are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from ...api.batch import Batch
from ...api.media import Encode, MediaSpan
from ..model import Model, VisionModel

MOST_TOKENS = 16_384  # of the tower in one pass, where memory suffices


class FeatureStore:
    """What batches encode and read. A picture whose last unit is missing keeps its units apart."""

    def __init__(self, model: Model) -> None:
        self._tower = model.tower if isinstance(model, VisionModel) else None
        self._units: dict[bytes, dict[int, Tensor]] = {}
        self._features: dict[bytes, Tensor] = {}

    def drop(self, digests: Iterable[bytes]) -> None:
        """Free what is stored of these pictures, where anything is."""
        for digest in digests:
            self._units.pop(digest, None)
            self._features.pop(digest, None)

    def encode(self, batch: Batch, most_tokens: int = MOST_TOKENS) -> None:
        """Run units that are not stored through the tower, at most so many of its tokens at once
        but one unit at least. Raises OutOfMemoryError; what was done before is stored."""
        for encodes in _passes(self._missing(batch.encodes), most_tokens):
            assert self._tower is not None, "a batch has pictures for a model of text"
            pixels, units = [it.pixels for it in encodes], [it.units for it in encodes]
            made = self._tower.encode(pixels, units)
            for encode, parts in zip(encodes, made, strict=True):
                self._units[encode.digest].update(zip(encode.units, parts, strict=True))
        for encode in batch.encodes:
            self._finish(encode)

    def of(self, spans: Sequence[MediaSpan]) -> list[Tensor]:
        """The features of these spans. Raises RuntimeError where some are not stored."""
        return [self._span(span) for span in spans]

    def has(self, spans: Sequence[MediaSpan]) -> bool:
        """Whether the features of these spans are stored."""
        return all(span.digest in self._features for span in spans)

    def _span(self, span: MediaSpan) -> Tensor:
        features = self._features.get(span.digest)
        if features is None:
            raise RuntimeError(f"the features of picture {span.digest.hex()} are not stored")
        return features[span.offset : span.offset + span.end - span.start]

    def _missing(self, encodes: Iterable[Encode]) -> Iterator[Encode]:
        for it in encodes:
            if it.digest in self._features:
                continue
            done = self._units.setdefault(it.digest, {})
            for unit in it.units:
                if unit not in done:
                    yield Encode(it.digest, it.pixels, range(unit, unit + 1))

    def _finish(self, encode: Encode) -> None:
        layout, units = encode.pixels.layout, self._units.get(encode.digest)
        count = len(layout.unit_costs)
        if units is None or len(units) < count:
            return
        assert self._tower is not None
        features = self._tower.features(encode.pixels, [units[unit] for unit in range(count)])
        if len(features) != layout.num_features:
            raise RuntimeError(f"a picture has {len(features)} features, not {layout.num_features}")
        self._features[encode.digest] = features
        del self._units[encode.digest]


def _passes(encodes: Iterable[Encode], most_tokens: int) -> Iterator[list[Encode]]:
    """Single units in passes of the tower, those of one picture joined."""
    parts: list[Encode] = []
    num_tokens = 0
    for it in encodes:
        cost = it.pixels.layout.unit_costs[it.units.start]
        if parts and num_tokens + cost > most_tokens:
            yield parts
            parts, num_tokens = [], 0
        num_tokens += cost
        last = parts[-1] if parts else None
        if last and last.digest == it.digest and last.units.stop == it.units.start:
            parts[-1] = Encode(it.digest, it.pixels, range(last.units.start, it.units.stop))
        else:
            parts.append(it)
    if parts:
        yield parts
