"""The server has just the rights of its manifests: what it lacks, its users can see."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import NAMESPACE, SERVICE_ACCOUNT, path_of, without
from tests.e2e.scripts import REPORTING
from tests.e2e.workspace import Workspace


def test_a_missing_right_to_exec_is_named_and_its_return_is_noticed(
    cluster: Cluster, workspace: Workspace
) -> None:
    with without(cluster.admin, "source-exec"):
        workspace.start_job("unread", REPORTING)
        found = workspace.wait_condition("unread", "Reporting", "False", reason="ExecForbidden")
        assert "create on pods/exec" in found["message"]
    workspace.wait_reporting("unread")


def test_a_namespace_that_binds_the_role_is_read_by_exec(cluster: Cluster, workspace: Workspace) -> None:
    """As in the default installation, where the role is bound by nobody."""
    role = "trainjob-visibility:source-exec"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": workspace.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}],
    }
    with without(cluster.admin, "source-exec"):
        cluster.admin.apply(path_of(binding), binding)
        workspace.start_job("read", REPORTING)
        workspace.wait_reporting("read")
