"""A server that may read logs and nothing else, at the interval that is the default."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.api import Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import without
from tests.e2e.processes import wait_until
from tests.e2e.rbac import bind_in_namespace, wait_allowed
from tests.e2e.scripts import CRASHING, LOGGING, ONE_MISSES_A_FILE, PRINTING, SILENT, UNRULY
from tests.e2e.visibility_server import VisibilityServer
from tests.e2e.volumes import VolumeJobs
from tests.e2e.workspace import TRAINER, Workspace, condition

OFTEN = {"interval": "1s"}


@pytest.fixture(scope="module")
def only_logs(
    cluster: Cluster, server: VisibilityServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[VisibilityServer]:
    """A server of its own, which the aggregator forwards to as long as this module runs."""
    found = VisibilityServer(
        cluster, tmp_path_factory.mktemp("only-logs"), components=["source-logs"], probe_interval_s=None
    )
    yield found
    exit_code = found.stop()
    server.register()
    assert exit_code == 0, found.log_text()[-2000:]


@pytest.fixture(scope="module")
def jobs(shared: Workspace, only_logs: VisibilityServer) -> VolumeJobs:
    return VolumeJobs(shared, only_logs)


def shown_by_kubectl(jobs: VolumeJobs, name: str, holds: Callable[[Object], object]) -> Object:
    """The status, as soon as that holds and its report is a recent one."""

    def look() -> Object:
        answer = jobs.team.admin.kubectl("get", "tjp", name, "-n", jobs.team.name, "-o", "json")
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)["status"]
        assert condition(found, "Fresh")["reason"] == "RecentReport", found
        assert holds(found), found
        return found

    return wait_until(look, what=f"kubectl shows {name}")


def test_a_job_that_only_prints_is_read_from_its_log(jobs: VolumeJobs) -> None:
    jobs.start("printing", PRINTING, annotations=OFTEN)
    status = shown_by_kubectl(jobs, "printing", lambda status: {"steps", "epochs"} <= status.keys())
    # The bar has not ended its line: what the runtime has written down of it ends within the last 16 KiB.
    assert 100 < status["steps"]["current"] < 400
    assert status["steps"]["total"] == 1000
    assert status["epochs"] == {"current": 0.4}
    metrics = {metric["name"]: metric["value"] for metric in status["metrics"]}
    assert metrics == {"loss": "0.75", "grad_norm": "1.2", "learning_rate": "4e-05"}
    assert condition(status, "Fresh")["status"] == "True"
    assert status["observation"]["source"] == "logs"
    assert status["observation"]["message"] == "The job declares no source: trying the log."

    jobs.leave_sign("printing", "json")
    status = shown_by_kubectl(jobs, "printing", lambda status: status["steps"]["current"] > 500)
    assert {"name": "loss", "value": "0.5"} in status["metrics"]
    assert status["observation"]["source"] == "logs"


def test_structured_log_lines_are_read_and_shown_as_text(jobs: VolumeJobs) -> None:
    jobs.start("logging", LOGGING, annotations=OFTEN)
    status = shown_by_kubectl(jobs, "logging", lambda status: status["steps"]["current"] > 1)
    assert status["steps"]["total"] == 100_000
    assert status["metrics"] == [{"name": "loss", "value": "0.5"}]
    assert "message" not in status
    path = f"{jobs.team.collection}/logging/log-tail?lines=1"
    (line,) = jobs.team.cluster.admin.get(path)["lines"]
    assert " INFO train: a step " in line
    assert line.endswith(" loss=0.5")


def test_a_log_of_broken_and_very_long_lines_is_read_at_its_newest_end(jobs: VolumeJobs) -> None:
    jobs.start("unruly", UNRULY, annotations=OFTEN)
    status = shown_by_kubectl(jobs, "unruly", lambda status: status.get("steps"))
    assert (status["steps"]["current"], status["steps"]["total"]) == (7, 1000)
    tail = jobs.team.cluster.admin.get(f"{jobs.team.collection}/unruly/log-tail?lines=5")
    assert tail["truncated"]
    assert max(map(len, tail["lines"])) < 5000
    assert "Step 7/1000, loss: 0.5" in tail["lines"]
    jobs.leave_sign("unruly", "endless")

    def newest() -> str:
        lines = jobs.team.cluster.admin.get(f"{jobs.team.collection}/unruly/log-tail?lines=1")["lines"]
        assert lines[-1].startswith("y")
        found: str = lines[-1]
        return found

    assert len(wait_until(newest, what="the endless line is shown")) < 5000
    assert jobs.team.document("unruly")["status"]["steps"]["current"] == 7


def test_a_missing_right_to_logs_is_named_and_its_return_is_noticed(
    cluster: Cluster, jobs: VolumeJobs
) -> None:
    with without(cluster.admin, "source-logs"):
        jobs.start("unread", PRINTING, annotations=OFTEN)
        found = jobs.team.wait_condition("unread", "Reporting", "False", reason="LogsForbidden")
        assert "Grant get on pods/log" in found["message"]
    jobs.team.wait_reporting("unread")


def test_the_final_read_of_an_attempt_stands_until_the_next_one_reports(jobs: VolumeJobs) -> None:
    jobs.start("crashing", CRASHING, annotations=OFTEN)
    jobs.team.wait_reporting("crashing")
    shown: list[tuple[int, str]] = []
    signs = {30: "crash", 80: "speak"}
    for status in jobs.team.follow("crashing"):
        step, reason = status["steps"]["current"], condition(status, "Fresh")["reason"]
        metrics = {metric["name"] for metric in status.get("metrics", [])}
        assert ("only_then" in metrics) == (step in (30, 80))
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


# Kubeflow Trainer's initializer with huggingface_hub: ends when there is a file of that name.
DOWNLOADING = r"""
import os, sys, time
print("2026-11-22T20:09:55Z INFO     [huggingface.py:32] Downloading dataset: a/b", file=sys.stderr)
sys.stderr.write("\rFetching 12 files:  41%|####      | 5/12 [00:07<00:09,  1.30s/it]\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.fixture
def prepared(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """A runtime that prepares data as Kubeflow's for torchtune does, until `tmp_path / "done"` exists."""
    runtimes, name = f"{TRAINER}/clustertrainingruntimes", f"prepared-{secrets.token_hex(3)}"
    found = cluster.admin.get(f"{runtimes}/torch-distributed")
    jobs = found["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    container = {
        "name": "dataset-initializer",
        "image": "ghcr.io/kubeflow/trainer/dataset-initializer",
        "command": ["python", "-c", DOWNLOADING, str(tmp_path / "done")],
    }
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}
    spec = {"template": {"spec": {"containers": [container]}}}
    template = {"metadata": {"labels": labels}, "spec": spec}
    jobs.insert(0, {"name": "dataset-initializer", "replicas": 1, "template": template})
    cluster.admin.create(runtimes, found | {"metadata": {"name": name}})
    yield name
    cluster.admin.delete(f"{runtimes}/{name}")


def test_a_job_shows_how_far_its_data_is_until_its_training_begins(
    jobs: VolumeJobs, prepared: str, tmp_path: Path
) -> None:
    team = jobs.team
    team.start_job("prepared", SILENT, runtime=prepared, annotations=OFTEN)
    says = "dataset-initializer: Fetching 12 files 41 % (5/12)."

    def is_fetching(status: Object) -> bool:
        return bool(status["phase"] == "Initializing" and status["phaseMessage"] == says)

    status = team.wait_document("prepared", is_fetching, what="shows its initializer's bar")["status"]
    assert status["phaseReason"] == "InitializerRunning"
    # It is no progress of the training.
    assert not {"progressPercentage", "steps", "metrics", "estimatedRemainingSeconds"} & status.keys()
    described = team.alice.kubectl("describe", "tjp", "prepared", "-n", team.name)
    assert says in described.stdout, described.stderr

    (tmp_path / "done").touch()

    def trains(status: Object) -> bool:
        return bool(status["phase"] == "Running" and "phaseMessage" not in status)

    team.wait_document("prepared", trains, what="trains, and shows nothing of its initializer")


def test_the_last_lines_are_for_who_may_read_the_log_itself(cluster: Cluster, jobs: VolumeJobs) -> None:
    team = jobs.team  # alice has the built-in role `view`, with pods/log; bob nothing but ours
    bind_in_namespace(cluster.admin, team.name, "trainjob-visibility:viewer", team.bob.name)
    wait_allowed(cluster.admin, team.name, "get", user=team.bob.name, subresource="log-tail")
    jobs.start("tailed", PRINTING, annotations=OFTEN)
    path = f"{team.collection}/tailed/log-tail"

    def look() -> Object:
        answer = team.alice.kubectl("get", "--raw", f"{path}?lines=1")
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)
        assert "'loss': '0.75'" in "".join(found["lines"]), found
        return found

    found = wait_until(look, what="kubectl shows the last line")
    assert found["kind"] == "TrainJobLogTail"
    assert len(found["lines"]) == 1

    refused = team.bob.kubectl("get", "--raw", path)
    assert refused.returncode != 0
    assert 'cannot get resource "pods/log"' in refused.stderr
    assert "0.75" not in refused.stdout + refused.stderr
    unknown = team.alice.kubectl("get", "--raw", f"{path}?lines=0")
    assert unknown.returncode != 0
    assert "BadRequest" in unknown.stderr
    missing = team.alice.kubectl("get", "--raw", f"{team.collection}/nobody/log-tail")
    assert "NotFound" in missing.stderr


def test_why_a_job_failed_is_read_from_what_the_first_to_fail_has_printed(
    cluster: Cluster, shared: Workspace, only_logs: VisibilityServer
) -> None:
    secret = secrets.token_hex(8)
    shared.start_job("misses", ONE_MISSES_A_FILE.format(secret=secret), nodes=2)

    def failed() -> Object | None:
        found: Object = shared.document("misses")["status"].get("failure", {})
        return found if found.get("class") == "FileMissing" else None

    failure = wait_until(failed, what="the cause is known")
    assert failure["replica"] == "node-1"
    assert failure["retryable"] is False
    assert failure["cause"].startswith("a file or directory is not there")
    assert failure["hint"] in failure["message"]
    assert secret not in json.dumps(shared.document("misses"))
    wide = shared.alice.kubectl("get", "tjp", "misses", "-n", shared.name, "-o", "wide").stdout
    assert "(FileMissing)" in wide  # ATTEMPTS: it is tried again
    tail = cluster.admin.get(f"{shared.collection}/misses/log-tail")
    assert secret in tail["causeLine"]
