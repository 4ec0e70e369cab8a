"""The rights of the server's service account, asked of kube-apiserver for what its flags switch on."""

from __future__ import annotations

from collections.abc import Sequence

from visibility_api.rights import Right, needed

from .look import Finding, Look, at, fault, listed, ok

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def check_rights(look: Look) -> Finding:
    arguments = await arguments_of(look)
    missing, by_namespace = [], False
    for right in dict.fromkeys(needed(arguments, look.namespace)):
        if not await _is_granted(look, right):
            if right.subresource == "exec":
                by_namespace = True  # deploy/default leaves it to each namespace
            else:
                missing.append(right)
    if missing:
        parts = ", ".join(dict.fromkeys(f"deploy/{right.part}" for right in missing))
        more = f"; and {len(missing) - 6} more" if len(missing) > 6 else ""
        return fault(
            f"the service account visibility-api may not {'; '.join(map(str, missing[:6]))}{more}",
            f"kubectl apply -k deploy/mine    # your directory, with {parts} in it; with Helm: helm upgrade",
        )
    note = "; pods/exec only where a namespace grants it" if by_namespace else ""
    return ok(f"the service account visibility-api has the rights of its sources{note}")


async def arguments_of(look: Look) -> Sequence[str]:
    """The arguments of the server's containers."""
    path = f"/apis/apps/v1/namespaces/{look.namespace}/deployments/visibility-api"
    containers = listed(await look.read(path), "spec", "template", "spec", "containers")
    return [str(each) for container in containers for each in listed(container, "args")]


async def _is_granted(look: Look, right: Right) -> bool:
    account = f"system:serviceaccount:{look.namespace}:visibility-api"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{look.namespace}", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account, "groups": groups, "resourceAttributes": right.attributes()},
    }
    return at(await look.create(_REVIEWS, review), "status", "allowed") is True
