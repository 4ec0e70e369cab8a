"""Rights in one namespace, given and then waited for: kube-apiserver learns of them by watching."""

from __future__ import annotations

from collections.abc import Sequence

from tests.e2e.api import Object
from tests.e2e.rbac import wait_allowed
from tests.e2e.visibility_server import GROUP
from tests.e2e.workspace import Workspace

_RBAC = "rbac.authorization.k8s.io"


def allow_group(workspace: Workspace, group: str) -> None:
    """Members may get, list and watch all documents of the namespace."""
    rule = {"resources": ["trainjobs"], "verbs": ["get", "list", "watch"]}
    _bind(workspace, rule, {"kind": "Group", "name": group})
    wait_allowed(workspace.cluster.admin, workspace.name, "list", groups=[group])


def allow_user(
    workspace: Workspace,
    user: str,
    *verbs: str,
    resources: Sequence[str] = ("trainjobs",),
    resource_names: Sequence[str] = (),
) -> None:
    """`resources` of our group; with `resource_names` a right to these only."""
    rule = {"resources": list(resources), "verbs": list(verbs), "resourceNames": list(resource_names)}
    _bind(workspace, rule, {"kind": "User", "name": user})
    resource, _, subresource = resources[0].partition("/")
    wait_allowed(
        workspace.cluster.admin,
        workspace.name,
        verbs[0],
        user=user,
        resource=resource,
        subresource=subresource,
        name=resource_names[0] if resource_names else "",
    )


def _bind(workspace: Workspace, rule: Object, subject: Object) -> None:
    admin = workspace.cluster.admin
    base = f"/apis/{_RBAC}/v1/namespaces/{workspace.name}"
    meta = {"generateName": "conformance-"}
    role = admin.create(f"{base}/roles", {"metadata": meta, "rules": [rule | {"apiGroups": [GROUP]}]})
    admin.create(
        f"{base}/rolebindings",
        {
            "metadata": meta,
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role["metadata"]["name"]},
            "subjects": [subject | {"apiGroup": _RBAC}],
        },
    )
