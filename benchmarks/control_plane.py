"""A real kube-apiserver and etcd with TrainJobs in them, and what is registered behind its aggregator.

Only with $KUBEBUILDER_ASSETS, envtest's convention. Nothing runs the jobs: their progress is in their own
`status.trainerStatus`, from where our server takes it.
"""

from __future__ import annotations

import base64
import concurrent.futures
import contextlib
import json
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.e2e import crds
from tests.e2e.api import Api, write_kubeconfig
from tests.e2e.kube import KubeApiserver
from tests.e2e.manifests import NAMESPACE, SERVICE_ACCOUNT, apply_rights, register
from tests.e2e.pki import KeyPair, server_context
from tests.e2e.processes import wait_until

from . import kubernetes
from .processes import Server

USER = "benchmark"  # a service account with every right, but not in system:masters: its rights are reviewed
READ = ["get", "list", "watch"]
BARE_GROUP = "bare.example.com"
BARE_SERVICE_NAME = f"bare.{NAMESPACE}.svc"
BARE_PATH = f"/apis/{BARE_GROUP}/v1"
BARE_ONE = f"{BARE_PATH}/one"
TRAINJOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs"
_SERVICES = f"/api/v1/namespaces/{NAMESPACE}/services"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


def bare_bodies(one: bytes) -> dict[str, bytes]:
    """What a bare server behind the aggregator answers, by path: one document, and discovery."""
    version = {"apiVersion": "v1", "groupVersion": f"{BARE_GROUP}/v1"}
    discovery = {"kind": "APIResourceList", "resources": [], **version}
    return {BARE_ONE: one, BARE_PATH: json.dumps(discovery).encode()}


class ControlPlane:
    """Running; `server` is kube-apiserver."""

    def __init__(self, directory: Path, kube: KubeApiserver) -> None:
        self._kube, self._directory = kube, directory
        self.ca_file = kube.pki.serving.bundle
        self.api = Api(kube.url, ca_file=self.ca_file, cert=(kube.admin.cert, kube.admin.key))
        self.server = Server(kube.pid, kube.port)
        self.admin = (kube.admin.cert, kube.admin.key)  # of a member of system:masters
        self.admin_pair = kube.admin
        self.front_proxy_ca = kube.pki.front_proxy.bundle
        self.jobs = 0  # that were created
        self._pki = kube.pki

    def prepare(self) -> str:
        """CRDs, rights and namespaces; a token of `USER`."""
        described = _of_any_fields("slurmjobs.slurm.example.com")
        for crd in (*crds.Definitions().core(), described):
            self.api.create(crds.PATH, crd)
        wait_until(
            lambda: self.api.raw("GET", TRAINJOBS.format("default")).status_code == 200, what="TrainJobs"
        )
        apply_rights(self.api)
        for number in range(kubernetes.NAMESPACES):
            self.api.create("/api/v1/namespaces", {"metadata": {"name": kubernetes.namespace(number)}})
        return self.token_with_rights(USER)

    def token_with_rights(self, account: str, namespace: str = NAMESPACE) -> str:
        """A token of a new service account that may do everything."""
        token = self.token_without_rights(account, namespace)
        group = "rbac.authorization.k8s.io"
        self.api.create(
            f"/apis/{group}/v1/clusterrolebindings",
            {
                "metadata": {"name": account},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
            },
        )
        return token

    def token_without_rights(self, account: str, namespace: str = NAMESPACE) -> str:
        """A token of a new service account that may do nothing of ours."""
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.api.create(accounts, {"metadata": {"name": account}})
        return self._token(account, namespace)

    def tenant(self, namespace: str, accounts: int) -> list[str]:
        """Tokens of new accounts that may do in one namespace what tenants may, and nothing elsewhere."""
        group = "rbac.authorization.k8s.io"
        path = f"/apis/{group}/v1/namespaces/{namespace}"
        names = [f"tenant-{number}" for number in range(accounts)]
        for name in names:
            self.api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        rules = [
            {"apiGroups": [""], "resources": ["pods", "pods/log", "configmaps"], "verbs": ["*"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
            {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["*"]},
            {"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["*"]},
            {"apiGroups": ["slurm.example.com"], "resources": ["slurmjobs"], "verbs": ["*"]},
            {"apiGroups": ["visibility.trainer.kubeflow.org"], "resources": ["*"], "verbs": READ},
        ]
        self.api.create(f"{path}/roles", {"metadata": {"name": "tenant"}, "rules": rules})
        self.api.create(
            f"{path}/rolebindings",
            {
                "metadata": {"name": "tenant"},
                "roleRef": {"apiGroup": group, "kind": "Role", "name": "tenant"},
                "subjects": [
                    {"kind": "ServiceAccount", "name": name, "namespace": namespace} for name in names
                ],
            },
        )
        return [self._token(name, namespace) for name in names]

    def kubeconfig(self, port: int | None = None) -> Path:
        """Of our server, with just the rights that apiservice/ grants; through another port, if given."""
        return write_kubeconfig(
            self._directory / "server.kubeconfig",
            url=self._kube.url if port is None else f"https://127.0.0.1:{port}",
            ca_file=self.ca_file,
            token=self._token(SERVICE_ACCOUNT),
        )

    def stop_apiserver(self) -> None:
        self._kube.stop_apiserver()

    def start_apiserver(self) -> None:
        self._kube.start_apiserver()
        self.server = Server(self._kube.pid, self._kube.port)
        self.wait_available(TRAINJOBS.format("default"))

    def forget_history(self) -> None:
        """A restarted watch cache begins at etcd's newest revision; one write makes that a later one."""
        self.api.create(
            "/api/v1/namespaces/default/configmaps", {"metadata": {"generateName": "a-later-revision-"}}
        )
        self.stop_apiserver()
        self.start_apiserver()

    def compact(self) -> int:
        """etcd forgets all revisions but the present one."""
        version: str = self.api.get("/api/v1/namespaces")["metadata"]["resourceVersion"]
        body = {"revision": version, "physical": True}
        httpx.post(f"{self._kube.etcd_url}/v3/kv/compaction", json=body, trust_env=False).raise_for_status()
        return int(version)

    def kubelet_tls(self) -> ssl.SSLContext:
        """Of a kubelet on 127.0.0.1 that this kube-apiserver trusts, and that trusts only this."""
        pair, clients = self.kubelet_files()
        return server_context(pair, clients=clients)

    def kubelet_files(self) -> tuple[KeyPair, Path]:
        """The certificate and key of such a kubelet, and the CA of those that it trusts."""
        return self._pki.serving.issue_server("kubelet", "127.0.0.1"), self._pki.clients.bundle

    def create_jobs(self, jobs: int, *, first: int = 0) -> None:
        """Each with a status as the trainer controller and a push leave it."""

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in pool.map(self._create, range(first, first + jobs)):
                self.jobs += 1

    def pass_by(self, numbers: Iterable[int]) -> None:
        """Jobs that are created, report twice, and are deleted. Blocks."""

        def live(number: int) -> None:
            self._create(number)
            self.apply_status(number, percentage=90)
            path = TRAINJOBS.format(kubernetes.namespace(number))
            self.api.delete(f"{path}/{kubernetes.job_name(number)}")

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(live, numbers))

    def _create(self, number: int) -> None:
        self.api.create(TRAINJOBS.format(kubernetes.namespace(number)), _train_job(number))
        self.apply_status(number, percentage=45)

    def apply_status(self, number: int, *, percentage: int) -> None:
        """Server-side apply, as Kubeflow Trainer's status server does it."""
        path = TRAINJOBS.format(kubernetes.namespace(number)) + f"/{kubernetes.job_name(number)}"
        body = {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": "TrainJob",
            "metadata": {"name": kubernetes.job_name(number), "namespace": kubernetes.namespace(number)},
            "status": _status(percentage),
        }
        self.api.apply(f"{path}/status", body)

    def register_ours(self, port: int, ca_file: Path | None) -> None:
        """`ca_file` None: the server publishes its CA itself."""
        register(self.api, port=port, ca_bundle=None if ca_file is None else ca_file.read_bytes())

    def register_bare(self, port: int, ca_file: Path) -> None:
        """The ceiling behind the same aggregator, under a group of its own."""
        service = {"name": "bare", "namespace": NAMESPACE, "port": port}
        self.api.create(
            _SERVICES,
            {
                "metadata": {"name": "bare"},
                "spec": {
                    "type": "ExternalName",
                    "externalName": "localhost",
                    "ports": [{"port": port, "protocol": "TCP"}],
                },
            },
        )
        self.api.create(
            _API_SERVICES,
            {
                "metadata": {"name": f"v1.{BARE_GROUP}"},
                "spec": {
                    "group": BARE_GROUP,
                    "version": "v1",
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "caBundle": base64.b64encode(ca_file.read_bytes()).decode(),
                    "service": service,
                },
            },
        )

    def wait_available(self, path: str) -> None:
        """Until the aggregator passes requests for `path` on."""
        wait_until(
            lambda: self.api.raw("GET", path).status_code == 200, what=f"{path} is served", timeout_s=60
        )

    def _token(self, account: str, namespace: str = NAMESPACE) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer: dict[str, Any] = self.api.create(
            path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        )
        token: str = answer["status"]["token"]
        return token


@contextlib.contextmanager
def control_plane(directory: Path, binaries: dict[str, Path]) -> Iterator[ControlPlane]:
    kube = KubeApiserver(directory / "control-plane", binaries)
    kube.start()
    try:
        yield ControlPlane(directory, kube)
    finally:
        kube.stop()


def _of_any_fields(name: str) -> dict[str, Any]:
    """The definition of a kind of an operator's, without a schema of its own."""
    found = next(each for each in crds.Definitions().of_operators() if each["metadata"]["name"] == name)
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    found["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
    return found


def _train_job(number: int) -> dict[str, Any]:
    made = kubernetes.train_job(number)
    meta = {"name": made["metadata"]["name"], "labels": made["metadata"]["labels"]}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": meta,
        "spec": made["spec"],
    }


def _status(percentage: int) -> dict[str, Any]:
    metrics = {"loss": "0.2347", "accuracy": "0.91", "lr": "0.0003", "grad_norm": "1.2", "epoch": "1.35"}
    return {
        "jobsStatus": [
            {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}
        ],
        "trainerStatus": {
            "progressPercentage": percentage,
            "estimatedRemainingSeconds": 795,
            "lastUpdatedTime": "2026-01-23T10:30:45Z",
            "metrics": [{"name": name, "value": value} for name, value in metrics.items()],
        },
    }
