"""Properties of the programs that a server keeps: as a plain model of it, step by step."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from forkroot.adapters.http.programs.store import Key, ProgramStore
from forkroot.core.api.protocol import CallTooLarge

MOST, MOST_BYTES, MOST_TENANTS = 3, 100, 3
KEYS = st.builds(Key, st.sampled_from("abcde"), st.sampled_from(("", "n")), st.sampled_from("123"))


class Store(RuleBasedStateMachine):
    """The store beside lists of what each tenant has, the last used at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.store = ProgramStore[str](MOST, MOST_BYTES, MOST_TENANTS)
        self.kept: OrderedDict[str, OrderedDict[Key, int]] = OrderedDict()

    @rule(key=KEYS, size=st.integers(1, MOST_BYTES))
    def put(self, key: Key, size: int) -> None:
        self.store.put(key, f"{key}", size)
        own = self.kept.setdefault(key.tenant, OrderedDict())
        own[key] = size
        self.touch(key)
        while len(own) > MOST or sum(own.values()) > MOST_BYTES:
            own.popitem(last=False)
        while len(self.kept) > MOST_TENANTS:
            self.kept.popitem(last=False)
        assert self.store.get(key) == f"{key}"

    @rule(key=KEYS)
    def put_what_is_too_large(self, key: Key) -> None:
        with pytest.raises(CallTooLarge):
            self.store.put(key, "x", MOST_BYTES + 1)

    @rule(key=KEYS)
    def get(self, key: Key) -> None:
        is_kept = key in self.kept.get(key.tenant, {})
        assert self.store.get(key) == (f"{key}" if is_kept else None)
        if is_kept:
            self.touch(key)

    @rule(key=KEYS)
    def remove(self, key: Key) -> None:
        is_kept = key in self.kept.get(key.tenant, {})
        assert self.store.remove(key) is is_kept
        self.kept.get(key.tenant, OrderedDict[Key, int]()).pop(key, None)

    def touch(self, key: Key) -> None:
        self.kept[key.tenant].move_to_end(key)
        self.kept.move_to_end(key.tenant)

    @invariant()
    def bounds_hold_and_sizes_are_those_of_the_model(self) -> None:
        self.store.check()
        for tenant in "abcde":
            assert self.store.num_bytes(tenant) == sum(self.kept.get(tenant, {}).values())


TestStore = Store.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
