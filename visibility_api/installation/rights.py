"""The rights of the server's service account, for what its flags switch on: reviewed, and tried by doing."""

from __future__ import annotations

from collections.abc import Sequence

from visibility_api.kube.errors import ApiError, ClusterError
from visibility_api.models.served import GROUP
from visibility_api.rights import Right, needed

from .look import Finding, Look, Object, at, fault, listed, ok, warning

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_CLUSTER_WIDE = ("nodes", "tokenreviews", "subjectaccessreviews", "apiservices")
_NONE_SUCH = "visibility-check"  # an object that is not there: 404 shows the right to read or change it
_NAMED = 6


async def check_rights(look: Look) -> Finding:
    arguments = await arguments_of(look)
    namespaces = [each.partition("=")[2] for each in arguments if each.startswith("--namespaces=")] or [""]
    missing, absent, failing = list[Right](), list[Right](), list[str]()
    by_namespace = False
    acting = await look.acting()
    for right in dict.fromkeys(needed(arguments, look.namespace)):
        if not await _is_granted(look, right, namespaces):
            if right.subresource == "exec":
                by_namespace = True  # deploy/default leaves it to each namespace
            elif right.is_optional:
                absent.append(right)
            else:
                missing.append(right)
        elif acting is not None:
            try:
                await _do(acting, right, namespaces[0] or look.namespace, namespaces[0])
            except ClusterError as error:
                failing.append(f"it may {right}, but that fails: {error}")
    name = f"the service account {look.account.rpartition(':')[2]}"
    if missing:
        parts = ", ".join(dict.fromkeys(f"deploy/{right.part}" for right in missing))
        return fault(
            f"{name} may not {_joined(missing)}",
            f"kubectl apply -k deploy/mine    # your directory, with {parts} in it; with Helm: helm upgrade",
        )
    if failing:
        return fault(
            f"{name} has its rights, and cannot use them: {'; '.join(failing[:2])}",
            "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations,crd"
            "    # what refuses it, or converts it",
        )
    if absent:
        return warning(
            f"{name} may not {_joined(absent)}, so such jobs are not shown",
            "kubectl apply -k deploy/mine    # your directory; nothing, if you left these kinds out",
        )
    note = "; pods/exec only where a namespace grants it" if by_namespace else ""
    if "--node-faults=true" not in arguments:
        note += "; faults of nodes are not read (--node-faults)"
    tried = ", and each was tried" if acting is not None else "; reviewed only: you may not act as it"
    return ok(f"{name} has the rights of its sources{tried}{note}")


async def arguments_of(look: Look) -> Sequence[str]:
    """The arguments of the server's containers, a value each: --sources=a,b is two."""
    path = f"/apis/apps/v1/namespaces/{look.namespace}/deployments/visibility-api"
    given = look.own_arguments
    if not given:
        containers = listed(await look.read(path), "spec", "template", "spec", "containers")
        given = [str(each) for container in containers for each in listed(container, "args")]
    found = []
    for each in given:
        flag, _, values = each.partition("=")
        found += [f"{flag}={value}" for value in values.split(",")] if values else [each]
    return found


def _joined(rights: Sequence[Right]) -> str:
    more = f"; and {len(rights) - _NAMED} more" if len(rights) > _NAMED else ""
    return "; ".join(map(str, rights[:_NAMED])) + more


async def _is_granted(look: Look, right: Right, namespaces: Sequence[str]) -> bool:
    """In each of the namespaces that are served; "": in all."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{look.namespace}", "system:authenticated"]
    for namespace in ("",) if right.namespace or right.resource in _CLUSTER_WIDE else namespaces:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": look.account,
                "groups": groups,
                "resourceAttributes": right.attributes(namespace),
            },
        }
        if at(await look.create(_REVIEWS, review), "status", "allowed") is not True:
            return False
    return True


async def _do(acting: Look, right: Right, somewhere: str, scope: str) -> None:
    """What the right is for, so that nothing changes. A watch is its list, and exec would run something.
    `scope`: a namespace that is served, "" for all; `somewhere`: a namespace. Raises ClusterError."""
    if right.subresource == "exec" or right.verb == "watch":
        return
    namespace = right.namespace or (scope if right.verb == "list" else somewhere)
    place = f"/namespaces/{namespace}" if namespace and right.resource not in _CLUSTER_WIDE else ""
    path = f"{right.api}{place}/{right.resource}"
    below = f"/{right.name or _NONE_SUCH}" + (f"/{right.subresource}" if right.subresource else "")
    try:
        match right.verb:
            case "list":
                await acting.read(path, (("limit", "1"),))
            case "get":
                await acting.read(path + below)
            case "patch":
                await acting.try_patch(path + below, {})
            case "create":
                await acting.create(f"{path}?dryRun=All", _made(right, namespace, acting.account))
    except ApiError as error:
        if error.status not in (404, 409):
            raise


def _made(right: Right, namespace: str, account: str) -> Object:
    review = {"user": account, "resourceAttributes": {"verb": "get", "resource": "pods"}}
    kinds: dict[str, tuple[str, Object]] = {
        "tokenreviews": ("TokenReview", {"spec": {"token": _NONE_SUCH}}),
        "subjectaccessreviews": ("SubjectAccessReview", {"spec": review}),
        "events": (
            "Event",
            {
                "metadata": {"name": _NONE_SUCH, "namespace": namespace},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": f"{GROUP}/visibility-api",
                "reportingInstance": _NONE_SUCH,
                "action": "Check",
                "reason": "Checked",
                "type": "Normal",
                "regarding": {"kind": "Pod", "name": _NONE_SUCH, "namespace": namespace},
            },
        ),
    }
    kind, made = kinds[right.resource]
    return {"apiVersion": right.api.removeprefix("/apis/"), "kind": kind, **made}
