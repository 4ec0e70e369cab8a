"""Where a job's time goes, through kube-apiserver: document, columns, and a condition to wait for."""

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
