"""`trainingjobs` through kube-apiserver: jobs of two kinds in one list, table and watch, by rights."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e.life import Life
from tests.e2e.processes import wait_until
from tests.e2e.rbac import bind_in_namespace, wait_allowed
from tests.e2e.scripts import REPORTING
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace
from tests.kinds import SAMPLES

JOB = next(each for each in SAMPLES if each.resource == "jobs")
_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
_INFORMER = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


@pytest.fixture(scope="module")
def team(shared: Workspace) -> Iterator[Workspace]:
    """With a TrainJob and a Job, both called bert, that report."""
    shared.start_job("bert", REPORTING)
    life = Life(shared, JOB)
    life.create()
    shared.wait_reporting("bert")
    life.wait_reporting()
    yield shared
    life.delete()


@pytest.fixture(scope="module")
def half(team: Workspace) -> Iterator[None]:
    """Bob may read all kinds together, and of the kinds TrainJobs."""
    admin, name = team.cluster.admin, f"half-{team.name}"
    rule = {
        "apiGroups": [GROUP],
        "resources": ["trainingjobs", "trainjobs"],
        "verbs": ["get", "list", "watch"],
    }
    admin.create(_ROLES, {"metadata": {"name": name}, "rules": [rule]})
    bind_in_namespace(admin, team.name, name, team.bob.name)
    wait_allowed(admin, team.name, "watch", user=team.bob.name, resource="trainingjobs")
    yield
    admin.delete(f"{_ROLES}/{name}")


def names(output: subprocess.CompletedProcess[str]) -> list[str]:
    assert output.returncode == 0, output.stderr
    return output.stdout.split()


def test_kubectl_lists_all_kinds_in_one_table(server: VisibilityServer, team: Workspace) -> None:
    get = team.admin.kubectl
    table = [line.split() for line in get("get", "tjs", "-A").stdout.splitlines()]
    assert table[0][:4] == ["NAMESPACE", "NAME", "KIND", "PHASE"]
    rows = [row[1:3] for row in table[1:] if row[0] == team.name]
    assert rows == [["jobs.bert", "Job"], ["trainjobs.bert", "TrainJob"]]
    one = json.loads(get("get", "tjs", "jobs.bert", "-n", team.name, "-o", "json").stdout)
    assert (one["kind"], one["jobRef"]["resource"], one["jobRef"]["name"]) == ("TrainingJob", "jobs", "bert")
    assert one["status"]["steps"]["current"] > 0
    assert "name: trainjobs.bert" in get("get", "tjs", "-n", team.name, "-o", "yaml").stdout
    chunks = get("get", "tjs", "-n", team.name, "--chunk-size=1", "-o", "name")
    assert names(chunks) == [f"trainingjob.{GROUP}/{each}" for each in ("jobs.bert", "trainjobs.bert")]
    explained = get("explain", "tjs.jobRef.resource")
    assert "KIND:       TrainingJob" in explained.stdout, explained.stderr
    category = names(get("get", "training", "-n", team.name, "-o", "name"))
    assert sorted(category) == [f"jobprogress.{GROUP}/bert", f"trainjobprogress.{GROUP}/bert"]
    waited = get(
        "wait", "tjs/jobs.bert", "-n", team.name, "--for=jsonpath={.jobRef.kind}=Job", "--timeout=30s"
    )
    assert waited.returncode == 0, waited.stderr


def test_an_informer_follows_all_kinds(server: VisibilityServer, team: Workspace) -> None:
    with team.alice.api.watch(f"{PREFIX}/namespaces/{team.name}/trainingjobs", **_INFORMER) as events:
        initial = [next(events) for _ in range(3)]
        found = [(each["type"], each["object"]["metadata"].get("name")) for each in initial]
        assert found == [("ADDED", "jobs.bert"), ("ADDED", "trainjobs.bert"), ("BOOKMARK", None)]
        assert "k8s.io/initial-events-end" in initial[2]["object"]["metadata"]["annotations"]
        changed: set[str] = set()
        while len(changed) < 2:
            event = next(events)
            assert event["type"] == "MODIFIED"
            changed.add(event["object"]["metadata"]["name"])
        assert changed == {"jobs.bert", "trainjobs.bert"}


def test_kubectl_watches_all_kinds(server: VisibilityServer, team: Workspace) -> None:
    argv = team.alice.kubectl_argv("get", "tjs", "-n", team.name, "-w")
    with subprocess.Popen(argv, env=team.alice.kubectl_env(), stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        try:
            assert watching.stdout.readline().split()[:3] == ["NAME", "KIND", "PHASE"]
            seen = [watching.stdout.readline().split()[:2] for _ in range(4)]
            assert {tuple(each) for each in seen} == {("jobs.bert", "Job"), ("trainjobs.bert", "TrainJob")}
        finally:
            watching.terminate()


def test_each_caller_sees_the_kinds_that_he_may_read(
    server: VisibilityServer, team: Workspace, half: None
) -> None:
    listed = names(team.bob.kubectl("get", "tjs", "-n", team.name, "-o", "name"))
    assert listed == [f"trainingjob.{GROUP}/trainjobs.bert"]
    path = f"{PREFIX}/namespaces/{team.name}/trainingjobs"
    with team.bob.api.watch(path, **_INFORMER) as events:
        assert [next(events)["type"] for _ in range(2)] == ["ADDED", "BOOKMARK"]
        assert [next(events)["object"]["jobRef"]["resource"] for _ in range(3)] == ["trainjobs"] * 3
    refused = team.bob.api.raw("GET", f"{path}/jobs.bert")
    assert refused.status_code == 403
    assert 'cannot get resource "jobs"' in refused.json()["message"]
    everywhere = team.bob.api.raw("GET", f"{PREFIX}/trainingjobs")
    assert (everywhere.status_code, everywhere.json()["reason"]) == (403, "Forbidden")


def test_time_is_summed_over_the_jobs_that_a_caller_may_list(
    server: VisibilityServer, team: Workspace, half: None
) -> None:
    path = f"{PREFIX}/namespaces/{team.name}/trainingjobs?sumBy=kind&window=whole"
    sums = json.loads(team.admin.kubectl("get", "--raw", path).stdout)
    assert sums["kind"] == "TrainingJobSums"
    assert {each["name"] for each in sums["groups"]} == {"Job", "TrainJob"}
    assert sums["total"]["jobs"] == 2
    assert sums["total"]["goodput"]["seconds"]["productive"] > 0
    own = json.loads(team.bob.kubectl("get", "--raw", path).stdout)
    assert [each["name"] for each in own["groups"]] == ["TrainJob"]


def test_a_job_that_goes_goes_from_the_list_of_all_kinds(
    server: VisibilityServer, workspace: Workspace
) -> None:
    workspace.start_job("gpt", REPORTING)
    path = f"{PREFIX}/namespaces/{workspace.name}/trainingjobs"
    wait_until(lambda: workspace.admin.api.items(path)[0], what="the job is listed")
    with workspace.admin.api.watch(path) as events:
        workspace.delete_job("gpt")
        while (event := next(events))["type"] != "DELETED":
            pass
    assert event["object"]["metadata"]["name"] == "trainjobs.gpt"
    assert workspace.admin.api.items(path) == []
