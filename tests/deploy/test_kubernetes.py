"""The Kubernetes manifests: each fits its schema, and all fit one another and the server."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from forkroot.__main__ import _parser

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
VERSIONS = ("1.30", "1.34")
OBJECTS = ("namespace.yaml", "secret.yaml", "replicas.yaml", "router.yaml", "network.yaml")
NOT_OBJECTS = {"kustomization.yaml", "prometheus-adapter.yaml", "scrape.yaml"}
Object = dict[str, Any]


def read(name: str) -> list[Object]:
    return list(yaml.safe_load_all((FOLDER / name).read_text("utf-8")))


MANIFESTS = [it for name in OBJECTS for it in read(name)]
WORKLOADS = [it for it in MANIFESTS if "template" in it.get("spec", {})]


def name_of(manifest: Object) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def found(kind: str, name: str) -> Object:
    (one,) = (it for it in MANIFESTS if name_of(it) == f"{kind} {name}")
    return one


def container(workload: Object) -> Object:
    (one,) = workload["spec"]["template"]["spec"]["containers"]
    return dict(one)


def each_workload(function: Any) -> Any:
    return pytest.mark.parametrize("workload", WORKLOADS, ids=name_of)(function)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=name_of)
def test_a_manifest_fits_its_schema(manifest: Object, version: str) -> None:
    kubernetes_validate.validate(manifest, version, strict=True)


def test_the_checker_refuses_a_field_that_there_is_not() -> None:
    manifest = found("Deployment", "forkroot-router")
    broken = {**manifest, "spec": {**manifest["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSIONS[0], strict=True)


def test_every_file_is_applied_or_known_to_be_for_others() -> None:
    (kustomization,) = read("kustomization.yaml")
    assert kustomization["resources"] == list(OBJECTS)
    assert {it.name for it in FOLDER.iterdir()} == {*OBJECTS, *NOT_OBJECTS}
    assert all(
        it["metadata"].get("namespace") == "forkroot"
        for it in MANIFESTS
        if it["kind"] != "Namespace"
    )


@each_workload
def test_the_arguments_are_those_of_the_command_line(workload: Object) -> None:
    options = _parser().parse_args(container(workload)["args"])
    assert options.host == "0.0.0.0"
    grace = workload["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > options.drain + seconds_of_hook(workload)


def seconds_of_hook(workload: Object) -> float:
    command = container(workload)["lifecycle"]["preStop"]["exec"]["command"]
    if command[0] == "forkroot":
        return float(_parser().parse_args(command[1:]).wait)
    assert command[0] == "sleep"
    return float(command[1])


@each_workload
def test_probes_ask_routes_that_the_server_has_at_its_port(workload: Object) -> None:
    one = container(workload)
    (port,) = one["ports"]
    assert port["containerPort"] == _parser().parse_args(["serve"]).port
    asked = {name: one[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {it["port"] for it in asked.values()} == {port["name"]}
    paths = {name: it["path"] for name, it in asked.items()}
    assert paths == {"startup": "/health", "liveness": "/health", "readiness": "/ready"}
    source = Path(__file__).parents[2] / "adapters" / "http" / "forkroot" / "operation.py"
    assert set(paths.values()) <= set(re.findall(r'router\.get\("(.+?)"\)', source.read_text()))


@each_workload
def test_a_pod_has_few_rights_and_bounded_resources(workload: Object) -> None:
    pod, one = workload["spec"]["template"]["spec"], container(workload)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["automountServiceAccountToken"] is False
    security = one["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    for kind in ("requests", "limits"):
        assert {"cpu", "memory"} <= set(one["resources"][kind])


@each_workload
def test_what_a_pod_mounts_and_which_keys_it_reads_are_there(workload: Object) -> None:
    pod, one = workload["spec"]["template"]["spec"], container(workload)
    claims = workload["spec"].get("volumeClaimTemplates", [])
    volumes = {it["name"] for it in pod["volumes"]} | {it["metadata"]["name"] for it in claims}
    assert {it["name"] for it in one["volumeMounts"]} == volumes
    secret = found("Secret", "forkroot-keys")["stringData"]
    read_keys = [
        it["valueFrom"]["secretKeyRef"]
        for it in one["env"]
        if "secretKeyRef" in it.get("valueFrom", {})
    ]
    assert read_keys
    for key in read_keys:
        assert (key["name"], key["key"] in secret) == ("forkroot-keys", True)


@pytest.mark.parametrize(
    "manifest",
    [it for it in MANIFESTS if it["kind"] in ("Service", "PodDisruptionBudget", "NetworkPolicy")],
    ids=name_of,
)
def test_a_selector_selects_the_pods_of_one_workload(manifest: Object) -> None:
    spec = manifest["spec"]
    selector = spec.get("podSelector", spec.get("selector"))
    labels = selector.get("matchLabels", selector)
    pods = [it["spec"]["template"]["metadata"]["labels"] for it in WORKLOADS]
    assert sum(labels.items() <= pod.items() for pod in pods) == 1


def test_the_router_is_given_the_name_of_every_replica_that_may_be() -> None:
    replicas, router = (
        found("StatefulSet", "forkroot-replica"),
        found("Deployment", "forkroot-router"),
    )
    scaler = found("HorizontalPodAutoscaler", "forkroot-replica")["spec"]
    assert scaler["scaleTargetRef"]["name"] == replicas["metadata"]["name"]
    assert "replicas" not in replicas["spec"]  # an apply would undo what the autoscaler did
    name, service = replicas["metadata"]["name"], replicas["spec"]["serviceName"]
    headless = found("Service", service)["spec"]
    assert headless["clusterIP"] == "None"
    (port,) = headless["ports"]
    wanted = [
        f"--replica=http://{name}-{index}.{service}:{port['port']}"
        for index in range(scaler["maxReplicas"])
    ]
    assert [it for it in container(router)["args"] if it.startswith("--replica=")] == wanted


def test_the_autoscaler_counts_by_the_metric_that_the_adapter_makes() -> None:
    (metric,) = found("HorizontalPodAutoscaler", "forkroot-replica")["spec"]["metrics"]
    (values,) = read("prometheus-adapter.yaml")
    (rule,) = values["rules"]["custom"]
    series = rule["seriesQuery"].partition("{")[0]
    made = re.sub(rule["name"]["matches"], rule["name"]["as"].replace("${1}", r"\1"), series)
    assert metric["pods"]["metric"]["name"] == made
    assert series in rule["metricsQuery"]


def test_scraping_sets_the_labels_that_alerts_and_panels_select_by() -> None:
    jobs = read("scrape.yaml")[0]
    secret = found("Secret", "forkroot-keys")["stringData"]
    for job in jobs:
        targets = {it.get("target_label") for it in job["relabel_configs"]}
        assert {"role", "pod", "namespace"} <= targets
        assert Path(job["authorization"]["credentials_file"]).name in secret


def test_the_schema_checker_is_the_installed_one() -> None:
    assert importlib.util.find_spec("kubernetes_validate") is not None
