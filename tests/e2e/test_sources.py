"""Every way in which progress arrives, through a server that has all of them switched on."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import without
from tests.e2e.processes import free_port, wait_until
from tests.e2e.scripts import (
    ARGO,
    CRASHING,
    KUBEFLOW_FILE,
    PRINTING,
    REPORTING,
    SECRET_FILES,
    SILENT,
    TELLING,
    TWO_VOICED,
    keeping,
)
from tests.e2e.secrecy import assert_untold
from tests.e2e.visibility_server import PREFIX, VisibilityServer
from tests.e2e.volumes import DIRECTORY, VolumeJobs
from tests.e2e.workspace import Workspace, condition

COMPONENTS = ("source-exec", "source-http", "source-logs", "source-push")
CHANGES = 20  # that a watch is followed for


@pytest.fixture(scope="module")
def every_source(
    cluster: Cluster, server: VisibilityServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityServer]:
    """A server of its own, which the aggregator forwards to as long as this module runs."""
    found = VisibilityServer(cluster, tmp_path_factory.mktemp("every-source"), components=COMPONENTS)
    yield found
    exit_code = found.stop()
    server.register()
    assert exit_code == 0, found.log_text()[-2000:]


@pytest.fixture(scope="module")
def jobs(shared: Workspace, every_source: VisibilityServer) -> VolumeJobs:
    return VolumeJobs(shared, every_source)


def metrics_of(status: Object) -> dict[str, str]:
    return {metric["name"]: metric["value"] for metric in status.get("metrics", [])}


def source_of(status: Object) -> str:
    return str(status.get("observation", {}).get("source", ""))


# --- files


def test_a_file_that_another_project_names_is_read(jobs: VolumeJobs) -> None:
    argo, kubeflow = "ARGO_PROGRESS_FILE", "KUBEFLOW_TRAINER_STATUS_FILE"
    jobs.start("argo", ARGO, env={argo: f"{DIRECTORY}/argo"})
    jobs.start("kubeflow", KUBEFLOW_FILE, env={kubeflow: f"{DIRECTORY}/kubeflow"})
    status = jobs.team.wait_reporting("argo")["status"]
    assert status["steps"] == {"current": 37, "total": 100}
    assert status["progressPercentage"] == 37
    assert status["observation"]["message"] == f"Declared by environment variable {argo}."
    status = jobs.team.wait_document("kubeflow", metrics_of, what="reports a metric")["status"]
    assert (status["progressPercentage"], metrics_of(status)) == (42, {"loss": "0.5"})
    assert status["observation"]["message"] == f"Declared by environment variable {kubeflow}."


# --- logs


def test_without_a_right_to_exec_the_log_is_read_and_the_document_says_why(
    cluster: Cluster, jobs: VolumeJobs
) -> None:
    with without(cluster.admin, "source-exec"):
        jobs.start("no-exec", PRINTING)
        status = jobs.team.wait_document(
            "no-exec",
            lambda status: (
                "steps" in status and "exec failed with ExecForbidden" in status["observation"]["message"]
            ),
            what="reports, and says why in this way",
        )["status"]
    assert status["observation"]["source"] == "logs"
    assert condition(status, "Reporting")["status"] == "True"


def test_the_final_read_of_an_attempt_stands_until_the_next_one_reports(jobs: VolumeJobs) -> None:
    jobs.start("crashing", CRASHING)
    jobs.team.wait_reporting("crashing")
    shown: list[tuple[int, str]] = []
    signs = {30: "crash", 80: "speak"}
    for status in jobs.team.follow("crashing"):
        step, reason = status["steps"]["current"], condition(status, "Fresh")["reason"]
        assert source_of(status) == "logs"
        assert (metrics_of(status).get("only_then") is not None) == (step in (30, 80))
        shown.append((step, reason))
        # A look may meet the last word a moment before anybody knows that it is one.
        if step in signs and (step == 30 or reason == "AttemptEnded"):
            jobs.leave_sign("crashing", signs.pop(step))
        if step == 20:
            break
    first, last_word, *new_life = [step for step, _ in itertools.groupby(step for step, _ in shown)]
    assert (first, last_word) == (30, 80), shown
    assert new_life == sorted(new_life)
    assert new_life[-1:] == [20], shown
    reasons = [reason for step, reason in shown if step == 80]
    assert set(reasons[reasons.index("AttemptEnded") :]) == {"AttemptEnded"}
    since = {reason for step, reason in shown if step < 30}
    assert "RecentReport" in since
    assert "AttemptEnded" not in since


# --- status


def test_a_status_is_shown_until_rank_0_restarts(jobs: VolumeJobs) -> None:
    team = jobs.team
    jobs.start("patched", SILENT)
    team.wait_running("patched")
    patch_status(team, "patched", 61)
    status = team.wait_document("patched", lambda s: s.get("progressPercentage") == 61, what="shows 61 %")[
        "status"
    ]
    assert source_of(status) == "status"
    assert (status["steps"], metrics_of(status)) == ({"current": 61, "total": 100}, {"loss": "0.5"})
    assert condition(status, "Fresh")["status"] == "True"
    (pod,) = team.pods("patched")
    former = pod["metadata"]["name"]
    team.cluster.admin.delete(f"/api/v1/namespaces/{team.name}/pods/{former}")
    status = team.wait_document(
        "patched",
        lambda status: (
            condition(status, "Fresh")["reason"] == "AttemptEnded" and status["rank0"]["podName"] != former
        ),
        what="says that its attempt has ended",
    )["status"]
    assert (condition(status, "Fresh")["status"], status["progressPercentage"]) == ("False", 61)
    wait_until(lambda: team.wait_running("patched")["metadata"]["name"] != former, what="its successor runs")
    patch_status(team, "patched", 3)  # said of an earlier time it would be the former's
    status = team.wait_document("patched", lambda s: s["progressPercentage"] == 3, what="shows 3 %")["status"]
    assert condition(status, "Fresh")["status"] == "True"


def patch_status(team: Workspace, name: str, percentage: int) -> None:
    """As whoever fills in the status does."""
    metrics = {"current_step": percentage, "total_steps": 100, "loss": 0.5}
    status = {
        "progressPercentage": percentage,
        "lastUpdatedTime": datetime.now(UTC).isoformat(),
        "metrics": [{"name": name, "value": str(value)} for name, value in metrics.items()],
    }
    patch = json.dumps({"status": {"trainerStatus": status}})
    answer = team.admin.kubectl(
        *("patch", "trainjob", name, "-n", team.name, "--subresource=status", "--type=merge", "-p", patch)
    )
    assert answer.returncode == 0, answer.stderr


# --- merge


def test_no_field_vanishes_while_a_job_reports_in_two_ways(jobs: VolumeJobs) -> None:
    jobs.start("two-voiced", TWO_VOICED)
    jobs.team.wait_reporting("two-voiced")
    fields: set[str] = set()
    sources: set[str] = set()
    for changes, status in enumerate(jobs.team.follow("two-voiced")):
        seen = fields_of(status)
        assert fields <= seen, f"change {changes}, of {source_of(status)}: {fields - seen} vanished"
        fields = seen
        sources.add(source_of(status))
        if changes >= CHANGES and sources == {"exec", "push"}:
            break
    assert sources == {"exec", "push"}
    assert {"metric loss", "metric accuracy", "message", "epochs", "steps"} <= fields


def fields_of(status: Object) -> set[str]:
    return {*status, *(f"metric {name}" for name in metrics_of(status)), *status.get("steps", {})}


# --- annotations


def test_a_job_that_wants_to_be_left_alone_is(
    cluster: Cluster, every_source: VisibilityServer, workspace: Workspace, jobs: VolumeJobs
) -> None:
    workspace.start_job("alone", REPORTING, annotations={"source": "none"})
    workspace.wait_running("alone")
    found = workspace.wait_condition("alone", "Reporting", "False", reason="SwitchedOff")
    assert "source of the job switches probing off" in found["message"]
    jobs.team.start_job("asked", REPORTING)  # after it, and so it is its turn later
    jobs.team.wait_reporting("asked", beyond_step=20)
    assert cluster.agent.execs[workspace.name] == 0


def test_a_source_that_the_server_has_not_is_named_with_those_that_it_has(
    server: VisibilityServer, jobs: VolumeJobs
) -> None:
    jobs.start("wants-logs", PRINTING, annotations={"source": "logs"})
    jobs.team.wait_reporting("wants-logs")
    # The session's own server has no logs.
    admin = jobs.team.admin.pair
    path = f"{PREFIX}/namespaces/{jobs.team.name}/trainjobs/wants-logs"

    def refusal() -> Object:
        """Once that server knows the pod."""
        found = condition(server.get(path, cert=(admin.cert, admin.key)).json()["status"], "Reporting")
        assert found["reason"] == "SourceNotEnabled", found
        return found

    found = wait_until(refusal, what="the source is refused")
    assert found["status"] == "False"
    assert found["message"].endswith(
        "source names logs, which this server has not enabled. Use one of: exec, push, status."
    )


def test_not_a_byte_of_a_secret_file_is_repeated_anywhere(
    jobs: VolumeJobs, server: VisibilityServer, every_source: VisibilityServer
) -> None:
    for name, content in SECRET_FILES.items():
        jobs.start(name, keeping(content), annotations={"path": f"{DIRECTORY}/secret"})
    jobs.start("forbidden", SILENT, annotations={"path": "/data/../run/secrets/token"})
    jobs.start("absent", SILENT, annotations={"path": f"{DIRECTORY}/secret"})
    # What lies there, and whether anything does, is not told apart.
    told = {
        jobs.team.wait_condition(name, "Reporting", "False", reason="NoProgressFile")["message"]
        for name in (*SECRET_FILES, "absent")
    }
    (message,) = told
    assert message.startswith(f"No report at {DIRECTORY}/secret, the path in the job's annotation.")
    found = jobs.team.wait_condition("forbidden", "Reporting", "False", reason="NoProgressFile")
    assert "Annotation visibility.trainer.kubeflow.org/path is ignored" in found["message"]
    assert_untold(jobs.team, server, every_source)


def test_a_port_of_the_nodes_own_is_never_asked(
    jobs: VolumeJobs, server: VisibilityServer, every_source: VisibilityServer
) -> None:
    """The pods' address here is 127.0.0.1, where in a cluster the server itself would answer.

    Pods with an address of their own are asked in test_http.py.
    """
    port = str(free_port())
    jobs.start("telling", TELLING, annotations={"port": port, "source": "http"}, env={"PORT": port})
    jobs.team.wait_running("telling")
    jobs.leave_sign("telling", "ready")
    jobs.team.wait_condition("telling", "Reporting", "False", reason="PodIPRefused")
    signs = jobs.run("telling", "ls", DIRECTORY)
    assert signs is not None
    assert "ready" in signs
    assert "asked" not in signs
    assert_untold(jobs.team, server, every_source)


# --- nothing at all


def test_a_job_with_nothing_says_what_was_looked_for(jobs: VolumeJobs) -> None:
    jobs.start("nothing", SILENT)
    found = jobs.team.wait_condition("nothing", "Reporting", "False", reason="NoProgressFile")
    assert found["message"].startswith("No progress file at /tmp/trainjob-progress.json (the default path;")
    table = jobs.team.admin.kubectl("get", "tjp", "nothing", "-n", jobs.team.name).stdout
    assert max(map(len, table.splitlines())) <= 80

    def reason() -> str:
        wide = jobs.team.admin.kubectl("get", "tjp", "nothing", "-n", jobs.team.name, "-o", "wide")
        header, row = wide.stdout.splitlines()
        return row[header.index("REASON") : header.index("MESSAGE")].strip()

    wait_until(lambda: reason() == "NoProgressFile", what="the reason stands in the table")
