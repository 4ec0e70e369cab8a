"""Where a job's time goes, through kube-apiserver: document, columns, and a condition to wait for."""

from __future__ import annotations

from tests.e2e.workspace import Workspace

# A step each half second, half of it spent in a loader; one checkpoint, at the first step.
LOADING = """
import datetime, itertools, json, os, time

def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat()

path, saved = os.environ["TRAINJOB_PROGRESS_FILE"], {"step": 1, "timestamp": now()}
for step in itertools.count(1):
    found = {"step": step, "timestamp": now(), "timeSpent": {"dataLoading": step / 4}, "checkpoint": saved}
    with open(path + ".new", "w") as file:
        json.dump(found, file)
    os.rename(path + ".new", path)
    time.sleep(0.5)
"""


def test_time_is_in_the_document_in_columns_and_a_condition_that_can_be_waited_for(
    workspace: Workspace,
) -> None:
    workspace.start_job("bert", LOADING, annotations={"at-risk-after": "10s", "interval": "5s"})
    waited = workspace.admin.kubectl(
        "wait", "--for=condition=AtRisk", "tjp/bert", "-n", workspace.name, "--timeout=60s"
    )
    workspace.wait_condition("bert", "AtRisk", "True", reason="NoRecentCheckpoint")
    assert waited.returncode == 0 or "not found" in waited.stderr, waited.stderr
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
