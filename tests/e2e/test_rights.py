"""The server has just the rights of its manifests: what it lacks, its users can see."""

from __future__ import annotations

from tests.e2e.cluster import Cluster
from tests.e2e.manifests import without
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
