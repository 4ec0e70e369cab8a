"""What an operator applies, with only that changed which differs on one machine."""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from localcluster.demo.installation import component_flags, manifest_files
from tests.e2e.api import Api, Object
from tests.e2e.processes import wait_until

ROOT = Path(__file__).parents[2]
# Of deploy/components: the server here has their rights and flags, and no more.
COMPONENTS = ("source-exec", "source-push")
NAMESPACE = "trainjob-visibility"
SERVICE_ACCOUNT = "visibility-api"
APISERVICE = "v1alpha1.visibility.trainer.kubeflow.org"
APISERVICE_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{APISERVICE}"
SERVICE_NAME = f"{SERVICE_ACCOUNT}.{NAMESPACE}.svc"

_PLURALS = {
    "APIService": "apiservices",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "ConfigMap": "configmaps",
    "FlowSchema": "flowschemas",
    "Namespace": "namespaces",
    "PriorityLevelConfiguration": "prioritylevelconfigurations",
    "Role": "roles",
    "RoleBinding": "rolebindings",
    "Secret": "secrets",
    "Service": "services",
    "ServiceAccount": "serviceaccounts",
}
_FIRST = ("Namespace", "ServiceAccount", "PriorityLevelConfiguration")


def read_manifests(components: Sequence[str] = COMPONENTS) -> list[Object]:
    """Every object in apiservice/ and of the components, those first that others need."""
    found = [
        thing
        for file in manifest_files(ROOT, components)
        for thing in yaml.safe_load_all(file.read_text())
        if thing
    ]
    if not found:
        raise FileNotFoundError(f"no manifests in {ROOT}")
    return sorted(found, key=lambda thing: _FIRST.index(thing["kind"]) if thing["kind"] in _FIRST else 9)


def server_flags(components: Sequence[str] = COMPONENTS) -> list[str]:
    """The sources of deploy/base, and what the components add."""
    return ["--sources=status", *component_flags(ROOT, components)]


def apply_rights(
    admin: Api, components: Sequence[str] = COMPONENTS, *, skipped_kinds: frozenset[str] = frozenset()
) -> None:
    """Everything but the APIService."""
    for thing in read_manifests(components):
        if thing["kind"] not in skipped_kinds | {"APIService"}:
            admin.apply(path_of(thing), thing)


def allow_lease(admin: Api, namespace: str) -> None:
    """A namespace in which replicas may have a Lease of their own, beside those in `NAMESPACE`."""
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    admin.apply(path_of(made), made)
    for thing in read_manifests():
        if thing["kind"] in ("Role", "RoleBinding") and thing["metadata"]["name"].endswith(":lease"):
            there = thing | {"metadata": thing["metadata"] | {"namespace": namespace}}
            admin.apply(path_of(there), there)


@contextlib.contextmanager
def without(admin: Api, component: str) -> Iterator[None]:
    """Meanwhile the server has not the rights of that component in any namespace."""
    role, binding = (
        next(
            thing
            for thing in read_manifests([component])
            if thing["kind"] == kind and thing["metadata"]["name"] == f"trainjob-visibility:{component}"
        )
        for kind in ("ClusterRole", "ClusterRoleBinding")
    )
    admin.delete(path_of(binding))
    try:
        for rule in role["rules"]:
            wait_until(functools.partial(_is_refused, admin, rule), what=f"{component} is not allowed")
        yield
    finally:
        admin.apply(path_of(binding), binding)


def _is_refused(admin: Api, rule: Object) -> bool:
    """Whether kube-apiserver, which watches for rights, knows that the server has none by that rule."""
    resource, _, subresource = rule["resources"][0].partition("/")
    asked = {"group": rule["apiGroups"][0], "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}",
            "resourceAttributes": asked | {"verb": rule["verbs"][-1], "namespace": "default"},
        },
    }
    answer = admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return not answer["status"]["allowed"]


def register(admin: Api, *, port: int, ca_bundle: bytes | None) -> None:
    """Apply the APIService, and instead of deploy/'s Service one that points at a port here (P6).

    `ca_bundle` None: the server publishes its CA itself."""
    (thing,) = (thing for thing in read_manifests() if thing["kind"] == "APIService")
    thing = _pointed_at(thing, port=port, ca_bundle=ca_bundle)
    service = _external_service(thing["spec"]["service"])
    admin.apply(path_of(service), service)
    admin.apply(path_of(thing), thing)


def _pointed_at(api_service: Object, *, port: int, ca_bundle: bytes | None) -> Object:
    spec = api_service["spec"]
    assert "insecureSkipTLSVerify" not in spec
    trusted = {} if ca_bundle is None else {"caBundle": base64.b64encode(ca_bundle).decode()}
    return api_service | {"spec": spec | {"service": spec["service"] | {"port": port}} | trusted}


def _external_service(reference: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": reference["namespace"], "name": reference["name"]},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"port": reference["port"], "protocol": "TCP"}],
        },
    }


def path_of(thing: Object) -> str:
    """Where the object lives; cluster-scoped when it names no namespace."""
    version, meta = thing["apiVersion"], thing["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{root}{namespace}/{_PLURALS[thing['kind']]}/{meta['name']}"
