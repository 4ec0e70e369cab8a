"""What kubectl's users see: an administrator, alice who may view one namespace, bob who may do nothing."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.e2e.api import Object
from tests.e2e.processes import wait_until
from tests.e2e.scripts import REPORTING
from tests.e2e.visibility_server import GROUP, PREFIX, VisibilityServer
from tests.e2e.workspace import Workspace, condition

_JOB = "bert"


@pytest.fixture(scope="module")
def team(shared: Workspace) -> Workspace:
    """A namespace where the job `bert` runs and reports."""
    shared.start_job(_JOB, REPORTING, labels={"model": "bert"})
    shared.wait_reporting(_JOB)
    return shared


@pytest.mark.parametrize("who", ["admin", "alice"])
def test_get_raw_prints_the_progress_document(team: Workspace, who: str) -> None:
    def shown() -> Object:
        answer = getattr(team, who).kubectl("get", "--raw", f"{team.collection}/{_JOB}/progress")
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)
        assert condition(found["status"], "Fresh")["status"] == "True", found
        return found

    document = wait_until(shown, what="a fresh document is printed")
    assert document["apiVersion"] == f"{GROUP}/v1alpha1"
    assert document["kind"] == "TrainJobProgress"
    assert (document["metadata"]["namespace"], document["metadata"]["name"]) == (team.name, _JOB)
    assert document["metadata"]["labels"] == {"model": "bert"}
    status = document["status"]
    assert status["phase"] == "Running"
    assert status["steps"]["current"] > 0
    assert status["steps"]["total"] == 100_000
    assert {"name": "loss", "value": "0.5"} in status["metrics"]
    assert status["rank0"]["podName"].startswith(f"{_JOB}-node-0-0-")


@pytest.mark.parametrize("who", ["admin", "alice"])
def test_get_raw_prints_the_history(team: Workspace, who: str) -> None:
    path = f"{team.collection}/{_JOB}/history?metric=loss&maxPoints=50"

    def shown() -> Object:
        answer = getattr(team, who).kubectl("get", "--raw", path)
        assert answer.returncode == 0, answer.stderr
        found: Object = json.loads(answer.stdout)
        assert len(found["progress"][0]["times"]) >= 3, found
        return found

    found = wait_until(shown, what="three points are printed")
    assert (found["apiVersion"], found["kind"]) == (f"{GROUP}/v1alpha1", "TrainJobProgressHistory")
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == (team.name, _JOB)
    assert found["attempts"][0]["number"] == 0
    (series,) = found["series"]
    assert (series["metric"], set(series["values"])) == ("loss", {"0.5"})
    assert series["times"] == sorted(series["times"])
    refused = team.alice.kubectl("get", "--raw", f"{team.collection}/{_JOB}/history?maxPoints=many")
    assert "maxPoints must be a whole number" in refused.stderr
    assert team.bob.kubectl("get", "--raw", path).returncode != 0


def test_get_lists_every_namespace_for_an_administrator(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "tjp", "-A")
    assert answer.returncode == 0, answer.stderr
    header, *rows = answer.stdout.splitlines()
    assert header.split()[:2] == ["NAMESPACE", "NAME"]
    assert header.split()[-1] == "AGE"
    (row,) = (row for row in rows if row.startswith(f"{team.name} "))
    assert row.split()[1] == _JOB
    assert "Running" in row


def test_get_lists_the_own_namespace_for_its_viewer(team: Workspace) -> None:
    answer = team.alice.kubectl("get", "tjp", "-n", team.name)
    assert answer.returncode == 0, answer.stderr
    assert [row.split()[0] for row in answer.stdout.splitlines()] == ["NAME", _JOB]


def test_an_empty_namespace_has_no_resources(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "tjp", "-n", "default")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr == "No resources found in default namespace.\n"


@pytest.mark.parametrize("name", ["tjp", "trainjobprogress", f"trainjobs.{GROUP}"])
def test_every_name_of_the_resource_leads_to_the_yaml(team: Workspace, name: str) -> None:
    answer = team.alice.kubectl("get", name, _JOB, "-n", team.name, "-o", "yaml")
    assert answer.returncode == 0, answer.stderr
    document = yaml.safe_load(answer.stdout)
    assert document["kind"] == "TrainJobProgress"
    assert document["status"]["phase"] == "Running"


def test_a_bare_trainjobs_still_means_the_trainjobs_themselves(team: Workspace) -> None:
    answer = team.admin.kubectl("get", "trainjobs", _JOB, "-n", team.name, "-o", "jsonpath={.apiVersion}")
    assert answer.stdout == "trainer.kubeflow.org/v1alpha1"


def test_describe_shows_status_and_conditions(team: Workspace) -> None:
    answer = team.alice.kubectl("describe", "tjp", _JOB, "-n", team.name)
    assert answer.returncode == 0, answer.stderr
    lines = [line.split() for line in answer.stdout.splitlines()]
    assert ["Name:", _JOB] in lines
    assert ["Kind:", "TrainJobProgress"] in lines
    assert ["Phase:", "Running"] in lines
    assert ["Type:", "Reporting"] in lines


@pytest.mark.parametrize("who", ["admin", "alice", "bob"])
def test_explain_describes_the_status_to_anybody(team: Workspace, who: str) -> None:
    answer = getattr(team, who).kubectl("explain", "tjp.status")
    assert answer.returncode == 0, answer.stderr
    assert f"GROUP:      {GROUP}" in answer.stdout
    assert "KIND:       TrainJobProgress" in answer.stdout
    for field in ("progressPercentage", "conditions", "rank0", "steps", "phase"):
        assert f"  {field}\t" in answer.stdout


def test_api_resources_shows_names_and_kind(team: Workspace) -> None:
    answer = team.bob.kubectl("api-resources", "--api-group", GROUP, "--no-headers", "-o", "wide")
    assert answer.returncode == 0, answer.stderr
    rows = [line.split() for line in answer.stdout.splitlines()]
    (row,) = (row for row in rows if row[0] == "trainjobs")
    assert row[1:5] == ["tjp", f"{GROUP}/v1alpha1", "true", "TrainJobProgress"]
    assert row[5] == "get,list,watch"


def test_auth_can_i_knows_the_subresource(team: Workspace) -> None:
    question = (
        *("auth", "can-i", "get", f"trainjobs.{GROUP}/{_JOB}", "--subresource=progress"),
        *("-n", team.name),
    )
    verdicts = [user.kubectl(*question) for user in (team.admin, team.alice, team.bob)]
    assert [(verdict.returncode, verdict.stdout) for verdict in verdicts] == [
        (0, "yes\n"),
        (0, "yes\n"),
        (1, "no\n"),
    ]
    assert all(not verdict.stderr for verdict in verdicts), [verdict.stderr for verdict in verdicts]


def test_a_missing_job_is_not_found_in_the_usual_words(team: Workspace) -> None:
    answer = team.alice.kubectl("get", "tjp", "nobody", "-n", team.name)
    assert answer.returncode == 1
    assert answer.stderr == f'Error from server (NotFound): trainjobs.{GROUP} "nobody" not found\n'


def test_a_viewer_of_one_namespace_may_not_list_them_all(team: Workspace) -> None:
    answer = team.alice.kubectl("get", "tjp", "-A")
    assert answer.returncode == 1
    assert answer.stderr == (
        f'Error from server (Forbidden): trainjobs.{GROUP} is forbidden: User "alice" cannot list '
        f'resource "trainjobs" in API group "{GROUP}" at the cluster scope\n'
    )


@pytest.mark.parametrize(
    ("path", "subject", "action"),
    [
        (f"/{_JOB}/progress", f'trainjobs.{GROUP} "{_JOB}"', 'get resource "trainjobs/progress"'),
        (f"/{_JOB}", f'trainjobs.{GROUP} "{_JOB}"', 'get resource "trainjobs"'),
        ("", f"trainjobs.{GROUP}", 'list resource "trainjobs"'),
        ("?watch=true", f"trainjobs.{GROUP}", 'watch resource "trainjobs"'),
    ],
)
def test_a_user_without_rights_is_refused_in_the_api_servers_own_words(
    team: Workspace, server: VisibilityServer, path: str, subject: str, action: str
) -> None:
    url = team.collection + path
    through = team.bob.api.raw("GET", url)
    directly = server.get(url, cert=(team.bob.pair.cert, team.bob.pair.key))
    assert (through.status_code, directly.status_code) == (403, 403)
    assert through.json()["message"] == (
        f'{subject} is forbidden: User "bob" cannot {action} in API group "{GROUP}" '
        f'in the namespace "{team.name}"'
    )
    assert directly.json() == through.json()


def test_the_server_asks_about_rights_again_itself(team: Workspace, server: VisibilityServer) -> None:
    # Z1: whoever reaches the pod past the API server gets just what RBAC gives.
    alice = (team.alice.pair.cert, team.alice.pair.key)
    assert server.get(f"{team.collection}/{_JOB}/progress", cert=alice).status_code == 200
    assert server.get(f"{PREFIX}/trainjobs", cert=alice).status_code == 403
