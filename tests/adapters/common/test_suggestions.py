"""Errors of unknown names have a suggestion, and where the name belongs."""

from __future__ import annotations

from dataclasses import fields

import pytest

from forkroot.adapters.connection import suggestion
from forkroot.core.api.config import EngineConfig
from forkroot.core.api.keywords import ENGINE_SETTINGS

KNOWN = ("temperature", "max_tokens", "stop", "num_retries")


def test_settings_of_the_engine_are_those_of_its_config_and_of_connect() -> None:
    assert len(set(ENGINE_SETTINGS)) == len(ENGINE_SETTINGS)
    of_connect = {"process", "restart", "revision", "replicas", "policy"}
    assert set(ENGINE_SETTINGS) == {item.name for item in fields(EngineConfig)} | of_connect


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("temprature", "; did you mean temperature?"),
        ("max_new_tokens", "; did you mean max_tokens?"),
        ("base_url", "; pass the URL of a server as the model"),
        ("colour", ""),
    ],
)
def test_a_name_gets_the_similar_one_as_suggestion(name: str, expected: str) -> None:
    assert suggestion(name, KNOWN) == expected


@pytest.mark.parametrize("name", ENGINE_SETTINGS)
def test_a_setting_of_the_engine_is_reported_with_where_it_goes(name: str) -> None:
    assert f"settings={{'{name}': ...}}" in suggestion(name, KNOWN)
    assert f"connect(..., {name}=...)" in suggestion(name, KNOWN)
    assert f"settings={{'{name}': ...}}" in suggestion(name + "s", KNOWN)


def test_a_name_that_is_known_here_comes_before_one_elsewhere() -> None:
    assert suggestion("timeout", ("deadline",)) == "; did you mean deadline?"
    assert suggestion("stop_sequences", ("stops",)) == ""
    assert suggestion("seeds", ("seed",)) == "; did you mean seed?"
