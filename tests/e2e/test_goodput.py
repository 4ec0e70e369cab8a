"""Where a job's time goes and when it should be stopped, through kube-apiserver: conditions to wait for."""

from __future__ import annotations

from tests.e2e.scripts import LOADING
from tests.e2e.workspace import Workspace


def test_time_is_in_the_document_in_columns_and_a_condition_that_can_be_waited_for(
    workspace: Workspace,
) -> None:
    workspace.start_job("bert", LOADING, annotations={"at-risk-after": "10s", "interval": "5s"})
    workspace.wait_condition("bert", "AtRisk", "False", reason="RecentCheckpoint")
    waited = workspace.admin.kubectl(
        "wait", "--for=condition=AtRisk", "tjp/bert", "-n", workspace.name, "--timeout=60s"
    )
    assert waited.returncode == 0, waited.stderr
    workspace.wait_condition("bert", "AtRisk", "True", reason="NoRecentCheckpoint")
    workspace.wait_document(
        "bert",
        lambda status: status["goodput"]["whole"]["seconds"].keys() >= {"dataLoading", "productive"},
        what="says what it spends its time on",
    )
    shown = workspace.admin.kubectl("get", "tjp", "bert", "-n", workspace.name, "-o", "wide").stdout
    header, row = shown.splitlines()
    cells = {
        name: row[header.index(name) :].split()[0] for name in ("GOODPUT", "CHECKPOINT") if name in header
    }
    assert cells["GOODPUT"].endswith("%")
    assert cells["CHECKPOINT"] == "1"
    percent = workspace.admin.kubectl(
        "get", "tjp", "bert", "-n", workspace.name, "-o", "jsonpath={.status.goodput.whole.percentage}"
    )
    assert 0 < float(percent.stdout) < 100


TRIAL = """
import time
from trainjob_progress import report

with report(total_steps=5) as r:
    for step in range(5):
        r.step(loss=LOSS)
        time.sleep(0.5)
    time.sleep(WAIT)
"""


def test_a_trial_that_is_worse_than_those_before_it_should_stop(workspace: Workspace) -> None:
    """docs/trackers.md: kubectl waits for the advice, and deletes the job."""
    common: dict[str, dict[str, str]] = {
        "labels": {"katib.kubeflow.org/experiment": "sweep"},
        "annotations": {"should-stop": "median@1", "interval": "2s"},
    }
    for number in range(3):
        workspace.start_job(f"bert-{number}", TRIAL.replace("LOSS", "1").replace("WAIT", "0"), **common)
    for number in range(3):
        workspace.wait_condition(f"bert-{number}", "Complete", "True")
    workspace.start_job("bert-7", TRIAL.replace("LOSS", "9").replace("WAIT", "600"), **common)
    workspace.wait_document("bert-7", lambda _: True, what="a document")
    told = workspace.admin.kubectl(
        "wait", "tjp", "bert-7", "-n", workspace.name, "--for=condition=ShouldStop", "--timeout=90s"
    )
    assert told.returncode == 0, told.stderr
    assert workspace.wait_condition("bert-7", "ShouldStop", "True", reason="MedianStop")
    assert workspace.admin.kubectl("delete", "trainjob", "bert-7", "-n", workspace.name).returncode == 0
