"""`visibility-api check` by an administrator's kubeconfig, against what kube-apiserver itself says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e.api import write_kubeconfig
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import APISERVICE_PATH, NAMESPACE, without
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace
from tests.service.test_deploy import ROOT

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/visibility-api"


@pytest.fixture
def kubeconfig(cluster: Cluster, server: VisibilityServer, tmp_path: Path) -> Iterator[Path]:
    """Of an administrator, while there is a Deployment whose pods a kubelet would say are ready."""
    if cluster.kind != "real":
        pytest.skip(
            "only kube-apiserver has reviews of rights as it grants them, and conditions of APIServices"
        )
    deployment = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] = ["serve", "--sources=status", "--sources=push", "--sources=exec"]
    deployment["spec"]["replicas"] = 1
    cluster.admin.apply(DEPLOYMENT, deployment)
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    cluster.admin.patch(f"{DEPLOYMENT}/status", {"status": status})
    pair = cluster.admin_pair
    yield write_kubeconfig(tmp_path / "admin.kubeconfig", url=cluster.url, ca_file=cluster.ca_file, cert=pair)
    cluster.admin.delete(DEPLOYMENT)
    server.register()


def check(kubeconfig: Path) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit code, and what is said of each link: the state, and what it says."""
    command = [sys.executable, "-m", "visibility_api", "check", "--kubeconfig", str(kubeconfig), "-o", "json"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.stderr == ""
    return told.returncode, {each["link"]: (each["state"], each["says"]) for each in json.loads(told.stdout)}


def test_what_is_installed_is_found_good(kubeconfig: Path, workspace: Workspace) -> None:
    exit_code, found = check(kubeconfig)
    assert {link for link, (state, _) in found.items() if state == "fault"} == set()
    assert exit_code == 0
    assert found["APIService"] == ("ok", "the APIService is Available")
    assert found["rights"][0] == "ok"
    assert found["answers"][0] == "ok"


def test_faults_that_were_put_in_are_named(cluster: Cluster, kubeconfig: Path) -> None:
    with without(cluster.admin, "source-push"):
        exit_code, found = check(kubeconfig)
        assert exit_code == 1
        assert "may not get pods; get jobs; get jobsets" in found["rights"][1]
    spec = cluster.admin.get(APISERVICE_PATH)["spec"]
    cluster.admin.patch(APISERVICE_PATH, {"spec": {"service": {"port": 1}}})
    wait_until(
        lambda: "names port 1, but" in check(kubeconfig)[1]["APIService"][1], what="another port is named"
    )
    cluster.admin.patch(APISERVICE_PATH, {"spec": {"service": spec["service"], "caBundle": None}})
    wait_until(
        lambda: "kube-apiserver does not reach the server" in check(kubeconfig)[1]["APIService"][1],
        what="the condition of the APIService is told",
    )
    assert "has no caBundle" in check(kubeconfig)[1]["certificate"][1]
