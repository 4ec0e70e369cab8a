"""The server has just the rights of its manifests: what it lacks, its users can see."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import path_of, read_manifests
from tests.e2e.scripts import REPORTING
from tests.e2e.workspace import Workspace

_EXEC = "trainjob-visibility:source-exec"


def test_a_missing_right_to_exec_is_named_and_its_return_is_noticed(
    cluster: Cluster, workspace: Workspace
) -> None:
    (binding,) = (
        thing
        for thing in read_manifests()
        if thing["kind"] == "ClusterRoleBinding" and thing["metadata"]["name"] == _EXEC
    )
    cluster.admin.delete(path_of(binding))
    try:
        workspace.start_job("unread", REPORTING)
        found = workspace.wait_condition("unread", "Reporting", "False", reason="ExecForbidden")
        assert "create on pods/exec" in found["message"]
    finally:
        cluster.admin.apply(path_of(binding), binding)
    workspace.wait_reporting("unread")
