"""Jobs that are gone, from the archive, through kube-apiserver, found by whoever may view their namespace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.api import ApiFailure, Object
from tests.e2e.cluster import Cluster
from tests.e2e.manifests import COMPONENTS, path_of, read_manifests
from tests.e2e.processes import wait_until
from tests.e2e.scripts import ENDING, REPORTING
from tests.e2e.test_terminal import plugin
from tests.e2e.visibility_server import PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace
from tests.s3_server import Archive, s3_server
from trainjob_client import Client


@pytest.fixture(params=["directory", "s3"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    if request.param == "directory":
        yield Archive(str(tmp_path / "archive"), {})
    else:
        with s3_server(tmp_path) as served:
            yield served


def start(cluster: Cluster, tmp_path: Path, archive: Archive, name: str) -> VisibilityServer:
    for thing in read_manifests(["archive"]):
        if "archive" in thing["metadata"]["name"]:
            cluster.admin.apply(path_of(thing), thing)
    return VisibilityServer(
        cluster,
        tmp_path / name,
        components=(*COMPONENTS, "source-logs"),
        flags=[f"--archive={archive.location}"],
        environment=archive.environment,
    )


def listed(workspace: Workspace, name: str) -> Object | None:
    found = workspace.alice.api.items(f"{PREFIX}/namespaces/{workspace.name}/jobrecords")
    return next((each for each in found if each["jobRef"]["name"] == name), None)


def is_listed(workspace: Workspace, name: str, phase: str) -> bool:
    found = listed(workspace, name)
    return found is not None and found["summary"]["phase"] == phase


def has_log(workspace: Workspace, name: str) -> bool:
    record = listed(workspace, name)
    assert record is not None
    records = f"{PREFIX}/namespaces/{workspace.name}/jobrecords"
    try:
        workspace.alice.api.get(f"{records}/{record['metadata']['name']}/log-tail")
    except ApiFailure as failure:
        if failure.code != 404:
            raise
        return False
    return True


def note_event(cluster: Cluster, workspace: Workspace, name: str) -> None:
    jobs = f"/apis/trainer.kubeflow.org/v1alpha1/namespaces/{workspace.name}/trainjobs"
    about = {"kind": "TrainJob", "namespace": workspace.name, "name": name}
    about["uid"] = cluster.admin.get(f"{jobs}/{name}")["metadata"]["uid"]
    event = {"metadata": {"name": f"{name}.1"}, "involvedObject": about, "type": "Warning"}
    said = {
        "reason": "Tested",
        "message": "As a controller says it.",
        "lastTimestamp": "2026-01-23T10:00:00Z",
    }
    cluster.admin.create(f"/api/v1/namespaces/{workspace.name}/events", {**event, **said})


def test_a_deleted_job_is_found_with_its_curve_and_cause_when_server_and_disk_are_gone(
    cluster: Cluster, workspace: Workspace, archive: Archive, tmp_path: Path, server: VisibilityServer
) -> None:
    first = start(cluster, tmp_path, archive, "first")
    try:
        workspace.start_job("fails", ENDING.format(code=3))
        if cluster.kind == "real":  # the stand-in has no Events
            note_event(cluster, workspace, "fails")
        workspace.start_job("runs", REPORTING)
        workspace.wait_condition("fails", "Failed", "True")
        workspace.wait_reporting("runs")
        workspace.delete_job("runs")
        for name, phase in (("runs", "Running"), ("fails", "Failed")):
            wait_until(partial(is_listed, workspace, name, phase), what=f"{name} is archived")
        wait_until(partial(has_log, workspace, "fails"), what="its log is archived, after its record")
        workspace.delete_job("fails")
    finally:
        assert first.stop() == 0
    second = start(cluster, tmp_path, archive, "second")
    try:
        record = listed(workspace, "fails")
        assert record is not None
        name = record["metadata"]["name"]
        assert record["summary"]["phase"] == "Failed"
        assert record["summary"]["cause"]
        table = workspace.alice.kubectl("get", "jobrecords", "-n", workspace.name).stdout
        assert table.split()[:3] == ["NAME", "KIND", "PHASE"]
        assert name in table
        whole = json.loads(
            workspace.alice.kubectl("get", "jrec", name, "-n", workspace.name, "-o", "json").stdout
        )
        assert whole["progress"]["failure"]["exitCode"] == 3
        said = [(each["reason"], each["object"]["name"]) for each in whole["events"]]
        assert cluster.kind != "real" or ("Tested", "fails") in said, whole["events"]
        runs = listed(workspace, "runs")
        assert runs is not None
        assert runs["summary"]["deleted"] is True
        path = f"{PREFIX}/namespaces/{workspace.name}/jobrecords/{runs['metadata']['name']}"
        history = workspace.alice.api.get(f"{path}/history")
        assert {each["metric"] for each in history["series"]} >= {"loss"}
        side_by_side = plugin(workspace.alice, "records", "runs", "-n", workspace.name).stdout.split()
        assert side_by_side[:5] == ["NAME", "PHASE", "PROGRESS", "BEST", "LOSS"]
        assert runs["metadata"]["name"] in side_by_side
        words = ("compare", f"jrec/{name}", f"jrec/{runs['metadata']['name']}", "-n", workspace.name)
        compared = plugin(workspace.alice, *words)
        assert re.search(r"Phase +Failed", compared.stdout), compared
        with Client(workspace.name, workspace.alice.kubeconfig) as client:
            found = {each.job: each for each in client.list_job_records(since="1h")}
            assert (found["fails"].phase, found["fails"].summary.cause) == (
                "Failed",
                record["summary"]["cause"],
            )
            assert client.get_job_record(name).progress.failure.exit_code == 3  # type: ignore[union-attr]
            assert "loss" in client.get_job_record_history(found["runs"].name).metrics
        tail = workspace.alice.api.get(f"{PREFIX}/namespaces/{workspace.name}/jobrecords/{name}/log-tail")
        assert (tail["kind"], tail["podName"].partition("-node-0")[0]) == ("JobRecordLogTail", "fails")
        refused = workspace.bob.kubectl("get", "jobrecords", "-n", workspace.name)
        assert "Forbidden" in refused.stderr
        told = workspace.alice.kubectl("delete", "jobrecord", name, "-n", workspace.name)
        assert "Forbidden" in told.stderr
        told = workspace.admin.kubectl("delete", "jobrecord", name, "-n", workspace.name)
        assert told.returncode == 0, told.stderr
        assert listed(workspace, "fails") is None
        resources = cluster.admin.get(PREFIX)["resources"]
        verbs = next(each["verbs"] for each in resources if each["name"] == "jobrecords")
        assert verbs == ["get", "list"]  # with delete, the deletion of a namespace would delete its past
        explained = workspace.alice.kubectl("explain", "jobrecords.summary.cause")
        assert "Why it failed" in explained.stdout
    finally:
        assert second.stop() == 0
        server.register()
