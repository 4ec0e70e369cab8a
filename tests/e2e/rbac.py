"""Rights that tests give to users, and then wait for: kube-apiserver learns of them by watching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.e2e.api import Api
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import GROUP

_RBAC = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def bind_in_namespace(admin: Api, namespace: str, role: str, *users: str) -> None:
    """A RoleBinding of a ClusterRole: rights in that namespace only."""
    admin.create(
        f"/apis/{_RBAC}/v1/namespaces/{namespace}/rolebindings",
        {
            "metadata": {"generateName": f"{role.replace(':', '-')}-"},
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user} for user in users],
        },
    )


def wait_allowed(
    admin: Api,
    namespace: str,
    verb: str,
    *,
    user: str = "somebody",
    groups: Sequence[str] = (),
    **attributes: str,
) -> None:
    """Asks kube-apiserver, not the server under test, which would keep a refusal for 10 s (Z12)."""
    asked: dict[str, Any] = {"resource": "trainjobs"} | attributes
    asked |= {"namespace": namespace, "verb": verb, "group": GROUP, "version": "v1alpha1"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), "resourceAttributes": asked},
    }
    wait_until(
        lambda: admin.create(_REVIEWS, review)["status"]["allowed"],
        what=f"{user} or {groups} may {verb}",
        poll_s=0.02,
    )
