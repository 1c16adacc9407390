"""Pictures as arrays, and their keys."""

import numpy as np

from forkroot.core.api.media import Media, media_keys, with_pictures


def frames(value: int = 0, count: int = 1) -> np.ndarray:
    return np.full((count, 4, 6, 3), value, np.uint8)


def test_equal_pictures_have_equal_digests_and_others_do_not() -> None:
    first, same = Media.of("image", frames(3)), Media.of("image", frames(3))
    changed = frames(3)
    changed[0, 3, 5, 2] += 1
    others = [
        Media.of("image", changed),
        Media.of("video", frames(3)),
        Media.of("image", frames(3).reshape(1, 6, 4, 3)),
        Media.of("video", frames(3, 2), (0.0, 1.0)),
        Media.of("video", frames(3, 2), (0.0, 2.0)),
    ]
    assert first.digest == same.digest
    assert others[-1].seconds == (0.0, 2.0)
    assert len({first.digest, *(it.digest for it in others)}) == 6


def test_keys_of_pictures_lie_outside_the_vocabulary_and_depend_on_all_that_features_do() -> None:
    keys = media_keys(b"a" * 32, b"s", 500, 4096)
    assert keys.dtype == np.int32
    assert keys.min() >= 4096
    assert len(set(keys.tolist())) == 500
    assert np.array_equal(keys[:7], media_keys(b"a" * 32, b"s", 7, 4096))
    for digest, settings in ((b"b" * 32, b"s"), (b"a" * 32, b"t")):
        assert not set(keys.tolist()) & set(media_keys(digest, settings, 500, 4096).tolist())


def test_features_in_a_text_are_counted() -> None:
    ids = [97, 300, 301, 302, 98, 5000]
    shown = with_pictures(lambda run: bytes(run).decode(), ids, 257)
    assert shown == "a[image x 3]b[image x 1]"
