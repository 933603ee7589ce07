"""The chart: rendered by helm itself, with every branch, and held to Kubernetes' schemas and its restricted profile."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runekeep_server.settings import load_settings
from runekeep_storage.migrations.migrate import MIGRATION_SECONDS
from tests.deploy.tools import DEPLOY, bundled, installed, ran, run

pytestmark = pytest.mark.deploy

CHART = DEPLOY / "helm" / "runekeep"
PLAIN = DEPLOY / "kubernetes" / "runekeep.yaml"
VALUES = {"defaults": None, "embedded": CHART / "ci" / "embedded.yaml", "everything": CHART / "ci" / "everything.yaml"}
OF_OTHERS = {"Certificate"}
"""Kinds that are not Kubernetes' own, so that its schemas know nothing of them."""


def rendered(name: str) -> str:
    values = VALUES[name]
    return run(
        *(bundled("helm"), "template", "runekeep", CHART, "--namespace", "memory"),
        *(["--values", values] if values else []),
    )


@pytest.fixture(scope="module", params=list(VALUES))
def manifests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    file = tmp_path_factory.mktemp("chart") / "rendered.yaml"
    file.write_text(rendered(request.param))
    return request.param, file


def objects(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


def pods(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for one in objects(file):
        if "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def test_helm_finds_no_fault() -> None:
    run(
        bundled("helm"),
        "lint",
        CHART,
        "--strict",
        *(part for file in VALUES.values() if file for part in ("--values", file)),
    )


def test_the_schemas_of_kubernetes_know_every_field(manifests: tuple[str, Path]) -> None:
    said = run(installed("kubernetes-validate"), "--strict", manifests[1])
    assert {line.split("kind ")[1].split()[0] for line in said.splitlines() if "find schema" in line} <= OF_OTHERS
    passed = [line for line in said.splitlines() if "passed for resource" in line]
    own = [one for one in objects(manifests[1]) if one["kind"] not in OF_OTHERS]
    assert len(passed) == len(own) >= 6


def test_pods_keep_to_the_restricted_profile(manifests: tuple[str, Path]) -> None:
    found = list(pods(manifests[1]))
    assert len(found) == 2
    for name, pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert key not in pod, name
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"], name
            assert ("@sha256:" in container["image"]) == (manifests[0] == "everything"), name
            # The number that the image's own user has.
            user = f"USER {pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
            assert user in (DEPLOY / "image" / "Dockerfile").read_text()
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claimed = [one for one in objects(manifests[1]) if one["kind"] == "StatefulSet"]
            templates = {t["metadata"]["name"] for one in claimed for t in one["spec"].get("volumeClaimTemplates", [])}
            assert mounted - templates <= {volume["name"] for volume in pod["volumes"]}, name
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected"}


def test_extractors_see_no_key_of_the_server(manifests: tuple[str, Path]) -> None:
    name, file = manifests
    found = dict(pods(file))
    server, extractor = projected(found["runekeep"]), projected(found["runekeep-extractor"])
    mesh = name == "everything"
    authority = "runekeep-authority" if mesh else "runekeep-tls"
    assert server == {"tls.crt": "runekeep-tls", "tls.key": "runekeep-tls", "ca.crt": authority}
    own = {"tls.crt": "runekeep-extractor-tls", "tls.key": "runekeep-extractor-tls"} if mesh else {}
    assert extractor == {"ca.crt": authority, **own}
    for pod, files in ((found["runekeep"], server), (found["runekeep-extractor"], extractor)):
        used = set(re.findall(r"/certificates/([\w.]+)", json.dumps(pod)))
        assert used <= set(files)


def projected(pod: dict[str, Any]) -> dict[str, str]:
    """The Secret of each file in /certificates."""
    (volume,) = [one for one in pod["volumes"] if one["name"] == "certificates"]
    return {
        item["path"]: source["secret"]["name"]
        for source in volume["projected"]["sources"]
        for item in source["secret"]["items"]
    }


def test_a_server_that_migrates_is_not_ended(manifests: tuple[str, Path]) -> None:
    (container,) = dict(pods(manifests[1]))["runekeep"]["containers"]
    probe = container["startupProbe"]
    allowed = probe["periodSeconds"] * probe["failureThreshold"]
    assert allowed > MIGRATION_SECONDS
    for one in objects(manifests[1]):
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "runekeep":
            assert one["spec"]["progressDeadlineSeconds"] > allowed


def test_nothing_is_ended_before_it_has_drained(manifests: tuple[str, Path]) -> None:
    for name, pod in pods(manifests[1]):
        (container,) = pod["containers"]
        waits = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        drains = extractor_grace(container) if name.endswith("extractor") else settings(manifests[1])["drain_seconds"]
        assert pod["terminationGracePeriodSeconds"] >= waits + drains + 10, name


def extractor_grace(container: dict[str, Any]) -> int:
    (grace,) = [one["value"] for one in container["env"] if one["name"] == "RUNEKEEP_EXTRACTOR_GRACE"]
    return int(grace)


def settings(file: Path) -> dict[str, Any]:
    (config,) = [one for one in objects(file) if one["kind"] == "ConfigMap"]
    loaded: dict[str, Any] = yaml.safe_load(config["data"]["settings.yaml"])
    return loaded


def test_the_server_takes_the_settings_file(
    manifests: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, file = manifests
    written = tmp_path / "settings.yaml"
    written.write_text(yaml.safe_dump(settings(file)))
    pod = dict(pods(file))["runekeep"]
    secrets = {"RUNEKEEP_STORE_URL": "postgresql://a@b/c"}
    keys = {"RUNEKEEP_ADMIN_KEY": "a" * 48, "RUNEKEEP_WORKER_KEY": "b" * 48}
    given = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert ("RUNEKEEP_STORE_URL" in given) == (name != "embedded")
    assert ("RUNEKEEP_WORKER_KEY" in given) == (name != "everything")
    for variable, value in {**secrets, **keys}.items():
        if variable in given:
            monkeypatch.setenv(variable, value)
    loaded = load_settings(written)
    assert (loaded.address, loaded.internal_address) == ("0.0.0.0:7433", "0.0.0.0:7434")
    assert bool(loaded.index_url) == (name != "embedded")
    assert (loaded.limits.account_calls_per_second, loaded.identity_mode) == {
        "defaults": (0, "keys"),
        "embedded": (50, "keys"),
        "everything": (0, "mesh"),
    }[name]


def test_services_and_policies_choose_the_pods_that_they_are_for(manifests: tuple[str, Path]) -> None:
    name, every = manifests[0], objects(manifests[1])
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in every
        if one["kind"] in ("Deployment", "StatefulSet")
    }
    for one in every:
        match one["kind"]:
            case "Service":
                selector, meant = one["spec"]["selector"], "runekeep"
            case "Deployment" | "StatefulSet":
                selector, meant = one["spec"]["selector"]["matchLabels"], one["metadata"]["name"]
            case "PodDisruptionBudget":
                selector, meant = one["spec"]["selector"]["matchLabels"], "runekeep"
            case "NetworkPolicy":
                selector, meant = one["spec"]["podSelector"]["matchLabels"], one["metadata"]["name"]
            case _:
                continue
        chosen = [name for name, has in labels.items() if selector.items() <= has.items()]
        assert chosen == [meant], f"{one['kind']} {one['metadata']['name']}"
    if name != "embedded":
        check_callers(name, every)
    references = json.dumps(every)
    assert '"stringData"' not in references and '"kind": "Secret"' not in references, "secrets come by reference"


def check_callers(name: str, every: list[dict[str, Any]]) -> None:
    """Checks that the policies name all callers. Users reach only the services for users, and only extractors and
    operators reach the internal address."""
    server, extractor = (one["spec"] for one in every if one["kind"] == "NetworkPolicy")
    (work, calls, _) = server["ingress"]
    assert [port["port"] for port in work["ports"] + calls["ports"]] == ["internal", "grpc"]
    own, *operators = work["from"]
    assert own["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "extractor"
    by_operator = {"podSelector": {"matchLabels": {"example.com/role": "operator"}}}
    assert operators == ([by_operator] if name == "everything" else [])
    assert all(peer != {"podSelector": {}} for peer in calls["from"]) and calls["from"]
    assert [port["port"] for rule in extractor["egress"] if "to" in rule for port in rule["ports"]] == ["internal"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (["server.identityMode=development"], "identityMode"),
        (["server.replica=3"], "replica"),
        (["indexUrl="], "indexUrl"),
        (["blobs.url="], "blobs"),
        (["extractor.concurrency=0"], "concurrency"),
        (["image.digest=sha256:1"], "digest"),
        (["server.preStopSeconds=0"], "preStopSeconds"),
        (["server.identityMode=mesh"], "extractor.tlsSecret"),
        (["server.tmpSize=4"], "tmpSize"),
        # A policy without clients would admit everybody.
        (["networkPolicy.clients=null"], "clients"),
        (["networkPolicy.clients={}"], "clients"),
    ],
)
def test_values_that_would_not_work_are_refused(values: list[str], told: str) -> None:
    refused = ran(
        bundled("helm"), "template", "runekeep", CHART, *(part for value in values for part in ("--set", value))
    )
    assert refused.returncode != 0 and told in refused.stderr


def test_the_plain_manifests_are_those_of_the_chart() -> None:
    # helm template runekeep deploy/helm/runekeep > deploy/kubernetes/runekeep.yaml
    assert PLAIN.read_text() == plain()


def plain() -> str:
    """The chart with its defaults, as docs/operate/deploying.md says how to render it."""
    return run(bundled("helm"), "template", "runekeep", CHART)
