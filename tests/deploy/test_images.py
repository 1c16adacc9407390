"""The Dockerfile and the compose file: what a linter would say, and that they fit the server."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from forkroot.__main__ import _parser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("replica-0", "replica-1", "router")
TARGETS = ("cpu", "cuda")


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage of the Dockerfile, by its name."""
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", " ", text)
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found[rest.split(" AS ")[1]] = []
        list(found.values())[-1].append((word, rest))
    return found


def of(stage: str, word: str) -> list[str]:
    return [rest for name, rest in stages()[stage] if name == word]


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_runs_as_nobody_with_a_health_check_and_no_shell_between(target: str) -> None:
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", of(target, "USER")[-1])
    words = [word for word, _ in stages()[target]]
    assert "ADD" not in words
    after = words[words.index("USER") :]
    assert "RUN" not in after and "COPY" not in after
    (entry,), (command,) = of(target, "ENTRYPOINT"), of(target, "CMD")
    assert json.loads(entry) == ["tini", "--", "forkroot"]
    options = _parser().parse_args(json.loads(command))
    assert (options.host, options.model) == ("0.0.0.0", "tiny")
    assert of(target, "EXPOSE") == [str(options.port)]
    assert of(target, "STOPSIGNAL") == ["SIGTERM"]
    (health,) = of(target, "HEALTHCHECK")
    program = json.loads(health.partition(" CMD ")[2])
    compile(program[2], "health", "exec")
    assert f"http://127.0.0.1:{options.port}/health" in program[2]
    (volume,) = of(target, "VOLUME")
    assert f"HF_HOME={volume}/" in of(target, "ENV")[-1]


@pytest.mark.parametrize("target", TARGETS)
def test_layers_are_small_and_requirements_come_before_the_package(target: str) -> None:
    runs = of(target, "RUN")
    system = next(it for it in runs if "apt-get" in it)
    parts = ("apt-get update", "--no-install-recommends", "rm -rf /var/lib/apt/lists/*")
    assert all(part in system for part in parts)
    installs = [it for it in runs if "pip install" in it]
    assert [f"/requirements/{target}.txt" in it for it in installs] == [True, False]
    assert "--no-deps" in installs[1]
    assert "constraints-cpu.txt" in installs[0]
    assert all("--mount=type=cache" in it or "--no-cache-dir" in it for it in installs)


def test_base_images_have_tags_and_copied_files_are_there() -> None:
    arguments = dict(it.split("=", 1) for it in of("", "ARG"))
    assert all(re.search(r":[\w.-]*\d", image) for image in arguments.values())
    assert set(stages()) == {"", "wheel", "requirements", *TARGETS}
    for stage in stages():
        for copied in of(stage, "COPY"):
            *sources, _ = copied.split()
            assert all((ROOT / it).exists() for it in sources)


def test_requirements_are_those_of_the_package_and_of_extras_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scope: dict[str, Any] = {"__name__": "requirements"}
    exec((FOLDER / "requirements.py").read_text("utf-8"), scope)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for line in re.findall(r"requirements\.py ([\w -]+) >", of("requirements", "RUN")[0]):
        extras = line.split()
        found = scope["requirements"](ROOT / "pyproject.toml", extras)
        assert found[: len(project["dependencies"])] == project["dependencies"]
        assert all(it in found for name in extras for it in project["optional-dependencies"][name])


@pytest.mark.parametrize("name", OURS)
def test_a_service_of_ours_has_arguments_of_the_command_line(name: str) -> None:
    service = SERVICES[name]
    command = [re.sub(r"\$\{\w+:-(.+?)\}", r"\1", it) for it in service["command"]]
    options = _parser().parse_args(command)
    assert options.host == "0.0.0.0"
    assert int(service["stop_grace_period"].removesuffix("s")) > options.drain
    build = service["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    assert build["target"] == "${FORKROOT_TARGET:-cpu}"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]


def test_what_services_name_is_declared() -> None:
    for kind in ("networks", "volumes", "secrets"):
        named = {it.partition(":")[0] for one in SERVICES.values() for it in one.get(kind, ())}
        declared = {it for it in named if not it.startswith(".")}
        assert declared == set(COMPOSE[kind])
        for path in named - declared:
            assert (FOLDER / path).exists()
    for one in SERVICES.values():
        for source in (it.partition(":")[0] for it in one.get("volumes", ())):
            assert not source.startswith("./") or (FOLDER / source).exists()
        assert set(one.get("depends_on", ())) <= set(SERVICES)
        assert "build" in one or re.search(r":v?\d[\w.]+$", one["image"])


def test_the_router_has_every_replica_and_no_replica_has_an_open_port() -> None:
    replicas = [name for name in SERVICES if name.startswith("replica-")]
    wanted = [f"--replica=http://{name}:30000" for name in replicas]
    router = SERVICES["router"]
    assert [it for it in router["command"] if it.startswith("--replica")] == wanted
    assert set(router["depends_on"]) == set(replicas)
    assert all("ports" not in SERVICES[name] for name in replicas)
    assert COMPOSE["networks"]["engines"]["internal"] is True
    for one in SERVICES.values():
        assert all(it.startswith("127.0.0.1:") for it in one.get("ports", ()))


def test_prometheus_asks_the_services_that_there_are() -> None:
    scraping = yaml.safe_load((FOLDER / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (job,) = scraping["scrape_configs"]
    targets = [it for group in job["static_configs"] for it in group["targets"]]
    assert sorted(targets) == sorted(f"{name}:30000" for name in OURS)
    (secret,) = SERVICES["prometheus"]["secrets"]
    assert job["authorization"]["credentials_file"] == f"/run/secrets/{secret}"
    for path in scraping["rule_files"]:
        assert (FOLDER / "prometheus" / Path(path).name).exists()


def test_no_secret_is_written_down() -> None:
    for one in SERVICES.values():
        for name, value in one.get("environment", {}).items():
            if re.search(r"KEY|PASSWORD", name):
                assert re.fullmatch(r"\$\{\w+:\?.+\}", value), name
