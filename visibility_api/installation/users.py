"""Who may read: the ClusterRoles that grant the progress of jobs."""

from __future__ import annotations

from collections.abc import Sequence

from visibility_api.models.served import GROUP

from .look import Finding, Look, Object, at, fault, listed, ok, warning

VIEWER, PAGE = "trainjob-visibility:viewer", "trainjob-visibility:page"
TAKEN_IN = ("view", "edit", "admin")  # by kube-controller-manager, from roles with a label for each
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_BINDING = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{PAGE}"
_LABEL = "rbac.authorization.k8s.io/aggregate-to-"
_APPLY = "kubectl apply -k deploy/mine    # the directory that you applied; with Helm: helm upgrade"


async def check_users(look: Look) -> Finding:
    """Those who are no administrators of the cluster; Roles of single namespaces are not looked at."""
    roles = {str(at(each, "metadata", "name")): each for each in await look.items(_ROLES)}
    may_read = sorted(name for name, role in roles.items() if _reads(role))
    viewer = roles.get(VIEWER)
    if viewer is None:
        others = f"only {', '.join(may_read)} may" if may_read else "nobody may"
        return fault(f"the ClusterRole {VIEWER} is missing: {others} read progress", _APPLY)
    # A cluster without that controller has nothing in these roles at all.
    lacking = [name for name in TAKEN_IN if listed(roles.get(name), "rules") and name not in may_read]
    if lacking:
        labels = " ".join(f"{_LABEL}{name}=true" for name in lacking)
        return warning(
            f"users with {' or '.join(lacking)} in a namespace may not read progress there: the ClusterRole"
            f" {VIEWER} is not part of these",
            f"kubectl label clusterrole {VIEWER} --overwrite {labels}",
        )
    page = "" if await look.read(_BINDING) is not None else f"; nobody is bound to {PAGE}: the page is shut"
    return ok(f"progress may be read with the ClusterRoles {', '.join(may_read)}{page}")


def _reads(role: Object) -> bool:
    return any(
        {GROUP, "*"} & _strings(rule, "apiGroups")
        and {"trainjobs/progress", "*/progress", "*"} & _strings(rule, "resources")
        and {"get", "*"} & _strings(rule, "verbs")
        for rule in listed(role, "rules")
    )


def _strings(rule: Object, key: str) -> set[str]:
    found: Sequence[object] = listed(rule, key)
    return {each for each in found if isinstance(each, str)}
