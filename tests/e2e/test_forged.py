"""What somebody may try who may create pods in the namespace of a job, or whose program runs in one."""

from __future__ import annotations

import copy
import json

import pytest

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.scripts import REPORTING
from tests.e2e.workspace import Workspace, condition

FORGED = """
import datetime, json, os, time

while True:
    now = datetime.datetime.now(datetime.timezone.utc).isoformat()
    document = {"step": 99, "totalSteps": 100, "message": "FORGED", "timestamp": now}
    path = os.environ["TRAINJOB_PROGRESS_FILE"]
    with open(path + ".new", "w") as file:
        json.dump(document, file)
    os.rename(path + ".new", path)
    time.sleep(0.2)
"""
ZEROS = "00000000-0000-0000-0000-000000000000"


def forge(team: Workspace, real: Object, suffix: str, **owner: object) -> str:
    """A copy of the real pod with the labels of a later attempt; returns its name."""
    meta = real["metadata"]
    (reference,) = meta["ownerReferences"]
    name = f"{meta['name'].rpartition('-')[0]}-{suffix}"
    spec = copy.deepcopy(real["spec"])
    spec["containers"][0] |= {"command": ["python", "-c", FORGED], "args": None}
    team.cluster.admin.create(
        f"/api/v1/namespaces/{team.name}/pods",
        {
            "metadata": {
                "name": name,
                "labels": meta["labels"] | {"jobset.sigs.k8s.io/restart-attempt": "9"},
                "annotations": meta.get("annotations", {}),
                "ownerReferences": [reference | owner],
            },
            "spec": spec,
        },
    )
    return name


@pytest.fixture
def real(workspace: Workspace) -> Object:
    workspace.start_job("bert", REPORTING)
    workspace.wait_reporting("bert")
    return workspace.wait_running("bert")


def test_a_pod_with_forged_labels_attempt_and_owner_takes_nobodys_place(
    workspace: Workspace, real: Object
) -> None:
    pods = f"/api/v1/namespaces/{workspace.name}/pods"
    # What is made last is seen last, so all of them have been seen then.
    forge(workspace, real, "zeros", uid=ZEROS)  # the garbage collector deletes it, sooner or later
    loose = forge(workspace, real, "loose", blockOwnerDeletion=False)

    def is_running(name: str) -> bool:
        return any(
            pod["metadata"]["name"] == name and pod["status"].get("phase") == "Running"
            for pod in workspace.pods("bert")
        )

    wait_until(lambda: is_running(loose), what="a forged pod runs")
    second = forge(workspace, real, "twice")
    found = workspace.wait_document(
        "bert",
        lambda status: f"Pod {second}" in condition(status, "Reporting")["message"],
        what="the second pod is named",
    )
    step = found["status"]["steps"]["current"]
    later = workspace.wait_reporting("bert", beyond_step=step)
    for document in (found, later):
        assert document["status"]["rank0"]["podName"] == real["metadata"]["name"]
        assert "FORGED" not in json.dumps(document)
    workspace.cluster.admin.delete(f"{pods}/{second}", gracePeriodSeconds=0)
    workspace.wait_document(
        "bert",
        lambda status: "claims" not in condition(status, "Reporting")["message"],
        what="the second pod is gone",
    )


ODD = """
import datetime, json, os, time

now = datetime.datetime.now(datetime.timezone.utc).isoformat()
text = "a\\x1b[2Jb\\x9bc\\u202ed\\u200be"
with open(os.environ["TRAINJOB_PROGRESS_FILE"], "w") as file:
    json.dump({"step": 1, "timestamp": now, "metrics": {text: text}, "message": text}, file)
time.sleep(3600)
"""


def test_what_a_pod_reports_rules_no_terminal_and_is_in_json_as_it_was(workspace: Workspace) -> None:
    workspace.start_job("odd", ODD)
    status = workspace.wait_reporting("odd")["status"]
    told = "a\x1b[2Jb\x9bc\u202ed\u200be"
    assert (status["message"], status["metrics"]) == (told, [{"name": told, "value": told}])
    for form in ((), ("-o", "wide")):
        answer = workspace.alice.kubectl("get", "tjp", "-n", workspace.name, *form)
        assert answer.returncode == 0, answer.stderr
        assert "a\ufffd[2Jb\ufffdc\ufffdd\ufffde" in answer.stdout
        assert not set(answer.stdout) & set("\x1b\x9b\u202e\u200b")


def test_a_pod_that_is_nine_megabytes_on_the_watch_hides_no_change_of_another(
    workspace: Workspace, request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--cluster") != "real":
        pytest.skip("the stand-in writes each < as one byte")
    workspace.start_job("bert", REPORTING)
    workspace.wait_reporting("bert")
    pods = f"/api/v1/namespaces/{workspace.name}/pods"
    labels = {f"jobset.sigs.k8s.io/{name}": "0" for name in ("jobset-name", "job-index")}
    large = {"name": "node", "image": "x", "env": [{"name": "X", "value": "<" * 1_560_000}]}
    workspace.cluster.admin.create(
        pods,
        {
            "metadata": {
                "name": "large",
                "labels": labels | {"batch.kubernetes.io/job-completion-index": "0"},
            },
            "spec": {"containers": [large], "schedulerName": "none"},
        },
    )
    workspace.start_job("later", REPORTING)
    workspace.wait_reporting("later")
    workspace.cluster.admin.delete(f"{pods}/large")
    workspace.start_job("last", REPORTING)
    workspace.wait_reporting("last")
