"""That the double of FlashInfer takes what the library takes."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import torch

from . import flashinfer_double
from .flashinfer_signatures import NEWEST, OLDEST, SIGNATURES

SAMPLING = "sampling."


def plain(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults, whatever the types."""
    return [(it.name, it.kind, it.default) for it in signature.parameters.values()]


@pytest.mark.parametrize("name", SIGNATURES[NEWEST])
def test_the_installed_library_takes_what_the_double_takes(name: str) -> None:
    library = pytest.importorskip("flashinfer")
    parent = import_module("flashinfer.sampling") if name.startswith(SAMPLING) else library
    found = inspect.signature(attrgetter(name.removeprefix(SAMPLING))(parent))
    wanted = SIGNATURES[NEWEST if version("flashinfer-python") == NEWEST else OLDEST][name]
    takes_any = any(it.kind is it.VAR_KEYWORD for it in found.parameters.values())
    by_name = {key: (place, default) for place, (key, _, default) in enumerate(plain(found))}
    double = attrgetter(name.removeprefix(SAMPLING))(flashinfer_double)
    known = inspect.signature(inspect.unwrap(double)).parameters
    for place, (key, kind, default) in enumerate(plain(wanted)):
        if key not in known or (takes_any and key not in by_name):
            continue
        assert by_name[key][1] == default
        assert kind is inspect.Parameter.KEYWORD_ONLY or by_name[key][0] == place


def test_the_packages_range_ends_with_the_newest_version_that_was_checked() -> None:
    text = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert re.findall(r'"flashinfer-python([^"]*)"', text) == [f">={OLDEST},<={NEWEST}"]


def test_a_wrong_call_fails_at_the_double() -> None:
    work = torch.zeros(8, dtype=torch.uint8)
    decode = flashinfer_double.BatchDecodeWithPagedKVCacheWrapper
    with pytest.raises(TypeError, match="tensor_cores"):
        decode(work, "NHD", tensor_cores=True)
    wrapper, ones = decode(work, backend="fa2"), torch.ones(1, dtype=torch.int32)
    with pytest.raises(TypeError, match="too many positional arguments"):
        wrapper.plan(torch.tensor([0, 1]).int(), ones, ones, 2, 1, 16, 1, "NONE")
    with pytest.raises(AssertionError, match=r"does not know .'q_scale'"):
        wrapper.run(torch.zeros(1, 2, 16), (ones, ones), q_scale=2.0)
