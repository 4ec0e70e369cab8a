"""What an operator applies: deploy/base as kustomize puts it together, and what the image is built from."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from visibility_api.cli import main
from visibility_api.server import DRAIN_S
from visibility_api.settings import Settings, read_settings

ROOT = Path(__file__).parents[2]
Objects = dict[tuple[str, str], dict[str, Any]]


def render(directory: Path) -> str:
    """deploy/base with a certificate of its own."""
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if kubectl is None:
        pytest.skip("no kubectl here")
    for part in ("apiservice", "deploy/base"):
        shutil.copytree(ROOT / part, directory / part, ignore=shutil.ignore_patterns("tls"))
    assert main(["certificate", "--out", str(directory / "deploy/base/tls")]) == 0
    command = [kubectl, "kustomize", str(directory / "deploy/base")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    found = yaml.safe_load_all(render(tmp_path_factory.mktemp("deploy")))
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in found}


def server_pod(objects: Objects) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment", "visibility-api"]["spec"]["template"]["spec"]
    return pod


def settings(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> Settings:
    (container,) = server_pod(objects)["containers"]
    command, *flags = container["args"]
    assert command == "serve"
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    return read_settings(flags, {})


def test_the_apiservice_trusts_the_ca_of_the_certificate_and_no_other(objects: Objects) -> None:
    spec = objects["APIService", "v1alpha1.visibility.trainer.kubeflow.org"]["spec"]
    secret = objects["Secret", "visibility-api-tls"]["data"]
    assert base64.b64decode(spec["caBundle"]) == base64.b64decode(secret["ca.crt"])
    assert "insecureSkipTLSVerify" not in spec
    assert (spec["service"]["namespace"], spec["service"]["name"]) == (
        "trainjob-visibility",
        "visibility-api",
    )


def test_the_flags_are_ones_the_server_takes_and_its_end_fits_into_the_grace(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: terminationGracePeriodSeconds must exceed delay and drain."""
    serving = settings(objects, monkeypatch).serving
    pod = server_pod(objects)
    assert pod["terminationGracePeriodSeconds"] > serving.shutdown_delay_s + DRAIN_S
    (container,) = pod["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "https": serving.secure_port
    }


def test_the_service_finds_the_pods_by_the_name_of_their_port(objects: Objects) -> None:
    (port,) = objects["Service", "visibility-api"]["spec"]["ports"]
    labels = objects["Deployment", "visibility-api"]["spec"]["template"]["metadata"]["labels"]
    assert (port["name"], port["port"], port["targetPort"]) == ("https", 443, "https")
    assert objects["Service", "visibility-api"]["spec"]["selector"].items() <= labels.items()
    assert objects["PodDisruptionBudget", "visibility-api"]["spec"]["selector"]["matchLabels"] == labels


def test_pods_of_its_priority_are_admitted_where_only_a_quota_allows_them(objects: Objects) -> None:
    spec = objects["ResourceQuota", "visibility-api-critical-pods"]["spec"]
    (scope,) = spec["scopeSelector"]["matchExpressions"]
    assert server_pod(objects)["priorityClassName"] in scope["values"]
    assert int(spec["hard"]["pods"]) > 2 * objects["Deployment", "visibility-api"]["spec"]["replicas"]


def test_the_server_is_given_these_rights_and_no_other(objects: Objects) -> None:
    """A right that is missing shows in e2e; one too many would show nowhere else."""
    subjects = [{"kind": "ServiceAccount", "name": "visibility-api", "namespace": "trainjob-visibility"}]
    granted = [
        thing["roleRef"]["name"]
        for (kind, _), thing in objects.items()
        if kind in ("ClusterRoleBinding", "RoleBinding")
    ]
    assert all(
        thing["subjects"] == subjects
        for (kind, _), thing in objects.items()
        if kind in ("ClusterRoleBinding", "RoleBinding")
    )
    assert sorted(granted) == [
        "extension-apiserver-authentication-reader",
        "system:auth-delegator",
        "trainjob-visibility:server",
        "trainjob-visibility:source-exec",
    ]
    rules = [
        (group, resource, tuple(rule["verbs"]))
        for name in ("server", "source-exec")
        for rule in objects["ClusterRole", f"trainjob-visibility:{name}"]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
    assert rules == [
        ("trainer.kubeflow.org", "trainjobs", ("list", "watch")),
        ("jobset.x-k8s.io", "jobsets", ("list", "watch")),
        ("", "pods", ("list", "watch")),
        ("", "pods/exec", ("get", "create")),
    ]


def test_the_image_is_built_with_the_setuptools_that_was_tested() -> None:
    pinned = [
        line
        for line in (ROOT / "requirements/build.txt").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert pinned[0].startswith("setuptools==")
    assert "\n".join(pinned) in (ROOT / "requirements/dev.txt").read_text()
    assert "--no-build-isolation" in (ROOT / "Dockerfile").read_text()
