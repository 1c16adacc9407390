"""Import paths that pages named before the modules moved give the same objects as the new ones."""

from __future__ import annotations

from importlib import import_module

import pytest

OLDER = {
    "core.protocol": "core.api.protocol",
    "core.calls": "core.api.calls",
    "core.prompts": "core.api.prompts",
    "core.errors": "core.api.errors",
    "core.config": "core.api.config",
    "adapters.http.runtime": "adapters.http.server.runtime",
}


@pytest.mark.parametrize("older", OLDER)
def test_an_older_path_gives_the_same_objects(older: str) -> None:
    before, now = (import_module(f"forkroot.{name}") for name in (older, OLDER[older]))
    defined = {
        name
        for name, value in vars(now).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == now.__name__
    }
    assert before.__all__ and defined <= set(before.__all__)
    assert set(getattr(now, "__all__", [])) <= set(before.__all__)
    for name in before.__all__:
        assert getattr(before, name) is getattr(now, name)
