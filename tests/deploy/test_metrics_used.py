"""Dashboard, alerts and autoscaler ask only for metrics that a server with a router exports."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from forkroot.adapters.http.server.runtime import Runtime
from forkroot.adapters.router.router import Router
from forkroot.core.local import LocalBackend
from forkroot.core.process.supervisor import Engine, RestartingBackend

from ..serving import serving

FOLDER = Path(__file__).parents[2] / "deploy"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana/dashboards/forkroot.json").read_text("utf-8"))
ALERTS: dict[str, Any] = yaml.safe_load((FOLDER / "prometheus/alerts.yml").read_text("utf-8"))


def queries() -> Iterator[tuple[str, str]]:
    """Every query, with where it stands."""
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for rule in ALERTS["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]
    adapter = yaml.safe_load((FOLDER / "kubernetes/prometheus-adapter.yaml").read_text("utf-8"))
    for rule in adapter["rules"]["custom"]:
        yield "adapter", rule["seriesQuery"]
        yield "adapter", rule["metricsQuery"]


@pytest.fixture(scope="module")
def exported() -> Iterator[dict[str, set[str]]]:
    """The labels of each sample that a router over a restarting engine exports after two requests,
    one of which is refused."""
    engine = LocalBackend.from_folder("tiny", dtype="float32", num_slots=4000)
    restarting = RestartingBackend(lambda: cast(Engine, engine))
    with Router([restarting]) as router:
        runtime = Runtime(router, engine.tokenizer, ("tiny",))
        with serving(runtime) as url:
            for prompt in ("Hello", 7.5):
                body = {"prompt": prompt, "max_tokens": 2}
                httpx.post(f"{url}/v1/completions", json=body, timeout=60)
            router.reset_counters()
            page = httpx.get(f"{url}/metrics").text
    samples = [it for one in text_string_to_metric_families(page) for it in one.samples]
    found: dict[str, set[str]] = {}
    for sample in samples:
        found.setdefault(sample.name, set()).update(sample.labels)
    yield found


def test_every_metric_that_is_asked_for_is_exported(exported: dict[str, set[str]]) -> None:
    asked = {name: place for place, query in queries() for name in metrics_of(query)}
    assert len(asked) > 20
    missing = {name: place for name, place in asked.items() if name not in exported}
    assert missing == {}


def metrics_of(query: str) -> list[str]:
    return re.findall(r"\bforkroot_\w+", query)


def test_every_label_that_is_asked_for_is_exported_or_set_by_scraping(
    exported: dict[str, set[str]],
) -> None:
    scraped = {"role", "instance", "job", "namespace", "pod"}
    for place, query in queries():
        asked = set(re.findall(r"[{,](\w+)=", re.sub(r"\s", "", query)))
        for group in re.findall(r"by \((.*?)\)", query):
            asked |= {it.strip() for it in group.split(",") if "<" not in it}
        known = scraped.union(*(exported[name] for name in metrics_of(query)))
        assert asked <= known, place


def test_panels_lie_side_by_side_and_have_names_of_their_own() -> None:
    panels = BOARD["panels"]
    assert len({it["id"] for it in panels}) == len({it["title"] for it in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_board_uses_the_provisioned_source_and_lies_where_grafana_looks() -> None:
    sources = yaml.safe_load(
        (FOLDER / "grafana/provisioning/datasources/prometheus.yml").read_text("utf-8")
    )["datasources"]
    used = {it["datasource"]["uid"] for panel in BOARD["panels"] for it in panel["targets"]}
    assert used == {it["uid"] for it in sources}
    (provider,) = yaml.safe_load(
        (FOLDER / "grafana/provisioning/dashboards/forkroot.yml").read_text("utf-8")
    )["providers"]
    mounts = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]["grafana"]
    assert f"./grafana/dashboards:{provider['options']['path']}:ro" in mounts["volumes"]
