"""The page on plugins says what is there: its first plugin is installed and works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest

from forkroot.adapters import hookspecs

from ..preloaded import run as run_forked
from ..preloaded import start
from ..preloader import Forks
from ..quiet import unexpected

Run = Callable[..., str]
PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
USE = """
import forkroot
from forkroot.adapters.http.app import build_app
from forkroot.adapters.http.server.runtime import Runtime
from forkroot.benchmarks.common.fake_runner import byte_tokenizer
from fastapi.testclient import TestClient

with forkroot.connect("judge", num_slots=2000) as backend:
    call = forkroot.Call((forkroot.Text("Hello"),), forkroot.Sampling(max_tokens=2))
    print(backend.info().model, backend.submit(call).result(60).usage.completion_tokens)
    app = build_app(Runtime(backend, byte_tokenizer(), ("judge",)))
    with TestClient(app, base_url="http://localhost") as client:
        print(client.get("/nicknames").json())
"""
COMMANDS = """
from forkroot.__main__ import main

settings = ["--set", "num_slots=2000", "--set", "dtype=float32"]
assert main(["check", "judge", *settings]) == 0
print(end="\x1e", flush=True)
assert main(["chat", "judge", *settings]) == 0
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for a Python that has the page's plugin, and nothing else that we have not."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("target")
    for name, text in re.findall(r"^`([\w.]+)`\n```\w+\n(.*?)```$", PAGE, re.DOTALL | re.MULTILINE):
        (source / name).write_text(text, "utf-8")
    offline = ["--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *offline]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, timeout=100)
    path = os.pathsep.join(filter(None, [str(target), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}


@pytest.fixture
def run(forks: Forks | None, environment: Mapping[str, str]) -> Run:
    """run(words, stdin): what a Python with these words prints."""

    def run(*words: str, stdin: str = "") -> str:
        done = run_forked(forks, [sys.executable, *words], stdin, env=environment)
        assert unexpected(done.stderr) == ""
        return done.stdout

    return run


def test_the_first_plugin_gives_its_model_and_its_route(run: Run) -> None:
    assert run("-c", USE).splitlines() == ["tiny 2", "{'judge': 'tiny'}"]


def test_the_commands_take_its_name_for_a_model(run: Run) -> None:
    question = "What is the capital of France?\n"
    checked, chatted = run("-c", COMMANDS, stdin=question).split("\x1e")
    assert "8 tokens generated" in checked
    assert checked.endswith("It can be run.\n")
    assert "Paris" in chatted


def test_a_server_serves_it_under_that_name(
    environment: Mapping[str, str], forks: Forks | None
) -> None:
    command = [sys.executable, "-m", "forkroot", "serve", "judge", "--port", "0"]
    process = start(
        forks,
        [*command, "--set", "num_slots=2000"],
        env=environment,
        stdout=PIPE,
        stderr=PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        body = {"model": "judge", "prompt": "The capital of France is", "max_tokens": 3}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=280).json()
        assert (answer["model"], answer["usage"]["completion_tokens"]) == ("judge", 3)
        assert httpx.get(f"{url}/nicknames").json() == {"judge": "tiny"}
    finally:
        process.kill()
        process.communicate()


def test_the_command_lists_it_as_the_page_does(run: Run) -> None:
    listed = [line.rstrip() for line in run("-m", "forkroot", "plugins").splitlines()]
    (shown,) = (
        block.splitlines()[1:] for block in PAGE.split("```") if block.startswith("\nplugin  ")
    )
    by_name = {line.split()[0]: line.split() for line in shown}
    assert [line.split()[0] for line in listed] == list(by_name)
    assert listed[-1].split() == by_name["nicknames"]
    assert listed[1].split() == by_name["native"]


def test_the_page_names_every_hook_with_its_arguments() -> None:
    for name, function in vars(hookspecs).items():
        if hasattr(function, "forkroot_spec"):
            arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
            assert f"| `{name}({', '.join(arguments)})` |" in PAGE
