"""Features of pictures without a tower: checks that batches encode them before they read them."""

from __future__ import annotations

from ...core.api.batch import Batch
from ...core.api.media import Encode


class FakeFeatures:
    """Which pictures' features a runner holds; asserts what `Batch` requires of its `dropped`,
    `encodes`, `media` and `parts`. first_key: ids from here on stand for features.

    stored: digests of pictures whose last unit is encoded, and which are not dropped.
    num_units: that went through the tower. num_tower_tokens: their costs.
    """

    def __init__(self, first_key: int) -> None:
        self.stored: set[bytes] = set()
        self.num_units = self.num_tower_tokens = 0
        self._first_key = first_key
        self._units: dict[bytes, set[int]] = {}
        self._num_features: dict[bytes, int] = {}
        self._owners: dict[int, tuple[bytes, int]] = {}  # of each key: picture and index in it

    def update(self, batch: Batch) -> None:
        """Drop, encode and check what the batch reads."""
        for digest in batch.dropped:
            self.stored.discard(digest)
            self._units.pop(digest, None)
        for encode in batch.encodes:
            self._encode(encode)
        is_key = batch.ids >= self._first_key
        end = 0
        for span in batch.media:
            assert end <= span.start < span.end <= len(batch.ids), "spans are not ascending"
            assert span.digest in self.stored, "a batch reads features that are not stored"
            num_read = span.offset + span.end - span.start
            assert 0 <= span.offset < num_read <= self._num_features[span.digest]
            for offset, key in enumerate(batch.ids[span.start : span.end].tolist(), span.offset):
                assert key >= self._first_key, "a token stands where a feature goes"
                owner = self._owners.setdefault(key, (span.digest, offset))
                assert owner == (span.digest, offset), "a key stands for two features"
            is_key[span.start : span.end], end = False, span.end
        assert not is_key.any(), "a key outside of the vocabulary is in no span"
        assert batch.parts is None or batch.parts.shape == (3, len(batch.ids))

    def _encode(self, encode: Encode) -> None:
        digest, layout, units = encode.digest, encode.pixels.layout, encode.units
        done, num_units = self._units.setdefault(digest, set()), len(layout.unit_costs)
        assert units and units.step == 1 and units.stop <= num_units, f"{units} of {num_units}"
        assert units.start == 0 or units.start - 1 in done, "units are not encoded in order"
        new = set(units) - done
        done |= new
        self.num_units += len(new)
        self.num_tower_tokens += sum(layout.unit_costs[unit] for unit in new)
        if len(done) == num_units:
            self.stored.add(digest)
            self._num_features[digest] = layout.num_features
