"""The server goes on when what it depends on does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster, ExecPath
from tests.e2e.exec_faults import Fault
from tests.e2e.processes import wait_until
from tests.e2e.scripts import GIGABYTE, REPORTING, SILENT
from tests.e2e.visibility_server import PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace, condition

_MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def team(shared: Workspace) -> Workspace:
    """A namespace with a job that reports."""
    shared.start_job("good", REPORTING)
    shared.wait_reporting("good")
    return shared


@pytest.fixture(autouse=True)
def reporting_goes_on(team: Workspace, server: VisibilityServer) -> Iterator[None]:
    """After each of these tests the same server still follows the good job."""
    pid = server.pid
    yield
    assert server.pid == pid
    server.wait_ready()
    step = team.wait_reporting("good")["status"]["steps"]["current"]
    team.wait_reporting("good", beyond_step=step)
    found = team.wait_condition("good", "Fresh", "True")
    assert found["reason"] == "RecentReport"


def test_a_gigabyte_of_progress_file_costs_no_memory(team: Workspace, server: VisibilityServer) -> None:
    before = server.forget_peak_memory()
    team.start_job("gigabyte-again", GIGABYTE)
    team.wait_condition("gigabyte-again", "Reporting", "False", reason="TooLarge")
    assert server.peak_memory_bytes() - before < 16 * _MEBIBYTE


def test_an_exec_that_drops_half_way_is_no_document(
    workspace: Workspace, cluster: Cluster, exec_path: ExecPath
) -> None:
    with cluster.agent.inject(workspace.name, Fault.DROPS):
        workspace.start_job("dropping", REPORTING)
        document = workspace.wait_document(
            "dropping",
            lambda status: (
                status["observation"]["consecutiveFailures"] >= 1
                and condition(status, "Reporting")["reason"] != "NoProgressFile"  # it had nothing to drop yet
            ),
            what="has been asked in vain",
        )
        assert "steps" not in document["status"]
        assert condition(document["status"], "Reporting")["status"] == "False"
    workspace.wait_reporting("dropping")


def test_pods_that_answer_an_exec_badly_cost_their_own_report_and_diagnosis(
    workspace: Workspace, cluster: Cluster
) -> None:
    """Which is read in their pods: the progress file; files and processes of ranks."""
    found = {
        Fault.FLOODS: (("TooLarge",), ("it printed too much",)),
        Fault.HANGS: (("ProbeTimeout",), ("it did not answer in time",)),
        # Where it is cut: before a rank, or in it.
        Fault.DROPS: (("NotJSON", "PodUnreachable"), ("No rank could be read", "is not known")),
    }
    for fault in found:
        workspace.start_job(fault.name.lower(), REPORTING, annotations={"interval": "2s"})
    for fault, (reasons, whys) in found.items():
        name = fault.name.lower()
        workspace.wait_reporting(name)
        with cluster.agent.inject(workspace.name, fault):
            path = f"{PREFIX}/namespaces/{workspace.name}/trainjobs/{name}/diagnose"
            asked = workspace.admin.kubectl("create", "--raw", path, "-f", "/dev/null")
            assert '"code":202' in asked.stdout, asked.stderr
            document = workspace.wait_document(
                name,
                lambda status, reasons=reasons: (
                    "diagnosis" in status and status["observation"]["reason"] in reasons
                ),
                what=f"{fault.value}: is not read",
            )
        assert any(why in document["status"]["diagnosis"]["message"] for why in whys)
        assert document["status"]["steps"]["current"] > 0


def test_a_pod_deleted_while_it_is_being_probed_leaves_the_last_report(
    workspace: Workspace, cluster: Cluster
) -> None:
    workspace.start_job("cut-short", REPORTING)
    workspace.wait_reporting("cut-short")
    pod = workspace.wait_running("cut-short")["metadata"]
    with cluster.agent.inject(workspace.name, Fault.HANGS):
        asked = cluster.agent.execs[workspace.name]
        wait_until(lambda: cluster.agent.execs[workspace.name] > asked, what="the pod is being asked")
        cluster.admin.delete(f"/api/v1/namespaces/{workspace.name}/pods/{pod['name']}", gracePeriodSeconds=0)
        document = workspace.wait_document(
            "cut-short",
            lambda status: condition(status, "Fresh")["status"] == "False",
            what="no longer claims to be fresh",
        )
    assert document["status"]["steps"]["current"] > 0
    # The Job makes another pod, and that one is asked.
    workspace.wait_document(
        "cut-short",
        lambda status: (
            status["rank0"]["podName"] != pod["name"] and condition(status, "Fresh")["status"] == "True"
        ),
        what="a new pod reports",
    )


@pytest.mark.parametrize("history", ["kept", "forgotten"])
def test_what_happened_while_the_api_server_was_out_of_reach_is_caught_up_with(
    workspace: Workspace, cluster: Cluster, server: VisibilityServer, history: str
) -> None:
    for name in ("deleted", "replaced"):
        workspace.start_job(name, REPORTING)
        workspace.wait_reporting(name)
    with server.out_of_reach():
        for name in ("deleted", "replaced"):
            workspace.delete_job(name)
        successor = workspace.start_job("replaced", SILENT)
        workspace.start_job("created", REPORTING)
        workspace.wait_running("created")
        if history == "forgotten":  # the watches resume from a version that is no longer known: 410
            cluster.forget_history()
    workspace.wait_reporting("created")
    wait_until(
        lambda: workspace.admin.api.raw("GET", f"{workspace.collection}/deleted").status_code == 404,
        what="the deleted job is gone",
    )

    def document_of_successor() -> Object:
        document = workspace.document("replaced")
        assert document["metadata"]["uid"] == successor["metadata"]["uid"]
        return document

    replaced = wait_until(document_of_successor, what="the other job is its successor")
    assert "steps" not in replaced["status"]


def test_a_restarted_api_server_finds_the_server_where_it_was(
    workspace: Workspace, cluster: Cluster, server: VisibilityServer
) -> None:
    cluster.stop_apiserver()
    cluster.start_apiserver()
    server.wait_available()
    workspace.start_job("after-the-restart", REPORTING)
    workspace.wait_reporting("after-the-restart")


def test_a_watch_that_is_down_for_a_minute_is_named_and_its_jobs_are_not_called_fresh(
    team: Workspace, cluster: Cluster, server: VisibilityServer
) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/trainjob-visibility:server"
    rules = cluster.admin.get(path)["rules"]
    cluster.admin.patch(path, {"rules": [rule for rule in rules if rule["resources"] != ["pods"]]})
    try:
        with server.out_of_reach():  # its watch of pods ends, and it may begin no other
            pass
        wait_until(
            lambda: "[-]watch-pods failed" in server.get("/readyz?verbose").text, what="the watch is named"
        )
        assert server.get("/readyz").status_code == 500
        wait_until(
            lambda: server.metrics("visibility_watch_down")['{collection="pods"}'] == len(server.ports),
            what="each replica counts it",
        )
        team.wait_condition("good", "Fresh", "Unknown")
    finally:
        cluster.admin.patch(path, {"rules": rules})
    server.wait_ready()
    assert server.metrics("visibility_watch_down")['{collection="pods"}'] == 0
