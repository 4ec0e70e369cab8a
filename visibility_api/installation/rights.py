"""The rights of the server's service account, asked of kube-apiserver for what its flags switch on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from visibility_api.kinds import USERS

from .look import Finding, Look, at, fault, listed, ok

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True)
class Right:
    """`part`: of deploy/ that grants it."""

    verb: str
    group: str
    resource: str
    part: str
    namespace: str = ""  # "": in all
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        below = f"/{self.subresource}" if self.subresource else ""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{below}{where}"


# By what has to be among the arguments of the server.
_SWITCHED_ON = {
    "--sources=exec": [Right("create", "", "pods", "components/source-exec", subresource="exec")],
    "--sources=logs": [Right("get", "", "pods", "components/source-logs", subresource="log")],
    "--sources=push": [
        Right("get", "", "pods", "components/source-push"),
        Right("get", "batch", "jobs", "components/source-push"),
        Right("get", "jobset.x-k8s.io", "jobsets", "components/source-push"),
    ],
    "--events=true": [Right("create", "events.k8s.io", "events", "components/events")],
    "--write-back=true": [
        Right("patch", "trainer.kubeflow.org", "trainjobs", "components/write-back", subresource="status")
    ],
}


async def check_rights(look: Look) -> Finding:
    arguments = await arguments_of(look)
    missing, by_namespace = [], False
    for right in dict.fromkeys(_needed(arguments, look.namespace)):
        if not await _is_granted(look, right):
            if right.subresource == "exec":
                by_namespace = True  # deploy/default leaves it to each namespace
            else:
                missing.append(right)
    if missing:
        parts = ", ".join(dict.fromkeys(f"deploy/{right.part}" for right in missing))
        return fault(
            f"the service account visibility-api may not {'; '.join(map(str, missing[:6]))}",
            f"apply the rights again, from {parts}",
        )
    note = "; pods/exec only where a namespace grants it" if by_namespace else ""
    return ok(f"the service account visibility-api has the rights of its sources{note}")


async def arguments_of(look: Look) -> Sequence[str]:
    """The arguments of the server's containers."""
    path = f"/apis/apps/v1/namespaces/{look.namespace}/deployments/visibility-api"
    containers = listed(await look.read(path), "spec", "template", "spec", "containers")
    return [str(each) for container in containers for each in listed(container, "args")]


def _needed(arguments: Sequence[str], namespace: str) -> Iterator[Right]:
    for objects in USERS:
        _, *group, _version = objects.api.strip("/").split("/")  # the core group has no name
        for verb in ("list", "watch"):
            yield Right(verb, "".join(group), objects.plural, "base")
    yield Right("create", "authentication.k8s.io", "tokenreviews", "base")
    yield Right("create", "authorization.k8s.io", "subjectaccessreviews", "base")
    extension = "extension-apiserver-authentication"
    yield Right("get", "", "configmaps", "base", "kube-system", extension)
    if any(each.startswith("--peers") for each in arguments):
        yield Right("patch", "coordination.k8s.io", "leases", "base", namespace, "trainjob-visibility")
    for each in arguments:
        if each.startswith("--certificate-secret="):
            yield Right("patch", "", "secrets", "base", namespace, each.partition("=")[2])
            api = "v1alpha1.visibility.trainer.kubeflow.org"
            yield Right("patch", "apiregistration.k8s.io", "apiservices", "base", "", api)
        yield from _SWITCHED_ON.get(each, ())


async def _is_granted(look: Look, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    account = f"system:serviceaccount:{look.namespace}:visibility-api"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{look.namespace}", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "groups": groups, "resourceAttributes": attributes},
    }
    return at(await look.create(_REVIEWS, review), "status", "allowed") is True
