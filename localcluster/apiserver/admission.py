"""Defaults and side effects that belong to one kind; the rest is generic (registry.py)."""

from __future__ import annotations

import base64
import re
from typing import Any

from localcluster.machinery.metadata import Object, condition_is, timestamp, with_condition
from localcluster.machinery.resources import Resource
from localcluster.machinery.status import invalid

_PATH_SEGMENT_NAMES = "rbac.authorization.k8s.io"  # role names may hold colons
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
MAX_NAME_LENGTH = 253
_NOT_APPLIED = ("initializer", "podTemplateOverrides", "runtimePatches")  # of a TrainJob's spec


def check_name(resource: Resource, name: str) -> None:
    """422 in kube-apiserver's words."""
    if resource.group == _PATH_SEGMENT_NAMES:
        well_formed = name not in (".", "..") and "/" not in name and "%" not in name
    else:
        well_formed = bool(_DNS_SUBDOMAIN.fullmatch(name))
    if not name:
        raise invalid(resource, name, "metadata.name", "Required value: name or generateName is required")
    if not well_formed or len(name) > MAX_NAME_LENGTH:
        raise invalid(resource, name, "metadata.name", f'Invalid value: "{name}": {_SUBDOMAIN_RULE}')


def check_spec(resource: Resource, thing: Object) -> None:
    """422 for what the controllers here would ignore without a word."""
    if resource.plural != "trainjobs":
        return
    for field in _NOT_APPLIED:
        if (thing.get("spec") or {}).get(field):
            name = thing["metadata"].get("name") or ""
            why = "Forbidden: this local cluster does not apply it; put it into a TrainingRuntime of your own"
            raise invalid(resource, name, f"spec.{field}", why)


def set_defaults(resource: Resource, thing: Object) -> None:
    """Fill in what the real server fills in and clients rely on. `thing` is ours to change."""
    if resource.plural == "pods":
        _default_pod_spec(thing.setdefault("spec", {}))
        thing["status"] = {"phase": "Pending", "qosClass": "BestEffort"} | (thing.get("status") or {})
    elif (resource.group, resource.plural) == ("batch", "jobs"):
        spec = thing.setdefault("spec", {})
        for field, value in (("parallelism", 1), ("backoffLimit", 6), ("suspend", False)):
            spec.setdefault(field, value)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("completions", spec["parallelism"])
        _default_pod_spec(spec["template"].setdefault("spec", {}))
        mine = {"batch.kubernetes.io/controller-uid": thing["metadata"]["uid"]}
        spec.setdefault("selector", {"matchLabels": mine})
        thing.setdefault("status", {})
    elif resource.plural == "namespaces":
        thing["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = thing["metadata"]["name"]
        thing.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
        thing.setdefault("status", {}).setdefault("phase", "Active")
    elif resource.plural == "secrets":
        _encode_string_data(thing)
    elif resource.plural == "apiservices":
        service = thing.setdefault("spec", {}).get("service")
        if service:
            service.setdefault("port", 443)
    elif resource.plural == "customresourcedefinitions":
        _establish(thing)


def _default_pod_spec(spec: Object) -> None:
    for field, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("serviceAccountName", "default"),
        ("securityContext", {}),
    ):
        spec.setdefault(field, value)
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("imagePullPolicy", "IfNotPresent")
        container.setdefault("resources", {})


def _encode_string_data(secret: Object) -> None:
    plain = secret.pop("stringData", None) or {}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
    secret["data"] = (secret.get("data") or {}) | encoded
    secret.setdefault("type", "Opaque")


def _establish(definition: Object) -> None:
    status: Object = definition.setdefault("status", {})
    if not condition_is(definition, "Established"):
        conditions = with_condition(
            status.get("conditions"), "NamesAccepted", "True", "NoConflicts", "no conflicts found"
        )
        status["conditions"] = with_condition(
            conditions, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted"
        )
    status["acceptedNames"] = definition["spec"]["names"]


def served_by(definition: Object) -> list[Resource]:
    """The resources a CustomResourceDefinition adds, one per served version."""
    spec: dict[str, Any] = definition["spec"]
    names = spec["names"]
    return [
        Resource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]


def is_deleted_gracefully(resource: Resource, thing: Object) -> bool:
    """Only a pod that a kubelet may be running waits for that kubelet (registry/core/pod/strategy.go)."""
    if resource.plural != "pods" or not thing["spec"].get("nodeName"):
        return False
    return thing["status"].get("phase") not in ("Succeeded", "Failed")


def bind(pod: Object, binding: Object) -> Object:
    """A pod with the node of a Binding, and condition PodScheduled."""
    status = pod["status"]
    conditions = with_condition(status.get("conditions"), "PodScheduled", "True", "", "")
    conditions = [{key: value for key, value in found.items() if value != ""} for found in conditions]
    spec = pod["spec"] | {"nodeName": binding["target"]["name"]}
    return pod | {"spec": spec, "status": status | {"conditions": conditions, "startTime": timestamp()}}
