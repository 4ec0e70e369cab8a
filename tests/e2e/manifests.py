"""What an operator applies from apiservice/, with only that changed which differs on one machine."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.e2e.api import Api, Object

DIRECTORY = Path(__file__).parents[2] / "apiservice"
NAMESPACE = "trainjob-visibility"
SERVICE_ACCOUNT = "visibility-api"
APISERVICE = "v1alpha1.visibility.trainer.kubeflow.org"
APISERVICE_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{APISERVICE}"
SERVICE_NAME = f"{SERVICE_ACCOUNT}.{NAMESPACE}.svc"

_PLURALS = {
    "APIService": "apiservices",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "FlowSchema": "flowschemas",
    "Namespace": "namespaces",
    "PriorityLevelConfiguration": "prioritylevelconfigurations",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
_FIRST = ("Namespace", "ServiceAccount", "PriorityLevelConfiguration")


def read_manifests() -> list[Object]:
    """Every object in apiservice/, those first that others need."""
    found = [
        thing
        for file in sorted(DIRECTORY.rglob("*.yaml"))
        if file.name != "kustomization.yaml"
        for thing in yaml.safe_load_all(file.read_text())
        if thing
    ]
    if not found:
        raise FileNotFoundError(f"no manifests in {DIRECTORY}")
    return sorted(found, key=lambda thing: _FIRST.index(thing["kind"]) if thing["kind"] in _FIRST else 9)


def apply_manifests(admin: Api, *, port: int, ca_bundle: bytes, skipped_kinds: frozenset[str]) -> None:
    """Apply them; the Service points at a port of this machine instead of pods (P6)."""
    for thing in adapt(read_manifests(), port=port, ca_bundle=ca_bundle):
        if thing["kind"] not in skipped_kinds:
            admin.apply(path_of(thing), thing)


def adapt(things: list[Object], *, port: int, ca_bundle: bytes) -> Iterator[Object]:
    for thing in things:
        if thing["kind"] == "Service":
            yield {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": thing["metadata"],
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
            }
        elif thing["kind"] == "APIService":
            spec = dict(thing["spec"])
            spec.pop("insecureSkipTLSVerify", None)
            spec["service"] = spec["service"] | {"port": port}
            spec["caBundle"] = base64.b64encode(ca_bundle).decode()
            yield thing | {"spec": spec}
        else:
            yield thing


def path_of(thing: Object) -> str:
    """Where the object lives; cluster-scoped when it names no namespace."""
    version, meta = thing["apiVersion"], thing["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{namespace}/{_PLURALS[thing['kind']]}/{meta['name']}"
