"""What the runner without a model checks of pictures in batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from forkroot.benchmarks.common.fake_features import FakeFeatures
from forkroot.core.api.batch import Batch
from forkroot.core.api.media import FEATURE, Encode, Layout, MediaSpan, Pixels, media_keys

DIGEST, OTHER = b"a" * 32, b"b" * 32
KEYS = media_keys(DIGEST, b"", 6, 300)
LAYOUT = Layout(np.array([7, *[FEATURE] * 6, 8], np.int32), (4, 4))


def encode(units: range, digest: bytes = DIGEST) -> Encode:
    return Encode(digest, Pixels({}, LAYOUT), units)


def batch(ids: Any = (), **fields: Any) -> Batch:
    none = np.empty(0, np.int32)
    longs = np.array(ids, np.int64)
    return Batch(
        longs, longs, none, none, none, none, np.empty((0, 0), np.int32), none, (), **fields
    )


def test_features_are_stored_once_their_last_unit_is_encoded_until_they_are_dropped() -> None:
    features = FakeFeatures(300)
    features.update(batch(encodes=(encode(range(1)),)))
    assert features.stored == set()
    features.update(batch(encodes=(encode(range(1, 2)), encode(range(2), OTHER))))
    assert (features.stored, features.num_units) == ({DIGEST, OTHER}, 4)
    ids = [5, *KEYS[2:5].tolist(), 5]
    features.update(batch(ids, media=(MediaSpan(1, 4, DIGEST, 2),)))
    features.update(batch(dropped=(DIGEST,), encodes=(encode(range(2), OTHER),)))
    assert (features.stored, features.num_units) == ({OTHER}, 4)
    features.update(batch(dropped=(OTHER,), encodes=(encode(range(2), OTHER),)))
    assert (features.stored, features.num_tower_tokens) == ({OTHER}, 24)


@pytest.mark.parametrize(
    ("ids", "fields"),
    [
        (KEYS, {}),
        (KEYS, {"media": (MediaSpan(0, 5, DIGEST, 0),)}),
        (KEYS, {"media": (MediaSpan(0, 6, OTHER, 0),)}),
        (KEYS, {"media": (MediaSpan(0, 6, DIGEST, 1),)}),
        (KEYS[::-1], {"media": (MediaSpan(0, 6, DIGEST, 0),)}),
        (KEYS, {"media": (MediaSpan(0, 6, DIGEST, 0),), "dropped": (DIGEST,)}),
        (KEYS[:2], {"media": (MediaSpan(1, 2, DIGEST, 1), MediaSpan(0, 1, DIGEST, 0))}),
        ([5, 6], {"media": (MediaSpan(0, 1, DIGEST, 0),)}),
        ([5, 6], {"parts": np.zeros((3, 1), np.int64)}),
        ([], {"encodes": (encode(range(1, 2), OTHER),)}),
        ([], {"encodes": (encode(range(3)),)}),
        ([], {"encodes": (encode(range(0)),)}),
    ],
)
def test_batches_that_read_what_is_not_there_are_refused(ids: Any, fields: dict[str, Any]) -> None:
    features = FakeFeatures(300)
    media = (MediaSpan(0, 6, DIGEST, 0),)
    features.update(batch(KEYS, encodes=(encode(range(2)),), media=media))
    with pytest.raises(AssertionError):
        features.update(batch(ids, **fields))
