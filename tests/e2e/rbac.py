"""Rights that tests give to users."""

from __future__ import annotations

from tests.e2e.api import Api

_GROUP = "rbac.authorization.k8s.io"


def bind_in_namespace(admin: Api, namespace: str, role: str, *users: str) -> None:
    """A RoleBinding of a ClusterRole: rights in that namespace only."""
    admin.create(
        f"/apis/{_GROUP}/v1/namespaces/{namespace}/rolebindings",
        {
            "metadata": {"generateName": f"{role.replace(':', '-')}-"},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user} for user in users],
        },
    )
