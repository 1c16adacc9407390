"""Parts of a runtime that plugins bring: chosen by name, in this process or another, or refused."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from forkroot.adapters import connection
from forkroot.adapters.hookspecs import hookimpl
from forkroot.adapters.registry import Registry
from forkroot.core.api.config import PARTS, EngineConfig
from forkroot.core.api.protocol import Call, Choices, InvalidCall, Regex, Sampling, Text
from forkroot.kernels.devices import sampler_for

from ..preloaded import run as run_forked
from ..preloader import Forks
from ..quiet import unexpected

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
ENTRY = "[forkroot.plugins]\nplainly = forkroot_plainly\n"
USE = """
import forkroot, sys

prompt = (forkroot.Text("The capital of France is"),)
call = forkroot.Call(prompt, forkroot.Sampling(8, temperature=0))
texts = []
for settings in ({}, {"attention": "plainly"}, {"attention": "plainly", "process": True}):
    with forkroot.connect("tiny", num_slots=2000, dtype="float32", **settings) as backend:
        texts.append(backend.submit(call).result(60).text)
    print("plainly_attention" in sys.modules, texts[-1] == texts[0])
print(sys.modules["plainly_attention"].Plainly.num_steps > 1)
try:
    forkroot.connect("tiny", attention="nonesuch")
except forkroot.InvalidCall as error:
    print(error)
"""
CONSTRAINTS = '''
from forkroot.core.fsm.tokens.regular import regular_guide
from forkroot.core.fsm.tokens.vocabulary import Vocabulary
from forkroot.core.api.protocol import Choices, InvalidCall, Regex


class Shouting:
    """Makes every regular expression one of capitals, and leaves all else to others."""

    def __init__(self, token_bytes, end_ids, encode):
        self.vocabulary = Vocabulary(token_bytes, end_ids)

    def __call__(self, constraint):
        if not isinstance(constraint, Regex):
            return None
        if constraint.pattern == "shy":
            raise InvalidCall("regex", "shy", "patterns that can be shouted")
        return regular_guide(Regex(constraint.pattern.upper()), self.vocabulary)


def broken(*given):
    raise ZeroDivisionError("no factory")
'''


class Parts:
    @hookimpl
    def register_backends(self, register: Any) -> None:
        register("attention", "fast", "nowhere:Fast", lambda: True)
        register("attention", "far", "nowhere:Far", lambda: False)
        register("attention", "mad", "nowhere:Mad", lambda: bool(1 / 0))
        register("constraint", "shouting", "shouting:Shouting", lambda: True)
        register("constraint", "broken", "shouting:broken", lambda: True)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Registry:
    """A registry with such parts, whose modules can be imported."""
    registry = Registry()
    registry.register(Parts(), "parts")
    (tmp_path / "shouting.py").write_text(CONSTRAINTS, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("forkroot.adapters.registry.registry", lambda: registry)
    return registry


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for a Python that has the page's plugin with an attention of its own."""
    target = tmp_path_factory.mktemp("target")
    found = re.findall(
        r"^`(\w*plainly\w*\.py)`\n```python\n(.*?)```$", PAGE, re.DOTALL | re.MULTILINE
    )
    for name, text in found:
        (target / name).write_text(text, "utf-8")
    known = target / "forkroot_plainly-1.0.dist-info"
    known.mkdir()
    (known / "METADATA").write_text("Metadata-Version: 2.1\nName: forkroot-plainly\nVersion: 1.0\n")
    (known / "entry_points.txt").write_text(ENTRY)
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}


def run(forks: Forks | None, environment: Mapping[str, str], *words: str) -> list[str]:
    done = run_forked(forks, [sys.executable, *words], env=environment)
    assert (done.returncode, unexpected(done.stderr)) == (0, "")
    return done.stdout.splitlines()


def test_the_attention_of_an_installed_plugin_runs_here_and_in_a_child(
    installed: Mapping[str, str], forks: Forks | None
) -> None:
    *expected, refusal = run(forks, installed, "-c", USE)
    assert expected == ["False True", "True True", "True True", "True"]
    assert "attention='nonesuch'" in refusal
    assert "auto, triton, flashinfer, plain, cpu, plainly" in refusal


def test_the_commands_know_it_too(installed: Mapping[str, str], forks: Forks | None) -> None:
    *_, listed = run(forks, installed, "-m", "forkroot", "plugins")
    assert listed.split() == ["plainly", "1.0", "attention", "plainly", "ready"]
    checked = run(forks, installed, "-m", "forkroot", "check", "--set", "attention=plainly")
    assert checked[-1] == "It can be run."


def test_parts_are_passed_as_the_paths_of_their_factories(own: Registry) -> None:
    assert own.resolved({"attention": "fast", "seed": 3}) == {
        "attention": "nowhere:Fast",
        "seed": 3,
    }
    for settings in ({"attention": "cpu"}, {"attention": "some.where:Else"}, {"attention": 7}, {}):
        assert own.resolved(settings) == settings


@pytest.mark.parametrize("name", ["nonesuch", "far", "mad"])
def test_what_is_nobodys_or_not_available_is_refused_with_what_is_there(
    own: Registry, name: str
) -> None:
    with pytest.raises(InvalidCall) as caught:
        connection.connect("tiny", attention=name)
    assert (caught.value.field, caught.value.value) == ("attention", name)
    assert caught.value.allowed == "auto, triton, flashinfer, plain, cpu, fast"
    assert "ZeroDivisionError" in str(own.plugins[0].fault)


@pytest.mark.parametrize("name", ["fast", "cpu", "a:b"])
def test_a_name_that_is_taken_or_looks_like_a_place_is_nobody_elses(
    own: Registry, name: str
) -> None:
    class Late:
        @hookimpl
        def register_backends(self, register: Any) -> None:
            register("attention", name, "nowhere:Late", lambda: True)

    own.register(Late(), "late")
    assert name in str(own.plugins[1].fault)
    assert own.plugins[1].parts == []


def test_a_plugin_may_compile_constraints_and_leave_others_to_us(own: Registry) -> None:
    def ask(constraint: Any) -> str:
        sampling = Sampling(max_tokens=8, temperature=0)
        call = Call((Text("Say: "),), sampling, constraint)
        return backend.submit(call).result(60).text

    with connection.connect("tiny", constraint="shouting", num_slots=2000) as backend:
        assert ask(Regex("(yes|no)")) in ("YES", "NO")
        assert ask(Choices(("yes", "no"))) in ("yes", "no")
        with pytest.raises(InvalidCall, match="can be shouted"):
            ask(Regex("shy"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"attention": "fast"}, "No module named 'nowhere'"),
        ({"constraint": "broken"}, "no factory"),
        ({"constraint": "string:nothing"}, "has no attribute"),
    ],
)
def test_a_factory_that_does_not_work_is_a_setting_that_is_refused(
    own: Registry, settings: dict[str, str], expected: str
) -> None:
    with pytest.raises(InvalidCall, match=expected) as caught:
        connection.connect("tiny", **settings)
    assert caught.value.field in settings


def test_tokens_are_sampled_by_others_on_a_gpu_only() -> None:
    assert sampler_for(torch.device("cuda"), "builtins:object") is not None
    with pytest.raises(InvalidCall, match="sampling"):
        sampler_for(torch.device("cpu"), "builtins:object")


def test_a_part_that_nobody_has_is_refused_with_how_to_name_a_factory() -> None:
    for kind in PARTS:
        with pytest.raises(InvalidCall, match="module:Factory"):
            EngineConfig.from_settings({kind: "nonesuch"})


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("attention", "tritn", "triton"),
        ("attention", "fas", "fast"),
        ("sampling", "flash_infer", "flashinfer"),
        ("constraint", "aut", "auto"),
    ],
)
def test_a_misspelled_part_is_refused_with_the_one_that_was_meant(
    own: Registry, kind: str, name: str, meant: str
) -> None:
    with pytest.raises(InvalidCall, match=f"; did you mean {meant}\\?$"):
        own.resolved({kind: name})
