"""A fault of a node is named as the cause, through kube-apiserver, with just the rights of the component."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.canary import assert_untold
from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import apply_rights
from tests.e2e.processes import wait_until
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.workspace import Workspace

# Ends by itself when there is a file.
WAITS = """
import pathlib, sys, time
while not pathlib.Path("GO").exists():
    time.sleep(0.05)
sys.exit(1)
"""
EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module")
def reading(
    cluster: Cluster, server: VisibilityServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityServer]:
    """A server that reads nodes, which the aggregator forwards to as long as this module runs."""
    if cluster.kind == "local":
        pytest.skip("the stand-in selects no Events by their object")
    components = ["source-exec", "node-faults"]
    apply_rights(cluster.admin, components)
    found = VisibilityServer(cluster, tmp_path_factory.mktemp("node-faults"), components=components)
    yield found
    exit_code = found.stop()
    server.register()
    assert exit_code == 0, found.log_text()[-2000:]
    assert "no right" not in found.log_text()


def started(workspace: Workspace, name: str, go: Path) -> Object:
    """A job whose pod runs, and that pod."""
    workspace.start_job(name, WAITS.replace("GO", str(go)))
    return workspace.wait_running(name)


def failure_of(workspace: Workspace, name: str, *classes: str) -> Object:
    def found(status: Object) -> bool:
        return status.get("failure", {}).get("class") in classes

    document = workspace.wait_document(name, found, what="names the node's fault")
    failure: Object = document["status"]["failure"]
    return failure


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_gpus_fault_is_the_cause_in_each_job_that_it_has_ended(
    workspace: Workspace, cluster: Cluster, reading: VisibilityServer, tmp_path: Path
) -> None:
    pods = [started(workspace, name, tmp_path / name) for name in ("first", "second")]
    (node,) = {pod["spec"]["nodeName"] for pod in pods}
    event = {
        "metadata": {"generateName": "xid-", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        "reason": "XidError",
        "message": "NVRM: Xid (PCI:0000:cb:00): 79, pid=7, GPU has fallen off the bus.",
        "type": "Warning",
        "firstTimestamp": ago(40),
        "lastTimestamp": ago(40),
        "source": {"component": "kernel-monitor"},
    }
    made = cluster.admin.create(EVENTS, event)
    other = cluster.admin.create(EVENTS, event | {"involvedObject": {"kind": "Node", "name": "another"}})
    try:
        (tmp_path / "first").touch()
        found = failure_of(workspace, "first", "AcceleratorFault")
        assert found["cause"].startswith(
            f"node {node} reported a fault of an accelerator (XidError, Xid 79), "
        )
        assert (found["nodeName"], found["retryable"], found["exitCode"]) == (node, True, 1)
        (tmp_path / "second").touch()
        # The first is told later of the other, unless another replica evaluates that one (docs/nats.md).
        for name in ("second",) if reading.stores else ("second", "first"):
            workspace.wait_document(
                name, lambda status: "other job" in status["failure"]["cause"], what="is told of another job"
            )

        def shown() -> str:
            """It fails again while this goes on, and is looked at anew."""
            found = workspace.admin.kubectl("describe", "tjp", "first", "-n", workspace.name).stdout
            assert "reported a fault of an accelerator" in found
            table = workspace.admin.kubectl("get", "tjp", "first", "-n", workspace.name, "-o", "wide").stdout
            assert "AcceleratorFault" in table
            return found

        assert_untold(wait_until(shown, what="kubectl says it"), where="describe")
    finally:
        for each in (made, other):
            cluster.admin.delete(f"{EVENTS}/{each['metadata']['name']}")


@pytest.mark.parametrize(
    ("disruption", "reason", "class_"),
    [("EvictionByEvictionAPI", "Evicted", "NodeDrained"), ("PreemptionByScheduler", "Preempted", None)],
)
def test_a_disrupted_pod_of_a_cordoned_node_was_drained_unless_it_was_preempted(
    workspace: Workspace,
    cluster: Cluster,
    reading: VisibilityServer,
    tmp_path: Path,
    disruption: str,
    reason: str,
    class_: str | None,
) -> None:
    pod = started(workspace, "drained", tmp_path / "go")
    node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": ago(20)}
    cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True, "taints": [taint]}})
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": disruption,
        "message": "it goes",
        "lastTransitionTime": ago(1),
    }
    try:
        path = f"/api/v1/namespaces/{workspace.name}/pods/{name}/status"
        cluster.admin.patch(path, {"status": {"conditions": [condition]}})
        (tmp_path / "go").touch()

        def found(status: Object) -> bool:
            failure = status.get("failure", {})
            return failure.get("reason") == reason and (class_ is None or failure.get("class") == class_)

        document = workspace.wait_document("drained", found, what=f"was {reason}")
        assert document["status"]["failure"].get("class") == class_
    finally:
        cluster.admin.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None, "taints": None}})
