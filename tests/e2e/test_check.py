"""`visibility-api check` by an administrator: faults that are put in, and the command that mends each."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from tests.certificates import SERVER, Authority, now
from tests.e2e.api import Object, write_kubeconfig
from tests.e2e.crds import PATH as CRDS, Definitions
from tests.e2e.kube import find_binaries
from tests.e2e.manifests import (
    APISERVICE_PATH,
    NAMESPACE,
    ROOT,
    SERVICE_NAME,
    _external_service,
    _pointed_at,
    apply_rights,
    read_manifests,
)
from tests.e2e.processes import wait_until
from tests.e2e.real_cluster import RealCluster
from tests.e2e.renewal_drill import EXTENSION, SECRET, Installation
from tests.e2e.visibility_server import service_account_kubeconfig
from visibility_api.installation.look import Look
from visibility_api.installation.rights import check_rights
from visibility_api.kube.client import KubeClient

DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/visibility-api"
SERVICE = f"/api/v1/namespaces/{NAMESPACE}/services/visibility-api"
LIFETIME_S = 7 * 86400.0
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@dataclass
class Stage:
    """A cluster with an installation in it, and a shell of its administrator."""

    cluster: RealCluster
    installation: Installation
    directory: Path
    clock: Path  # how many seconds the replicas' clocks are ahead, where there is a libfaketime
    printed: list[str] = field(default_factory=list)

    def check(
        self, *more: str, kubeconfig: Path | None = None
    ) -> tuple[int, dict[str, tuple[str, str, str]]]:
        """The exit code, and of each link the state, what is said, and what to do."""
        command = [sys.executable, "-m", "visibility_api", "check", "-o", "json", *more]
        told = subprocess.run(
            [*command, "--kubeconfig", str(kubeconfig or self.directory / "admin.kubeconfig")],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert told.stderr == ""
        links = json.loads(told.stdout)
        return told.returncode, {each["link"]: (each["state"], each["says"], each["do"]) for each in links}

    def follow(self, do: str) -> None:
        """What it printed, with the directory that was applied here. There are no controllers and no NTP."""
        if do.startswith("timedatectl set-ntp"):
            self.clock.write_text("+0")
            self.installation.restart()
            return
        if do.startswith("set kube-apiserver's --requestheader-"):
            self.cluster.restart_without("")
            return
        command = do.replace("deploy/mine", str(self.directory / "applied"))
        if "kubeflow/trainer.git" in do:  # there may be no way out
            command = f"kubectl apply --server-side -f {self.directory / 'crds.yaml'}"
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self.directory),
            "KUBECONFIG": str(self.directory / "admin.kubeconfig"),
        }
        told = subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert told.returncode == 0, (command, told.stderr)
        if "rollout restart" in command:
            self.installation.restart()

    def applied(self) -> Iterator[Object]:
        """What `kubectl apply -k` has here: the Service leads to a port of this machine."""
        for thing in read_manifests():
            if thing["kind"] == "APIService":
                pointed = _pointed_at(thing, port=self.installation.ports[0], ca_bundle=None)
                yield pointed
                yield _external_service(pointed["spec"]["service"])
            else:
                yield thing


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """In a cluster of its own, and a Deployment whose pods a kubelet would say are ready."""
    if request.config.getoption("--cluster") != "real" or find_binaries()[1]:
        pytest.skip("only kube-apiserver reviews rights as it grants them, and has conditions of APIServices")
    directory = tmp_path_factory.mktemp("check")
    clock = directory / "clock"
    clock.write_text("+0")
    faked = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    cluster = RealCluster(directory / "cluster", find_binaries()[0], definitions=Definitions())
    try:
        apply_rights(cluster.admin)
        installation = Installation(
            cluster, directory, lifetime_s=LIFETIME_S, env=faked if FAKETIME.exists() else None
        )
        found = Stage(cluster, installation, directory, clock)
        (directory / "applied").mkdir()
        (directory / "applied/all.yaml").write_text(yaml.safe_dump_all(found.applied()))
        (directory / "applied/kustomization.yaml").write_text("resources: [all.yaml]\n")
        (directory / "crds.yaml").write_text(yaml.safe_dump_all(Definitions().core()))
        write_kubeconfig(
            directory / "admin.kubeconfig",
            url=cluster.url, ca_file=cluster.ca_file, cert=cluster.admin_pair,
        )  # fmt: skip
        try:
            installation.start()
            _deploy(cluster)
            yield found
        finally:
            installation.stop()
    finally:
        cluster.stop()


def _deploy(cluster: RealCluster) -> None:
    deployment = yaml.safe_load((ROOT / "deploy/base/deployment.yaml").read_text())
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["args"] += ["--sources=push", "--sources=exec"]
    deployment["spec"]["replicas"] = 1
    cluster.admin.apply(DEPLOYMENT, deployment)
    status = {"replicas": 1, "readyReplicas": 1, "availableReplicas": 1}
    cluster.admin.patch(f"{DEPLOYMENT}/status", {"status": status})
    _deploy_trainer(cluster, deployment, status)


def _deploy_trainer(cluster: RealCluster, deployment: Object, status: Object) -> None:
    """Its Deployment, in the namespace that it has a name for."""
    namespace, name = "kubeflow-system", "kubeflow-trainer-controller-manager"
    cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.admin.create(path, {"metadata": {"name": name}, "spec": deployment["spec"]})
    cluster.admin.patch(f"{path}/{name}/status", {"status": status})


def encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def another_ca(it: Stage) -> None:
    it.cluster.admin.patch(APISERVICE_PATH, {"spec": {"caBundle": encoded(Authority("other").pem)}})


def certificate_ends(it: Stage) -> None:
    """Nobody has renewed it: no replica ran."""
    for each in it.installation.replicas:
        each.stop(grace_s=20)
    ended = Authority("ours").issue(
        "server", usages=(SERVER,), hosts=[SERVICE_NAME],
        not_before=now() - timedelta(days=9), not_after=now() - timedelta(days=1),
    )  # fmt: skip
    it.cluster.admin.patch(SECRET, {"data": {"tls.crt": encoded(ended.pem)}})


def no_rights(it: Stage) -> None:
    binding = "trainjob-visibility:source-push"
    it.cluster.admin.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{binding}")


def no_crd(it: Stage) -> None:
    it.cluster.admin.delete(f"{CRDS}/trainjobs.trainer.kubeflow.org")


def no_request_header_ca(it: Stage) -> None:
    it.cluster.restart_without("--requestheader-")
    it.cluster.admin.delete(EXTENSION)  # kube-apiserver makes it anew, of what its flags say


def another_port(it: Stage) -> None:
    it.cluster.admin.patch(APISERVICE_PATH, {"spec": {"service": {"port": 1}}})


def clock_ahead(it: Stage) -> None:
    if not FAKETIME.exists():
        pytest.skip("no libfaketime here")
    it.clock.write_text("+7200")
    it.installation.restart()


def no_endpoints(it: Stage) -> None:
    spec = it.cluster.admin.get(SERVICE)["spec"]
    it.cluster.admin.delete(SERVICE)
    path, _, name = SERVICE.rpartition("/")
    body = {"metadata": {"name": name}, "spec": {"selector": {"none": "such"}, "ports": spec["ports"]}}
    it.cluster.admin.create(path, body)


def no_role_for_users(it: Stage) -> None:
    it.cluster.admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterroles/trainjob-visibility:viewer")


FAULTS: dict[str, tuple[Callable[[Stage], None], str, str]] = {
    "another CA": (another_ca, "certificate", "lacks the CA that has signed the certificate"),
    "a certificate that has ended": (certificate_ends, "certificate", "the certificate ended on"),
    "no rights": (no_rights, "rights", "may not get pods; get jobs; get jobsets"),
    "no CRD": (no_crd, "kinds of jobs", "the CRD of Kubeflow Trainer is missing"),
    "no CA of a front proxy": (no_request_header_ca, "aggregation layer", "has no aggregation layer"),
    "another port": (another_port, "APIService", "names port 1, but"),
    "a clock that is ahead": (clock_ahead, "owner and clocks", "ahead of kube-apiserver's"),
    "no endpoints": (no_endpoints, "Service", "has no endpoint"),
    "no role for users": (no_role_for_users, "users", "trainjob-visibility:viewer is missing"),
}


def is_good(it: Stage) -> bool:
    exit_code, found = it.check()
    ill = {link: told for link, told in found.items() if told[0] in ("fault", "warning")}
    assert ill == {}, ill
    return exit_code == 0


def test_what_is_installed_is_found_good(stage: Stage) -> None:
    wait_until(lambda: is_good(stage), what="every link is good")
    _, found = stage.check()
    assert found["APIService"][:2] == ("ok", "the APIService is Available")
    assert {found[link][0] for link in ("rights", "answers", "certificate")} == {"ok"}


async def rights_inside(kubeconfig: Path) -> str:
    """What is said in the container itself, whose first process has the arguments."""
    arguments = [
        "serve",
        "--sources=push",
        "--sources=exec",
        "--certificate-secret=visibility-api-certificate",
    ]
    async with await KubeClient.connect(kubeconfig) as client:
        return (await check_rights(Look(client, NAMESPACE, own_arguments=arguments))).says


def test_rights_are_tried_from_outside_and_from_inside(stage: Stage) -> None:
    wait_until(lambda: is_good(stage), what="every link is good before")
    _, found = stage.check()
    assert "and each was tried" in found["rights"][1]
    inside = service_account_kubeconfig(stage.cluster, stage.directory)
    _, found = stage.check(kubeconfig=inside)  # it may not read its Deployment, which has its arguments
    assert found["rights"][0] == "unknown", found
    assert "and each was tried" in asyncio.run(rights_inside(inside))
    webhook = {
        "metadata": {"name": "refuses"},
        "webhooks": [
            {
                "name": "refuses.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["UPDATE"],
                        "resources": ["secrets"],
                    }
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    stage.cluster.admin.create(path, webhook)
    try:

        def told() -> bool:
            exit_code, found = stage.check()
            assert "it may patch secrets" in found["rights"][1], found["rights"]
            assert "failed calling webhook" in found["rights"][1], found["rights"]
            return (exit_code, found["rights"][0]) == (1, "fault")

        wait_until(told, what="the webhook is in force")
    finally:
        stage.cluster.admin.delete(f"{path}/refuses")


def test_where_nothing_is_installed_that_is_said(stage: Stage) -> None:
    exit_code, found = stage.check("--namespace", "elsewhere")
    assert (exit_code, list(found)[-1]) == (1, "installation")
    assert found["installation"][2] == f"visibility-api check --namespace {NAMESPACE}"


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_and_what_is_printed_mends_it(stage: Stage, name: str) -> None:
    break_, link, says = FAULTS[name]
    wait_until(lambda: is_good(stage), what="every link is good before")
    break_(stage)

    def told() -> str:
        _, found = stage.check()
        state, said, do = found[link]
        assert says in said, found
        assert state in ("fault", "warning")
        return do

    stage.follow(wait_until(told, what=f"{name} is named"))
    wait_until(lambda: is_good(stage), what="every link is good again")
