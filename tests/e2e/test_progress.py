"""What becomes visible of good, killed, silent and broken jobs, and how soon."""

from __future__ import annotations

import time

import pytest

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.scripts import GARBAGE, KILLED, ONE_FAILS, PULSING, REPORTING, SECRET, SHORT, SILENT
from tests.e2e.visibility_server import PROBE_INTERVAL_S, VisibilityServer
from tests.e2e.workspace import Workspace, condition

# Started together, so that they spend their time together.
_JOBS = {"pulsing": PULSING, "killed": KILLED, "silent": SILENT, "garbage": GARBAGE, "short": SHORT}
_OF_TWO_NODES = {"one-fails": ONE_FAILS}


@pytest.fixture(scope="module", autouse=True)
def jobs(shared: Workspace) -> Workspace:
    for name, script in _JOBS.items():
        shared.start_job(name, script)
    for name, script in _OF_TWO_NODES.items():
        shared.start_job(name, script, nodes=2)
    return shared


def _metric(status: Object, name: str) -> str:
    return str(next(metric["value"] for metric in status["metrics"] if metric["name"] == name))


def test_a_report_is_visible_within_an_interval_and_a_second(jobs: Workspace) -> None:
    def four_in_a_row() -> None:
        step = jobs.wait_reporting("pulsing")["status"]["steps"]["current"]
        for _ in range(4):
            status = jobs.wait_reporting("pulsing", beyond_step=step)["status"]
            delay_s = time.time() - float(_metric(status, "written_at"))
            assert status["steps"]["current"] == step + 1  # none was missed
            assert delay_s <= PROBE_INTERVAL_S + 1, delay_s
            step += 1

    # A machine that stands still for a second is not the server's fault: it is given one more try, not more.
    try:
        four_in_a_row()
    except AssertionError:
        four_in_a_row()


def test_a_killed_job_shows_its_exit_code(jobs: Workspace) -> None:
    document = jobs.wait_document(
        "killed",
        lambda status: status["rank0"].get("lastTermination"),
        what="shows how its container ended",
    )
    ended = document["status"]["rank0"]["lastTermination"]
    assert ended["exitCode"] == 137
    assert ended["signal"] == 9
    failure = document["status"]["failure"]
    assert (failure["replica"], failure["exitCode"], failure["retryable"]) == ("node-0", 137, True)
    assert "was ended by signal 9, SIGKILL," in failure["message"]


def test_of_several_replicas_the_one_that_failed_first_is_named(jobs: Workspace) -> None:
    """Only rank 0's pod is watched: the others are listed once one has failed."""
    document = jobs.wait_document(
        "one-fails", lambda status: status.get("failure", {}).get("podName"), what="shows what failed"
    )
    failure = document["status"]["failure"]
    assert (failure["replica"], failure["exitCode"], failure["retryable"]) == ("node-1", 3, False)
    assert failure["podName"].startswith("one-fails-node-0-1-")
    (node,) = document["status"]["replicas"]
    assert (node["name"], node["desired"]) == ("node", 2)
    wide = jobs.admin.kubectl("get", "tjp", "one-fails", "-n", jobs.name, "-o", "wide")
    assert "ATTEMPTS" in wide.stdout
    described = jobs.admin.kubectl("describe", "tjp", "one-fails", "-n", jobs.name).stdout
    assert "node-1: container node of pod one-fails-node-0-1-" in described


def test_a_job_that_never_reports_says_so(jobs: Workspace) -> None:
    status = jobs.wait_document(
        "silent",
        lambda status: condition(status, "Reporting")["reason"] == "NoProgressFile",
        what="has no progress file",
    )["status"]
    found = condition(status, "Reporting")
    assert found["status"] == "False"
    assert found["message"].startswith("No progress file at ")
    assert status["phase"] == "Running"
    assert "progressPercentage" not in status
    assert "steps" not in status
    assert condition(status, "Fresh")["status"] == "False"


def test_a_garbage_file_is_a_reason_and_never_repeated(jobs: Workspace, server: VisibilityServer) -> None:
    jobs.wait_condition("garbage", "Reporting", "False", reason="NotJSON")
    for output in ("json", "yaml", "wide"):
        answer = jobs.admin.kubectl("get", "tjp", "garbage", "-n", jobs.name, "-o", output)
        assert answer.returncode == 0, answer.stderr
        assert SECRET not in answer.stdout
    assert SECRET not in jobs.admin.kubectl("describe", "tjp", "garbage", "-n", jobs.name).stdout
    assert SECRET not in server.log_text()


def test_a_finished_job_keeps_its_last_document_when_its_pod_has_gone(jobs: Workspace) -> None:
    jobs.wait_document(
        "short",
        lambda status: (
            condition(status, "Complete")["status"] == "True"
            and condition(status, "Fresh")["reason"] == "FinalReport"
        ),
        what="is complete and has said its last word",
    )
    for pod in jobs.pods("short"):
        jobs.cluster.admin.delete(
            f"/api/v1/namespaces/{jobs.name}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0
        )
    wait_until(lambda: not jobs.pods("short"), what="its pod has gone")
    # Pods are watched in order: once a later one is known, so is the end of this one.
    jobs.start_job("later", REPORTING)
    jobs.wait_reporting("later")
    status = jobs.document("short")["status"]
    assert status["phase"] == "Succeeded"
    assert status["steps"] == {"current": 5, "total": 5} | {
        key: value for key, value in status["steps"].items() if key == "perSecond"
    }
    assert status["progressPercentage"] == 100
    assert condition(status, "Fresh")["reason"] == "FinalReport"


def test_a_deleted_job_is_gone_and_a_new_one_of_its_name_starts_empty(workspace: Workspace) -> None:
    first = workspace.start_job("bert", REPORTING)
    workspace.wait_reporting("bert")
    workspace.delete_job("bert")
    second = workspace.start_job("bert", SILENT)
    assert first["metadata"]["uid"] != second["metadata"]["uid"]

    # One look at both: the next one may show the other job.
    def document_of_second() -> Object:
        document = workspace.document("bert")
        assert document["metadata"]["uid"] == second["metadata"]["uid"]
        return document

    document = wait_until(document_of_second, what="bert shows the new job's uid")
    assert "steps" not in document["status"]


def test_an_mpi_job_is_read_from_its_launcher(workspace: Workspace) -> None:
    # The group `node` comes first, runs sshd and reports nothing.
    workspace.start_job("mpi", REPORTING, runtime="deepspeed-distributed")
    document = workspace.wait_reporting("mpi")
    assert document["status"]["rank0"]["podName"].startswith("mpi-launcher-0-0-")


def test_wait_returns_when_the_job_completes(workspace: Workspace) -> None:
    workspace.start_job("brief", SHORT)
    workspace.wait_document("brief", lambda status: status["phase"], what="is served")
    answer = workspace.alice.kubectl(
        *("wait", "tjp/brief", "--for=condition=Complete", "-n", workspace.name, "--timeout=80s")
    )
    assert answer.returncode == 0, answer.stderr
