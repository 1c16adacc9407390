"""Digests of prefixes: short keys and long ones have the same."""

import os

import pytest

from forkroot.core.common.digests import CHUNK, DIGEST, digests


@pytest.mark.parametrize("num", [0, 1, 3, 4, 5, 40])
@pytest.mark.parametrize("rest", [0, 1, CHUNK - 1])
def test_a_key_begins_with_the_digests_of_its_prefixes(num, rest):
    key = os.urandom(CHUNK * num + rest)
    found = digests(key)
    assert len(found) == num * DIGEST
    for end in range(num):
        assert digests(key[: CHUNK * end]) == found[: DIGEST * end]


def test_other_chunks_have_other_digests():
    keys = [bytes([number]) * CHUNK for number in range(256)]
    assert len({digests(key) for key in keys}) == len(keys)
    assert digests(memoryview(keys[7])) == digests(keys[7])
